-- Registers this process for the ends of requests. ARGV from 3 are their ids. Returns 1 for each request that has ended
-- or is unknown, and 0 for the others.
local ended = {}
for i = 3, #ARGV do
  local job = read(ARGV[i])
  if job and not has_ended(job) then
    watch(job, 'e')
    ended[i - 2] = 0
  else
    ended[i - 2] = 1
  end
end
return ended
