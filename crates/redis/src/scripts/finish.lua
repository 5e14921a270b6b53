-- Records the ends of attempts. ARGV from 3 are, for each attempt, its id, fence, kind of outcome, and two details.
-- Returns 1 for each attempt that ends by this call, or has already ended in the same way by an earlier call that lost
-- its reply.
local function finish(id, fence, kind, detail, more)
  local job = read(id)
  if not job then
    return 0
  end
  -- A reason may have spaces, so the outcome of a failure is compared by the state.
  local outcome = kind == 'failed' and kind or kind .. '/' .. detail
  if not job.running or job.fence ~= fence then
    local is_same = job.finished == fence and job.outcome == outcome
      and (kind ~= 'failed' or job.reason == detail)
      and (kind ~= 'responded' or call('HGET', job_key(id), 'rb') == more)
    return is_same and 1 or 0
  end
  job.finished, job.outcome = fence, outcome
  if kind == 'responded' then
    if tonumber(detail) < 400 then
      conclude(job, 'succeeded', nil, detail, more)
    else
      conclude(job, 'failed', 'error_response', detail, more)
    end
  elseif kind == 'failed' then
    conclude(job, 'failed', detail)
  else
    release(job)
    drop_pieces(job)
    if more == '0' then
      job.attempts = job.attempts - 1
    end
    local after = tonumber(detail)
    if after > 0 then
      delay(job, now + after)
      put(job)
    else
      requeue(job)
    end
  end
  return 1
end

local done = {}
for i = 3, #ARGV, 5 do
  done[#done + 1] = finish(ARGV[i], ARGV[i + 1], ARGV[i + 2], ARGV[i + 3], ARGV[i + 4])
end
return done
