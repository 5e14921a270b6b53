-- Removes a value. Returns 1 if it existed.
call('ZREM', P .. 'value_keys', ARGV[3])
return call('HDEL', P .. 'values', ARGV[3])
