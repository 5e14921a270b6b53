-- Takes the most urgent requests of a queue for this process. Returns 0 if the queue has no other ready request, and
-- then the requests that were taken.
local queue, max, weights = ARGV[3], tonumber(ARGV[4]), split(ARGV[5])
-- ARGV from 6 are tenants with their weights.
local tenant_weights = {}
for i = 6, #ARGV, 2 do
  tenant_weights[ARGV[i]] = tonumber(ARGV[i + 1])
end
bring_up_to_date()
local held = pauses()
if held and (held['a'] or held['q' .. queue]) then
  return {1, {}}
end
local taken = {}
max = math.min(max, room_of_queue(queue))

local function start(job)
  not_ready(job)
  runs(job, 1)
  local key, attempt = job_key(job.id), job.attempts + 1
  local fence = job.message .. '/' .. attempt .. '/' .. ME
  call('HSET', key, 'st', 'starting', 'at', attempt, 's', NOW, 'ow', ME, 'f', fence)
  at_end('SADD', P .. 'own:' .. ME, job.id .. ' ' .. fence)
  local rest = call('HMGET', key, 'c', 'li', 'b', 'nb')
  if rest[4] then
    call('HDEL', key, 'nb')
  end
  local started = {
    job.queue, job.level, job.tenant, 'starting', attempt, rest[1], NOW, false, job.deadline, false, false, false, rest[2],
    job.id,
  }
  taken[#taken + 1] = {started, fence, rest[3]}
end

while #taken < max do
  local job, key, is_alone = head(queue, held, weights, true)
  if not job then
    break
  end
  charge_tenant(job, tenant_weights)
  -- Requests behind this one in the stream are taken together with it, if no other request can go between them.
  local wanted = is_alone and max - #taken or 1
  local entries = call('XREADGROUP', 'GROUP', GROUP, ME, 'COUNT', wanted, 'STREAMS', key, '>')[1][2]
  call('HSET', P .. 'heads', key, entries[#entries][1])
  for i, entry in ipairs(entries) do
    job = i == 1 and job or read(entry[2][2])
    if may_start(job, key, entry[1], held) then
      start(job)
    end
  end
end
return {call('EXISTS', P .. 'l:' .. queue), taken}
