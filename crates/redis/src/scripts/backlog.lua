-- Returns the next time at which a waiting request may become ready, and the heads of the queues.
local weights = split(ARGV[3])
bring_up_to_date()
local held = pauses()
local soonest = call('ZRANGE', P .. 'delayed', 0, 0, 'WITHSCORES')[2]
local next_ms = soonest and tonumber(soonest)
if held then
  for _, until_ms in pairs(held) do
    if until_ms > 0 and (not next_ms or until_ms < next_ms) then
      next_ms = until_ms
    end
  end
end
local heads = {}
if not (held and held['a']) then
  for _, queue in ipairs(call('SMEMBERS', P .. 'ready')) do
    if not (held and held['q' .. queue]) and room_of_queue(queue) > 0 then
      local job = head(queue, held, weights, false)
      if job then
        heads[#heads + 1] = head_of(job)
      end
    end
  end
end
return {next_ms and string.format('%.0f', next_ms) or false, heads}
