-- Returns the request with an id or an idempotency key, `reused` if the key belongs to a different request, or nil.
local id, idempotency, fingerprint = ARGV[3], ARGV[4], ARGV[5]
if call('EXISTS', job_key(id)) == 1 then
  return info(id)
end
local other = idempotency ~= '' and call('GET', P .. 'i:' .. idempotency)
if not other or call('EXISTS', job_key(string.sub(other, 1, 32))) == 0 then
  return nil
end
if string.sub(other, 33) ~= fingerprint then
  return 'reused'
end
return info(string.sub(other, 1, 32))
