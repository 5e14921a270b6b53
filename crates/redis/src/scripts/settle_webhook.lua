-- Settles the webhook of the end after ARGV[4] retries. ARGV[5] is the time in ms after which it is due again, or empty to
-- settle it for good.
local id, key = ARGV[3], P .. 'webhooks'
if not call('ZSCORE', key, id) or (call('HGET', job_key(id), 'wr') or '0') ~= ARGV[4] then
  return 0
end
if ARGV[5] ~= '' then
  call('ZADD', key, now + tonumber(ARGV[5]), id)
  return 1
end
call('ZREM', key, id)
local job = read(id)
if job and job.ended ~= '' then
  local forgotten_at = job.ended + RETENTION
  call('PEXPIREAT', job_key(id), forgotten_at)
  call('PEXPIREAT', P .. 'o:' .. id, forgotten_at)
  if job.idempotency ~= '' then
    call('PEXPIREAT', P .. 'i:' .. job.idempotency, forgotten_at)
  end
end
return 1
