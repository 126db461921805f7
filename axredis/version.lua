-- Says which configuration of a scope this process runs, and learns which others
-- have been seen within the last ttl.
--
-- KEYS  versions of the scope
-- ARGV  this process's version, ttl in microseconds
-- Reply the other versions

local clock = redis.call('TIME')
local now = clock[1] * 1000000 + clock[2]
local function int(x)
  return string.format('%.0f', x)
end
redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', int(now))
redis.call('ZADD', KEYS[1], int(now + ARGV[2]), ARGV[1])
redis.call('PEXPIRE', KEYS[1], int(math.ceil(ARGV[2] / 1000) + 1000))
local others = {}
for _, version in ipairs(redis.call('ZRANGE', KEYS[1], 0, -1)) do
  if version ~= ARGV[1] then
    others[#others + 1] = version
  end
end
return others
