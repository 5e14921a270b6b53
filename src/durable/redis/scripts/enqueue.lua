-- Stores requests, except those that are known or that exceed a limit. ARGV[3] is the limit of live requests, and
-- ARGV[4] the limit for one tenant, or 0. ARGV[5] is 1 if the caller waits for replicas. ARGV from 6 are the fields of
-- each request, in the order of the parameters of `enqueue`. Returns for each request `new` and the time, `known` and
-- the stored request, or the reason why it was not stored.
local max_size, max_size_per_tenant, touches = tonumber(ARGV[3]), tonumber(ARGV[4]), ARGV[5] == '1'

local function known(id)
  -- The write makes the caller's WAIT cover this request, because WAIT counts only the writes of its own connection.
  if touches then
    call('HINCRBY', P .. 'meta', 'touched', 1)
  end
  return {'known', info(id)}
end

local function enqueue(id, queue, level, tenant, cost, cancel_after, delay_ms, idempotency, fingerprint, webhook, listed, awaited, body)
  local key = job_key(id)
  if call('EXISTS', key) == 1 then
    return known(id)
  end
  local idempotency_key = P .. 'i:' .. idempotency
  if idempotency ~= '' then
    local other = call('GET', idempotency_key)
    if other and call('EXISTS', job_key(string.sub(other, 1, 32))) == 1 then
      if string.sub(other, 33) ~= fingerprint then
        return {'reused'}
      end
      return known(string.sub(other, 1, 32))
    end
  end
  if number('meta', 'live') >= max_size then
    return {'full'}
  end
  if max_size_per_tenant > 0 and number('tenants', tenant) >= max_size_per_tenant then
    return {'tenant_full'}
  end

  local rank = string.format('%.0f', next_rank())
  local job = {id = id, queue = queue, level = level, tenant = tenant, rank = rank, attempts = 0, cost = cost, listed = listed}
  local fields = {
    'q', queue, 'l', level, 't', tenant, 'co', cost, 'b', body, 'li', listed, 'st', 'queued', 'at', 0, 'c', NOW, 'n', rank,
  }
  local function set(name, value)
    fields[#fields + 1] = name
    fields[#fields + 1] = value
  end
  delay_ms = tonumber(delay_ms)
  if delay_ms and delay_ms > 0 then
    delay(job, now + delay_ms)
  else
    job.place = IS_FAIR and 't' or 'n'
    append(job)
    set('pl', job.place)
    set('m', job.message)
    set('ln', job.arrival)
  end
  cancel_after = tonumber(cancel_after)
  if cancel_after then
    job.deadline = string.format('%.0f', now + cancel_after)
    set('d', job.deadline)
    call('ZADD', P .. 'deadlines', job.deadline, id)
  end
  if webhook ~= '' then
    set('wh', webhook)
  end
  if idempotency ~= '' then
    set('ik', idempotency_key)
    call('SET', idempotency_key, id .. fingerprint)
  end
  if awaited == '1' then
    set('w', 'a' .. ME)
  end
  if listed == '1' then
    at_end('ZADD', P .. 'list', rank, id)
    at_end('ZADD', P .. 'list:' .. tenant, rank, id)
  end
  call('HSET', key, unpack(fields))
  add('meta', 'live', 1)
  add('tenants', tenant, 1)
  return {'new', NOW}
end

local results = {}
for i = 6, #ARGV, 13 do
  results[#results + 1] = enqueue(unpack(ARGV, i, i + 12))
end
return results
