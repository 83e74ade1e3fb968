-- marks: a copy is being made of this store, or into it, or has taken its place; and what is touched while it is followed.
--
-- Both lie in a journal that every writing call reaches in its own step: on a single server it is the registry, in a
-- cluster there is one in each slot.
--
--   mark      what holds now, as JSON        touched    place: the number of its last change, and ! for a dropped stream
--   touches   the last such number           fence      the last fence that was given out

-- (Marks is declared at the top: turn.lua uses it before this.)

local REFUSALS = {moved = 'HFMOVED', filling = 'HFFILLING'}

local function refuse(code)
  return redis.error_reply(code .. ' this storage is marked')
end

-- A refusal, if nothing may be written now; else it is known from now on whether to note what is touched.
function Marks.obey(turn)
  local text = redis.call('GET', turn.journal .. 'mark')
  if not text then
    return nil
  end
  local mark = cjson.decode(text)
  if REFUSALS[mark.state] then
    return refuse(REFUSALS[mark.state])
  end
  if mark.state == 'paused' and turn.now < mark.paused_until then
    return refuse('HFPAUSED')
  end
  local ends = mark['until']
  turn.followed = ends == cjson.null or turn.now < ends
  return nil
end

function Marks.touch(turn, kind, family, name, reset)
  if turn.followed then
    local place = table.concat({kind, turn.partition, family, name}, '\0')
    turn.touched[place] = reset or turn.touched[place] or false
  end
end

-- That a stream was dropped stays noted until the copier has seen it.
function Marks.settle(turn)
  if next(turn.touched) == nil then
    return
  end
  local number = Values.text(redis.call('INCR', turn.journal .. 'touches'))
  local key = turn.journal .. 'touched'
  for place, reset in pairs(turn.touched) do
    if not reset then
      local known = redis.call('HGET', key, place)
      reset = known and string.sub(known, -1) == '!'
    end
    redis.call('HSET', key, place, number .. (reset and '!' or ''))
  end
end

-- args: state ('' for none), the copy's id as JSON, for how long ('' for ever), how long writing pauses.
function Marks.mark(keys, args)
  local state, copy, seconds, pause = args[1], args[2], args[3], tonumber(args[4])
  if state == '' then
    return redis.call('DEL', keys[1] .. 'mark')
  end
  local now = Turn.now()
  local ends = seconds == '' and 'null' or Values.text(now + tonumber(seconds))
  local text = string.format(
    '{"state": "%s", "copy": %s, "until": %s, "paused_until": %s}', state, copy, ends, Values.text(now + pause)
  )
  redis.call('SET', keys[1] .. 'mark', text)
  return 1
end

-- The copier's note goes with the mark.
function Marks.release(keys)
  return redis.call('DEL', keys[1] .. 'mark', keys[1] .. 'copy')
end

-- args: place and number of each. What was touched again meanwhile stays.
function Marks.forget(keys, args)
  local key = keys[1] .. 'touched'
  for at = 1, #args, 2 do
    if redis.call('HGET', key, args[at]) == args[at + 1] then
      redis.call('HDEL', key, args[at])
    end
  end
  return 1
end

function Marks.raise_fence(keys, args)
  local last = tonumber(redis.call('GET', keys[1] .. 'fence') or 0)
  redis.call('SET', keys[1] .. 'fence', Values.text(math.max(last, tonumber(args[1]))))
  return 1
end
