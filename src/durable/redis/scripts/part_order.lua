-- Which request goes next, and what keeps it from that.

-- Moves requests whose time to begin has come into their queues.
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

-- Returns the pauses that hold by their scopes (`a`, `q<queue>`, `t<tenant>`), or nil. Ends those whose time is over.
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

-- Puts back what is parked behind pauses that have ended, and as many behind a limit as there is room for. Returns true if
-- others are left that may begin.
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

-- What a script does first that looks for work. Behind a limit, requests are put back when others end: to do it at each look
-- would put back all.
local function bring_up_to_date()
  move_due()
  if MAX_OF_TENANT == 0 then
    unpark_all()
  end
end

-- Returns true if a request may begin that is at this message of a stream. Otherwise it is removed from there.
local function may_start(job, key, message, held)
  if job and job.status == 'queued' and job.message == message then
    if job.deadline and tonumber(job.deadline) <= now then
      expire(job)
    elseif held and held['t' .. job.tenant] or room_of_tenant(job.tenant) == 0 then
      local name = park(job.tenant, job.queue)
      unqueue(job)
      call('ZADD', P .. 'parked:' .. name, job.rank, job.id)
      call('SADD', P .. 'parks', name)
      call('HSET', job_key(job.id), 'pl', 'p')
      count('k', job, 1)
    else
      return true
    end
  end
  -- It may be there still, and it may have been taken.
  call('XDEL', key, message)
  call('XACK', key, GROUP, message)
  return false
end

-- Returns the most urgent request of a level that may begin, its stream, and true if all of the level is there; or nil.
-- Removes those that may not.
local function head_of_level(queue, level, held)
  local streams = {P .. 's:' .. level .. ':n:' .. queue, P .. 's:' .. level .. ':r:' .. queue}
  local had, counts = share_keys(level, queue)
  while number('n', 'q:' .. level .. ':' .. queue) > 0 do
    local keys = streams
    local tenant = call('ZRANGE', had, 0, 0)[1]
    if tenant then
      keys = {tenant_stream('t', level, queue, tenant), tenant_stream('u', level, queue, tenant)}
      -- Requests from a time without fair shares.
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
      -- The count was wrong: nothing is ready.
      set_number('n', 'q:' .. level .. ':' .. queue, 0)
    end
  end
  no_level(queue, level)
  return nil
end

-- Charges a tenant for a request that was taken. `weights`: by tenant; 1 for all others.
local function charge_tenant(job, weights)
  if is_of_tenant(job.place) then
    local had, counts = share_keys(job.level, job.queue)
    call('HSET', counts, 'v', call('ZSCORE', had, job.tenant))
    local cost = tonumber(call('HGET', job_key(job.id), 'co'))
    call('ZINCRBY', had, tostring(cost / (weights[job.tenant] or 1)), job.tenant)
  end
end

-- Returns the next request of a queue, its stream, and true if those behind it there are next, too; or nil. `weights`: those
-- of the levels from level 0 on, or empty: the most urgent level goes first. With `take`, the level is charged for it.
local function head(queue, held, weights, take)
  while true do
    local levels = call('ZRANGE', P .. 'l:' .. queue, 0, #weights > 0 and -1 or 0)
    local level = levels[1]
    if not level then
      return nil
    end
    local start
    if #weights > 0 then
      -- The level goes next that has had the least for its weight. One that was empty has had as much as the last that went.
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
        local weight = tonumber(weights[tonumber(level) + 1] or 1)
        call('HSET', P .. 'shares:' .. queue, 'v', tostring(start), level, tostring(start + 1 / weight))
      end
      return job, key, is_alone and not start
    end
  end
end

local function split(text)
  local parts = {}
  for part in string.gmatch(text, '[^,]+') do
    parts[#parts + 1] = part
  end
  return parts
end

