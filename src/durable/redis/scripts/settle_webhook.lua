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
local kept = call('HMGET', job_key(id), 'e', 'ik')
if kept[1] then
  local forgotten_at = tonumber(kept[1]) + RETENTION
  call('PEXPIREAT', job_key(id), forgotten_at)
  call('PEXPIREAT', P .. 'o:' .. id, forgotten_at)
  if kept[2] then
    call('PEXPIREAT', kept[2], forgotten_at)
  end
end
return 1
