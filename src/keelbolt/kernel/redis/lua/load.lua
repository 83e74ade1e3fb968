-- load: writes rows of a copy, regardless of the mark. A row may exist already, because a restarted copy writes some
-- rows again. Rows whose parent does not exist are skipped: the source changed between two runs of the copy, which the
-- final comparison reports.

local Load = {}

local function each(turn, size, act)
  while turn.at <= #turn.args do
    local row = {}
    for place = 1, size do
      row[place] = Turn.next(turn)
    end
    act(unpack(row))
  end
  Turn.note(turn, 'partition')
  return 1
end

-- args: number of shapes, name and text of each; then the records.
function Load.records(turn)
  Shapes.given(turn)
  return each(turn, 8, function(collection, key, hash, version, fields, body, checksum, left)
    local expires_at = left ~= '' and turn.now + tonumber(left) or nil
    Records.write(turn, collection, key, hash, tonumber(version), fields, body, checksum, expires_at)
  end)
end

function Load.streams(turn)
  return each(turn, 4, function(log, stream, head, floor)
    local state = Logs.load(turn, log, stream)
    if state.there then
      Logs.cut(turn, state, tonumber(floor))
    end
    redis.call('HSET', turn.base .. 's/' .. state.name, 'h', head, 'f', floor)
  end)
end

function Load.entries(turn)
  local newest = {}
  return each(turn, 8, function(log, stream, seq, at, kind, data, checksum, dedupe)
    local state = Logs.load(turn, log, stream)
    if not state.there then
      return
    end
    local name = state.name
    if not newest[name] then
      newest[name] = Logs.newest(turn.base, name)
    end
    if tonumber(seq) > newest[name] then
      Logs.add(turn.base, name, seq, at, kind, data, checksum, dedupe)
      newest[name] = tonumber(seq)
    end
  end)
end

function Load.work(turn)
  return each(turn, 10, function(queue, key, state, lane, priority, left, attempt, max_attempts, fence, reason)
    Work.save(turn, Work.load(turn, queue, key), {
      queue = queue, key = key, state = state, lane = lane, priority = tonumber(priority),
      ready_at = turn.now + tonumber(left), attempt = tonumber(attempt), max_attempts = tonumber(max_attempts),
      fence = tonumber(fence), reason = reason,
    })
  end)
end

function Load.blobs(turn)
  return each(turn, 5, function(digest, size, chunks, upload, grace)
    local key = turn.base .. 'b/' .. digest
    if not Blobs.there(turn, digest) then
      redis.call('HSET', key, 'u', upload, 's', size, 'n', chunks)
    end
    if grace == '' then
      redis.call('HDEL', key, 'e')
      redis.call('ZREM', turn.base .. 'expiring', 'b/' .. digest)
    else
      local expires_at = turn.now + tonumber(grace)
      redis.call('HSET', key, 'e', Values.text(expires_at))
      redis.call('ZADD', turn.base .. 'expiring', expires_at, 'b/' .. digest)
      Turn.note(turn, 'expires', Values.text(expires_at))
    end
  end)
end

function Load.chunks(turn)
  return each(turn, 3, function(digest, number, data)
    local upload = redis.call('HGET', turn.base .. 'b/' .. digest, 'u')
    if upload then
      redis.call('SET', turn.base .. 'u/' .. upload .. '/' .. number, data)
    end
  end)
end

function Load.holdings(turn)
  return each(turn, 2, function(digest, holder)
    if Blobs.there(turn, digest) then
      Blobs.attach(turn, digest, holder)
    end
  end)
end

function Load.partitions(turn)
  Turn.note(turn, 'partition')
  return 1
end
