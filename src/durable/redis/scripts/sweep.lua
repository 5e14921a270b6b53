-- Takes requests from silent workers. ARGV[3] is a stream, ARGV[4] the cursor, and ARGV[5] the lease in ms. ARGV[6] is
-- the maximum number of attempts, which is 1 if requests are not retried. Returns the next cursor, and the number of
-- requests.
local key, cursor, lease, max_attempts = ARGV[3], ARGV[4], tonumber(ARGV[5]), tonumber(ARGV[6])
if call('EXISTS', key) == 0 then
  call('SREM', P .. 'streams', key)
  call('HDEL', P .. 'heads', key)
  return {'0-0', 0}
end
local claimed = call('XAUTOCLAIM', key, GROUP, 'sweeper:' .. ME, lease, cursor, 'COUNT', 100)
local swept = 0
for _, entry in ipairs(claimed[2]) do
  local job = entry and entry[2] and read(entry[2][2])
  if job and job.running and job.message == entry[1] and stream_key(job) == key then
    swept = swept + 1
    tally(job.queue, 'lost ')
    if job.attempts < max_attempts then
      tell(job.owner, 'c', job.id)
      release(job)
      drop_pieces(job)
      requeue(job)
    else
      conclude(job, 'failed', 'worker_lost')
    end
  elseif entry then
    call('XACK', key, GROUP, entry[1])
    call('XDEL', key, entry[1])
  end
end
if claimed[1] == '0-0' and call('XLEN', key) == 0 then
  call('DEL', key)
  call('SREM', P .. 'streams', key)
  call('HDEL', P .. 'heads', key)
end
return {claimed[1], swept}
