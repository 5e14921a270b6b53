-- Takes the most urgent requests of a queue for this process. Returns the next head of the queue, 0 if it has no other
-- ready request, or 1 if other requests wait for a pause or a limit. Then returns the requests that were taken.
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
-- The taken requests are listed without tables of their own, because Redis spends time on each table.
local taken, started, PARTS = {}, 0, 5
max = math.min(max, room_of_queue(queue))

local function start(job, body)
  not_ready(job)
  local fence = begin(job)
  job.not_before, job.sent = '', ''
  local state = put(job)
  local at = PARTS * started
  taken[at + 1], taken[at + 2], taken[at + 3], taken[at + 4], taken[at + 5] = job.id, job.facts, state, fence, body
  started = started + 1
end

while started < max do
  local job, key, is_alone = head(queue, held, weights, true)
  if not job then
    break
  end
  charge_tenant(job, tenant_weights)
  -- Requests behind this one in the stream are taken together with it, if no other request can go between them.
  local wanted = is_alone and max - started or 1
  local entries = call('XREADGROUP', 'GROUP', GROUP, ME, 'COUNT', wanted, 'STREAMS', key, '>')[1][2]
  call('HSET', P .. 'heads', key, entries[#entries][1])
  for i, entry in ipairs(entries) do
    local body
    if i == 1 then
      body = call('HGET', job.key, 'b')
    else
      job, body = read(entry[2][2], true)
    end
    if may_start(job, key, entry[1], held) then
      start(job, body)
    end
  end
end
if room_of_queue(queue) == 0 then
  return {1, taken}
end
local next_job = head(queue, held, weights, false)
return {next_job and head_of(next_job) or 0, taken}
