-- Adds a piece to a response. ARGV[5] is the sender's number of the piece, which prevents that it is added twice.
local job = read(ARGV[3])
if not job or not job.running or job.fence ~= ARGV[4] then
  return 0
end
local key, mark = job_key(job.id), ARGV[4] .. ' ' .. ARGV[5]
if call('HGET', key, 'cs') == mark then
  return 1
end
local number = call('HINCRBY', key, 'cn', 1)
call('HSET', key, 'cs', mark)
call('XADD', P .. 'o:' .. job.id, 'MAXLEN', 1024, number .. '-1', 'd', ARGV[6])
tell_piece(job)
return 1
