-- registry: lists the partitions with pending work or expired data. On a single server it is updated atomically with
-- the data. In a cluster it is in another slot, is updated afterwards, and may be out of date.

-- (Registry is declared at the top, because turn.lua uses it before this file.)

local PICKS = 256
local VISITS = 64

local function ready_member(lane, partition)
  return lane .. '\0' .. partition
end

function Registry.apply(base, partition, note)
  local kind, queue = note[1], note[2]
  if kind == 'ready' then
    redis.call('ZADD', base .. 'ready/' .. queue, 0, ready_member(note[3], partition))
  elseif kind == 'empty' then
    redis.call('ZREM', base .. 'ready/' .. queue, ready_member(note[3], partition))
  elseif kind == 'later' then
    redis.call('ZADD', base .. 'later/' .. queue, 'LT', note[3], partition)
  elseif kind == 'next' then
    if note[3] == '' then
      redis.call('ZREM', base .. 'later/' .. queue, partition)
    else
      redis.call('ZADD', base .. 'later/' .. queue, note[3], partition)
    end
  elseif kind == 'holds' then
    local worker, lease_until = note[3], note[4]
    redis.call('SADD', base .. 'holds/' .. worker, queue .. '/' .. partition)
    redis.call('ZADD', base .. 'holders', 'GT', lease_until, worker)
    redis.call('ZADD', base .. 'workers', 'GT', lease_until, worker)
  elseif kind == 'unholds' then
    local worker = note[3]
    redis.call('SREM', base .. 'holds/' .. worker, queue .. '/' .. partition)
    if redis.call('EXISTS', base .. 'holds/' .. worker) == 0 then
      redis.call('ZREM', base .. 'holders', worker)
    end
  elseif kind == 'expires' then
    redis.call('ZADD', base .. 'expiring', 'LT', note[2], partition)
  elseif kind == 'swept' then
    if note[2] == '' then
      redis.call('ZREM', base .. 'expiring', partition)
    else
      redis.call('ZADD', base .. 'expiring', note[2], partition)
    end
  elseif kind == 'partition' then
    redis.call('ZADD', base .. 'partitions', 0, partition)
  end
end

-- Applies the notes of a call at once, on a single server.
function Registry.settle(turn)
  if turn.registry == '' then
    return
  end
  for _, note in ipairs(turn.notes) do
    Registry.apply(turn.registry, turn.partition, note)
  end
  turn.notes = {}
end

-- Applies the notes of one partition that a separate call delivers.
function Registry.announce(turn)
  local count = Turn.number(turn)
  for _ = 1, count do
    local size = Turn.number(turn)
    local note = {}
    for place = 1, size do
      note[place] = Turn.next(turn)
    end
    Registry.apply(turn.base, turn.partition, note)
  end
  return count
end

-- Renews a worker's lease in the registry. Returns the places where it may hold items.
function Registry.hello(turn)
  local worker, lease = Turn.next(turn), Turn.number(turn)
  local lease_until = turn.now + lease
  redis.call('ZADD', turn.base .. 'workers', lease_until, worker)
  redis.call('ZADD', turn.base .. 'holders', 'XX', lease_until, worker)
  return redis.call('SMEMBERS', turn.base .. 'holds/' .. worker)
end

function Registry.goodbye(turn)
  local worker = Turn.next(turn)
  redis.call('ZREM', turn.base .. 'workers', worker)
  redis.call('ZREM', turn.base .. 'holders', worker)
  redis.call('DEL', turn.base .. 'holds/' .. worker)
  return 1
end

-- Returns the partitions to visit for this queue: those with expired leases, those where items became ready, and picks
-- of lanes in turn, with the partitions of each lane in turn. After the visits (``visited``), returns only the picks.
function Registry.pick(turn)
  local queue, need, visited = Turn.next(turn), Turn.number(turn), Turn.next(turn) == '1'
  local base = turn.base
  if visited then
    return {{}, {}, Registry.turns(base, queue, math.min(need, PICKS))}
  end
  local visits = {}
  for _, worker in ipairs(redis.call('ZRANGE', base .. 'holders', '-inf', turn.now, 'BYSCORE', 'LIMIT', 0, VISITS)) do
    for _, place in ipairs(redis.call('SMEMBERS', base .. 'holds/' .. worker)) do
      local slash = string.find(place, '/', 1, true)
      if string.sub(place, 1, slash - 1) == queue and #visits < VISITS then
        visits[#visits + 1] = string.sub(place, slash + 1)
      end
    end
  end
  local due = redis.call('ZRANGE', base .. 'later/' .. queue, '-inf', turn.now, 'BYSCORE', 'LIMIT', 0, VISITS)
  if #visits > 0 or #due > 0 then
    return {visits, due, {}}
  end
  return {visits, due, Registry.turns(base, queue, math.min(need, PICKS))}
end

local function first(key, low, high)
  return redis.call('ZRANGE', key, low, high, 'BYLEX', 'LIMIT', 0, 1)[1]
end

function Registry.turns(base, queue, need)
  local ready, cursors = base .. 'ready/' .. queue, base .. 'turn/' .. queue
  local served = redis.call('HGET', cursors, '')
  local lane = served and string.sub(served, 2)
  local picks, last = {}, {}
  while #picks < need do
    local member = (lane and first(ready, '(' .. lane .. '\1', '+')) or first(ready, '-', '+')
    if not member then
      break
    end
    lane = string.sub(member, 1, string.find(member, '\0', 1, true) - 1)
    local before = last[lane] or redis.call('HGET', cursors, '+' .. lane)
    local found = before and first(ready, '(' .. ready_member(lane, before), '(' .. lane .. '\1')
    found = found or first(ready, '[' .. lane .. '\0', '+')
    local partition = string.sub(found, #lane + 2)
    last[lane] = partition
    picks[#picks + 1] = {lane, partition}
  end
  if lane and #picks > 0 then
    redis.call('HSET', cursors, '', '+' .. lane)
    for name, partition in pairs(last) do
      redis.call('HSET', cursors, '+' .. name, partition)
    end
  elseif served then
    redis.call('DEL', cursors) -- nothing is ready: restart the rotation
  end
  return picks
end

-- Removes workers with an expired lease that hold nothing. Returns their number.
function Registry.bury(turn)
  local limit = Turn.number(turn)
  local gone = 0
  for _, worker in ipairs(redis.call('ZRANGE', turn.base .. 'workers', '-inf', turn.now, 'BYSCORE')) do
    if gone < limit and redis.call('EXISTS', turn.base .. 'holds/' .. worker) == 0 then
      redis.call('ZREM', turn.base .. 'workers', worker)
      gone = gone + 1
    end
  end
  return gone
end

-- Returns partitions with expired data.
function Registry.expired(turn)
  return redis.call('ZRANGE', turn.base .. 'expiring', '-inf', turn.now, 'BYSCORE', 'LIMIT', 0, VISITS)
end

-- Stores a declaration. Returns {version, previous version}; 0 if it is new or unchanged.
function Registry.declare(turn)
  local name, text = Turn.next(turn), Turn.next(turn)
  local stored = redis.call('HGET', turn.base .. 'catalog', name)
  local version = tonumber(redis.call('GET', turn.base .. 'generation') or 0)
  if stored then
    local bar = string.find(stored, '|', 1, true)
    version = tonumber(string.sub(stored, 1, bar - 1))
    if string.sub(stored, bar + 1) == text then
      return {version, 0}
    end
  end
  redis.call('HSET', turn.base .. 'catalog', name, (version + 1) .. '|' .. text)
  return {version + 1, stored and version or 0}
end

-- Sets the format of the data, never to an older one.
function Registry.found(turn)
  local format = Turn.number(turn)
  if format > tonumber(redis.call('GET', turn.base .. 'format') or 0) then
    redis.call('SET', turn.base .. 'format', format)
  end
  return 1
end
