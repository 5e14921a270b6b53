-- Writes something that nobody reads, to find out whether the store takes writes.
call('SET', P .. 'probe', ME, 'PX', 60000)
