-- Stores a value under a key.
call('HSET', P .. 'values', ARGV[3], ARGV[4])
call('ZADD', P .. 'value_keys', 0, ARGV[3])
return 1
