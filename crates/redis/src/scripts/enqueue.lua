-- Stores requests, except those that are known or that exceed a limit. ARGV[3] is the limit of live requests, and
-- ARGV[4] the limit for one tenant, or 0. ARGV[5] is 1 if the caller waits for replicas. ARGV from 6 are the fields of
-- each request, in the order of the parameters of `enqueue`. Returns for each request the time, the known request, or
-- the reason why it was not stored. For a request that begins at once, it returns `started`, the time, the state, and
-- the fence of the lease.
local max_size, max_size_per_tenant, touches = tonumber(ARGV[3]), tonumber(ARGV[4]), ARGV[5] == '1'

-- The state of a request that has done nothing yet.
local NEW = 'queued\0000' .. string.rep('\0', 19)

local function known(id)
  -- The write makes the caller's WAIT cover this request, because WAIT counts only the writes of its own connection.
  if touches then
    call('HINCRBY', P .. 'n', 'touched', 1)
  end
  return info(id)
end

local keys = {}
for i = 6, #ARGV, 8 do
  keys[#keys + 1] = job_key(ARGV[i])
end
local may_be_known = call('EXISTS', unpack(keys)) > 0
local stored = {}

-- Returns true if no request waits that might begin instead of a new one of this queue. A limit on the requests of
-- several queues holds back requests of other queues, too.
local function has_no_waiter(queue)
  if call('EXISTS', P .. 'pauses', P .. 'parks') > 0 or call('ZCOUNT', P .. 'delayed', '-inf', now) > 0 then
    return false
  end
  if MAX_RUNNING > 0 or MAX_OF_TENANT > 0 then
    return call('EXISTS', P .. 'ready') == 0
  end
  return call('SISMEMBER', P .. 'ready', queue) == 0
end

-- The queues without waiters, as far as this script has looked.
local is_idle = {}

local function may_begin(job)
  local queue = job.queue
  if is_idle[queue] == nil then
    is_idle[queue] = has_no_waiter(queue)
  end
  local is_in_time = job.deadline == '' or tonumber(job.deadline) > now
  return is_idle[queue] and is_in_time and room_of_queue(queue) > 0 and room_of_tenant(job.tenant) > 0
end

-- The streams with messages of requests that began at once. They are read at the end, so that the requests are pending.
local unread = {}

-- Starts a request, or puts it into its queue. `has_slot` is 1 if this process has a slot for it. Returns the fence of
-- the lease if the request has begun.
local function start_or_queue(job, delay_ms, has_slot)
  delay_ms = tonumber(delay_ms)
  if delay_ms and delay_ms > 0 then
    delay(job, now + delay_ms)
  elseif has_slot == '1' and may_begin(job) then
    -- If it is put back later, it goes first.
    job.place, job.arrival = 's', '0'
    unread[send(job)] = true
    return begin(job)
  else
    job.place = IS_FAIR and 't' or 'n'
    append(job)
    is_idle[job.queue] = false
  end
end

local function enqueue(id, facts, cancel_after, delay_ms, fingerprint, is_awaited, body, has_slot)
  if (may_be_known or stored[id]) and call('EXISTS', job_key(id)) == 1 then
    return known(id)
  end
  local job = job_of(id, facts, NEW)
  if job.idempotency ~= '' then
    local other = call('GET', P .. 'i:' .. job.idempotency)
    if other and call('EXISTS', job_key(string.sub(other, 1, 32))) == 1 then
      if string.sub(other, 33) ~= fingerprint then
        return 'reused'
      end
      return known(string.sub(other, 1, 32))
    end
  end
  if not numbers.n.live then
    local of_level = ':' .. job.level .. ':' .. job.queue
    read_numbers('live', 'rank', 'q' .. of_level, 'a' .. of_level)
  end
  if number('n', 'live') >= max_size then
    return 'full'
  end
  if max_size_per_tenant > 0 and number('tenants', 'l' .. job.tenant) >= max_size_per_tenant then
    return 'tenant_full'
  end

  job.rank, job.created, job.is_new = next_rank(), NOW, true
  if is_awaited == '1' then
    job.watchers = 'a' .. ME
  end
  if cancel_after ~= '' then
    job.deadline = string.format('%.0f', now + cancel_after)
    call('ZADD', P .. 'deadlines', job.deadline, id)
  end
  local fence = start_or_queue(job, delay_ms, has_slot)
  local state = pack(job)
  call('HSET', job.key, 'i', facts, 's', state, 'b', body)
  if job.idempotency ~= '' then
    call('SET', P .. 'i:' .. job.idempotency, id .. fingerprint)
  end
  if job.listed == '1' then
    at_end('ZADD', P .. 'list', job.rank, id)
    at_end('ZADD', P .. 'list:' .. job.tenant, job.rank, id)
  end
  add('n', 'live', 1)
  add('tenants', 'l' .. job.tenant, 1)
  add('tenants', 's' .. job.tenant, #body)
  at_end('HSET', P .. 'sizes', id, #body)
  stored[id] = true
  return fence and {'started', NOW, state, fence} or NOW
end

local results = {}
for i = 6, #ARGV, 8 do
  results[#results + 1] = enqueue(unpack(ARGV, i, i + 7))
end
for key in pairs(unread) do
  call('XREADGROUP', 'GROUP', GROUP, ME, 'STREAMS', key, '>')
end
return results
