-- Asks to be told of the end of requests. ARGV from 3: their ids. Returns those that have ended or are not known.
local ended = {}
for i = 3, #ARGV do
  local status = call('HGET', job_key(ARGV[i]), 'st')
  if status == 'queued' or status == 'starting' or status == 'processing' then
    call('SADD', P .. 'w:' .. ARGV[i], 'e' .. ME)
  else
    ended[#ended + 1] = ARGV[i]
  end
end
return ended
