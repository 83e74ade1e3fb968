-- reads: each reply is consistent.

local Reads = {}

local RECORD = {'v', 'f', 'b', 'c', 'e'}

local function live(row, now)
  return row[1] and (not row[5] or tonumber(row[5]) > now)
end

-- args: collection, keys…. Returns {version, fields, body, checksum} or 0 for each.
function Reads.records(keys, args)
  local now = Turn.now()
  local found = {}
  for place = 2, #args do
    local row = redis.call('HMGET', Records.key(keys[1], args[1], args[place]), unpack(RECORD))
    found[place - 1] = live(row, now) and {row[1], row[2], row[3], row[4]} or 0
  end
  return found
end

-- Returns the shape by which this partition's records can be queried, or nil and the error reply.
local function shape_of(base, collection, wanted)
  local row = redis.call('HMGET', base .. 'shapes', collection, collection .. '!')
  if not row[1] then
    return nil, {0}
  end
  local shape = Shapes.parse(row[1])
  if row[2] ~= shape.version or tonumber(shape.version) < wanted then
    return nil, {-1, row[1]}
  end
  if tonumber(shape.version) > wanted then
    return nil, {-2, row[1]}
  end
  return shape
end

local function key_of(base, collection, index, entry)
  local at = 1
  for _ = 1, #index.equal + (index.order ~= '' and 1 or 0) do
    at = Values.skip(entry, at)
  end
  local stop = string.find(entry, '\0', at, true) -- a key has no NUL
  if stop < #entry then
    return redis.call('HGET', base .. 'long', collection .. '/' .. string.sub(entry, stop + 2))
  end
  return string.sub(entry, at + 1, -2)
end

local function range(place, low, high, backward, offset, count)
  if backward then
    return redis.call('ZRANGE', place, '(' .. high, '[' .. low, 'BYLEX', 'REV', 'LIMIT', offset, count)
  end
  return redis.call('ZRANGE', place, '[' .. low, '(' .. high, 'BYLEX', 'LIMIT', offset, count)
end

-- args: collection, version, number, low, high, backward, limit, what ('records' or 'count').
-- Returns {1, entry, key, version, fields, body, checksum, …} or {1, count}; {0}: nothing was ever written;
-- {-1, shape}: not yet indexed by this version; {-2, shape}: a newer version was declared.
function Reads.scan(keys, args)
  local base, collection = keys[1], args[1]
  local shape, why = shape_of(base, collection, tonumber(args[2]))
  if not shape then
    return why
  end
  local number, low, high = tonumber(args[3]), args[4], args[5]
  local backward, limit, counting = args[6] == '1', tonumber(args[7]), args[8] == 'count'
  local index = shape.indexes[number]
  local place = Shapes.index_key(base, collection, shape, number)
  local now = Turn.now()
  local found, count, offset = {1}, 0, 0
  while count < limit do
    local wanted = math.min(limit - count, 500)
    local entries = range(place, low, high, backward, offset, wanted)
    for _, entry in ipairs(entries) do
      local key = key_of(base, collection, index, entry)
      local record = Records.key(base, collection, key)
      if counting then
        local expires_at = redis.call('HGET', record, 'e')
        if not expires_at or tonumber(expires_at) > now then
          count = count + 1
        end
      else
        local row = redis.call('HMGET', record, unpack(RECORD))
        if live(row, now) then
          count = count + 1
          found[#found + 1] = {entry, key, row[1], row[2], row[3], row[4]}
        end
      end
    end
    if #entries < wanted then
      break
    end
    offset = offset + wanted
  end
  if counting then
    return {1, count}
  end
  return found
end

-- args: collection, version, number, low, high, limit. For collections without expiry: counts all entries.
function Reads.length(keys, args)
  local shape, why = shape_of(keys[1], args[1], tonumber(args[2]))
  if not shape then
    return why
  end
  local place = Shapes.index_key(keys[1], args[1], shape, tonumber(args[3]))
  return {1, math.min(redis.call('ZLEXCOUNT', place, '[' .. args[4], '(' .. args[5]), tonumber(args[6]))}
end

-- args: collection, version, number, group.
function Reads.counter(keys, args)
  local shape, why = shape_of(keys[1], args[1], tonumber(args[2]))
  if not shape then
    return why
  end
  local place = Shapes.counter_key(keys[1], args[1], shape, tonumber(args[3]))
  return {1, tonumber(redis.call('HGET', place, args[4]) or 0)}
end

-- args: queue, keys…. Returns the time, and a row (or 0) for each.
function Reads.work(keys, args)
  local found = {Turn.now()}
  for place = 2, #args do
    local row = redis.call('HMGET', keys[1] .. 'w/' .. args[1] .. '/' .. args[place], unpack(Work.NAMES))
    found[place] = row[1] and row or 0
  end
  return found
end

-- args: queue, state, after, limit. Returns the time, then key and row of each.
function Reads.list_work(keys, args)
  local place = keys[1] .. 'keys/' .. args[1] .. '/' .. args[2]
  local low = args[3] == '' and '-' or '(' .. args[3]
  local found = {Turn.now()}
  for _, key in ipairs(redis.call('ZRANGE', place, low, '+', 'BYLEX', 'LIMIT', 0, tonumber(args[4]))) do
    found[#found + 1] = key
    found[#found + 1] = redis.call('HMGET', keys[1] .. 'w/' .. args[1] .. '/' .. key, unpack(Work.NAMES))
  end
  return found
end

-- Returns the ready time of the item of this queue that is ready first; 0 if none waits.
local function oldest_of(base, queue)
  local oldest = 0
  for _, lane in ipairs(redis.call('ZRANGE', base .. 'lanes/' .. queue, 0, -1)) do
    local place, low = base .. 'ready/' .. queue .. '/' .. lane, '-'
    while true do -- the first of each priority
      local member = redis.call('ZRANGE', place, low, '+', 'BYLEX', 'LIMIT', 0, 1)[1]
      if not member then
        break
      end
      local ready_at = tonumber(string.sub(member, 11, 26))
      oldest = oldest == 0 and ready_at or math.min(oldest, ready_at)
      low = '(' .. string.sub(member, 1, 10) .. '\255'
    end
  end
  local soonest = redis.call('ZRANGE', base .. 'later/' .. queue, 0, 0, 'WITHSCORES')
  if soonest[2] then -- not yet moved to its lane by a claim, but it may be due
    oldest = oldest == 0 and tonumber(soonest[2]) or math.min(oldest, tonumber(soonest[2]))
  end
  return oldest
end

-- args: queues…. Returns the time, and for each queue the numbers of waiting, held and dead items, the ready time of the
-- oldest (0: none waits), and the number of items of each holder, all at one moment.
function Reads.work_counts(keys, args)
  local base, found = keys[1], {Turn.now()}
  for _, queue in ipairs(args) do
    local holders = {}
    for _, worker in ipairs(redis.call('ZRANGE', base .. 'leases/' .. queue, 0, -1)) do
      holders[#holders + 1] = worker
      holders[#holders + 1] = redis.call('ZCARD', base .. 'held/' .. queue .. '/' .. worker)
    end
    local counts = {}
    for place, state in ipairs({'waiting', 'held', 'dead'}) do
      counts[place] = redis.call('ZCARD', base .. 'keys/' .. queue .. '/' .. state)
    end
    found[#found + 1] = {counts[1], counts[2], counts[3], oldest_of(base, queue), holders}
  end
  return found
end

-- args: <log>/<stream>…. Returns the head of each, 0 for a missing stream.
function Reads.heads(keys, args)
  local found = {}
  for place, name in ipairs(args) do
    found[place] = tonumber(redis.call('HGET', keys[1] .. 's/' .. name, 'h') or 0)
  end
  return found
end
