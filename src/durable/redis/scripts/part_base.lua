-- The beginning of each script.
--
-- KEYS[1]: the namespace. All keys begin with it, and it holds their hash tag, so they lie in one slot.
-- ARGV[1]: the retention in milliseconds, and `fair` behind a space if tenants share a level. ARGV[2]: the name of the
-- calling process.
--
-- A request is a hash `j:<id>`:
--   q queue, l level, t tenant, co cost, b the request itself, li listed, wh webhook, wt tries of the webhook,
--   ik its idempotency key's key, st status, at attempts, r reason, rs status of the response, rb the response,
--   c created, s started, e ended, d deadline, nb not before (all in ms), n its rank, ln its number among the arrivals
--   of its level, pl its place while queued (a shard; `t`, `u` its tenant's; `d` delayed, `p` parked), m its message,
--   ow the process that has it, f the fence of its lease, fb the fence of the lease that was finished last and the
--   outcome behind a space, cn the number of its pieces, cd that of the pieces of earlier attempts, cs the sender's
--   number of the last piece.
local P = KEYS[1] .. ':'
local RETENTION = tonumber(string.match(ARGV[1], '^%d+'))
local IS_FAIR = string.sub(ARGV[1], -4) == 'fair'
local ME = ARGV[2]
local GROUP = 'workers'

local call = redis.call
local clock = call('TIME')
local now = clock[1] * 1000 + math.floor(clock[2] / 1000)

local function job_key(id)
  return P .. 'j:' .. id
end

local function info(id)
  local fields = call('HMGET', job_key(id), 'q', 'l', 't', 'st', 'at', 'c', 's', 'e', 'd', 'nb', 'r', 'rs', 'li')
  fields[14] = id
  return fields
end

local function read(id)
  local v = call('HMGET', job_key(id), 'st', 'q', 'l', 't', 'at', 'pl', 'm', 'ow', 'n', 'd', 'wh', 'ik', 'f', 'fb', 'ln')
  if not v[1] then
    return nil
  end
  return {
    id = id, status = v[1], queue = v[2], level = v[3], tenant = v[4], attempts = tonumber(v[5]), place = v[6],
    message = v[7], owner = v[8], rank = v[9], deadline = v[10], webhook = v[11], idempotency = v[12], fence = v[13],
    finished = v[14], arrival = v[15],
    running = v[1] == 'starting' or v[1] == 'processing',
    ended = v[1] == 'succeeded' or v[1] == 'failed' or v[1] == 'canceled' or v[1] == 'aborted',
  }
end

