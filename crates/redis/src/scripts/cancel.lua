-- Cancels a request that has not ended. Returns the request, or nil if it is unknown.
local job = read(ARGV[3])
if not job then
  return false
end
if not has_ended(job) then
  conclude(job, 'canceled', 'request_canceled')
end
return info(ARGV[3])
