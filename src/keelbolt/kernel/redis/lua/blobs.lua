-- blobs: b/<digest> names an upload (u: its id, s: size, n: chunks, e: when it expires without a holder),
-- o/<digest> is the set of its holders, u/<upload>/<number> are its chunks.

local Blobs = {}

local GRACE = 3600000000

function Blobs.there(turn, digest)
  return redis.call('EXISTS', turn.base .. 'b/' .. digest) == 1
end

local function expire_at(turn, digest, expires_at)
  local kept = tonumber(redis.call('HGET', turn.base .. 'b/' .. digest, 'e') or 0)
  expires_at = math.max(kept, expires_at)
  redis.call('HSET', turn.base .. 'b/' .. digest, 'e', Values.text(expires_at))
  if redis.call('EXISTS', turn.base .. 'o/' .. digest) == 0 then
    redis.call('ZADD', turn.base .. 'expiring', expires_at, 'b/' .. digest)
    Turn.note(turn, 'expires', Values.text(expires_at))
  end
end

function Blobs.attach(turn, digest, holder)
  redis.call('SADD', turn.base .. 'o/' .. digest, holder)
  redis.call('ZREM', turn.base .. 'expiring', 'b/' .. digest)
end

function Blobs.detach(turn, digest, holder)
  if redis.call('SREM', turn.base .. 'o/' .. digest, holder) == 1 then
    expire_at(turn, digest, turn.now + GRACE)
  end
end

function Blobs.forget(turn, upload)
  local number = 0
  while redis.call('UNLINK', turn.base .. 'u/' .. upload .. '/' .. number) == 1 do
    number = number + 1
  end
  redis.call('UNLINK', turn.base .. 'u/' .. upload)
  redis.call('ZREM', turn.base .. 'expiring', 'u/' .. upload)
end

function Blobs.begin(turn)
  local upload, keep = Turn.next(turn), Turn.number(turn)
  local expires_at = turn.now + math.max(keep, GRACE)
  redis.call('SET', turn.base .. 'u/' .. upload, Values.text(expires_at))
  redis.call('ZADD', turn.base .. 'expiring', expires_at, 'u/' .. upload)
  Turn.note(turn, 'expires', Values.text(expires_at))
  return 1
end

-- Names the upload by its digest. If the partition has the blob already, the existing one is kept, with a later expiry.
function Blobs.name(turn)
  local upload, digest, size, chunks = Turn.next(turn), Turn.next(turn), Turn.next(turn), Turn.next(turn)
  local keep = Turn.number(turn)
  local whole = redis.call('EXISTS', turn.base .. 'u/' .. upload) == 1
  for number = 0, tonumber(chunks) - 1 do -- chunks do not wait for replicas: a failover may have lost some
    whole = whole and redis.call('EXISTS', turn.base .. 'u/' .. upload .. '/' .. number) == 1
  end
  if not whole then
    for number = 0, tonumber(chunks) - 1 do -- a chunk that was written after a sweep of its upload
      redis.call('UNLINK', turn.base .. 'u/' .. upload .. '/' .. number)
    end
    return 0
  end
  local known = redis.call('HGET', turn.base .. 'b/' .. digest, 'u')
  if known and known ~= upload then
    Blobs.forget(turn, upload)
  elseif not known then
    redis.call('ZREM', turn.base .. 'expiring', 'u/' .. upload)
    redis.call('HSET', turn.base .. 'b/' .. digest, 'u', upload, 's', size, 'n', chunks)
    Turn.note(turn, 'partition')
  end
  expire_at(turn, digest, turn.now + keep)
  return 1
end

function Blobs.undo(turn)
  Blobs.forget(turn, Turn.next(turn))
  return 1
end

-- Returns true if the blob had no holder and is removed.
function Blobs.sweep(turn, digest)
  if redis.call('EXISTS', turn.base .. 'o/' .. digest) == 1 then
    redis.call('ZREM', turn.base .. 'expiring', 'b/' .. digest)
    return false
  end
  local upload = redis.call('HGET', turn.base .. 'b/' .. digest, 'u')
  if upload then
    Blobs.forget(turn, upload)
    redis.call('UNLINK', turn.base .. 'b/' .. digest, turn.base .. 'o/' .. digest)
    redis.call('ZREM', turn.base .. 'expiring', 'b/' .. digest)
  end
  return true
end
