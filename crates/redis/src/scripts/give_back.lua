-- Puts requests that this process has taken but not started back into their queues. ARGV from 3 are the id and fence of
-- each request, separated by a space.
for i = 3, #ARGV do
  local job = read(string.sub(ARGV[i], 1, 32))
  if job and job.status == 'starting' and job.fence == string.sub(ARGV[i], 34) then
    release(job)
    job.attempts = job.attempts - 1
    requeue(job)
  else
    call('SREM', P .. 'own:' .. ME, ARGV[i])
  end
end
return 1
