-- Waiting requests: the streams of the levels, and their counts.

-- Returns the number of a level, as the caller has it. A level that the caller doesn't have is the lowest one.
local ranks
local function rank_of(level)
  if not ranks then
    ranks = {count = 0}
    for name in string.gmatch(LEVELS, '[^,]+') do
      ranks[name] = ranks.count
      ranks.count = ranks.count + 1
    end
  end
  return math.min(tonumber(level) or ranks[level] or ranks.count, ranks.count - 1)
end

local function is_of_tenant(place)
  return place == 't' or place == 'u'
end

local function tenant_stream(place, level, queue, tenant)
  return P .. 's:' .. level .. ':' .. place .. #tenant .. '.' .. tenant .. ':' .. queue
end

local function stream_key(job)
  if is_of_tenant(job.place) then
    return tenant_stream(job.place, job.level, job.queue, job.tenant)
  end
  return P .. 's:' .. job.level .. ':' .. job.place .. ':' .. job.queue
end

-- Returns the name of the requests of one tenant and queue that are parked behind a pause or a limit of the tenant.
local function park(tenant, queue)
  return #tenant .. '.' .. tenant .. ':' .. queue
end

local function tenant_of_park(name)
  local length, rest = string.match(name, '^(%d+)%.(.*)$')
  return string.sub(rest, 1, tonumber(length))
end

-- Returns the two keys of a level's fair shares. The first maps each tenant with ready requests to the service that it
-- has had. The second counts the ready requests (`n` of a tenant, `s` of all). It also has the service of tenants that
-- are away (`h`), and the service that the tenant which went last had before (`v`).
local function share_keys(level, queue)
  local name = level .. ':' .. queue
  return P .. 'f:' .. name, P .. 'fn:' .. name
end

-- Counts requests by level and queue: q ready, d delayed, k parked, r running, a arrivals.
local function count(kind, job, by)
  return add('n', kind .. ':' .. job.level .. ':' .. job.queue, by)
end

-- Returns the number of requests that may still start. `hash` and `field` are the number that counts the running ones.
local function room(hash, field, limit)
  return limit > 0 and math.max(limit - number(hash, field), 0) or math.huge
end

local function room_of_queue(queue)
  return math.min(room('n', 'busy', MAX_RUNNING), room('n', 'b:' .. queue, MAX_OF_QUEUE))
end

local function room_of_tenant(tenant)
  return room('tenants', 'b' .. tenant, MAX_OF_TENANT)
end

local function runs(job, by)
  local of_level, of_queue = 'r:' .. job.level .. ':' .. job.queue, 'b:' .. job.queue
  if not numbers.n[of_level] then
    read_numbers(of_level, of_queue, 'busy', 'live')
  end
  add('n', of_level, by)
  add('n', of_queue, by)
  add('n', 'busy', by)
  add('tenants', 'b' .. job.tenant, by)
end

-- Lets a request run in this process. Its message is known and about to be read. The caller stores its state. Returns
-- the fence of the lease.
local function begin(job)
  runs(job, 1)
  job.status, job.attempts, job.started, job.owner = 'starting', job.attempts + 1, NOW, ME
  local fence = job.message .. '/' .. job.attempts .. '/' .. ME
  at_end('SADD', P .. 'own:' .. ME, job.id .. ' ' .. fence)
  return fence
end

-- Tells workers that the most urgent request of a queue may have changed.
local function notify(queue)
  news[queue] = false
end

-- Tells workers of a request that was just stored in an empty queue.
local function notify_first(job)
  news[job.queue] = news[job.queue] == nil and job.is_new and job or false
end

-- Adds a request to the stream of its place, and sets its message. Returns the stream.
local function send(job)
  local key = stream_key(job)
  local message = call('XADD', key, 'NOMKSTREAM', '*', 'i', job.id, 'n', job.rank)
  if not message then
    call('XGROUP', 'CREATE', key, GROUP, '0', 'MKSTREAM')
    call('SADD', P .. 'streams', key)
    message = call('XADD', key, '*', 'i', job.id, 'n', job.rank)
  end
  job.message = message
  return key
end

-- Adds a request to the stream of its place, and to the ready requests. Sets the message and arrival of the job.
-- Workers are told only if the next request may change, because a worker that knows of a backlog looks again after it
-- has taken from it.
local function append(job)
  send(job)
  if job.arrival == '' then
    job.arrival = count('a', job, 1)
  end
  local is_news = job.place == 'r' or job.place == 'u'
  local is_first = false
  if count('q', job, 1) == 1 then
    is_news = true
    call('ZADD', P .. 'l:' .. job.queue, rank_of(job.level), job.level)
    is_first = call('SADD', P .. 'ready', job.queue) == 1
  end
  if is_of_tenant(job.place) then
    local had, counts = share_keys(job.level, job.queue)
    call('HINCRBY', counts, 's', 1)
    if call('HINCRBY', counts, 'n' .. job.tenant, 1) == 1 then
      is_news = true
      -- A tenant that was away starts with the service of the tenant that went last, or with its own if that is more.
      local floor = tonumber(call('HGET', counts, 'v') or 0)
      local before = tonumber(call('HGET', counts, 'h' .. job.tenant) or 0)
      call('HDEL', counts, 'h' .. job.tenant)
      call('ZADD', had, tostring(math.max(floor, before)), job.tenant)
    end
  end
  if is_first then
    notify_first(job)
  elseif is_news then
    notify(job.queue)
  end
end

-- Returns the next rank as text.
local function next_rank()
  return string.format('%.0f', add('n', 'rank', 1))
end

-- Puts a taken or parked request back, before the requests that came later.
local function requeue(job)
  job.place = IS_FAIR and 'u' or 'r'
  append(job)
  job.status = 'queued'
  put(job)
end

-- Puts a request before its first attempt into its queue, behind the requests that came earlier.
local function arrive(job)
  job.arrival, job.rank = '', next_rank()
  job.place = IS_FAIR and 't' or 'n'
  append(job)
  job.status = 'queued'
  put(job)
end

local function no_level(queue, level)
  local key = P .. 'l:' .. queue
  call('ZREM', key, level)
  set_number('n', 'a:' .. level .. ':' .. queue, 0)
  local had, counts = share_keys(level, queue)
  if call('EXISTS', key) == 0 then
    call('SREM', P .. 'ready', queue)
    call('DEL', had, counts, P .. 'shares:' .. queue)
  else
    call('DEL', had, counts)
  end
end

local function not_ready(job)
  if is_of_tenant(job.place) then
    local had, counts = share_keys(job.level, job.queue)
    call('HINCRBY', counts, 's', -1)
    if call('HINCRBY', counts, 'n' .. job.tenant, -1) <= 0 then
      call('HSET', counts, 'h' .. job.tenant, call('ZSCORE', had, job.tenant) or 0)
      call('HDEL', counts, 'n' .. job.tenant)
      call('ZREM', had, job.tenant)
    end
  end
  if count('q', job, -1) <= 0 then
    no_level(job.queue, job.level)
  end
end

-- Takes a queued request from the place where it waits.
local function unqueue(job)
  if job.place == 'd' then
    call('ZREM', P .. 'delayed', job.id)
    count('d', job, -1)
  elseif job.place == 'p' then
    call('ZREM', P .. 'parked:' .. park(job.tenant, job.queue), job.id)
    count('k', job, -1)
  else
    call('XDEL', stream_key(job), job.message)
    not_ready(job)
  end
end

-- Lets a request wait until a time. The caller stores its state.
local function delay(job, until_ms)
  job.status, job.place, job.not_before = 'queued', 'd', string.format('%.0f', until_ms)
  call('ZADD', P .. 'delayed', job.not_before, job.id)
  count('d', job, 1)
  notify(job.queue)
end


-- Returns the level, the queue, and the tenant or nil, of the requests that wait in a stream.
local function parts_of_stream(key)
  local level, place, rest = string.match(string.sub(key, #P + 1), '^s:([^:]+):(%a)(.*)$')
  if not is_of_tenant(place) then
    return level, string.sub(rest, 2)
  end
  local length, name = string.match(rest, '^(%d+)%.(.*)$')
  length = tonumber(length)
  return level, string.sub(name, length + 2), string.sub(name, 1, length)
end

-- Finds the requests that wait in a stream again, if one of the keys is gone through which workers find them.
local function find_again(key)
  local ready = call('XLEN', key) - call('XPENDING', key, GROUP)[1]
  if ready <= 0 then
    return
  end
  local level, queue, tenant = parts_of_stream(key)
  local of_level = 'q:' .. level .. ':' .. queue
  local is_lost = call('ZADD', P .. 'l:' .. queue, rank_of(level), level) == 1
  is_lost = call('SADD', P .. 'ready', queue) == 1 or is_lost
  if number('n', of_level) <= 0 then
    set_number('n', of_level, ready)
    is_lost = true
  end
  if tenant then
    local had, counts = share_keys(level, queue)
    if not call('ZSCORE', had, tenant) then
      call('ZADD', had, call('HGET', counts, 'v') or 0, tenant)
      call('HINCRBY', counts, 's', ready)
      call('HINCRBY', counts, 'n' .. tenant, ready)
      is_lost = true
    end
  end
  if is_lost then
    notify(queue)
  end
end
