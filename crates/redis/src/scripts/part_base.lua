-- The beginning of each script. The other parts of the script follow, and then the script itself as the body of `run`.
--
-- KEYS[1] is the namespace. All keys begin with it, and it contains their hash tag, so they lie in one slot. ARGV[1]
-- has settings that are separated by spaces: the retention in milliseconds, `fair` if tenants share a level, and the
-- limits of running requests in all, of a queue, and of a tenant, or 0, and the levels from level 0 on. ARGV[2] is the name of the calling process.
--
-- A request is a hash `j:<id>` with these fields:
--
-- - i the facts that never change, as the client packs them
-- - s the state, as `pack` packs it
-- - b the request itself, rb the response
-- - wt the tries of the webhook, wr the number of times that an operator has retried the request
local P = KEYS[1] .. ':'
local settings = {string.match(ARGV[1], '^(%d+) (%a+) (%d+) (%d+) (%d+) (.*)$')}
local RETENTION, IS_FAIR = tonumber(settings[1]), settings[2] == 'fair'
local MAX_RUNNING, MAX_OF_QUEUE, MAX_OF_TENANT = tonumber(settings[3]), tonumber(settings[4]), tonumber(settings[5])
local LEVELS = settings[6]
local ME = ARGV[2]
local GROUP = 'workers'

local call = redis.call
local clock = call('TIME')
local now = clock[1] * 1000 + math.floor(clock[2] / 1000)
-- The time as text, because Redis spends time on the conversion of each Lua number that it receives.
local NOW = string.format('%.0f', now)

-- The rest is a function, because Lua then needs less time to give its functions access to the values above.
local function script()

local function job_key(id)
  return P .. 'j:' .. id
end

-- Returns the request as the client reads it: its id, facts and state. The facts are nil if it is unknown.
local function info(id)
  local fields = call('HMGET', job_key(id), 'i', 's')
  return {id, fields[1], fields[2]}
end

-- The facts and the state of a request are each packed into one field, because Redis spends time on each field that a
-- script reads or writes. The facts are texts that end with a zero byte, and then texts that begin with their length.
local FACTS, STATE = '>sssI4c0I4c0I4c0I4c0', string.rep('s', 20)

-- Returns a request from its packed fields. Absent values are empty. It has:
--
-- - facts: level (its name after `=`, or its number in requests from before there were names), cost, listed (1 or 0), queue, tenant, webhook, and the key of its idempotency key
-- - status, attempts, and the place while it is queued: `n` with the new requests, `r` with the requests that came back,
--   `t` and `u` likewise within its tenant, `d` delayed, `p` parked, `s` started as soon as it was stored
-- - message, and the process that has it (owner)
-- - rank, and its number among the arrivals of its level
-- - created, started, ended, deadline and not_before, all in milliseconds
-- - response_status and reason
-- - pieces, the number of pieces of its response; dropped, the number of pieces of earlier attempts; and sent, the
--   sender's number of the last piece
-- - finished, the fence of the lease that was finished last, and its outcome
-- - watchers, the processes that wait for it, separated by commas: `e<name>` for its end, `a<name>` for its end with the
--   whole request, `o<name>` for a piece
-- - fence, the one of its lease while it runs
local function job_of(id, facts, state)
  local level, cost, listed, queue, tenant, webhook, idempotency = struct.unpack(FACTS, facts)
  local status, attempts, place, message, owner, rank, arrival, created, started, ended, deadline, not_before,
    response_status, reason, pieces, dropped, sent, finished, outcome, watchers = struct.unpack(STATE, state)
  return {
    id = id, key = job_key(id), facts = facts, level = level, cost = cost, listed = listed, queue = queue, tenant = tenant, webhook = webhook,
    idempotency = idempotency, status = status, attempts = tonumber(attempts), place = place, message = message,
    owner = owner, rank = rank, arrival = arrival, created = created, started = started, ended = ended,
    deadline = deadline, not_before = not_before, response_status = response_status, reason = reason, pieces = pieces,
    dropped = dropped, sent = sent, finished = finished, outcome = outcome, watchers = watchers,
    fence = message .. '/' .. attempts .. '/' .. owner, running = status == 'starting' or status == 'processing',
  }
end

-- Packs the state of a request.
local function pack(job)
  return struct.pack(STATE, job.status, job.attempts, job.place, job.message, job.owner, job.rank, job.arrival,
    job.created, job.started, job.ended, job.deadline, job.not_before, job.response_status, job.reason, job.pieces,
    job.dropped, job.sent, job.finished, job.outcome, job.watchers)
end

-- Stores the state of a request, and returns it packed.
local function put(job)
  local state = pack(job)
  call('HSET', job.key, 's', state)
  return state
end

-- Returns a request, or nil if it is unknown. With `with_body`, also returns its body.
local function read(id, with_body)
  local found = with_body and call('HMGET', job_key(id), 'i', 's', 'b') or call('HMGET', job_key(id), 'i', 's')
  if found[1] then
    return job_of(id, found[1], found[2]), found[3]
  end
end

local function has_ended(job)
  return not job.running and job.status ~= 'queued'
end

-- Numbers in hashes. `n` counts requests by level and queue: q ready, d delayed, k parked, r running, a arrivals. It also
-- has the last rank (`rank`), and counts the live requests (`live`) and the running ones (`busy`, `b:<queue>`).
-- `tenants` counts by tenant: l live requests, b running ones, s stored bytes of requests and responses until they are
-- forgotten, of which `sizes` has those of each request. `totals` counts events. Each number is read once, and written
-- once at the end, however many requests the script serves. A number that is 0 is not stored.
local numbers = {n = {}, tenants = {}, totals = {}}
local changed = {n = {}, tenants = {}, totals = {}}

local function number(hash, field)
  local value = numbers[hash][field]
  if not value then
    value = tonumber(call('HGET', P .. hash, field) or 0)
    numbers[hash][field] = value
  end
  return value
end

-- Reads several numbers of `n` in one command.
local function read_numbers(...)
  local values = call('HMGET', P .. 'n', ...)
  for i, field in ipairs({...}) do
    numbers.n[field] = numbers.n[field] or tonumber(values[i] or 0)
  end
end

local function set_number(hash, field, value)
  numbers[hash][field] = value
  changed[hash][field] = true
end

local function add(hash, field, by)
  local value = (numbers[hash][field] or number(hash, field)) + by
  numbers[hash][field] = value
  changed[hash][field] = true
  return value
end

-- Writes a table of arguments, in portions of a size that Lua can unpack.
local function write(command, key, arguments)
  for first = 1, #arguments, 1000 do
    local last = math.min(first + 999, #arguments)
    if command == 'XACK' then
      call(command, key, GROUP, unpack(arguments, first, last))
    else
      call(command, key, unpack(arguments, first, last))
    end
  end
end

-- Additions to lists and removals from lists that the rest of the script does not read. Those for the same list are
-- made in one command.
local collected = {HSET = {}, SADD = {}, SREM = {}, XACK = {}, XDEL = {}, ZADD = {}}

local function at_end(command, key, argument, second)
  local list = collected[command][key]
  if not list then
    list = {}
    collected[command][key] = list
  end
  list[#list + 1] = argument
  if second then
    list[#list + 1] = second
  end
end

-- Notices for processes, by process. A notice is a kind and an id. The kind `a` (the whole request after its end) has
-- the facts and the state behind that, and `rb` and the response. Notices for one process share an entry of its stream,
-- up to a size in bytes.
local notices = {}
local MAX_ENTRY = 4096

-- Sends the notices for a process. They are not replicated, because a process that reconnects asks for missed news
-- anyway. The stream of a process takes about 16 MiB at most.
local function send_notices(process, list)
  local key = P .. 'r:' .. process
  redis.set_repl(redis.REPL_NONE)
  call('XADD', key, 'MAXLEN', '~', 2048, '*', unpack(list))
  call('PEXPIRE', key, 60000)
  redis.set_repl(redis.REPL_ALL)
  notices[process] = nil
end

-- Notifies a process of a request.
local function tell(process, ...)
  local list = notices[process]
  if not list then
    list = {bytes = 0}
    notices[process] = list
  end
  for _, argument in ipairs({...}) do
    list[#list + 1] = argument
    list.bytes = list.bytes + #argument
  end
  if list.bytes > MAX_ENTRY then
    send_notices(process, list)
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
      told = {'q', queue, job.id, job.facts, pack(job), ready}
    end
    call('XADD', P .. 'notifications', 'MAXLEN', '~', 256, '*', unpack(told))
  end
  for process, list in pairs(notices) do
    send_notices(process, list)
  end
  for command, lists in pairs(collected) do
    for key, list in pairs(lists) do
      write(command, key, list)
    end
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
local function watch(job, kind)
  local watcher = kind .. ME
  local watchers = ',' .. job.watchers .. ','
  local function has(name)
    return string.find(watchers, ',' .. name .. ',', 1, true)
  end
  if not (has(watcher) or kind == 'e' and has('a' .. ME)) then
    job.watchers = job.watchers == '' and watcher or job.watchers .. ',' .. watcher
    put(job)
  end
end
