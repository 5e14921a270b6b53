-- The choice of the next request, and the pauses and limits that hold requests back.

-- Moves requests into their queues once their delay is over.
local function move_due()
  local due = call('ZRANGEBYSCORE', P .. 'delayed', '-inf', now, 'LIMIT', 0, 100)
  for _, id in ipairs(due) do
    call('ZREM', P .. 'delayed', id)
    local job = read(id)
    if job and job.status == 'queued' and job.place == 'd' then
      count('d', job, -1)
      if job.attempts > 0 then
        requeue(job)
      else
        arrive(job)
      end
    end
  end
  return #due
end

-- Returns the pauses in force by scope (`a`, `q<queue>`, `t<tenant>`), or nil. Ends the pauses that have reached their
-- end.
local function pauses()
  local key = P .. 'pauses'
  if call('EXISTS', key) == 0 then
    return nil
  end
  local all = call('HGETALL', key)
  local held = {}
  for i = 1, #all, 2 do
    local until_ms = tonumber(string.match(all[i + 1], '^(%d+) '))
    if until_ms and until_ms <= now then
      call('HDEL', key, all[i])
      notify('')
    else
      held[all[i]] = until_ms or 0
    end
  end
  return held
end

-- Puts back requests that are parked behind ended pauses, and as many requests behind a limit as it allows. Returns
-- true if further parked requests may be ready.
local function unpark_all()
  local more = false
  local parks = call('SMEMBERS', P .. 'parks')
  if #parks > 0 then
    local held = pauses() or {}
    for _, name in ipairs(parks) do
      local tenant = tenant_of_park(name)
      if not held['t' .. tenant] then
        more = unpark(name, math.min(room_of_tenant(tenant), 1000)) or more
      end
    end
  end
  return more
end

-- Prepares a script that looks for work. With a limit for tenants, requests are put back only when others end, because
-- doing it at each look would put back all of them.
local function bring_up_to_date()
  move_due()
  if MAX_OF_TENANT == 0 then
    unpark_all()
  end
end

-- Returns true if the request at this message of a stream may start. Otherwise removes the message.
local function may_start(job, key, message, held)
  if job and job.status == 'queued' and job.message == message then
    if job.deadline ~= '' and tonumber(job.deadline) <= now then
      expire(job)
    elseif held and held['t' .. job.tenant] or room_of_tenant(job.tenant) == 0 then
      local name = park(job.tenant, job.queue)
      unqueue(job)
      call('ZADD', P .. 'parked:' .. name, job.rank, job.id)
      call('SADD', P .. 'parks', name)
      job.place = 'p'
      put(job)
      count('k', job, 1)
    else
      return true
    end
  end
  -- The message may still be unread, or it may already be pending, so both are cleaned up.
  call('XDEL', key, message)
  call('XACK', key, GROUP, message)
  return false
end

-- Returns the most urgent request of a level that may start, its stream, and true if the stream has all requests of the
-- level. Returns nil if the level is empty. Removes the requests in front that may not start.
local function head_of_level(queue, level, held)
  local streams = {P .. 's:' .. level .. ':n:' .. queue, P .. 's:' .. level .. ':r:' .. queue}
  local had, counts = share_keys(level, queue)
  while number('n', 'q:' .. level .. ':' .. queue) > 0 do
    local keys = streams
    local tenant = call('ZRANGE', had, 0, 0)[1]
    if tenant then
      keys = {tenant_stream('t', level, queue, tenant), tenant_stream('u', level, queue, tenant)}
      -- These streams have requests from a time before the queue had fair shares.
      if number('n', 'q:' .. level .. ':' .. queue) ~= tonumber(call('HGET', counts, 's')) then
        keys[3], keys[4] = streams[1], streams[2]
      end
    end
    local taken = call('HMGET', P .. 'heads', unpack(keys))
    local best, best_rank, best_key
    local found = 0
    for i, key in ipairs(keys) do
      local first = call('XRANGE', key, taken[i] and '(' .. taken[i] or '-', '+', 'COUNT', 1)[1]
      if first then
        found = found + 1
        local rank = tonumber(first[2][4])
        if not best or rank < best_rank then
          best, best_rank, best_key = first, rank, key
        end
      end
    end
    if best then
      local job = read(best[2][2])
      if may_start(job, best_key, best[1], held) then
        return job, best_key, found == 1 and not tenant
      end
    elseif tenant then
      call('ZREM', had, tenant)
      call('HDEL', counts, 'n' .. tenant)
    else
      -- The count was wrong, because no stream has a ready request.
      set_number('n', 'q:' .. level .. ':' .. queue, 0)
    end
  end
  no_level(queue, level)
  return nil
end

-- Charges a tenant for a request that was taken. `weights` maps tenants to weights; the default is 1.
local function charge_tenant(job, weights)
  if is_of_tenant(job.place) then
    local had, counts = share_keys(job.level, job.queue)
    call('HSET', counts, 'v', call('ZSCORE', had, job.tenant))
    call('ZINCRBY', had, tostring(job.cost / (weights[job.tenant] or 1)), job.tenant)
  end
end

-- Returns the next request of a queue, its stream, and true if the requests behind it in the stream are next, too.
-- Returns nil if the queue is empty. `weights` are the weights of the levels from level 0 on; if it is empty, the most
-- urgent level goes first. With `take`, the level is charged for the request.
local function head(queue, held, weights, take)
  while true do
    local levels = call('ZRANGE', P .. 'l:' .. queue, 0, -1)
    local level = levels[1]
    if not level then
      return nil
    end
    for _, other in ipairs(levels) do
      if rank_of(other) < rank_of(level) then
        level = other
      end
    end
    local start
    if #weights > 0 then
      -- The next level is the one that has had the least service for its weight. A level that was empty starts with the
      -- share of the level that went last.
      local shares = P .. 'shares:' .. queue
      local floor = tonumber(call('HGET', shares, 'v') or 0)
      for _, other in ipairs(levels) do
        local had = math.max(tonumber(call('HGET', shares, other) or 0), floor)
        if not start or had < start then
          start, level = had, other
        end
      end
    end
    local job, key, is_alone = head_of_level(queue, level, held)
    if job then
      if take and start then
        local weight = tonumber(weights[rank_of(level) + 1] or 1)
        call('HSET', P .. 'shares:' .. queue, 'v', tostring(start), level, tostring(start + 1 / weight))
      end
      return job, key, is_alone and not start
    end
  end
end

-- Returns a head as the client reads it: its id, facts and state, and the number of ready requests of its queue.
local function head_of(job)
  local ready = 0
  for _, level in ipairs(call('ZRANGE', P .. 'l:' .. job.queue, 0, -1)) do
    ready = ready + number('n', 'q:' .. level .. ':' .. job.queue)
  end
  return {job.id, job.facts, pack(job), ready}
end

local function split(text)
  local parts = {}
  for part in string.gmatch(text, '[^,]+') do
    parts[#parts + 1] = part
  end
  return parts
end

