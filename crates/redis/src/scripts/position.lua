-- Returns the position of a waiting request, counted from 1. Within its level, the position is estimated from the
-- numbers of arrivals and departures.
local job = read(ARGV[3])
if not job or job.status ~= 'queued' then
  return false
end
local function ready(level)
  return number('n', 'q:' .. level .. ':' .. job.queue)
end
local before, in_level = 0, ready(job.level)
for _, level in ipairs(call('ZRANGE', P .. 'l:' .. job.queue, 0, -1)) do
  if rank_of(level) < rank_of(job.level) then
    before = before + ready(level)
  end
end
if job.place == 'd' or job.place == 'p' then
  return before + in_level + 1
end
local departed = number('n', 'a:' .. job.level .. ':' .. job.queue) - in_level
return before + math.max(1, math.min(tonumber(job.arrival) - departed, in_level))
