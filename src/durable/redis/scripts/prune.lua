-- Forgets what has ended before the retention. Returns 1 if there is more to do.
local key = P .. 'ended'
local old = call('ZRANGEBYSCORE', key, '-inf', now - RETENTION, 'LIMIT', 0, 50)
for _, member in ipairs(old) do
  local id, tenant = string.sub(member, 1, 32), string.sub(member, 33)
  if call('EXISTS', job_key(id)) == 1 then
    -- Its webhook is not settled yet.
    call('ZADD', key, now - RETENTION + 60000, member)
  else
    call('ZREM', key, member)
    call('ZREM', P .. 'list', id)
    call('ZREM', P .. 'list:' .. tenant, id)
  end
end
return #old == 50 and 1 or 0
