-- Takes requests from silent workers. ARGV[3] is a stream, and ARGV[4] the lease in ms. ARGV[5] is the maximum number of
-- attempts, which is 1 if requests are not retried. ARGV from 6 are messages, each with the time of its last renewal. A
-- message that was renewed since is left alone. Returns the number of requests that were taken.
local key, lease, max_attempts = ARGV[3], tonumber(ARGV[4]), tonumber(ARGV[5])

-- Returns true if the last renewal was at this time. A renewal since then is later by a lease at least.
local function was_renewed_at(message, renewed)
  local pending = call('XPENDING', key, GROUP, message, message, 1)[1]
  return pending and math.abs(now - pending[3] - renewed) < lease / 2
end

local swept = 0
for i = 6, #ARGV, 2 do
  local message = ARGV[i]
  if was_renewed_at(message, tonumber(ARGV[i + 1])) then
    local entry = call('XRANGE', key, message, message)[1]
    local job = entry and read(entry[2][2])
    if job and job.running and job.message == message and stream_key(job) == key then
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
    else
      call('XACK', key, GROUP, message)
      call('XDEL', key, message)
    end
  end
end
return swept
