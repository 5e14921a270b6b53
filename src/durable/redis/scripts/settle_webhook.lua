-- Settles a webhook. ARGV[4] is the time in ms after which it is due again, or empty to settle it for good.
local id, key = ARGV[3], P .. 'webhooks'
if not call('ZSCORE', key, id) then
  return 0
end
if ARGV[4] ~= '' then
  call('ZADD', key, now + tonumber(ARGV[4]), id)
  return 1
end
call('ZREM', key, id)
local ended = call('HGET', job_key(id), 'e')
if ended then
  call('PEXPIREAT', job_key(id), tonumber(ended) + RETENTION)
end
return 1
