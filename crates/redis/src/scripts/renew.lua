-- Renews leases of this process. ARGV from 3 are the id and fence of each lease. Returns the ids of lost leases, each
-- followed by `c` if the request was canceled, `l` if the lease was taken away, and `d` if this process has finished
-- it.
local gone = {}
for i = 3, #ARGV, 2 do
  local job = read(ARGV[i])
  if job and job.running and job.fence == ARGV[i + 1] then
    call('XCLAIM', stream_key(job), GROUP, ME, 0, job.message, 'JUSTID')
  else
    gone[#gone + 1] = ARGV[i]
    if job and job.finished == ARGV[i + 1] then
      gone[#gone + 1] = 'd'
    else
      gone[#gone + 1] = job and job.status == 'canceled' and 'c' or 'l'
    end
  end
end
return gone
