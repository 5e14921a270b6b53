-- Returns listed requests, the newest first. ARGV[3] is the key of the list, and ARGV[5] the maximum number of
-- requests. ARGV[4] selects requests before a rank, ARGV[6] requests of a status, and ARGV[7] requests before the one
-- with this id. These three may be empty. Returns the rank before which the next call goes on, or nil at the end, and
-- the requests.
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
  local request = info(ids[i])
  if request[2] and (status == '' or status == string.match(request[3], '^%Z*')) then
    found[#found + 1] = request
    if #found == max then
      return {ids[i + 1], found}
    end
  end
end
return {#ids == 1000 and ids[1000] or false, found}
