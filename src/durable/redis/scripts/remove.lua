-- Forgets a value. Returns 1 if it was there.
call('ZREM', P .. 'value_keys', ARGV[3])
return call('HDEL', P .. 'values', ARGV[3])
