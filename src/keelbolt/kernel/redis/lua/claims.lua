-- claims: claiming, renewing and releasing work items in one partition.

local Claims = {}

local PROMOTED = 1000

local function answer(item)
  return {item.key, item.fence, item.attempt, item.max_attempts, item.lane, item.priority}
end

local function lease_runs(turn, queue, worker, lease)
  local lease_until = turn.now + lease
  redis.call('ZADD', turn.base .. 'leases/' .. queue, lease_until, worker)
  Turn.note(turn, 'holds', queue, worker, Values.text(lease_until))
end

local function take_over(turn, queue, worker, limit, claims)
  local base = turn.base
  for _, dead in ipairs(redis.call('ZRANGE', base .. 'leases/' .. queue, '-inf', turn.now, 'BYSCORE')) do
    if #claims >= limit then
      return
    end
    local held = base .. 'held/' .. queue .. '/' .. dead
    local keys = redis.call('ZRANGE', held, 0, limit - #claims - 1)
    if #keys == 0 then
      redis.call('ZREM', base .. 'leases/' .. queue, dead)
      Turn.note(turn, 'unholds', queue, dead)
    end
    for _, key in ipairs(keys) do
      local item = Work.load(turn, queue, key)
      claims[#claims + 1] = answer(Work.hold(turn, item, worker))
    end
  end
end

-- Makes delayed items ready whose time has come.
local function promote(turn, queue)
  local later = turn.base .. 'later/' .. queue
  local due = redis.call('ZRANGE', later, '-inf', turn.now, 'BYSCORE', 'LIMIT', 0, PROMOTED)
  for _, key in ipairs(due) do
    local item = Work.load(turn, queue, key)
    Work.save(turn, item, Work.copy(item, {state = 'waiting'}))
  end
  local soonest = redis.call('ZRANGE', later, 0, 0, 'WITHSCORES')
  Turn.note(turn, 'next', queue, soonest[2] or '')
end

-- Claims one item of each given lane, in this order; before them, items of expired leases. Returns the items taken
-- over, and one entry per lane (0: the lane was empty).
function Claims.claim(turn)
  local queue, worker, lease, limit = Turn.next(turn), Turn.next(turn), Turn.number(turn), Turn.number(turn)
  local leases = turn.base .. 'leases/' .. queue
  if redis.call('ZSCORE', leases, worker) then
    redis.call('ZADD', leases, turn.now + lease, worker) -- a worker never takes over from itself
  end
  local over = {}
  take_over(turn, queue, worker, limit, over)
  promote(turn, queue)
  local picked = {}
  local count = #over
  while turn.at <= #turn.args do
    local lane = Turn.next(turn)
    local place = turn.base .. 'ready/' .. queue .. '/' .. lane
    local member = count < limit and redis.call('ZRANGE', place, '-', '+', 'BYLEX', 'LIMIT', 0, 1)[1]
    if member then
      local item = Work.load(turn, queue, string.sub(member, 27))
      picked[#picked + 1] = answer(Work.hold(turn, item, worker))
      count = count + 1
    else
      picked[#picked + 1] = 0
      if redis.call('EXISTS', place) == 0 then
        Turn.note(turn, 'empty', queue, lane)
      end
    end
  end
  if count > 0 then
    lease_runs(turn, queue, worker, lease)
  end
  return {over, picked}
end

-- Renews the lease if the worker holds items. Returns their number.
function Claims.renew(turn)
  local queue, worker, lease = Turn.next(turn), Turn.next(turn), Turn.number(turn)
  local held = redis.call('ZCARD', turn.base .. 'held/' .. queue .. '/' .. worker)
  if held > 0 then
    redis.call('ZADD', turn.base .. 'leases/' .. queue, turn.now + lease, worker)
  else
    redis.call('ZREM', turn.base .. 'leases/' .. queue, worker)
    Turn.note(turn, 'unholds', queue, worker)
  end
  return held
end

-- Releases all items without counting the attempt.
function Claims.retire(turn)
  local queue, worker = Turn.next(turn), Turn.next(turn)
  local keys = redis.call('ZRANGE', turn.base .. 'held/' .. queue .. '/' .. worker, 0, -1)
  for _, key in ipairs(keys) do
    local item = Work.load(turn, queue, key)
    local ready_at = item.again_at and math.min(turn.now, item.again_at) or turn.now
    Work.wait(turn, item, ready_at, item.attempt - 1, item.reason)
  end
  return #keys
end

-- Reports the state of this partition's queue to the registry: a repair after lost notes.
function Claims.survey(turn)
  local queue = Turn.next(turn)
  promote(turn, queue)
  for _, lane in ipairs(redis.call('ZRANGE', turn.base .. 'lanes/' .. queue, 0, -1)) do
    Turn.note(turn, 'ready', queue, lane)
  end
  local leases = redis.call('ZRANGE', turn.base .. 'leases/' .. queue, 0, -1, 'WITHSCORES')
  for place = 1, #leases, 2 do
    Turn.note(turn, 'holds', queue, leases[place], leases[place + 1])
  end
  return 1
end
