-- logs: a stream each (s/…: head and floor, l/…: the entries under <seq>-0, d/…: dedupe keys).

local Logs = {}

local CHUNK = 100

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

local function id(seq)
  return Values.text(seq) .. '-0'
end

function Logs.add(base, name, seq, at, kind, data, checksum, dedupe)
  if dedupe == '' then
    redis.call('XADD', base .. 'l/' .. name, seq .. '-0', 'k', kind, 'd', data, 'a', at, 'c', checksum)
  else
    redis.call('HSET', base .. 'd/' .. name, dedupe, seq)
    redis.call('XADD', base .. 'l/' .. name, seq .. '-0', 'k', kind, 'd', data, 'a', at, 'c', checksum, 'u', dedupe)
  end
end

-- drafts: kind, data, checksum, dedupe ('' or '=' and the key), four of each.
function Logs.append(turn, state, drafts)
  local base, head = turn.base, state.head
  local seqs = {}
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
      local data, checksum = drafts[place + 1], drafts[place + 2]
      Logs.add(base, state.name, Values.text(seq), at, drafts[place], data, checksum, dedupe)
    end
    seqs[#seqs + 1] = seq
  end
  if head > state.head then
    redis.call('HSET', base .. 's/' .. state.name, 'h', Values.text(head), 'f', Values.text(state.floor))
  end
  return seqs
end

local function field(row, wanted)
  for place = 1, #row, 2 do
    if row[place] == wanted then
      return row[place + 1]
    end
  end
  return nil
end

-- Dedupe keys go with their entries.
local function forget_dedupes(turn, state, through)
  local key = turn.base .. 'd/' .. state.name
  if redis.call('EXISTS', key) == 0 then
    return
  end
  local from = '-'
  while true do
    local rows = redis.call('XRANGE', turn.base .. 'l/' .. state.name, from, id(through), 'COUNT', CHUNK)
    for _, row in ipairs(rows) do
      local dedupe = field(row[2], 'u')
      if dedupe then
        redis.call('HDEL', key, dedupe)
      end
    end
    if #rows < CHUNK then
      return
    end
    from = '(' .. rows[#rows][1]
  end
end

function Logs.cut(turn, state, floor)
  forget_dedupes(turn, state, floor)
  redis.call('XTRIM', turn.base .. 'l/' .. state.name, 'MINID', '=', id(floor + 1))
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

-- One string for a whole page: to take apart many small replies costs a reader more than anything else.
local function packed(head, floor, page)
  local parts = {}
  for place, found in ipairs(page) do
    local row = found[2] -- k, kind, d, data, a, at, c, checksum
    local kind, data = row[2], row[4]
    local seq = string.sub(found[1], 1, -3)
    parts[place] = table.concat({seq, row[6], row[8], #kind, #data}, ' ') .. '\n' .. kind .. data
  end
  return {head, floor, table.concat(parts)}
end

-- A page: stops at its limit, or when it holds so many bytes, but has an entry if there is one.
function Logs.page(base, name, after, high, limit, max_bytes, backward)
  local low = id(after + 1)
  local page, size, count = {}, 0, 8
  while #page < limit do
    count = math.min(count, limit - #page)
    local rows
    if backward then
      rows = redis.call('XREVRANGE', base .. 'l/' .. name, high, low, 'COUNT', count)
    else
      rows = redis.call('XRANGE', base .. 'l/' .. name, low, high, 'COUNT', count)
    end
    for _, found in ipairs(rows) do
      local length = #found[2][4]
      if #page > 0 and size + length > max_bytes then
        return page
      end
      page[#page + 1] = found
      size = size + length
    end
    if #rows < count then
      break
    end
    if backward then
      high = '(' .. rows[#rows][1]
    else
      low = '(' .. rows[#rows][1]
    end
    -- Large entries are fetched a few at a time.
    count = math.max(1, math.min(256, math.floor(#page * (max_bytes - size) / math.max(size, 1))))
  end
  return page
end

function Logs.read(keys, args)
  local base, name = keys[1], args[1]
  local after, before = tonumber(args[2]), args[3]
  local row = redis.call('HMGET', base .. 's/' .. name, 'h', 'f')
  local head, floor = tonumber(row[1] or 0), tonumber(row[2] or 0)
  local high = before == '' and '+' or id(tonumber(before) - 1)
  local backward = args[6] == '1'
  local page = Logs.page(base, name, math.max(after, floor), high, tonumber(args[4]), tonumber(args[5]), backward)
  return packed(head, floor, page)
end
