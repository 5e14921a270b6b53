-- Ends requests at their deadline, and makes delayed requests ready when their delay is over. Returns 1 if work is
-- left.
local late = call('ZRANGEBYSCORE', P .. 'deadlines', '-inf', now, 'LIMIT', 0, 256)
for _, id in ipairs(late) do
  call('ZREM', P .. 'deadlines', id)
  local job = read(id)
  if job and not has_ended(job) then
    expire(job)
  end
end
local due = move_due()
pauses()
local more = unpark_all()
return (#late == 256 or due == 100 or more) and 1 or 0
