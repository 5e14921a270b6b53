-- Returns the values of a range of keys. ARGV[3] and ARGV[4] are the ends of the range, and ARGV[5] is the maximum
-- number.
local found = {}
for i, key in ipairs(call('ZRANGEBYLEX', P .. 'value_keys', ARGV[3], ARGV[4], 'LIMIT', 0, tonumber(ARGV[5]))) do
  found[i] = {key, call('HGET', P .. 'values', key)}
end
return found
