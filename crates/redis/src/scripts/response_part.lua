-- Returns a part of the response of a request, and the length of the whole response. ARGV[4] is the number of bytes before
-- the part, and ARGV[5] the maximum number of its bytes. Returns nil if the request has no response.
local response = call('HGET', job_key(ARGV[3]), 'rb')
if not response then
  return false
end
local before = tonumber(ARGV[4])
return {string.sub(response, before + 1, before + tonumber(ARGV[5])), #response}
