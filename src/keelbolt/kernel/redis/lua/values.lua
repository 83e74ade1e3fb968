-- values: numbers as text, and the fields of a record.
--
-- A field is stored as a token: its order-preserving encoding, which can be decoded. Two kinds of token carry more:
-- "L" + four digits + encoding + text (a long string, whose encoding holds a hash), and "Z" + encoding (-0.0).

local Values = {}

local NONE = '\1'

-- Lua's own conversion would round large numbers.
function Values.text(number)
  return string.format('%.0f', number)
end

function Values.piece(token)
  if token == nil then
    return NONE
  end
  local mark = string.byte(token)
  if mark == 76 then
    return string.sub(token, 6, 5 + tonumber(string.sub(token, 2, 5)))
  end
  if mark == 90 then
    return string.sub(token, 2)
  end
  return token
end

-- Fields are stored as name=length:token. Returns name and token of the field at this position, and the next position.
function Values.field(text, at)
  local equals = string.find(text, '=', at, true)
  local colon = string.find(text, ':', equals, true)
  local size = tonumber(string.sub(text, equals + 1, colon - 1))
  return string.sub(text, at, equals - 1), string.sub(text, colon + 1, colon + size), colon + size + 1
end

function Values.unpack(text)
  local fields = {}
  local at = 1
  while at <= #text do
    local name, token
    name, token, at = Values.field(text, at)
    fields[name] = token
  end
  return fields
end

-- Returns the text with these fields changed, or removed ('' for a token). Fields keep their order; new ones come last.
function Values.patched(text, names, tokens)
  local changed, parts = {}, {}
  local function add(name, token)
    if token ~= '' then
      parts[#parts + 1] = name .. '=' .. #token .. ':' .. token
    end
  end
  for place, name in ipairs(names) do
    changed[name] = tokens[place]
  end
  local at = 1
  while at <= #text do
    local name, token
    name, token, at = Values.field(text, at)
    add(name, changed[name] or token)
    changed[name] = nil
  end
  for _, name in ipairs(names) do
    add(name, changed[name] or '')
  end
  return table.concat(parts)
end

-- Returns the position after the encoded value at this position.
function Values.skip(entry, at)
  local tag = string.byte(entry, at)
  if tag <= 3 then
    return at + 1
  end
  if tag < 32 then
    return at + 9
  end
  local place = at + 1
  while true do
    place = string.find(entry, '\0', place, true)
    local after = string.byte(entry, place + 1)
    if after == 255 then
      place = place + 2
    elseif after == 254 then
      return place + 34
    else
      return place + 1
    end
  end
end

-- Encodes the key as the last part of an index entry; a long key is replaced by its beginning and its hash.
function Values.key(key, hash)
  if hash == '' then
    return ' ' .. key .. '\0'
  end
  return ' ' .. string.sub(key, 1, 200) .. '\0\254' .. hash
end
