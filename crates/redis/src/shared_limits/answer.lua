-- Answers one gateway's question about one endpoint. src/shared_limits/ledger.rs models the same rules and explains
-- them.
--
-- A member of the hash is `seq slots want limit version`. A gateway is in the queue while it wants more slots than it
-- has.
local members, ends, queue, limits = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local who, channel, name = ARGV[1], ARGV[8], ARGV[9]
local seq, keep, want = tonumber(ARGV[2]), tonumber(ARGV[3]), tonumber(ARGV[4])
local ahead, slots, lease = tonumber(ARGV[5]), tonumber(ARGV[6]), tonumber(ARGV[7])

local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local fields = redis.call('HMGET', members, '#leased', '#asked', '#number', '#version', '#told', '#expires')
local leased = tonumber(fields[1] or 0)
local asked = tonumber(fields[2] or 0)
local number = tonumber(fields[3] or 0)
-- The version follows the clock, so that it keeps growing even if the keys are lost.
local version = math.max(tonumber(fields[4] or 0), time[1] * 1000000 + time[2])
local told_none = fields[5] == '1'
local expires = tonumber(fields[6] or 0)

local read, written = {}, {}

local function get(gateway)
  if read[gateway] == nil then
    local text = redis.call('HGET', members, gateway)
    local member = false
    if text then
      local a, b, c, d, e = string.match(text, '^(%d+) (%d+) (%d+) (%d+) (%d+)$')
      member = { seq = tonumber(a), slots = tonumber(b), want = tonumber(c), limit = tonumber(d), version = tonumber(e) }
    end
    read[gateway] = member
  end
  return read[gateway]
end

local function ask_of(member)
  return math.max(0, member.want - member.slots)
end

local function remove(gateway)
  local member = get(gateway)
  if member then
    leased = leased - member.slots
    asked = asked - ask_of(member)
  end
  read[gateway] = false
  written[gateway] = nil
  redis.call('HDEL', members, gateway)
  redis.call('ZREM', ends, gateway)
  redis.call('ZREM', queue, gateway)
  redis.call('ZREM', limits, gateway)
end

local function enqueue(gateway)
  number = number + 1
  redis.call('ZADD', queue, number, gateway)
end

for _, gateway in ipairs(redis.call('ZRANGEBYSCORE', ends, '-inf', now)) do
  remove(gateway)
end

local mine = get(who)
local is_late = mine and seq <= mine.seq
if not is_late then
  version = version + 1
  local had, had_limit, was_queued = 0, nil, false
  if mine then
    had, had_limit, was_queued = mine.slots, mine.limit, ask_of(mine) > 0
    asked = asked - ask_of(mine)
  end
  local kept = math.min(had, keep)
  leased = leased - (had - kept)
  mine = { seq = seq, slots = kept, want = math.max(want, kept), limit = slots, version = version }
  read[who] = mine
  written[who] = true
  local asks = ask_of(mine)
  if was_queued and (kept < had or asks == 0) then
    redis.call('ZREM', queue, who)
    was_queued = false
  end
  if asks > 0 and not was_queued then
    enqueue(who)
  end
  asked = asked + asks
  if had_limit ~= slots then
    redis.call('ZADD', limits, slots, who)
  end
  redis.call('ZADD', ends, now + lease, who)
end

local lowest = redis.call('ZRANGE', limits, 0, 0, 'WITHSCORES')
local limit = tonumber(lowest[2] or 0)
local told = {}

if not is_late then
  local waiting = nil
  while asked > 0 and leased < limit do
    waiting = waiting or redis.call('ZCARD', queue)
    local gateway = redis.call('ZRANGE', queue, 0, 0)[1]
    if not gateway then
      break
    end
    local member = get(gateway)
    if not member then
      -- The record of this gateway is lost, and so is its wish. It leaves the queue.
      redis.call('ZREM', queue, gateway)
      waiting = waiting - 1
    else
      local given = math.min(ask_of(member), math.ceil((limit - leased) / waiting))
      version = version + 1
      member.slots = member.slots + given
      member.version = version
      leased = leased + given
      asked = asked - given
      written[gateway] = true
      told[gateway] = true
      if ask_of(member) > 0 then
        enqueue(gateway)
      else
        redis.call('ZREM', queue, gateway)
        waiting = waiting - 1
      end
    end
  end
  local free = math.max(0, limit - leased)
  if free > 0 then
    local given = math.min(ahead, free)
    version = version + 1
    mine.slots = mine.slots + given
    mine.want = mine.want + given
    mine.version = version
    leased = leased + given
  end
  if told_none and (asked > 0 or leased > limit) then
    told_none = false
    version = version + 1
    for _, gateway in ipairs(redis.call('ZRANGE', ends, 0, -1)) do
      local member = get(gateway)
      if member and member.slots > 0 then
        member.version = version
        written[gateway] = true
        told[gateway] = true
      end
    end
  end
  told[who] = nil
end

local gateways = redis.call('ZCARD', ends)
local fair = math.floor(limit / math.max(1, gateways))

local function others_of(member)
  local others = asked - ask_of(member) + math.max(0, leased - limit)
  told_none = told_none or (others == 0 and member.slots > 0)
  return others
end

local answer = { mine.slots, mine.version, others_of(mine), fair, limit }
for gateway in pairs(told) do
  local member = get(gateway)
  local text = string.format('%d %.0f %d %d %s', member.slots, member.version, others_of(member), fair, name)
  redis.call('PUBLISH', channel .. gateway, text)
end

if mine.slots == 0 and mine.want == 0 then
  remove(who)
  gateways = gateways - 1
end
if gateways <= 0 then
  redis.call('DEL', members, ends, queue, limits)
  return answer
end

local set = {
  '#leased', leased, '#asked', asked, '#number', string.format('%.0f', number),
  '#version', string.format('%.0f', version), '#told', told_none and '1' or '0',
}
for gateway in pairs(written) do
  local it = get(gateway)
  set[#set + 1] = gateway
  set[#set + 1] = string.format('%.0f %d %d %d %.0f', it.seq, it.slots, it.want, it.limit, it.version)
end
local is_renewed = expires < now + 5 * lease
if is_renewed then
  set[#set + 1] = '#expires'
  set[#set + 1] = string.format('%.0f', now + 10 * lease)
end
redis.call('HSET', members, unpack(set))
if is_renewed then
  -- The keys expire, so that an endpoint that all gateways have left does not stay in Redis.
  for _, key in ipairs(KEYS) do
    redis.call('PEXPIRE', key, 10 * lease)
  end
end
return answer
