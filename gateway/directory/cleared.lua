-- An owner holds nothing. KEYS: its epoch. ARGV: the epoch that it was known by, ms.
-- Where another one stands there, somebody else has told of it already.
local now = redis.pcall('GET', KEYS[1])
if now == ARGV[1] then
  local next = math.max(tonumber(now) + 1, tonumber(redis.call('TIME')[1]))
  redis.call('SET', KEYS[1], string.format('%.0f', next), 'PX', ARGV[2])
end
return 1
