-- The longest prefix that anybody holds, by halving. KEYS: base of the chain's keys, base of epochs.
-- ARGV: keys of 8 bytes each in one string, how many are known already, owners of one key at most.
-- Returns owner, depth, tier, heat of each that was met, the longest first.
local base, epochs, packed = KEYS[1], KEYS[2], ARGV[1]
local low, high, most = tonumber(ARGV[2]), math.floor(#packed / 8), tonumber(ARGV[3])
local epoch_of, met = {}, {}

local function epoch(owner)
  if epoch_of[owner] == nil then
    local found = redis.pcall('GET', epochs .. owner)
    epoch_of[owner] = type(found) == 'string' and found or ''
  end
  return epoch_of[owner]
end

local function held(depth)
  local fields = redis.pcall('HGETALL', base .. string.sub(packed, depth * 8 - 7, depth * 8))
  if fields.err then return false end
  local any = false
  for at = 1, math.min(#fields, 2 * most), 2 do
    local since, tier, heat = string.match(fields[at + 1], '^(%d+):(%l+):(%d+)$')
    if since and since == epoch(fields[at]) then
      any = true
      local before = met[fields[at]]
      if before == nil or before[1] < depth then met[fields[at]] = {depth, tier, heat} end
    end
  end
  return any
end

while low < high do
  local middle = math.ceil((low + high) / 2)
  if held(middle) then low = middle else high = middle - 1 end
end

local found = {}
for owner, at in pairs(met) do found[#found + 1] = {owner, at[1], at[2], at[3]} end
table.sort(found, function(a, b) return a[2] > b[2] end)
return found
