-- Records that the inner service was called. ARGV from 3 are the id and fence of each request.
local done = {}
for i = 3, #ARGV, 2 do
  local job = read(ARGV[i])
  if job and job.status == 'starting' and job.fence == ARGV[i + 1] then
    job.status = 'processing'
    put(job)
  end
  done[#done + 1] = 1
end
return done
