-- Returns the pauses in force.
pauses()
return call('HGETALL', P .. 'pauses')
