-- Keeps requests from being taken. ARGV[3]: the scope. ARGV[4]: until when in ms, or empty. ARGV[5]: the reason.
call('HSET', P .. 'pauses', ARGV[3], ARGV[4] .. ' ' .. ARGV[5])
notify('')
return 1
