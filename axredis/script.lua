-- One step of one process in one lane, all of it or nothing: give back, renew,
-- pause, ask. Every decision is made on the clock of this server, in integer
-- microseconds; a process tells durations, never times.
--
-- KEYS  pause; then for each scope (the lane, and the whole fleet if it has
--       limits): leases, ranks, expiries, one key for each rate
-- ARGV  waiter, ttl, hold, poll, grace, pause,
--       1 if the best ask's rank has been served before, distance of the best rank
--       that this process has waiting for the whole fleet's limits beside these
--       asks ('' = none), number of scopes;
--       for each scope: cap (0 = none), number of rates,
--         for each rate: limit, span, burst (0 = window);
--       number of frees, their ids; number of renewals, their ids;
--       number of asks, for each: id, distance of its rank; best rank first
-- Reply wait, where (0 = all granted, 1 = the lane, 2 = the whole fleet), how many
--       more the whole fleet's limits allow (-1 = not counted), when to ask for
--       who else waits for them, then 1 or 0 for each ask

local clock = redis.call('TIME')
local now = clock[1] * 1000000 + clock[2]
local MAX_POLL = 250000
local SPARE = 1000 -- milliseconds that a key outlives what it holds

local argument, declared = 0, 0
local function text()
  argument = argument + 1
  return ARGV[argument]
end
local function number()
  return tonumber(text())
end
local function key()
  declared = declared + 1
  return KEYS[declared]
end
local function int(x)
  return string.format('%.0f', x)
end
local function keep(k, micros)
  local ms = math.ceil(micros / 1000) + SPARE
  if redis.call('PTTL', k) < ms then
    redis.call('PEXPIRE', k, int(ms))
  end
end

local me, ttl, hold, poll, grace, pause = text(), number(), number(), number(), number(), number()
local served = number() == 1
local other = tonumber(text())
local pauseKey = key()
local scopes = {}
for s = 1, number() do
  local scope = {leases = key(), ranks = key(), expiries = key(), cap = number(), rates = {}}
  for r = 1, number() do
    scope.rates[r] = {key = key(), limit = number(), span = number(), burst = number()}
  end
  scopes[s] = scope
end
local lane, all = scopes[1], scopes[2]

-- The lane's own set also remembers who was granted, so that an ask which is
-- told twice is charged once; another scope's only matters with a cap.
local function holds(scope)
  return scope == lane or scope.cap > 0
end

for _ = 1, number() do
  local id = text()
  for _, scope in ipairs(scopes) do
    redis.call('ZREM', scope.leases, id)
  end
end
for _ = 1, number() do
  local id = text()
  for _, scope in ipairs(scopes) do
    if holds(scope) then
      redis.call('ZADD', scope.leases, int(now + ttl), id)
    end
  end
end

local stored = redis.call('GET', pauseKey)
local paused = (tonumber(stored or 0) or 0) - now
if pause > 0 and pause > paused then
  paused = pause
  redis.call('SET', pauseKey, int(now + pause), 'PX', int(math.ceil(pause / 1000)))
elseif paused > 0 then
  keep(pauseKey, paused)
elseif stored then
  redis.call('DEL', pauseKey)
end

-- No lease can end later than one that is made now: if one does, this server's
-- clock has been set back, and nobody may wait for it longer than for a new one.
local function sweepLeases(scope)
  redis.call('ZREMRANGEBYSCORE', scope.leases, '-inf', int(now))
  for _, id in ipairs(redis.call('ZRANGEBYSCORE', scope.leases, '(' .. int(now + ttl), '+inf')) do
    redis.call('ZADD', scope.leases, int(now + ttl), id)
  end
  keep(scope.leases, ttl)
end

for _, scope in ipairs(scopes) do
  if holds(scope) then
    sweepLeases(scope)
  end
end

local FIRST = -4e15 -- the distance of a rank too far away to tell
local function absolute(distance)
  if distance > FIRST then
    return now + distance
  end
  return distance
end
local asks, granted = {}, {}
for i = 1, number() do
  local ask = {id = text(), rank = number(), index = i}
  ask.rank = absolute(ask.rank)
  if redis.call('ZSCORE', lane.leases, ask.id) then
    granted[i] = 1
  else
    granted[i] = 0
    asks[#asks + 1] = ask
  end
end
if #granted == 0 then
  return {0, 0, -1, 0}
end

-- Spans differ by the room that each process leaves, a second at most: what counts
-- for longer was counted before this server's clock was set back.
local MOST_ROOM = 1000000
local function loadWindow(rate)
  redis.call('ZREMRANGEBYSCORE', rate.key, '-inf', int(now))
  redis.call('ZREMRANGEBYSCORE', rate.key, '(' .. int(now + rate.span + MOST_ROOM), '+inf')
  keep(rate.key, rate.span)
  rate.count = redis.call('ZCARD', rate.key)
  rate.room = rate.limit - rate.count
end
local function loadBucket(rate)
  rate.interval = rate.span / rate.limit
  rate.debt = 0
  local last, debt = string.match(redis.call('GET', rate.key) or '', '^(%d+) (%S+)$')
  if last then
    rate.debt = math.max(0, tonumber(debt) - math.max(0, now - tonumber(last)))
  end
  keep(rate.key, rate.debt)
  rate.room = math.floor(rate.burst - rate.debt / rate.interval + 1e-9)
end

-- Who waits: the best rank of each process, as long as it keeps asking. A
-- process whose waiting task is gone keeps the place for its next one: else two
-- processes whose tasks give up quickly would step back for each other for ever.
-- The place is spent if its rank has been served and what remains is unknown.
local spent = me .. '!'
local function sweepWaiters(scope)
  for _, waiter in ipairs(redis.call('ZRANGEBYSCORE', scope.expiries, '-inf', int(now))) do
    redis.call('ZREM', scope.ranks, waiter)
    redis.call('ZREM', scope.expiries, waiter)
  end
  local mine = redis.call('ZSCORE', scope.ranks, me)
  scope.place = math.huge
  if mine then
    if not redis.call('ZSCORE', scope.expiries, spent) then
      scope.place = tonumber(mine)
    end
    redis.call('ZREM', scope.ranks, me)
    redis.call('ZREM', scope.expiries, me, spent)
  end
  keep(scope.ranks, 0)
  keep(scope.expiries, 0)
  scope.best = tonumber(redis.call('ZRANGE', scope.ranks, 0, 0, 'WITHSCORES')[2] or math.huge)
end

local most = #asks
if paused > 0 then
  most = 0
end
for _, scope in ipairs(scopes) do
  scope.room = math.huge
  if scope.cap > 0 then
    scope.count = redis.call('ZCARD', scope.leases)
    scope.room = scope.cap - scope.count
  end
  for _, rate in ipairs(scope.rates) do
    if rate.burst == 0 then
      loadWindow(rate)
    else
      loadBucket(rate)
    end
    scope.room = math.min(scope.room, rate.room)
  end
  sweepWaiters(scope)
  most = math.min(most, math.max(0, scope.room))
end

local function outranked(ask)
  for _, scope in ipairs(scopes) do
    if scope.best < math.min(ask.rank, scope.place) then
      return scope
    end
  end
end

local k = 0
while k < most and not outranked(asks[k + 1]) do
  k = k + 1
  local ask = asks[k]
  granted[ask.index] = 1
  for _, scope in ipairs(scopes) do
    scope.place = math.huge
    if holds(scope) then
      redis.call('ZADD', scope.leases, int(now + hold), ask.id)
    end
    for _, rate in ipairs(scope.rates) do
      if rate.burst == 0 then
        redis.call('ZADD', rate.key, int(now + rate.span), ask.id)
      end
    end
  end
end
for _, scope in ipairs(scopes) do
  if k > 0 then
    if holds(scope) then
      keep(scope.leases, ttl)
    end
    for _, rate in ipairs(scope.rates) do
      if rate.burst == 0 then
        keep(rate.key, rate.span)
      else
        rate.debt = rate.debt + k * rate.interval
        redis.call('SET', rate.key, int(now) .. ' ' .. string.format('%.6f', rate.debt),
          'PX', int(math.ceil(rate.debt / 1000) + SPARE))
      end
    end
  end
end

-- How long until it may be the turn of one with so many better ones before it.
local function turnAfter(better)
  return math.min(MAX_POLL, poll * (1 + better))
end
local function ahead(scope, rank)
  return redis.call('ZCOUNT', scope.ranks, '-inf', '(' .. int(rank))
end
local function entryEnd(set, index, count)
  local entry = redis.call('ZRANGE', set, int(math.min(index, count - 1)), int(math.min(index, count - 1)), 'WITHSCORES')
  return tonumber(entry[2] or now) - now
end
local function rateWait(rate, better)
  if rate.burst > 0 then
    return rate.debt - (rate.burst - math.min(1 + better, rate.burst)) * rate.interval
  end
  local count = rate.count + k
  return entryEnd(rate.key, better + count - rate.limit, count)
end
local function scopeWait(scope, better)
  local wait = 0
  if scope.cap > 0 and scope.count + k >= scope.cap then
    local count = scope.count + k
    wait = math.min(turnAfter(better), entryEnd(scope.leases, count - scope.cap, count))
  end
  for _, rate in ipairs(scope.rates) do
    if rate.room <= k then
      wait = math.max(wait, rateWait(rate, better))
    end
  end
  return wait
end
local function waitIn(scope, rank, wait)
  local ends = math.ceil(wait * 1.1) + grace
  redis.call('ZADD', scope.ranks, int(rank), me)
  redis.call('ZADD', scope.expiries, int(now + ends), me)
  keep(scope.ranks, ends)
  keep(scope.expiries, ends)
  return ends
end

-- What this process has waiting for the whole fleet's limits, beside these asks.
local room, otherWait = -1, 0
if all then
  room = math.max(0, math.min(all.room - k, 1000))
end
if other then
  other = absolute(other)
  local better = ahead(all, other)
  otherWait = turnAfter(better)
  if room == 0 then
    otherWait = scopeWait(all, better)
  end
  otherWait = math.max(1000, math.ceil(otherWait))
end
if k == #asks then
  if other then
    waitIn(all, other, otherWait)
  end
  return {0, 0, room, otherWait, unpack(granted)}
end

-- Refused: how long until it may be this one's turn, and where it waits. It
-- waits in one place only, the lane first: who cannot start because of its lane
-- is in nobody's way elsewhere.
local refused = asks[k + 1]
local better = 0
for _, scope in ipairs(scopes) do
  better = better + ahead(scope, refused.rank)
end
local wait, place = math.max(0, paused), nil
if paused > 0 then
  place = lane
end
for _, scope in ipairs(scopes) do
  if scope.room <= k then
    wait = math.max(wait, scopeWait(scope, better))
    place = place or scope
  end
end
if not place then
  place = outranked(refused)
  wait = turnAfter(better)
end
wait = math.max(1000, math.ceil(wait))
local where, rank = 1, math.min(refused.rank, place.place)
if place == all then
  where = 2
  rank = math.min(rank, other or math.huge)
  otherWait = math.min(wait, other and otherWait or math.huge)
elseif other then
  waitIn(all, other, otherWait)
end
local ends = waitIn(place, rank, wait)
if k > 0 and refused.rank == asks[k].rank or served and refused.rank == asks[1].rank then
  redis.call('ZADD', place.expiries, int(now + ends), spent)
end
return {wait, where, room, otherWait, unpack(granted)}
