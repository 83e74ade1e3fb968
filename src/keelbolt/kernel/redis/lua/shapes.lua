-- shapes: the indexes and counters of a collection's records.
--
-- A partition stores the shape of each of its collections ("version|equal,equal>order;…|field,field;…"), so that all
-- processes write the same indexes, independent of their own declarations. A new shape has indexes under new names;
-- a record stores the version that it was last indexed under.

local Shapes = {}

local parsed = {}
local parsed_count = 0

local function names(text)
  local list = {}
  for name in string.gmatch(text, '[^,]+') do
    list[#list + 1] = name
  end
  return list
end

function Shapes.parse(text)
  local shape = parsed[text]
  if shape then
    return shape
  end
  local version, indexes, counters = string.match(text, '^(%d+)|([^|]*)|([^|]*)$')
  shape = {version = version, indexes = {}, counters = {}, text = text}
  for index in string.gmatch(indexes, '([^;]*);') do
    local equal, order = string.match(index, '^([^>]*)>?(.*)$')
    shape.indexes[#shape.indexes + 1] = {equal = names(equal), order = order}
  end
  for group in string.gmatch(counters, '([^;]*);') do
    shape.counters[#shape.counters + 1] = names(group)
  end
  if parsed_count > 1000 then
    parsed, parsed_count = {}, 0
  end
  parsed[text] = shape
  parsed_count = parsed_count + 1
  return shape
end

-- args: how many, name and text of each: the declarations that the caller knows.
function Shapes.given(turn)
  for _ = 1, Turn.number(turn) do
    local name = Turn.next(turn)
    turn.given[name] = Turn.next(turn)
  end
end

-- Returns the shape of a collection in this partition; the first write to the collection stores it.
function Shapes.of(turn, collection)
  local shape = turn.shapes[collection]
  if shape then
    return shape
  end
  local text = redis.call('HGET', turn.base .. 'shapes', collection)
  if not text then
    text = turn.given[collection]
    shape = Shapes.parse(text)
    redis.call('HSET', turn.base .. 'shapes', collection, text, collection .. '!', shape.version)
  end
  shape = Shapes.parse(text)
  turn.shapes[collection] = shape
  return shape
end

function Shapes.index_key(base, collection, shape, number)
  return base .. 'i/' .. collection .. '/' .. shape.version .. '/' .. number
end

function Shapes.counter_key(base, collection, shape, number)
  return base .. 'c/' .. collection .. '/' .. shape.version .. '/' .. number
end

local function group(fields, list)
  local parts = {}
  for place, name in ipairs(list) do
    parts[place] = Values.piece(fields[name])
  end
  return table.concat(parts)
end

local function entry(fields, index, tail)
  local parts = group(fields, index.equal)
  if index.order ~= '' then
    parts = parts .. Values.piece(fields[index.order])
  end
  return parts .. tail
end

-- Moves a record from its old index entries and counters to the new ones; either may be nil.
function Shapes.move(base, collection, shape, tail, old, new)
  for number, index in ipairs(shape.indexes) do
    local was = old and entry(old, index, tail)
    local is = new and entry(new, index, tail)
    if was ~= is then
      local place = Shapes.index_key(base, collection, shape, number)
      if was then
        redis.call('ZREM', place, was)
      end
      if is then
        redis.call('ZADD', place, 0, is)
      end
    end
  end
  for number, list in ipairs(shape.counters) do
    local was = old and group(old, list)
    local is = new and group(new, list)
    if was ~= is then
      local place = Shapes.counter_key(base, collection, shape, number)
      if was and redis.call('HINCRBY', place, was, -1) == 0 then
        redis.call('HDEL', place, was)
      end
      if is then
        redis.call('HINCRBY', place, is, 1)
      end
    end
  end
end
