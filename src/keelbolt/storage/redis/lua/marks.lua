-- marks: writing is refused while a copy of this store is made, until one into it is whole, and after a move.
--
-- The keys lie where every writing call can reach them: in the registry of a single server, once in each slot of a cluster.
--
--   mark    what holds now, as JSON        fence    the last fence that was given out

-- (Marks is declared at the top: turn.lua uses it before this.)

local REFUSALS = {copying = 'HFPAUSED', moved = 'HFMOVED', filling = 'HFFILLING'}

-- The mark that holds now, or nil.
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

-- An error reply when nothing may be written now.
function Marks.obey(turn)
  local mark = present(turn.journal, turn.now)
  return mark and redis.error_reply(REFUSALS[mark.state] .. ' this storage is marked')
end

-- args: state ('' for none), the copy's id as JSON, for how long ('' for ever), and '1' when this copy's mark must hold
-- already. Returns 0 when it does not.
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

-- The copier's note goes with the mark.
function Marks.release(keys)
  return redis.call('DEL', keys[1] .. 'mark', keys[1] .. 'copy')
end

function Marks.raise_fence(keys, args)
  local last = tonumber(redis.call('GET', keys[1] .. 'fence') or 0)
  redis.call('SET', keys[1] .. 'fence', Values.text(math.max(last, tonumber(args[1]))))
  return 1
end
