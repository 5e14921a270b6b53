-- Removes ended requests from the lists once their retention is over. Returns 1 if work is left.
local key = P .. 'ended'
local old = call('ZRANGEBYSCORE', key, '-inf', now - RETENTION, 'LIMIT', 0, 50)
for _, member in ipairs(old) do
  local id, tenant = string.sub(member, 1, 32), string.sub(member, 33)
  if call('EXISTS', job_key(id)) == 1 then
    -- The webhook of this request is still due or was settled lately, so the request is checked again a minute later.
    call('ZADD', key, now - RETENTION + 60000, member)
  else
    call('ZREM', key, member)
    call('ZREM', P .. 'list', id)
    call('ZREM', P .. 'list:' .. tenant, id)
    call('ZREM', P .. 'webhooks', id)
    local size = call('HGET', P .. 'sizes', id)
    if size then
      add('tenants', 's' .. tenant, -size)
      call('HDEL', P .. 'sizes', id)
    end
  end
end
return #old == 50 and 1 or 0
