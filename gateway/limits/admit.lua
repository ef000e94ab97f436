-- One request asks to go on. ARGV: gateway, request, limits of requests, tokens and concurrency (-1: none), tokens
-- wanted, seconds a slot lasts, requests and tokens that this gateway let pass alone, and all that it let pass in the
-- last minute, which is added instead where the server has lost what this gateway told it.
-- Returns: refused by requests, by tokens, by concurrency (0 or 1); requests and tokens used; milliseconds until none
-- of them count, each; milliseconds until there is room; the second it counts in.
local gateway, request = ARGV[1], ARGV[2]
local limit = { r = tonumber(ARGV[3]), t = tonumber(ARGV[4]) }
local most, wanted, lease = tonumber(ARGV[5]), { r = 1, t = tonumber(ARGV[6]) }, tonumber(ARGV[7])

local now = time()
local second = math.floor(now)
local known = redis.call('HEXISTS', hash, 'g:' .. gateway) == 1
if not known then
  redis.call('HSET', hash, 'g:' .. gateway, 1)
end
local before = known and 8 or 10
local used, over, wait = {}, { r = 0, t = 0 }, 0
for place, kind in ipairs({ 'r', 't' }) do
  used[kind] = total(kind, second)
  local told = tonumber(ARGV[before + place - 1])
  add(kind, second, told)
  used[kind] = used[kind] + told
  local missing = used[kind] + wanted[kind] - limit[kind]
  if limit[kind] >= 0 and missing > 0 then
    over[kind] = 1
    local at = number(kind .. ':head')
    while missing > 0 and at <= second do
      missing = missing - number(kind .. ':' .. at)
      at = at + 1
    end
    wait = math.max(wait, at - 1 + LASTS - now)
  end
end
local full = 0
if most >= 0 then
  redis.call('ZREMRANGEBYSCORE', slots, '-inf', now)
  if redis.call('ZCARD', slots) >= most then
    full = 1
  end
end
if over.r + over.t + full == 0 then
  for _, kind in ipairs({ 'r', 't' }) do
    add(kind, second, wanted[kind])
    used[kind] = used[kind] + wanted[kind]
  end
  if most >= 0 then
    redis.call('ZADD', slots, now + lease, request)
  end
end
keep(lease)
local until_free = {}
for place, kind in ipairs({ 'r', 't' }) do
  until_free[place] = used[kind] > 0 and math.ceil((number(kind .. ':tail') + LASTS - now) * 1000) or 0
end
return { over.r, over.t, full, used.r, used.t, until_free[1], until_free[2], math.ceil(wait * 1000), second }
