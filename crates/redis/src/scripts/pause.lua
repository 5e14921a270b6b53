-- Starts a pause. ARGV[3] is the scope, ARGV[4] the end in ms or empty, and ARGV[5] the reason.
call('HSET', P .. 'pauses', ARGV[3], ARGV[4] .. ' ' .. ARGV[5])
notify('')
return 1
