-- Puts a failed request back into its queue. Returns the request, or nil if it is unknown.
local job = read(ARGV[3])
if not job then
  return false
end
if job.status == 'failed' then
  call('PERSIST', job.key)
  call('HDEL', job.key, 'rb', 'wt')
  local size = call('HSTRLEN', job.key, 'b')
  add('tenants', 's' .. job.tenant, size - (call('HGET', P .. 'sizes', job.id) or 0))
  at_end('HSET', P .. 'sizes', job.id, size)
  call('HINCRBY', job.key, 'wr', 1)
  job.attempts, job.started, job.ended, job.deadline, job.not_before = 0, '', '', '', ''
  job.response_status, job.finished, job.outcome, job.reason = '', '', '', ''
  drop_pieces(job)
  if job.idempotency ~= '' then
    call('PERSIST', P .. 'i:' .. job.idempotency)
  end
  call('ZREM', P .. 'ended', job.id .. job.tenant)
  call('ZREM', P .. 'webhooks', job.id)
  add('n', 'live', 1)
  add('tenants', 'l' .. job.tenant, 1)
  arrive(job)
end
return info(ARGV[3])
