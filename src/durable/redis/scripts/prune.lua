-- Removes ended requests from the lists once their retention is over. Returns 1 if work is left.
local key = P .. 'ended'
local old = call('ZRANGEBYSCORE', key, '-inf', now - RETENTION, 'LIMIT', 0, 50)
for _, member in ipairs(old) do
  local id, tenant = string.sub(member, 1, 32), string.sub(member, 33)
  if call('EXISTS', job_key(id)) == 1 then
    -- The webhook of this request is not settled yet, so it is checked again a minute later.
    call('ZADD', key, now - RETENTION + 60000, member)
  else
    call('ZREM', key, member)
    call('ZREM', P .. 'list', id)
    call('ZREM', P .. 'list:' .. tenant, id)
  end
end
return #old == 50 and 1 or 0
