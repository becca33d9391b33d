"""The Lua scripts of `RedisEffects`. Each one is one transaction of the server. `core.effects.redis_rows` has the
rules."""

#: KEYS: the row. ARGV: its claim, position, pending_dead and partial as they were read; then the fields that it gets.
CLAIM = """
local row = redis.call('HMGET', KEYS[1], 'claim', 'position', 'pending_dead', 'partial')
for i = 1, 4 do if (row[i] or '') ~= ARGV[i] then return 0 end end
redis.call('HDEL', KEYS[1], 'partial')
redis.call('HSET', KEYS[1], unpack(ARGV, 5))
return 1
"""

#: KEYS: the row, then those of the commands. ARGV: claim, position, pending_dead as expected; position, last_message,
#: pending_dead as they become; what is partial; then the commands: the number of words, and the words.
APPLY = """
local row = redis.call('HMGET', KEYS[1], 'claim', 'position', 'pending_dead', 'partial', 'last_message')
if row[4] then return {'partial', row[4]} end
for i = 1, 3 do if row[i] ~= ARGV[i] then return {'lost'} end end
redis.call('HSET', KEYS[1], 'position', ARGV[4], 'last_message', ARGV[5], 'pending_dead', ARGV[6],
           'partial', ARGV[7] .. ':0:the server has ended')
local at, number = 8, 0
while at <= #ARGV do
  local count, command = tonumber(ARGV[at]), {}
  for i = 1, count do command[i] = ARGV[at + i] end
  at, number = at + count + 1, number + 1
  local answer = redis.pcall(unpack(command))
  if type(answer) == 'table' and answer.err then
    if number == 1 then
      redis.call('HSET', KEYS[1], 'position', ARGV[2], 'last_message', row[5], 'pending_dead', ARGV[3])
      redis.call('HDEL', KEYS[1], 'partial')
      return {'refused', answer.err}
    end
    local partial = ARGV[7] .. ':' .. number .. ':' .. answer.err
    redis.call('HSET', KEYS[1], 'partial', partial)
    return {'partial', partial}
  end
end
redis.call('HDEL', KEYS[1], 'partial')
return {'ok'}
"""
