-- upkeep: sweeps expired data, and reindexes records after a changed declaration.

local Upkeep = {}

-- args: maximum numbers of records and of blobs. Returns how many of each were removed.
function Upkeep.sweep(turn)
  local records, blobs = Turn.number(turn), Turn.number(turn)
  local gone_records, gone_blobs = 0, 0
  local expiring = turn.base .. 'expiring'
  local due = redis.call('ZRANGE', expiring, '-inf', turn.now, 'BYSCORE', 'LIMIT', 0, records + blobs)
  for _, member in ipairs(due) do
    local kind, name = string.sub(member, 1, 1), string.sub(member, 3)
    if kind == 'r' then
      if gone_records < records then
        local slash = string.find(name, '/', 1, true)
        Records.remove(turn, string.sub(name, 1, slash - 1), string.sub(name, slash + 1))
        redis.call('ZREM', expiring, member)
        gone_records = gone_records + 1
      end
    elseif gone_blobs < blobs then
      if kind == 'u' then
        Blobs.forget(turn, name)
        gone_blobs = gone_blobs + 1
      elseif Blobs.sweep(turn, name) then
        gone_blobs = gone_blobs + 1
      end
    end
  end
  local soonest = redis.call('ZRANGE', expiring, 0, 0, 'WITHSCORES')
  Turn.note(turn, 'swept', soonest[2] or '')
  return {gone_records, gone_blobs}
end

-- args: collection, shape. New writes go to the new indexes from now on; existing records are indexed one by one.
function Upkeep.reshape(turn)
  local collection, text = Turn.next(turn), Turn.next(turn)
  local stored = redis.call('HGET', turn.base .. 'shapes', collection)
  if not stored then
    return 0
  end
  local old, new = Shapes.parse(stored), Shapes.parse(text)
  if tonumber(old.version) < tonumber(new.version) then
    redis.call('HSET', turn.base .. 'shapes', collection, text)
  end
  return 1
end

-- args: collection, keys…
function Upkeep.reindex(turn)
  local collection = Turn.next(turn)
  local shape = Shapes.parse(redis.call('HGET', turn.base .. 'shapes', collection))
  while turn.at <= #turn.args do
    local key = Turn.next(turn)
    local state = Records.load(turn, collection, key)
    if state and state.shape ~= shape.version then
      local tail = Values.key(key, state.hash)
      Shapes.move(turn.base, collection, shape, tail, nil, Values.unpack(state.fields))
      redis.call('HSET', Records.key(turn.base, collection, key), 'x', shape.version)
    end
  end
  return 1
end

-- args: collection, version. All records are indexed by this version now, so the older indexes are removed.
function Upkeep.reshaped(turn)
  local collection, version = Turn.next(turn), Turn.number(turn)
  local done = tonumber(redis.call('HGET', turn.base .. 'shapes', collection .. '!'))
  if done >= version then
    return 0
  end
  redis.call('HSET', turn.base .. 'shapes', collection .. '!', version)
  for old = done, version - 1 do
    for number = 1, 8 do
      redis.call(
        'UNLINK',
        turn.base .. 'i/' .. collection .. '/' .. old .. '/' .. number,
        turn.base .. 'c/' .. collection .. '/' .. old .. '/' .. number
      )
    end
  end
  return 1
end
