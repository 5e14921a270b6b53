-- Returns the pauses that hold.
pauses()
return call('HGETALL', P .. 'pauses')
