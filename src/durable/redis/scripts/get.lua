-- Returns a request, or nil if it is not known.
if call('EXISTS', job_key(ARGV[3])) == 0 then
  return false
end
return info(ARGV[3])
