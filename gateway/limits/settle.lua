-- A request has ended. ARGV: request, the second it was counted in, tokens more (or less) than were counted, seconds a
-- slot lasts.
-- Less is taken from where it was counted; more counts from now on, since the minute of its start may be over.
local request, second, tokens = ARGV[1], ARGV[2], tonumber(ARGV[3])
redis.call('ZREM', slots, request)
if tokens < 0 then
  local part = 't:' .. second
  local given = math.min(-tokens, number(part))
  if given > 0 then
    redis.call('HINCRBY', hash, part, -given)
    redis.call('HINCRBY', hash, 't:total', -given)
  end
elseif tokens > 0 then
  local now = math.floor(time())
  total('t', now)
  add('t', now, tokens)
end
if redis.call('EXISTS', hash) == 1 then
  keep(tonumber(ARGV[4]))
end
return 1
