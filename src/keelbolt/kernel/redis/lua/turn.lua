-- turn: shared by all calls. A writing call is executed once: its result is stored until its session's next batch, so
-- that a caller whose connection broke gets the result by sending the call again.

local Turn = {}

local KEEP_MS = 900000 -- longer than any retry

function Turn.now()
  local time = redis.call('TIME')
  return tonumber(time[1]) * 1000000 + tonumber(time[2])
end

-- args: session, number, mode (f: first of its batch here, a: sent again), registry ('' in a cluster), partition,
-- journal ('': the registry), … ``heeds``: the mark is checked.
function Turn.once(keys, args, act, heeds)
  local place = keys[1] .. 'x/' .. args[1]
  local number = args[2]
  if args[3] == 'a' then
    local kept = redis.call('HGET', place, number)
    if kept then
      return cmsgpack.unpack(kept)
    end
  elseif args[3] == 'f' then
    redis.call('DEL', place)
  end
  local turn = {
    base = keys[1],
    now = Turn.now(),
    registry = args[4],
    partition = args[5],
    journal = Turn.journal(keys[1], args),
    at = 7,
    args = args,
    notes = {},
    records = {},
    streams = {},
    work = {},
    shapes = {},
    given = {},
  }
  local refusal = heeds and Marks.obey(turn)
  if refusal then
    return refusal
  end
  local answer = act(turn)
  Registry.settle(turn)
  local result = {answer, turn.notes}
  redis.call('HSET', place, number, cmsgpack.pack(result))
  if args[3] ~= '' then
    redis.call('PEXPIRE', place, KEEP_MS)
  end
  return result
end

function Turn.journal(base, args)
  if args[6] ~= '' then
    return args[6]
  end
  return args[4] ~= '' and args[4] or base
end

function Turn.next(turn)
  local at = turn.at
  turn.at = at + 1
  return turn.args[at]
end

function Turn.number(turn)
  return tonumber(Turn.next(turn))
end

function Turn.note(turn, kind, ...)
  turn.notes[#turn.notes + 1] = {kind, ...}
end
