-- Adds a piece to a response. ARGV[5] is the sender's number of the piece, which prevents that it is added twice.
local job = read(ARGV[3])
if not job or not job.running or job.fence ~= ARGV[4] then
  return 0
end
if job.sent == ARGV[5] then
  return 1
end
job.pieces = (tonumber(job.pieces) or 0) + 1
job.sent = ARGV[5]
call('XADD', P .. 'o:' .. job.id, 'MAXLEN', 1024, job.pieces .. '-1', 'd', ARGV[6])
put(job)
tell_piece(job)
return 1
