-- logs: s/… holds head and floor, l/… the entries after the floor as a list, d/… the dedupe keys.
--
-- An entry is one string: "seq at checksum" and the lengths of kind, data and dedupe key, a line feed, and these three.
-- Logs have no gaps, so the index in the list follows from the number. (A stream of the server takes 4 KiB at least.)

local Logs = {}

local CHUNK = 100
local PUSHED = 1000 -- arguments of one call are limited

function Logs.load(turn, log, stream)
  local name = log .. '/' .. stream
  local state = turn.streams[name]
  if not state then
    local row = redis.call('HMGET', turn.base .. 's/' .. name, 'h', 'f')
    state = {name = name, there = row[1] and true, head = tonumber(row[1] or 0), floor = tonumber(row[2] or 0)}
    turn.streams[name] = state
  end
  return state
end

local function packed(seq, at, kind, data, checksum, dedupe)
  local lengths = #kind .. ' ' .. #data .. ' ' .. #dedupe
  return seq .. ' ' .. at .. ' ' .. checksum .. ' ' .. lengths .. '\n' .. kind .. data .. dedupe
end

local function data_size(entry)
  return tonumber(string.match(entry, '^%S+ %S+ %S+ %S+ (%d+)'))
end

local function dedupe_of(entry)
  local size = tonumber(string.match(entry, '^%S+ %S+ %S+ %S+ %S+ (%d+)'))
  return size > 0 and string.sub(entry, -size)
end

function Logs.add(base, name, seq, at, kind, data, checksum, dedupe)
  if dedupe ~= '' then
    redis.call('HSET', base .. 'd/' .. name, dedupe, seq)
  end
  redis.call('RPUSH', base .. 'l/' .. name, packed(seq, at, kind, data, checksum, dedupe))
end

-- Returns the number of the last stored entry; 0 if there is none.
function Logs.newest(base, name)
  local entry = redis.call('LINDEX', base .. 'l/' .. name, -1)
  return entry and tonumber(string.match(entry, '^%d+')) or 0
end

-- drafts: four values per entry: kind, data, checksum, dedupe ('' or '=' and the key).
function Logs.append(turn, state, drafts)
  local base, head = turn.base, state.head
  local seqs, entries = {}, {}
  local at = Values.text(turn.now)
  for place = 1, #drafts, 4 do
    local dedupe = drafts[place + 3]
    local seq
    if dedupe ~= '' then
      local kept = redis.call('HGET', base .. 'd/' .. state.name, dedupe)
      if kept and tonumber(kept) > state.floor then
        seq = tonumber(kept)
      end
    end
    if not seq then
      head = head + 1
      seq = head
      local text = Values.text(seq)
      if dedupe ~= '' then
        redis.call('HSET', base .. 'd/' .. state.name, dedupe, text)
      end
      entries[#entries + 1] = packed(text, at, drafts[place], drafts[place + 1], drafts[place + 2], dedupe)
    end
    seqs[#seqs + 1] = seq
  end
  for place = 1, #entries, PUSHED do
    redis.call('RPUSH', base .. 'l/' .. state.name, unpack(entries, place, math.min(place + PUSHED - 1, #entries)))
  end
  if head > state.head then
    redis.call('HSET', base .. 's/' .. state.name, 'h', Values.text(head), 'f', Values.text(state.floor))
  end
  return seqs
end

-- Removes the entries up to this number, and their dedupe keys.
function Logs.cut(turn, state, floor)
  local key, dedupes = turn.base .. 'l/' .. state.name, turn.base .. 'd/' .. state.name
  local count = floor - state.floor
  if redis.call('EXISTS', dedupes) == 1 then
    for first = 0, count - 1, CHUNK do
      for _, entry in ipairs(redis.call('LRANGE', key, first, math.min(first + CHUNK, count) - 1)) do
        local dedupe = dedupe_of(entry)
        if dedupe then
          redis.call('HDEL', dedupes, dedupe)
        end
      end
    end
  end
  if count > 0 then
    redis.call('LTRIM', key, count, -1)
  end
end

function Logs.start(turn, state, floor)
  if floor > 0 then
    redis.call('HSET', turn.base .. 's/' .. state.name, 'h', Values.text(floor), 'f', Values.text(floor))
  end
end

function Logs.trim(turn, state, through)
  local floor = math.min(through, state.head)
  if floor <= state.floor then
    return
  end
  Logs.cut(turn, state, floor)
  redis.call('HSET', turn.base .. 's/' .. state.name, 'f', Values.text(floor))
end

function Logs.drop(turn, state)
  if state.there then
    local base = turn.base
    redis.call('UNLINK', base .. 's/' .. state.name, base .. 'l/' .. state.name, base .. 'd/' .. state.name)
  end
end

-- Returns a page of the entries after ``after`` and up to ``last``; ``floor`` is the log's. The page ends at its limit
-- of entries or bytes, but has at least one entry if there is one.
function Logs.page(base, name, floor, after, last, limit, max_bytes, backward)
  local key = base .. 'l/' .. name
  local low, high = math.max(after, floor) - floor, last - floor - 1 -- indexes in the list, from 0
  local page, size, count = {}, 0, 8
  while #page < limit and low <= high do
    count = math.min(count, limit - #page, high - low + 1)
    local rows
    if backward then
      rows = redis.call('LRANGE', key, high - count + 1, high)
      high = high - count
    else
      rows = redis.call('LRANGE', key, low, low + count - 1)
      low = low + count
    end
    for place = 1, #rows do
      local entry = rows[backward and #rows + 1 - place or place]
      local length = data_size(entry)
      if #page > 0 and size + length > max_bytes then
        return page
      end
      page[#page + 1] = entry
      size = size + length
    end
    if #rows < count then
      break
    end
    -- Large entries are fetched a few at a time.
    count = math.max(1, math.min(256, math.floor(#page * (max_bytes - size) / math.max(size, 1))))
  end
  return page
end

-- Returns a page as one string: parsing many small replies would dominate the reader's cost.
function Logs.read(keys, args)
  local base, name = keys[1], args[1]
  local row = redis.call('HMGET', base .. 's/' .. name, 'h', 'f')
  local head, floor = tonumber(row[1] or 0), tonumber(row[2] or 0)
  local last = args[3] == '' and head or math.min(tonumber(args[3]) - 1, head)
  local backward = args[6] == '1'
  local page = Logs.page(base, name, floor, tonumber(args[2]), last, tonumber(args[4]), tonumber(args[5]), backward)
  return {head, floor, table.concat(page)}
end

-- Converts logs of format 1, which are streams of the server, to lists. args: names.
function Logs.relist(turn)
  while turn.at <= #turn.args do
    local name = Turn.next(turn)
    local key, old = turn.base .. 'l/' .. name, turn.base .. 'old/' .. name
    if redis.call('TYPE', key).ok == 'stream' then
      redis.call('RENAME', key, old)
      local from = '-'
      while true do
        local rows = redis.call('XRANGE', old, from, '+', 'COUNT', CHUNK)
        for _, found in ipairs(rows) do
          local row = found[2] -- k, kind, d, data, a, at, c, checksum, and optionally u, dedupe
          local seq = string.sub(found[1], 1, -3)
          redis.call('RPUSH', key, packed(seq, row[6], row[2], row[4], row[8], row[10] or ''))
        end
        if #rows < CHUNK then
          break
        end
        from = '(' .. rows[#rows][1]
      end
      redis.call('UNLINK', old)
    end
  end
  return 1
end
