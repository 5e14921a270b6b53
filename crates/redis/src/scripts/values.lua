-- Returns the values of a range of keys. ARGV[3] and ARGV[4] are the ends of the range, and ARGV[5] is the maximum
-- number. Returns no more values after some bytes.
local BYTES_AT_ONCE = 65536
local found, bytes = {}, 0
for i, key in ipairs(call('ZRANGEBYLEX', P .. 'value_keys', ARGV[3], ARGV[4], 'LIMIT', 0, tonumber(ARGV[5]))) do
  if bytes >= BYTES_AT_ONCE then
    break
  end
  local value = call('HGET', P .. 'values', key)
  bytes = bytes + #(value or '')
  found[i] = {key, value}
end
return found
