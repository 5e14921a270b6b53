-- Looks at a stream, which is ARGV[3]. Returns the messages from ARGV[4] on whose leases were not renewed for the time
-- in ARGV[5], in ms, each followed by the time of its last renewal. These are up to 100 messages.
local key, from, lease = ARGV[3], ARGV[4], tonumber(ARGV[5])
if call('EXISTS', key) == 0 then
  call('SREM', P .. 'streams', key)
  call('HDEL', P .. 'heads', key)
  return {}
end
if from == '-' then
  find_again(key)
end
local silent = {}
for _, entry in ipairs(call('XPENDING', key, GROUP, 'IDLE', lease, from, '+', 100)) do
  silent[#silent + 1] = entry[1]
  silent[#silent + 1] = string.format('%.0f', now - entry[3])
end
if #silent == 0 and from == '-' and call('XLEN', key) == 0 then
  call('DEL', key)
  call('SREM', P .. 'streams', key)
  call('HDEL', P .. 'heads', key)
end
return silent
