-- Returns 1 if the request has ended, the pieces of its response after a number, the number of the last piece, and the
-- number of the last piece of earlier attempts. If there is no new piece yet, registers this process for the next one.
-- Returns nil if the request is unknown.
local job = read(ARGV[3])
if not job then
  return false
end
local pieces = call('XRANGE', P .. 'o:' .. job.id, '(' .. ARGV[4] .. '-1', '+')
if #pieces == 0 and not has_ended(job) then
  watch(job, 'o')
end
local found = {}
for i, piece in ipairs(pieces) do
  found[i] = {string.match(piece[1], '^(%d+)'), piece[2][2]}
end
local function count_of(pieces)
  return pieces == '' and '0' or pieces
end
return {has_ended(job) and 1 or 0, found, count_of(job.pieces), count_of(job.dropped)}
