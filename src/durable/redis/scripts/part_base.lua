-- The beginning of each script. The other parts of the script follow, and then the script itself as the body of `run`.
--
-- KEYS[1] is the namespace. All keys begin with it, and it contains their hash tag, so they lie in one slot. ARGV[1]
-- has settings that are separated by spaces: the retention in milliseconds, `fair` if tenants share a level, and the
-- limits of running requests in all, of a queue, and of a tenant, or 0. ARGV[2] is the name of the calling process.
--
-- A request is a hash `j:<id>` with these fields:
--
-- - q queue, l level, t tenant, co cost, b the request itself, li listed
-- - wh webhook, wt tries of the webhook, ik the key of its idempotency key
-- - st status, at attempts, r reason, rs status of the response, rb the response
-- - c created, s started, e ended, d deadline, nb not before, all in milliseconds
-- - n its rank, ln its number among the arrivals of its level
-- - pl its place while it is queued: `n` with the new requests, `r` with the requests that came back, `t` and `u`
--   likewise within its tenant, `d` delayed, `p` parked
-- - m its message, ow the process that has it, f the fence of its lease
-- - fb the fence of the lease that was finished last, and after a space the outcome
-- - cn the number of its pieces, cd the number of pieces of earlier attempts, cs the sender's number of the last piece
-- - w the processes that wait for it, one on each line: `e<name>` for its end, `a<name>` for its end with the whole
--   request, `o<name>` for a piece
local P = KEYS[1] .. ':'
local settings = {string.match(ARGV[1], '^(%d+) (%a+) (%d+) (%d+) (%d+)$')}
local RETENTION, IS_FAIR = tonumber(settings[1]), settings[2] == 'fair'
local MAX_RUNNING, MAX_OF_QUEUE, MAX_OF_TENANT = tonumber(settings[3]), tonumber(settings[4]), tonumber(settings[5])
local ME = ARGV[2]
local GROUP = 'workers'

local call = redis.call
local clock = call('TIME')
local now = clock[1] * 1000 + math.floor(clock[2] / 1000)
-- The time as text, because Redis spends time on the conversion of each Lua number that it receives.
local NOW = string.format('%.0f', now)

local function job_key(id)
  return P .. 'j:' .. id
end

local function info(id)
  local fields = call('HMGET', job_key(id), 'q', 'l', 't', 'st', 'at', 'c', 's', 'e', 'd', 'nb', 'r', 'rs', 'li')
  fields[14] = id
  return fields
end

local function read(id)
  local v = call('HMGET', job_key(id), 'st', 'q', 'l', 't', 'at', 'pl', 'm', 'ow', 'n', 'd', 'wh', 'ik', 'f', 'fb', 'ln', 'cn', 'w', 'c',
    's', 'li')
  if not v[1] then
    return nil
  end
  return {
    id = id, status = v[1], queue = v[2], level = v[3], tenant = v[4], attempts = tonumber(v[5]), place = v[6],
    message = v[7], owner = v[8], rank = v[9], deadline = v[10], webhook = v[11], idempotency = v[12], fence = v[13],
    finished = v[14], arrival = v[15], pieces = v[16], watchers = v[17], created = v[18],
    started = v[19], listed = v[20],
    running = v[1] == 'starting' or v[1] == 'processing',
    ended = v[1] == 'succeeded' or v[1] == 'failed' or v[1] == 'canceled' or v[1] == 'aborted',
  }
end

-- Numbers in hashes. `n` counts requests by level and queue: q ready, d delayed, k parked, r running, a arrivals.
-- `meta` has the number of live requests and the last rank, and `tenants` has the live requests by tenant. `busy` has
-- the running requests (`a` all, `q<queue>`, `t<tenant>`), and `totals` counts events. Each number is read once, and
-- written once at the end, however many requests the script serves. A number that is 0 is not stored.
local numbers = {n = {}, meta = {}, tenants = {}, busy = {}, totals = {}}
local changed = {}

local function number(hash, field)
  local value = numbers[hash][field]
  if not value then
    value = tonumber(call('HGET', P .. hash, field) or 0)
    numbers[hash][field] = value
  end
  return value
end

local function set_number(hash, field, value)
  numbers[hash][field] = value
  changed[hash] = changed[hash] or {}
  changed[hash][field] = true
  return value
end

local function add(hash, field, by)
  return set_number(hash, field, number(hash, field) + by)
end

-- Writes a table of arguments, in portions of a size that Lua can unpack.
local function write(command, key, arguments)
  for first = 1, #arguments, 1000 do
    call(command, key, unpack(arguments, first, math.min(first + 999, #arguments)))
  end
end

-- Additions to lists and removals from lists that the rest of the script does not read. Those for the same list are
-- made in one command.
local collected = {}

local function at_end(command, key, ...)
  local list = collected[command .. key]
  if not list then
    list = {command = command, key = key}
    collected[command .. key] = list
  end
  for _, argument in ipairs({...}) do
    list[#list + 1] = argument
  end
end

-- The queues that workers are told of. The value is the new head if the queue was empty before, or false.
local news = {}

-- Writes the changes that were held back while the script ran.
local function save()
  for queue, job in pairs(news) do
    local told = {'q', queue}
    if job then
      local ready = number('n', 'q:' .. job.level .. ':' .. queue)
      told = {'q', queue, job.id, job.level, job.tenant, NOW, job.deadline or '', job.listed, job.cost, ready}
    end
    call('XADD', P .. 'notifications', 'MAXLEN', '~', 256, '*', unpack(told))
  end
  for _, list in pairs(collected) do
    write(list.command, list.key, list)
  end
  for hash, fields in pairs(changed) do
    local set, gone = {}, {}
    for field in pairs(fields) do
      local value = numbers[hash][field]
      if value > 0 then
        set[#set + 1] = field
        set[#set + 1] = value
      else
        gone[#gone + 1] = field
      end
    end
    write('HSET', P .. hash, set)
    write('HDEL', P .. hash, gone)
  end
end

-- Registers this process for news of a request. `kind` is `e` for its end, and `o` for its pieces.
local function watch(job_id, watchers, kind)
  local watcher = kind .. ME
  local lines = watchers and '\n' .. watchers .. '\n' or ''
  local function has(line)
    return string.find(lines, '\n' .. line .. '\n', 1, true)
  end
  if not (has(watcher) or kind == 'e' and has('a' .. ME)) then
    call('HSET', job_key(job_id), 'w', watchers and watchers .. '\n' .. watcher or watcher)
  end
end
