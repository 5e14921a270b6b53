-- Returns listed requests, the newest first. ARGV[3]: the list. ARGV[4]: only those before this rank, or empty.
-- ARGV[5]: the most. ARGV[6]: only those of this status, or empty. ARGV[7]: the id whose rank is meant by `after`, or empty.
-- Returns the rank to go on before (or nil at the end) and the requests.
local key, before, max, status = ARGV[3], ARGV[4], tonumber(ARGV[5]), ARGV[6]
if ARGV[7] ~= '' then
  before = call('ZSCORE', P .. 'list', ARGV[7])
  if not before then
    return {false, {}}
  end
end
local ids = call('ZREVRANGEBYSCORE', key, before ~= '' and '(' .. before or '+inf', '-inf', 'WITHSCORES', 'LIMIT', 0, 500)
local found = {}
for i = 1, #ids, 2 do
  local current = call('HGET', job_key(ids[i]), 'st')
  if current and (status == '' or current == status) then
    found[#found + 1] = info(ids[i])
    if #found == max then
      return {ids[i + 1], found}
    end
  end
end
return {#ids == 1000 and ids[1000] or false, found}
