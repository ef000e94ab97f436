-- Common to all scripts of limits. KEYS[1]: a hash, what one tenant used; KEYS[2]: a sorted set, its requests now.
--
-- For 'r' (requests) and 't' (tokens) the hash has KIND:total, KIND:SECOND for each second something was used in,
-- KIND:head, before which there is none, and KIND:tail, the newest. What was used in a second counts until 61 seconds
-- later, so that no 60 seconds, wherever they begin, ever hold more than the limit.
-- Time is the server's, and never goes back: where its clock does, `shift` makes up for it.
local hash, slots = KEYS[1], KEYS[2]
local LASTS = 61

local function time()
  local t = redis.call('TIME')
  local known = redis.call('HMGET', hash, 'last', 'shift')
  local last, shift = tonumber(known[1] or 0), tonumber(known[2] or 0)
  local now = tonumber(t[1]) + tonumber(t[2]) / 1e6 + shift
  if now < last then
    redis.call('HSET', hash, 'shift', string.format('%.6f', shift + last - now))
    now = last
  end
  redis.call('HSET', hash, 'last', string.format('%.6f', now))
  return now
end

local function number(name)
  return tonumber(redis.call('HGET', hash, name) or 0)
end

-- The total of a kind, without what counts no more.
local function total(kind, second)
  local sum, head = number(kind .. ':total'), number(kind .. ':head')
  while sum > 0 and head <= second - LASTS do
    local part = kind .. ':' .. head
    sum = sum - number(part)
    redis.call('HDEL', hash, part)
    head = head + 1
  end
  if sum <= 0 then
    sum, head = 0, second
  end
  redis.call('HSET', hash, kind .. ':total', sum, kind .. ':head', head)
  return sum
end

local function add(kind, second, amount)
  if amount > 0 then
    redis.call('HINCRBY', hash, kind .. ':' .. second, amount)
    redis.call('HINCRBY', hash, kind .. ':total', amount)
    redis.call('HSET', hash, kind .. ':tail', second)
  end
end

local function keep(lease)
  redis.call('EXPIRE', hash, 3 * LASTS + 2 * lease)
  redis.call('EXPIRE', slots, 2 * lease)
end
