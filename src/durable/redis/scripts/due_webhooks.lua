-- Takes due webhooks. Each of them becomes due again after a minute, unless it is settled.
local taken = {}
for _, id in ipairs(call('ZRANGEBYSCORE', P .. 'webhooks', '-inf', now, 'LIMIT', 0, tonumber(ARGV[3]))) do
  local url = call('HGET', job_key(id), 'wh')
  if url then
    call('ZADD', P .. 'webhooks', now + 60000, id)
    local tries = call('HINCRBY', job_key(id), 'wt', 1) - 1
    taken[#taken + 1] = {info(id), url, tries}
  else
    call('ZREM', P .. 'webhooks', id)
  end
end
return taken
