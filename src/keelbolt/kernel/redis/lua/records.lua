-- records: one hash each: v (version), f (fields), b (body), c (the body's checksum), x (version of the shape that
-- indexes it), and optionally e (expiry) and h (hash of a long key).

local Records = {}

function Records.key(base, collection, key)
  return base .. 'r/' .. collection .. '/' .. key
end

-- Returns the stored record, expired or not; false if there is none.
function Records.load(turn, collection, key)
  local name = collection .. '/' .. key
  local state = turn.records[name]
  if state == nil then
    local row = redis.call('HMGET', Records.key(turn.base, collection, key), 'v', 'e', 'f', 'x', 'h')
    state = row[1]
      and {
        version = tonumber(row[1]),
        expires_at = row[2] and tonumber(row[2]),
        fields = row[3],
        shape = row[4],
        hash = row[5] or '',
      }
    turn.records[name] = state
  end
  return state
end

function Records.live(turn, collection, key)
  local state = Records.load(turn, collection, key)
  if state and state.expires_at and state.expires_at <= turn.now then
    return false
  end
  return state
end

local function expiry_member(collection, key)
  return 'r/' .. collection .. '/' .. key
end

local function reindex(turn, collection, key, hash, state, fields)
  local shape = Shapes.of(turn, collection)
  local indexed = state and state.shape == shape.version
  if indexed and state.fields == fields then
    return shape
  end
  local old = indexed and Values.unpack(state.fields) or nil
  local new = fields and Values.unpack(fields) or nil
  Shapes.move(turn.base, collection, shape, Values.key(key, hash), old, new)
  return shape
end

-- ``first`` is the version of a new record (nil: 1).
function Records.put(turn, collection, key, hash, fields, body, checksum, seconds, first)
  local live = Records.live(turn, collection, key)
  local version = live and live.version + 1 or first or 1
  local expires_at = seconds ~= '' and turn.now + tonumber(seconds) or nil
  Records.write(turn, collection, key, hash, version, fields, body, checksum, expires_at)
  return version
end

-- Writes a record and overwrites an existing one.
function Records.write(turn, collection, key, hash, version, fields, body, checksum, expires_at)
  local state = Records.load(turn, collection, key)
  local shape = reindex(turn, collection, key, hash, state, fields)
  local place = Records.key(turn.base, collection, key)
  redis.call('HSET', place, 'v', version, 'f', fields, 'b', body, 'c', checksum, 'x', shape.version)
  if hash ~= '' and not state then
    redis.call('HSET', place, 'h', hash)
    redis.call('HSET', turn.base .. 'long', collection .. '/' .. hash, key)
  end
  if expires_at then
    redis.call('HSET', place, 'e', Values.text(expires_at))
    redis.call('ZADD', turn.base .. 'expiring', expires_at, expiry_member(collection, key))
    Turn.note(turn, 'expires', Values.text(expires_at))
  elseif state and state.expires_at then
    redis.call('HDEL', place, 'e')
    redis.call('ZREM', turn.base .. 'expiring', expiry_member(collection, key))
  end
end

function Records.patch(turn, collection, key, names, tokens)
  local state = Records.load(turn, collection, key)
  local text = Values.patched(state.fields, names, tokens)
  local shape = reindex(turn, collection, key, state.hash, state, text)
  local version = state.version + 1
  redis.call('HSET', Records.key(turn.base, collection, key), 'v', version, 'f', text, 'x', shape.version)
  return version
end

-- Removes the stored record, expired or not.
function Records.remove(turn, collection, key)
  local state = Records.load(turn, collection, key)
  if not state then
    return
  end
  reindex(turn, collection, key, state.hash, state, nil)
  redis.call('UNLINK', Records.key(turn.base, collection, key))
  if state.hash ~= '' then
    redis.call('HDEL', turn.base .. 'long', collection .. '/' .. state.hash)
  end
  if state.expires_at then
    redis.call('ZREM', turn.base .. 'expiring', expiry_member(collection, key))
  end
end

function Records.take(turn, collection, key)
  local row = redis.call('HMGET', Records.key(turn.base, collection, key), 'v', 'f', 'b', 'c')
  Records.remove(turn, collection, key)
  row[1] = tonumber(row[1])
  return row
end
