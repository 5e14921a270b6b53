-- Returns for each level of each queue its name, its counts by kind, and the time since which its next request waits.
local counts = call('HGETALL', P .. 'n')
local by_name, names = {}, {}
for i = 1, #counts, 2 do
  local kind, name = string.match(counts[i], '^([qdkr]):(.*)$')
  if kind then
    if not by_name[name] then
      by_name[name] = {q = 0, d = 0, k = 0, r = 0}
      names[#names + 1] = name
    end
    by_name[name][kind] = tonumber(counts[i + 1])
  end
end
local depths = {}
for _, name in ipairs(names) do
  local counted = by_name[name]
  local level, queue = string.match(name, '^([^:]+):(.*)$')
  local oldest
  if counted.q > 0 then
    local job = head_of_level(queue, level, nil)
    if job then
      oldest = job.created
      if job.attempts == 0 and job.not_before ~= '' and tonumber(job.not_before) > tonumber(oldest) then
        oldest = job.not_before
      end
    end
  end
  depths[#depths + 1] = {queue, string.format('%d', rank_of(level)), counted.q + counted.d + counted.k, counted.r, oldest or false}
end
return {NOW, depths}
