-- Ends a request that has not ended. Returns it, or nil if it is not known.
local job = read(ARGV[3])
if not job then
  return false
end
if not job.ended then
  conclude(job, 'canceled', 'request_canceled')
end
return info(ARGV[3])
