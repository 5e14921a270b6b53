-- Returns the values of a range of keys. ARGV[3]: the range's begin. ARGV[4]: its end. ARGV[5]: the most.
local found = {}
for i, key in ipairs(call('ZRANGEBYLEX', P .. 'value_keys', ARGV[3], ARGV[4], 'LIMIT', 0, tonumber(ARGV[5]))) do
  found[i] = {key, call('HGET', P .. 'values', key)}
end
return found
