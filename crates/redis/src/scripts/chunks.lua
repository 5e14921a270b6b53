-- Returns 1 if the request has ended, the pieces of its response after a number, the number of the last piece, and the
-- number of the last piece of earlier attempts. If there is no new piece yet, registers this process for the next one.
-- Returns nil if the request is unknown. Of many pieces, it returns only the first ones, and then 0 for the end.
local AT_ONCE, BYTES_AT_ONCE = 256, 16384
local job = read(ARGV[3])
if not job then
  return false
end
local pieces = call('XRANGE', P .. 'o:' .. job.id, '(' .. ARGV[4] .. '-1', '+', 'COUNT', AT_ONCE)
if #pieces == 0 and not has_ended(job) then
  watch(job, 'o')
end
local found, bytes = {}, 0
for i, piece in ipairs(pieces) do
  if bytes >= BYTES_AT_ONCE then
    break
  end
  bytes = bytes + #piece[2][2]
  found[i] = {string.match(piece[1], '^(%d+)'), piece[2][2]}
end
local function count_of(pieces)
  return pieces == '' and '0' or pieces
end
local is_all = #found == #pieces and #pieces < AT_ONCE
return {is_all and has_ended(job) and 1 or 0, found, count_of(job.pieces), count_of(job.dropped)}
