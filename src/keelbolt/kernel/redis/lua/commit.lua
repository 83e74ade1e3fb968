-- commit: runs all checks against the state before the commit, then all writes.
--
-- Arguments after the head of each call: the number of shapes, name and text of each; then the operations, each a code
-- and its arguments. Returns {1, outcomes…} or {0, index of the operation, reason, value found}.

local Commit = {}

local Refused = {}

local function refuse(reason, found)
  return {Refused, reason, found}
end

-- ---------------------------------------------------------------------------------------------------------- checks

local function check_version(turn, op)
  local state = Records.live(turn, op.collection, op.key)
  if op.version == '' then
    if not state and op.patch then
      return refuse('present', 0)
    end
  elseif not state or state.version ~= tonumber(op.version) then
    return refuse('version', state and state.version or 0)
  end
end

local function check_absent(turn, op)
  local state = Records.live(turn, op.collection, op.key)
  if state then
    return refuse('absent', state.version)
  end
end

local function check_present(turn, op)
  if not Records.live(turn, op.collection, op.key) then
    return refuse('present', 0)
  end
end

local function check_field(turn, op)
  local state = Records.live(turn, op.collection, op.key)
  if not state then
    return refuse('present', 0)
  end
  local token = Values.unpack(state.fields)[op.field]
  local piece = Values.piece(token)
  local found = false
  for _, wanted in ipairs(op.pieces) do
    found = found or wanted == piece
  end
  if found ~= op.wanted then
    return refuse('field', token or '')
  end
end

local function check_head(turn, op)
  local state = Logs.load(turn, op.log, op.stream)
  if state.head ~= op.seq then
    return refuse('head', state.head)
  end
end

local function check_unwritten(turn, op)
  local state = Logs.load(turn, op.log, op.stream)
  if state.head > 0 then
    return refuse('head', state.head)
  end
end

local function check_fence(turn, op)
  local item = Work.load(turn, op.queue, op.key)
  if not item or item.state ~= 'held' or item.fence ~= op.fence then
    return refuse('fence', item and item.fence or 0)
  end
end

local function check_free(turn, op)
  local item = Work.load(turn, op.queue, op.key)
  if op.worker ~= '' and item and item.state == 'held' then
    return refuse('held', item.fence)
  end
end

local function check_blob(turn, op)
  if not Blobs.there(turn, op.digest) then
    return refuse('blob', 0)
  end
end

-- ---------------------------------------------------------------------------------------------------------- writes

local function put(turn, op)
  return Records.put(turn, op.collection, op.key, op.hash, op.fields, op.body, op.checksum, op.expires_in, op.first)
end

local function complete(turn, op)
  local item = Work.load(turn, op.queue, op.key)
  if item.again_at then
    Work.wait(turn, item, item.again_at, 0, '')
    return 1
  end
  Work.remove(turn, item)
  return 0
end

local function release(turn, op)
  local item = Work.load(turn, op.queue, op.key)
  local ready_at = turn.now + op.ready_in
  if item.again_at then
    ready_at = math.min(ready_at, item.again_at)
  end
  Work.wait(turn, item, ready_at, item.attempt - 1, '')
  return 0
end

local function bury(turn, op)
  local item = Work.load(turn, op.queue, op.key)
  local dead = Work.copy(item, {state = 'dead', reason = op.reason})
  dead.holder = nil
  Work.save(turn, item, dead)
  return 0
end

local function retry(turn, op)
  local item = Work.load(turn, op.queue, op.key)
  if item.attempt >= item.max_attempts then
    bury(turn, op)
    return 1
  end
  Work.wait(turn, item, turn.now + op.ready_in, item.attempt, op.reason)
  return 0
end

-- ------------------------------------------------------------------------------------------------------ operations

local function record(turn)
  return {collection = Turn.next(turn), key = Turn.next(turn)}
end

local function content(turn)
  local op = record(turn)
  op.hash, op.fields, op.body = Turn.next(turn), Turn.next(turn), Turn.next(turn)
  op.checksum, op.expires_in = Turn.next(turn), Turn.next(turn)
  return op
end

local function versioned(turn)
  local op = record(turn)
  op.version = Turn.next(turn)
  return op
end

local function field(wanted)
  return function(turn)
    local op = record(turn)
    op.wanted, op.field, op.pieces = wanted, Turn.next(turn), {}
    for place = 1, Turn.number(turn) do
      op.pieces[place] = Turn.next(turn)
    end
    return op
  end
end

local function stream(turn)
  return {log = Turn.next(turn), stream = Turn.next(turn)}
end

local function item(turn)
  return {queue = Turn.next(turn), key = Turn.next(turn)}
end

local function fenced(turn)
  local op = item(turn)
  op.fence = Turn.number(turn)
  return op
end

local function blob(turn)
  return {digest = Turn.next(turn), holder = Turn.next(turn)}
end

-- code: {reader of the arguments, check, write}
local OPERATIONS = {
  version = {versioned, check_version},
  absent = {record, check_absent},
  present = {record, check_present},
  ['in'] = {field(true), check_field},
  notin = {field(false), check_field},
  insert = {content, check_absent, put},
  restore = {
    function(turn)
      local version = Turn.number(turn)
      local op = content(turn)
      op.first = version
      return op
    end,
    check_absent,
    put,
  },
  put = {content, nil, put},
  replace = {
    function(turn)
      local version = Turn.next(turn)
      local op = content(turn)
      op.version = version
      return op
    end,
    check_version,
    put,
  },
  patch = {
    function(turn)
      local op = versioned(turn)
      op.patch, op.names, op.tokens = true, {}, {}
      for place = 1, Turn.number(turn) do
        op.names[place], op.tokens[place] = Turn.next(turn), Turn.next(turn)
      end
      return op
    end,
    check_version,
    function(turn, op)
      return Records.patch(turn, op.collection, op.key, op.names, op.tokens)
    end,
  },
  delete = {
    versioned,
    check_version,
    function(turn, op)
      Records.remove(turn, op.collection, op.key)
      return 0
    end,
  },
  take = {
    record,
    check_present,
    function(turn, op)
      return Records.take(turn, op.collection, op.key)
    end,
  },
  head = {
    function(turn)
      local op = stream(turn)
      op.seq = Turn.number(turn)
      return op
    end,
    check_head,
  },
  append = {
    function(turn)
      local op = stream(turn)
      op.drafts = {}
      for place = 1, Turn.number(turn) * 4 do
        op.drafts[place] = Turn.next(turn)
      end
      return op
    end,
    nil,
    function(turn, op)
      return Logs.append(turn, Logs.load(turn, op.log, op.stream), op.drafts)
    end,
  },
  start = {
    function(turn)
      local op = stream(turn)
      op.floor = Turn.number(turn)
      return op
    end,
    check_unwritten,
    function(turn, op)
      Logs.start(turn, Logs.load(turn, op.log, op.stream), op.floor)
      return 0
    end,
  },
  trim = {
    function(turn)
      local op = stream(turn)
      op.through = Turn.number(turn)
      return op
    end,
    nil,
    function(turn, op)
      Logs.trim(turn, Logs.load(turn, op.log, op.stream), op.through)
      return 0
    end,
  },
  drop = {
    stream,
    nil,
    function(turn, op)
      Logs.drop(turn, Logs.load(turn, op.log, op.stream))
      return 0
    end,
  },
  fence = {fenced, check_fence},
  enqueue = {
    function(turn)
      local op = item(turn)
      op.lane, op.priority, op.ready_in = Turn.next(turn), Turn.number(turn), Turn.number(turn)
      op.max_attempts, op.worker, op.lease = Turn.number(turn), Turn.next(turn), Turn.number(turn)
      return op
    end,
    check_free,
    function(turn, op)
      return Work.enqueue(
        turn, op.queue, op.key, op.lane, op.priority, op.ready_in, op.max_attempts, op.worker, op.lease
      )
    end,
  },
  complete = {fenced, check_fence, complete},
  release = {
    function(turn)
      local op = fenced(turn)
      op.ready_in = Turn.number(turn)
      return op
    end,
    check_fence,
    release,
  },
  retry = {
    function(turn)
      local op = fenced(turn)
      op.reason, op.ready_in = Turn.next(turn), Turn.number(turn)
      return op
    end,
    check_fence,
    retry,
  },
  bury = {
    function(turn)
      local op = fenced(turn)
      op.reason = Turn.next(turn)
      return op
    end,
    check_fence,
    bury,
  },
  remove = {
    item,
    nil,
    function(turn, op)
      local found = Work.load(turn, op.queue, op.key)
      if found then
        Work.remove(turn, found)
      end
      return 0
    end,
  },
  attach = {
    blob,
    check_blob,
    function(turn, op)
      Blobs.attach(turn, op.digest, op.holder)
      return 0
    end,
  },
  detach = {
    blob,
    nil,
    function(turn, op)
      Blobs.detach(turn, op.digest, op.holder)
      return 0
    end,
  },
}

function Commit.commit(turn)
  Shapes.given(turn)
  local known = Turn.next(turn)
  local operations = {}
  local last = #turn.args
  while turn.at <= last do
    local kind = OPERATIONS[Turn.next(turn)]
    local op = kind[1](turn)
    op.kind = kind
    operations[#operations + 1] = op
  end
  for place, op in ipairs(operations) do
    local check = op.kind[2]
    local refusal = check and check(turn, op)
    if refusal then
      return {0, place, refusal[2], refusal[3]}
    end
  end
  local answer = {1}
  for _, op in ipairs(operations) do
    local write = op.kind[3]
    answer[#answer + 1] = write and write(turn, op) or 0
  end
  if known == '' then
    Turn.note(turn, 'partition')
  end
  return answer
end
