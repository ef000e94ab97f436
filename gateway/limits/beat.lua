-- Requests that still run keep their slots. ARGV: seconds a slot lasts, requests.
local now, lease = time(), tonumber(ARGV[1])
for i = 2, #ARGV do
  redis.call('ZADD', slots, now + lease, ARGV[i])
end
keep(lease)
return 1
