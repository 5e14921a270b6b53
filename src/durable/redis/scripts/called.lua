-- Notes that the inner service was called.
local job = read(ARGV[3])
if job and job.status == 'starting' and job.fence == ARGV[4] then
  call('HSET', job_key(job.id), 'st', 'processing')
end
return 1
