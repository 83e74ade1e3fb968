-- work: one hash per item (w/<queue>/<key>), and the sorted sets that contain it.
--
--   ready/<queue>/<lane>    items that can be claimed, next one first
--   later/<queue>           items whose ready time is in the future
--   held/<queue>/<worker>   items that a worker holds, by fence;  leases/<queue>: when leases end
--   keys/<queue>/<state>    keys for listing

local Work = {}

local NAMES = {'s', 'l', 'p', 'r', 'a', 'm', 'f', 'h', 'g', 'x'}
local LISTED = {ready = 'waiting', later = 'waiting', held = 'held', dead = 'dead'}

Work.NAMES = NAMES

function Work.load(turn, queue, key)
  local name = queue .. '/' .. key
  local item = turn.work[name]
  if item == nil then
    local row = redis.call('HMGET', turn.base .. 'w/' .. name, unpack(NAMES))
    item = row[1]
      and {
        queue = queue,
        key = key,
        state = row[1],
        lane = row[2],
        priority = tonumber(row[3]),
        ready_at = tonumber(row[4]),
        attempt = tonumber(row[5]),
        max_attempts = tonumber(row[6]),
        fence = tonumber(row[7]),
        holder = row[8],
        again_at = row[9] ~= '' and tonumber(row[9]) or nil,
        reason = row[10],
      }
    turn.work[name] = item
  end
  return item
end

function Work.waiting(item)
  return item.state == 'ready' or item.state == 'later'
end

-- Higher priority first, then longer wait.
local function order(item)
  return string.format('%010.0f%016.0f', 2147483648 - item.priority, item.ready_at) .. item.key
end

local function leave(turn, item)
  local base, queue = turn.base, item.queue
  if item.state == 'ready' then
    local lane = base .. 'ready/' .. queue .. '/' .. item.lane
    redis.call('ZREM', lane, order(item))
    if redis.call('EXISTS', lane) == 0 then
      redis.call('ZREM', base .. 'lanes/' .. queue, item.lane)
      Turn.note(turn, 'empty', queue, item.lane)
    end
  elseif item.state == 'later' then
    redis.call('ZREM', base .. 'later/' .. queue, item.key)
  elseif item.state == 'held' then
    local held = base .. 'held/' .. queue .. '/' .. item.holder
    redis.call('ZREM', held, item.key)
    if redis.call('EXISTS', held) == 0 then
      redis.call('ZREM', base .. 'leases/' .. queue, item.holder)
      Turn.note(turn, 'unholds', queue, item.holder)
    end
  end
end

local function enter(turn, item)
  local base, queue = turn.base, item.queue
  if item.state == 'ready' then
    redis.call('ZADD', base .. 'ready/' .. queue .. '/' .. item.lane, 0, order(item))
    redis.call('ZADD', base .. 'lanes/' .. queue, 0, item.lane)
    Turn.note(turn, 'ready', queue, item.lane)
  elseif item.state == 'later' then
    redis.call('ZADD', base .. 'later/' .. queue, item.ready_at, item.key)
    Turn.note(turn, 'later', queue, Values.text(item.ready_at))
  elseif item.state == 'held' then
    redis.call('ZADD', base .. 'held/' .. queue .. '/' .. item.holder, item.fence, item.key)
  end
end

-- ``new`` has the state 'waiting', 'held' or 'dead'; ``old`` is nil or false for a new item.
function Work.save(turn, old, new)
  if new.state == 'waiting' then
    new.state = new.ready_at <= turn.now and 'ready' or 'later'
  end
  local queue, key = new.queue, new.key
  enter(turn, new) -- before leave(): a lane or holder that remains is never reported empty
  local was = old and LISTED[old.state]
  local is = LISTED[new.state]
  if old then
    local same = old.state == new.state
      and (
        (old.state == 'ready' and old.lane == new.lane and order(old) == order(new))
        or old.state == 'later'
        or (old.state == 'held' and old.holder == new.holder)
      )
    if not same then
      leave(turn, old)
    end
  end
  if was ~= is then
    if was then
      redis.call('ZREM', turn.base .. 'keys/' .. queue .. '/' .. was, key)
    end
    redis.call('ZADD', turn.base .. 'keys/' .. queue .. '/' .. is, 0, key)
  end
  redis.call(
    'HSET', turn.base .. 'w/' .. queue .. '/' .. key,
    's', new.state, 'l', new.lane, 'p', new.priority, 'r', Values.text(new.ready_at), 'a', new.attempt,
    'm', new.max_attempts, 'f', Values.text(new.fence), 'h', new.holder or '',
    'g', new.again_at and Values.text(new.again_at) or '', 'x', new.reason
  )
  turn.work[queue .. '/' .. key] = new
end

function Work.remove(turn, item)
  leave(turn, item)
  redis.call('ZREM', turn.base .. 'keys/' .. item.queue .. '/' .. LISTED[item.state], item.key)
  redis.call('UNLINK', turn.base .. 'w/' .. item.queue .. '/' .. item.key)
  turn.work[item.queue .. '/' .. item.key] = false
end

function Work.copy(item, changes)
  local new = {}
  for name, value in pairs(item) do
    new[name] = value
  end
  new.again_at = nil
  for name, value in pairs(changes) do
    new[name] = value
  end
  return new
end

function Work.wait(turn, item, ready_at, attempt, reason)
  local new = Work.copy(item, {state = 'waiting', ready_at = ready_at, attempt = attempt, reason = reason})
  new.holder = nil
  Work.save(turn, item, new)
end

-- Returns a fence greater than all earlier ones. It includes the time, so this holds after a failover that lost writes.
function Work.next_fence(turn)
  local key = turn.journal .. 'fence'
  local last = tonumber(redis.call('GET', key) or 0)
  local fence = math.max(last + 1, turn.now)
  redis.call('SET', key, Values.text(fence))
  return fence
end

function Work.hold(turn, item, worker)
  local held = Work.copy(item, {
    state = 'held',
    holder = worker,
    attempt = item.attempt + 1,
    fence = Work.next_fence(turn),
  })
  held.again_at = item.again_at
  Work.save(turn, item, held)
  return held
end

-- A worker that claims by Enqueue is alive: if it has no unexpired lease here, it gets its known remaining lease.
function Work.begin_lease(turn, queue, worker, lease)
  local leases = turn.base .. 'leases/' .. queue
  local running = redis.call('ZSCORE', leases, worker)
  local lease_until = running and tonumber(running) or 0
  if lease_until <= turn.now then
    lease_until = turn.now + lease
    redis.call('ZADD', leases, lease_until, worker)
  end
  Turn.note(turn, 'holds', queue, worker, Values.text(lease_until))
end

function Work.enqueue(turn, queue, key, lane, priority, ready_in, max_attempts, worker, lease)
  local item = Work.load(turn, queue, key)
  local ready_at = turn.now + ready_in
  local new = {
    queue = queue, key = key, state = 'waiting', lane = lane, priority = priority, ready_at = ready_at,
    attempt = 0, max_attempts = max_attempts, fence = 0, reason = '',
  }
  if item then
    new.fence = item.fence
    if Work.waiting(item) then
      new.ready_at = math.min(item.ready_at, ready_at)
      new.attempt, new.reason = item.attempt, item.reason
    elseif item.state == 'held' then
      new.state, new.ready_at, new.attempt = 'held', item.ready_at, item.attempt
      new.holder, new.reason = item.holder, item.reason
      new.again_at = item.again_at and math.min(item.again_at, ready_at) or ready_at
    end
  end
  if worker ~= '' then
    new.state, new.holder, new.attempt = 'held', worker, new.attempt + 1
    new.fence = Work.next_fence(turn)
  end
  Work.save(turn, item, new)
  if worker ~= '' then
    Work.begin_lease(turn, queue, worker, lease)
    return new.fence
  end
  return 0
end
