-- Removes processes that took no request for a day and hold none. ARGV[3] is a stream.
if call('EXISTS', ARGV[3]) == 1 then
  for _, consumer in ipairs(call('XINFO', 'CONSUMERS', ARGV[3], GROUP)) do
    local fields = {}
    for i = 1, #consumer, 2 do
      fields[consumer[i]] = consumer[i + 1]
    end
    if fields.pending == 0 and fields.idle > 86400000 then
      call('XGROUP', 'DELCONSUMER', ARGV[3], GROUP, fields.name)
    end
  end
end
return 1
