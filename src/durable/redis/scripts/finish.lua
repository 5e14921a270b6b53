-- Records the end of an attempt. Returns 1 if it has an effect, also if it was recorded before: the reply was lost.
local fence, kind, detail, more = ARGV[4], ARGV[5], ARGV[6], ARGV[7]
local job = read(ARGV[3])
if not job then
  return 0
end
local mark = fence .. ' ' .. kind .. ' ' .. detail
if not job.running or job.fence ~= fence then
  local is_same = job.finished == mark and (kind ~= 'responded' or call('HGET', job_key(job.id), 'rb') == more)
  return is_same and 1 or 0
end
call('HSET', job_key(job.id), 'fb', mark)
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
  else
    requeue(job)
  end
end
return 1
