-- Stores a request, unless it is there, or there is no place for it.
local id, queue, level, tenant, cost = ARGV[3], ARGV[4], ARGV[5], ARGV[6], ARGV[7]
local cancel_after, delay_ms = tonumber(ARGV[8]), tonumber(ARGV[9])
local idempotency, fingerprint, webhook, listed = ARGV[10], ARGV[11], ARGV[12], ARGV[13]
local max_size, max_size_per_tenant = tonumber(ARGV[14]), tonumber(ARGV[15])
local shards, touches, body = {ARGV[16], ARGV[17]}, ARGV[18], ARGV[19]

local key = job_key(id)
local function known(other)
  -- A later WAIT counts the replicas that have a write of this connection.
  if touches == '1' then
    call('HINCRBY', P .. 'meta', 'touched', 1)
  end
  return {'known', info(other)}
end
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
if tonumber(call('HGET', P .. 'meta', 'live') or 0) >= max_size then
  return {'full'}
end
if max_size_per_tenant > 0 and tonumber(call('HGET', P .. 'tenants', tenant) or 0) >= max_size_per_tenant then
  return {'tenant_full'}
end

call('HINCRBY', P .. 'meta', 'live', 1)
call('HINCRBY', P .. 'tenants', tenant, 1)
local rank = next_rank()
local fields = {
  'q', queue, 'l', level, 't', tenant, 'co', cost, 'b', body, 'li', listed, 'st', 'queued', 'at', 0, 'c', now, 'n', rank,
}
local function set(name, value)
  fields[#fields + 1] = name
  fields[#fields + 1] = value
end
if cancel_after then
  set('d', now + cancel_after)
  call('ZADD', P .. 'deadlines', now + cancel_after, id)
end
if webhook ~= '' then
  set('wh', webhook)
end
if idempotency ~= '' then
  set('ik', idempotency_key)
  call('SET', idempotency_key, id .. fingerprint)
end
if listed == '1' then
  call('ZADD', P .. 'list', rank, id)
  call('ZADD', P .. 'list:' .. tenant, rank, id)
end
local job = {id = id, queue = queue, level = level, tenant = tenant, rank = rank, attempts = 0}
if delay_ms and delay_ms > 0 then
  call('HSET', key, unpack(fields))
  delay(job, now + delay_ms)
else
  if IS_FAIR then
    job.place = 't'
  else
    local shortest
    for _, shard in ipairs(shards) do
      local length = call('XLEN', P .. 's:' .. level .. ':' .. shard .. ':' .. queue)
      if not shortest or length < shortest then
        shortest, job.place = length, shard
      end
    end
  end
  append_to_shard(job)
  set('pl', job.place)
  set('m', job.message)
  set('ln', job.arrival)
  call('HSET', key, unpack(fields))
end
return {'new', info(id)}
