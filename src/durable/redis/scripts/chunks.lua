-- Returns 1 if the request has ended, the pieces of its response after a number, the number of the last piece, and the
-- number of the last piece of earlier attempts. If there is no new piece yet, registers this process for the next one.
-- Returns nil if the request is unknown.
local job = read(ARGV[3])
if not job then
  return false
end
local pieces = call('XRANGE', P .. 'o:' .. job.id, '(' .. ARGV[4] .. '-1', '+')
if #pieces == 0 and not job.ended then
  watch(job.id, job.watchers, 'o')
end
local found = {}
for i, piece in ipairs(pieces) do
  found[i] = {string.match(piece[1], '^(%d+)'), piece[2][2]}
end
local counts = call('HMGET', job_key(job.id), 'cn', 'cd')
return {job.ended and 1 or 0, found, counts[1] or '0', counts[2] or '0'}
