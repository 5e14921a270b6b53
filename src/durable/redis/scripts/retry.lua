-- Puts a failed request back into its queue. Returns the request, or nil if it is unknown.
local job = read(ARGV[3])
if not job then
  return false
end
if job.status == 'failed' then
  local key = job_key(job.id)
  call('PERSIST', key)
  call('HDEL', key, 'e', 's', 'd', 'r', 'rs', 'rb', 'nb', 'fb', 'wt')
  drop_pieces(job)
  if job.idempotency then
    call('PERSIST', job.idempotency)
  end
  call('ZREM', P .. 'ended', job.id .. job.tenant)
  call('ZREM', P .. 'webhooks', job.id)
  add('meta', 'live', 1)
  add('tenants', job.tenant, 1)
  call('HSET', key, 'at', 0)
  arrive(job)
end
return info(ARGV[3])
