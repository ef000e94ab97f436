-- An owner holds a chain. KEYS: base of the chain's keys, base of epochs.
-- ARGV: keys of 8 bytes each in one string, owner, tier, ms until it ends, owners of one key at most.
-- Returns the owner's epoch.
local base, epochs, packed, owner, tier = KEYS[1], KEYS[2], ARGV[1], ARGV[2], ARGV[3]
local ttl, most = tonumber(ARGV[4]), tonumber(ARGV[5])

local epoch = redis.pcall('GET', epochs .. owner)
if type(epoch) ~= 'string' or not string.match(epoch, '^%d+$') then epoch = redis.call('TIME')[1] end
redis.call('SET', epochs .. owner, epoch, 'PX', 2 * ttl)

for place = 1, #packed, 8 do
  local key = base .. string.sub(packed, place, place + 7)
  local old = redis.pcall('HGET', key, owner)
  if type(old) == 'table' then
    redis.call('DEL', key)
    old = false
  end
  local since, heat = string.match(old or '', '^(%d+):%l+:(%d+)$')
  heat = since == epoch and math.min(tonumber(heat) + 1, 1000000) or 1
  if not old and redis.call('HLEN', key) >= most then
    -- The one that was told least makes room, and before it any that was cleared since.
    local fields, least, whose = redis.call('HGETALL', key), math.huge, nil
    for at = 1, #fields, 2 do
      local began, told = string.match(fields[at + 1], '^(%d+):%l+:(%d+)$')
      local weight = (began and began == redis.pcall('GET', epochs .. fields[at])) and tonumber(told) or -1
      if weight < least then least, whose = weight, fields[at] end
    end
    if whose then redis.call('HDEL', key, whose) end
  end
  redis.call('HSET', key, owner, epoch .. ':' .. tier .. ':' .. string.format('%d', heat))
  redis.call('PEXPIRE', key, ttl)
end
return epoch
