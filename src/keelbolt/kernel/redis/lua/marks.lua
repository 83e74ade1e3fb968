-- marks: writes are refused while this store is being copied, until a copy into it is complete, and after a move.
--
-- Every writing call must reach these keys: they are in the registry of a single server, and in each slot of a cluster.
--
--   mark    the current mark, as JSON        fence    the last fence issued

-- (Marks is declared at the top, because turn.lua uses it before this file.)

local REFUSALS = {copying = 'HFPAUSED', moved = 'HFMOVED', filling = 'HFFILLING'}

-- Returns the current mark, or nil.
local function present(base, now)
  local text = redis.call('GET', base .. 'mark')
  if not text then
    return nil
  end
  local mark = cjson.decode(text)
  local ends = mark['until']
  if REFUSALS[mark.state] and (ends == cjson.null or now < ends) then
    return mark
  end
  return nil
end

-- Returns an error reply if the mark forbids writes.
function Marks.obey(turn)
  local mark = present(turn.journal, turn.now)
  return mark and redis.error_reply(REFUSALS[mark.state] .. ' this storage is marked')
end

-- args: state ('' for none), the copy's id as JSON, the duration ('' for ever), and '1' if this copy's mark must
-- already be set. Returns 0 if it is not.
function Marks.mark(keys, args)
  local state, copy, seconds = args[1], args[2], args[3]
  local now = Turn.now()
  if args[4] == '1' then
    local mark = present(keys[1], now)
    if not mark or mark.copy ~= cjson.decode('[' .. copy .. ']')[1] then
      return 0
    end
  end
  if state == '' then
    redis.call('DEL', keys[1] .. 'mark')
    return 1
  end
  local ends = seconds == '' and 'null' or Values.text(now + tonumber(seconds))
  redis.call('SET', keys[1] .. 'mark', string.format('{"state": "%s", "copy": %s, "until": %s}', state, copy, ends))
  return 1
end

-- Removes the mark and the copy's note.
function Marks.release(keys)
  return redis.call('DEL', keys[1] .. 'mark', keys[1] .. 'copy')
end

function Marks.raise_fence(keys, args)
  local last = tonumber(redis.call('GET', keys[1] .. 'fence') or 0)
  redis.call('SET', keys[1] .. 'fence', Values.text(math.max(last, tonumber(args[1]))))
  return 1
end
