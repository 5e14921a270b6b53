-- Stores requests, except those that are known or that exceed a limit. ARGV[3] is the limit of live requests, and
-- ARGV[4] the limit for one tenant, or 0. ARGV[5] is 1 if the caller waits for replicas. ARGV from 6 are the fields of
-- each request, in the order of the parameters of `enqueue`. Returns for each request the time, the known request, or
-- the reason why it was not stored.
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
for i = 6, #ARGV, 7 do
  keys[#keys + 1] = job_key(ARGV[i])
end
local may_be_known = call('EXISTS', unpack(keys)) > 0
local stored = {}

local function enqueue(id, facts, cancel_after, delay_ms, fingerprint, is_awaited, body)
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
  delay_ms = tonumber(delay_ms)
  if delay_ms and delay_ms > 0 then
    delay(job, now + delay_ms)
  else
    job.place = IS_FAIR and 't' or 'n'
    append(job)
  end
  call('HSET', job.key, 'i', facts, 's', pack(job), 'b', body)
  if job.idempotency ~= '' then
    call('SET', P .. 'i:' .. job.idempotency, id .. fingerprint)
  end
  if job.listed == '1' then
    at_end('ZADD', P .. 'list', job.rank, id)
    at_end('ZADD', P .. 'list:' .. job.tenant, job.rank, id)
  end
  add('n', 'live', 1)
  add('tenants', 'l' .. job.tenant, 1)
  stored[id] = true
  return NOW
end

local results = {}
for i = 6, #ARGV, 7 do
  results[#results + 1] = enqueue(unpack(ARGV, i, i + 6))
end
return results
