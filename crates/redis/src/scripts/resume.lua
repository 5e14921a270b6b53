-- Ends a pause. Returns 1 if the scope was paused, and 1 if requests are still parked.
local there = call('HDEL', P .. 'pauses', ARGV[3])
local more = unpark_all()
notify('')
return {there, more and 1 or 0}
