-- Asks to be told of the end of requests. ARGV from 3: their ids. Returns for each 1 if it has ended or is not known.
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
