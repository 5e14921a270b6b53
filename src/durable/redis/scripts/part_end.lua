-- Running requests, and how requests end.

-- Sends a notification to a process. It is not replicated, because a process that reconnects asks for missed news
-- anyway.
local told = {}
local function tell(process, ...)
  local key = P .. 'r:' .. process
  redis.set_repl(redis.REPL_NONE)
  call('XADD', key, 'MAXLEN', '~', 4096, '*', ...)
  if not told[key] then
    told[key] = true
    call('PEXPIRE', key, 60000)
  end
  redis.set_repl(redis.REPL_ALL)
end

-- The largest response in bytes that a notification includes, so that the stream of a process takes at most 16 MiB. The
-- process reads a larger response from the request.
local MAX_TOLD = 4096

-- Notifies the processes that wait for the end of a request.
local function tell_end(job, status, reason, response_status, response)
  for watcher in string.gmatch(job.watchers or '', '[^\n]+') do
    local process = string.sub(watcher, 2)
    if string.sub(watcher, 1, 1) == 'a' then
      -- The fields are in the order of `info`. Absent values are empty.
      local told_response = response and #response <= MAX_TOLD and response or ''
      tell(process, 'a', job.id, job.queue, job.level, job.tenant, status, job.attempts, job.created, job.started or '', NOW,
        job.deadline or '', '', reason or '', response_status or '', job.listed, told_response)
    else
      tell(process, 'e', job.id)
    end
  end
end

-- Notifies the processes that wait for a piece of its response.
local function tell_piece(job)
  for watcher in string.gmatch(job.watchers or '', '[^\n]+') do
    if string.sub(watcher, 1, 1) == 'o' then
      tell(string.sub(watcher, 2), 'o', job.id)
    end
  end
end

-- Puts up to `max` parked requests back into their queues. Returns true if further parked requests may be ready.
local function unpark(name, max)
  local key = P .. 'parked:' .. name
  local ids = max > 0 and call('ZRANGE', key, 0, max - 1) or {}
  for _, id in ipairs(ids) do
    call('ZREM', key, id)
    local job = read(id)
    if job and job.status == 'queued' and job.place == 'p' then
      count('k', job, -1)
      requeue(job)
    end
  end
  if call('EXISTS', key) == 0 then
    call('SREM', P .. 'parks', name)
    return false
  end
  return #ids == 1000
end

-- Takes a running request from its worker.
local function release(job)
  local key = stream_key(job)
  -- This write is not held back. A Redis without free memory refuses a script if its first write may need memory, but
  -- outcomes must be recorded.
  call('XACK', key, GROUP, job.message)
  at_end('XDEL', key, job.message)
  at_end('SREM', P .. 'own:' .. job.owner, job.id .. ' ' .. job.fence)
  local was_full = room_of_queue(job.queue) == 0
  runs(job, -1)
  if was_full then
    notify('')
  end
  if MAX_OF_TENANT > 0 and call('HEXISTS', P .. 'pauses', 't' .. job.tenant) == 0 then
    -- In each queue, one request that waits for its tenant's limit may now start instead.
    for _, name in ipairs(call('SMEMBERS', P .. 'parks')) do
      if tenant_of_park(name) == job.tenant then
        unpark(name, 1)
      end
    end
  end
end

-- Drops the pieces of an attempt that is repeated. Their numbers are not used again.
local function drop_pieces(job)
  if job.pieces then
    call('DEL', P .. 'o:' .. job.id)
    call('HSET', job_key(job.id), 'cd', job.pieces)
  end
end

-- Counts an event. `event` is a status or `lost`, followed by a space and an optional reason. From 16,384 counts on,
-- further queues share one count, because clients may invent queue names.
local function tally(queue, event)
  if add('totals', event .. ' ' .. queue, 1) == 1 and call('HLEN', P .. 'totals') >= 16384 then
    add('totals', event .. ' ' .. queue, -1)
    add('totals', event .. ' ', 1)
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
  local fields = {'st', status, 'e', NOW}
  local function set(name, value)
    fields[#fields + 1] = name
    fields[#fields + 1] = value
  end
  if job.finished then
    set('fb', job.finished)
  end
  if reason then
    set('r', reason)
  end
  if response_status then
    set('rs', response_status)
    set('rb', response)
  end
  call('HSET', key, unpack(fields))
  call('HDEL', key, 'ow', 'f', 'pl', 'm', 'nb', 'w')
  add('meta', 'live', -1)
  add('tenants', job.tenant, -1)
  if job.deadline then
    call('ZREM', P .. 'deadlines', job.id)
  end
  at_end('ZADD', P .. 'ended', NOW, job.id .. job.tenant)
  if job.webhook then
    call('ZADD', P .. 'webhooks', NOW, job.id)
  else
    call('PEXPIRE', key, RETENTION)
  end
  if job.idempotency then
    call('PEXPIRE', job.idempotency, RETENTION)
  end
  if job.pieces then
    call('PEXPIRE', P .. 'o:' .. job.id, RETENTION)
  end
  tell_end(job, status, reason, response_status, response)
end

-- Ends a request at its deadline.
local function expire(job)
  conclude(job, job.attempts > 0 and 'canceled' or 'aborted', 'deadline_exceeded')
end

