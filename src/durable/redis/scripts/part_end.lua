-- What runs, and how requests end.

local function tell(process, kind, id)
  local key = P .. 'r:' .. process
  call('XADD', key, 'MAXLEN', '~', 4096, '*', kind, id)
  call('PEXPIRE', key, 60000)
end

-- Takes a running request from its worker.
local function release(job)
  local key = stream_key(job)
  call('XACK', key, GROUP, job.message)
  call('XDEL', key, job.message)
  call('SREM', P .. 'own:' .. job.owner, job.id .. ' ' .. job.fence)
  count('r', job, -1)
  call('HDEL', job_key(job.id), 'ow', 'f')
end

-- Forgets the pieces of an attempt that is repeated. Their numbers are not used again.
local function drop_pieces(job)
  local last = call('HGET', job_key(job.id), 'cn')
  if last then
    call('DEL', P .. 'o:' .. job.id)
    call('HSET', job_key(job.id), 'cd', last)
  end
end

-- Counts an event: a status or `lost`, and a reason or nothing behind a space. Beyond 16,384 counts, those of further
-- queues go together, because clients may name them.
local function tally(queue, event)
  local key = P .. 'totals'
  if call('HINCRBY', key, event .. ' ' .. queue, 1) == 1 and call('HLEN', key) > 16384 then
    call('HDEL', key, event .. ' ' .. queue)
    call('HINCRBY', key, event .. ' ', 1)
  end
end

-- Ends a request that has not ended.
local function conclude(job, status, reason, response_status, response)
  if job.running then
    release(job)
    if job.owner ~= ME or status == 'canceled' then
      tell(job.owner, 'c', job.id)
    end
  else
    unqueue(job)
  end
  tally(job.queue, status .. ' ' .. (reason or ''))
  local key = job_key(job.id)
  call('HSET', key, 'st', status, 'e', now)
  call('HDEL', key, 'pl', 'm', 'nb')
  if reason then
    call('HSET', key, 'r', reason)
  end
  if response_status then
    call('HSET', key, 'rs', response_status, 'rb', response)
  end
  call('HINCRBY', P .. 'meta', 'live', -1)
  if call('HINCRBY', P .. 'tenants', job.tenant, -1) <= 0 then
    call('HDEL', P .. 'tenants', job.tenant)
  end
  if job.deadline then
    call('ZREM', P .. 'deadlines', job.id)
  end
  call('ZADD', P .. 'ended', now, job.id .. job.tenant)
  if job.webhook then
    call('ZADD', P .. 'webhooks', now, job.id)
  else
    call('PEXPIRE', key, RETENTION)
  end
  if job.idempotency then
    call('PEXPIRE', job.idempotency, RETENTION)
  end
  call('PEXPIRE', P .. 'o:' .. job.id, RETENTION)
  local watchers = P .. 'w:' .. job.id
  local waiting = call('SMEMBERS', watchers)
  if #waiting > 0 then
    for _, watcher in ipairs(waiting) do
      tell(string.sub(watcher, 2), 'e', job.id)
    end
    call('DEL', watchers)
  end
end

-- Ends a request whose time is up.
local function expire(job)
  conclude(job, job.attempts > 0 and 'canceled' or 'aborted', 'deadline_exceeded')
end

