-- export: reads rows by name for a copy. Each row is consistent.
--
-- Where rows can be large, a reply ends at a size limit; the caller requests the rest.

local Export = {}

local RECORD = {'v', 'f', 'b', 'c', 'e'}

-- args: bytes, collection and key of each. Returns the time, then a row (or 0) for each.
function Export.records(keys, args)
  local found, size, most = {Turn.now()}, 0, tonumber(args[1])
  for at = 2, #args, 2 do
    local row = redis.call('HMGET', Records.key(keys[1], args[at], args[at + 1]), unpack(RECORD))
    found[#found + 1] = row[1] and row or 0
    size = size + (row[3] and #row[3] or 0)
    if size >= most then
      break
    end
  end
  return found
end

-- args: log and stream of each. Returns head and floor (or 0) for each.
function Export.streams(keys, args)
  local found = {}
  for at = 1, #args, 2 do
    local row = redis.call('HMGET', keys[1] .. 's/' .. args[at] .. '/' .. args[at + 1], 'h', 'f')
    found[#found + 1] = row[1] and row or 0
  end
  return found
end

-- args: log/stream, after, limit, bytes. Returns one string, as Logs.read does.
function Export.entries(keys, args)
  local row = redis.call('HMGET', keys[1] .. 's/' .. args[1], 'h', 'f')
  local head, floor = tonumber(row[1] or 0), tonumber(row[2] or 0)
  local page = Logs.page(keys[1], args[1], floor, tonumber(args[2]), head, tonumber(args[3]), tonumber(args[4]), false)
  return table.concat(page)
end

-- args: queue and key of each. Returns the time, then a row (or 0) for each.
function Export.work(keys, args)
  local found = {Turn.now()}
  for at = 1, #args, 2 do
    local row = redis.call('HMGET', keys[1] .. 'w/' .. args[at] .. '/' .. args[at + 1], unpack(Work.NAMES))
    found[#found + 1] = row[1] and row or 0
  end
  return found
end

-- args: digests. Returns the time, then size, expiry, number of holders and of chunks (or 0) for each.
function Export.blobs(keys, args)
  local found = {Turn.now()}
  for at = 1, #args do
    local row = redis.call('HMGET', keys[1] .. 'b/' .. args[at], 's', 'e', 'n')
    local holders = redis.call('SCARD', keys[1] .. 'o/' .. args[at])
    found[#found + 1] = row[1] and {row[1], row[2], holders, row[3]} or 0
  end
  return found
end

-- args: digest, number of the first chunk, how many.
function Export.chunks(keys, args)
  local row = redis.call('HMGET', keys[1] .. 'b/' .. args[1], 'u', 'n')
  local found = {}
  if row[1] then
    local first = tonumber(args[2])
    for number = first, math.min(first + tonumber(args[3]), tonumber(row[2])) - 1 do
      found[#found + 1] = redis.call('GET', keys[1] .. 'u/' .. row[1] .. '/' .. number)
    end
  end
  return found
end
