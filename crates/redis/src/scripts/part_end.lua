-- Running requests, and how requests end.

-- The largest response in bytes that a notice includes. The process reads a larger response from the request.
local MAX_TOLD = 4096

-- Notifies the processes that wait for the end of a request.
local function tell_end(job, watchers, state, response)
  for watcher in string.gmatch(watchers, '[^,]+') do
    local process = string.sub(watcher, 2)
    if string.sub(watcher, 1, 1) == 'a' then
      local told_response = response and #response <= MAX_TOLD and response or ''
      tell(process, 'a', job.id, job.facts, state, 'rb', told_response)
    else
      tell(process, 'e', job.id)
    end
  end
end

-- Notifies the processes that wait for a piece of its response.
local function tell_piece(job)
  for watcher in string.gmatch(job.watchers, '[^,]+') do
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
local has_written = false
local function release(job)
  local key = stream_key(job)
  if has_written then
    at_end('XACK', key, job.message)
  else
    -- The first write is not held back. A Redis without free memory refuses a script if its first write may need
    -- memory, but outcomes must be recorded.
    call('XACK', key, GROUP, job.message)
    has_written = true
  end
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

-- Drops the pieces of an attempt that is repeated. Their numbers are not used again. The caller stores the state.
local function drop_pieces(job)
  if job.pieces ~= '' then
    call('DEL', P .. 'o:' .. job.id)
    job.dropped = job.pieces
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

-- The time in ms after which an ended request is forgotten even if its webhook is due. Senders give up an hour earlier.
local LONGEST_WEBHOOK = 90000000

-- Lets an ended request be forgotten after a time in ms, with its idempotency key and the pieces of its response.
local function keep_for(job, ms)
  call('PEXPIRE', job.key, ms)
  if job.idempotency ~= '' then
    call('PEXPIRE', P .. 'i:' .. job.idempotency, ms)
  end
  if job.pieces ~= '' then
    call('PEXPIRE', P .. 'o:' .. job.id, ms)
  end
end

-- Counts the bytes that an ended request adds to those of its tenant.
local function count_end(job, response)
  local size = call('HSTRLEN', job.key, 'b') + (response and #response or 0)
  if job.pieces ~= '' then
    size = size + (call('MEMORY', 'USAGE', P .. 'o:' .. job.id) or 0)
  end
  local counted = call('HGET', P .. 'sizes', job.id) or 0
  at_end('HSET', P .. 'sizes', job.id, size)
  add('tenants', 's' .. job.tenant, size - counted)
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
  local watchers = job.watchers
  job.status, job.ended, job.reason, job.response_status = status, NOW, reason or '', response_status or ''
  job.place, job.message, job.owner, job.not_before, job.watchers = '', '', '', '', ''
  local state = pack(job)
  if response then
    call('HSET', job.key, 's', state, 'rb', response)
  else
    call('HSET', job.key, 's', state)
  end
  add('n', 'live', -1)
  add('tenants', 'l' .. job.tenant, -1)
  count_end(job, response)
  if job.deadline ~= '' then
    call('ZREM', P .. 'deadlines', job.id)
  end
  at_end('ZADD', P .. 'ended', NOW, job.id .. job.tenant)
  local keep = RETENTION
  if job.webhook ~= '' then
    call('ZADD', P .. 'webhooks', NOW, job.id)
    keep = math.max(RETENTION, LONGEST_WEBHOOK)
  end
  keep_for(job, keep)
  tell_end(job, watchers, state, response)
end

-- Ends a request at its deadline.
local function expire(job)
  conclude(job, job.attempts > 0 and 'canceled' or 'aborted', 'deadline_exceeded')
end

