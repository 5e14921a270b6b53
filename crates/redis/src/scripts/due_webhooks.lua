-- Takes due webhooks. Each of them becomes due again after a minute, unless it is settled.
local taken = {}
for _, id in ipairs(call('ZRANGEBYSCORE', P .. 'webhooks', '-inf', now, 'LIMIT', 0, tonumber(ARGV[3]))) do
  local job = read(id)
  if job then
    call('ZADD', P .. 'webhooks', now + 60000, id)
    local tries = call('HINCRBY', job_key(id), 'wt', 1) - 1
    local retries = tonumber(call('HGET', job_key(id), 'wr') or 0)
    taken[#taken + 1] = {{id, job.facts, pack(job)}, job.webhook, tries, retries}
  else
    call('ZREM', P .. 'webhooks', id)
  end
end
return taken
