-- Registers this process for the ends of requests. ARGV from 3 are their ids. Returns 1 for each request that has ended
-- or is unknown, and 0 for the others.
local ended = {}
for i = 3, #ARGV do
  local fields = call('HMGET', job_key(ARGV[i]), 'st', 'w')
  local status = fields[1]
  if status == 'queued' or status == 'starting' or status == 'processing' then
    watch(ARGV[i], fields[2], 'e')
    ended[i - 2] = 0
  else
    ended[i - 2] = 1
  end
end
return ended
