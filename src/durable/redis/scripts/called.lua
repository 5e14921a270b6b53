-- Records that the inner service was called. ARGV from 3 are the id and fence of each request.
local done = {}
for i = 3, #ARGV, 2 do
  local key = job_key(ARGV[i])
  local fields = call('HMGET', key, 'st', 'f')
  if fields[1] == 'starting' and fields[2] == ARGV[i + 1] then
    call('HSET', key, 'st', 'processing')
  end
  done[#done + 1] = 1
end
return done
