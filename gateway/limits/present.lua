-- Gateways that are there. KEYS[1]: a sorted set; ARGV: this one, seconds that it counts as there.
-- Returns how many there are.
local t = redis.call('TIME')
local now = tonumber(t[1])
redis.call('ZADD', KEYS[1], now + tonumber(ARGV[2]), ARGV[1])
redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', now)
redis.call('EXPIRE', KEYS[1], 10 * tonumber(ARGV[2]))
return redis.call('ZCARD', KEYS[1])
