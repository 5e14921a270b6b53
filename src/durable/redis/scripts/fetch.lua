-- Takes the most urgent requests of a queue for this process.
local queue, max, weights = ARGV[3], tonumber(ARGV[4]), split(ARGV[5])
-- ARGV from 6: tenants with their weights.
local tenant_weights = {}
for i = 6, #ARGV, 2 do
  tenant_weights[ARGV[i]] = tonumber(ARGV[i + 1])
end
move_due()
unpark_all()
local held = pauses()
local taken = {}
if held and (held['a'] or held['q' .. queue]) then
  return taken
end
while #taken < max do
  local job, key = head(queue, held, weights, true)
  if not job then
    break
  end
  charge_tenant(job, tenant_weights)
  call('XREADGROUP', 'GROUP', GROUP, ME, 'COUNT', 1, 'STREAMS', key, '>')
  call('HSET', P .. 'heads', key, job.message)
  not_ready(job)
  count('r', job, 1)
  local attempt = job.attempts + 1
  local fence = job.message .. '/' .. attempt .. '/' .. ME
  call('HSET', job_key(job.id), 'st', 'starting', 'at', attempt, 's', now, 'ow', ME, 'f', fence)
  call('HDEL', job_key(job.id), 'nb')
  call('SADD', P .. 'own:' .. ME, job.id .. ' ' .. fence)
  taken[#taken + 1] = {info(job.id), fence, call('HGET', job_key(job.id), 'b')}
end
return taken
