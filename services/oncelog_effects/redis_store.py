"""Effects in Redis: commands and the position of their message, in one script."""

import hashlib
import uuid
from collections.abc import Awaitable, Callable, Mapping, Sequence
from inspect import iscoroutinefunction
from typing import Any, Protocol

from redis import Redis
from redis.crc import key_slot
from redis.exceptions import NoScriptError, RedisError

from oncelog.core.effect_errors import EffectMisuse, StoreNotTransactional
from oncelog.core.errors import InvalidArgument, NotFound, StoreMismatch, StoreUnavailable
from oncelog_effects.core.effects.ordered import Source, StoredPosition
from oncelog_effects.core.effects.redis_rows import (
    Partial,
    Resolution,
    error_of,
    fields_of,
    partial_in,
    partial_of,
    partial_prefix,
    pending_text,
    resolved,
    stored_in,
)
from oncelog_effects.functions import call, in_thread
from oncelog_effects.redis_commands import Command, EffectPipeline, commands_of, words_of
from oncelog_effects.store import ClaimLost, EffectRefused, SourceNames

VERSION_MIN = (6, 2)
_POLICY = "noeviction"

# Each script is one transaction of the server. `core.effects.redis_rows` has the rules.

#: KEYS: the row. ARGV: its claim, position, pending_dead and partial as they were read; then the fields that it gets.
_CLAIM = """
local row = redis.call('HMGET', KEYS[1], 'claim', 'position', 'pending_dead', 'partial')
for i = 1, 4 do if (row[i] or '') ~= ARGV[i] then return 0 end end
redis.call('HDEL', KEYS[1], 'partial')
redis.call('HSET', KEYS[1], unpack(ARGV, 5))
return 1
"""

#: KEYS: the row, then those of the commands. ARGV: claim, position, pending_dead as expected; position, last_message,
#: pending_dead as they become; what is partial; then the commands: the number of words, and the words.
_APPLY = """
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


class RedisClient(Protocol):
    """redis.Redis or redis.asyncio.Redis, and their RedisCluster."""

    def execute_command(self, *args: Any, **options: Any) -> Any: ...


class RedisEffects:
    """A store of effects in Redis 6.2 or later, or Valkey.

        @oncelog.process("orders", subscription="stock", effects=RedisEffects(redis.Redis()))
        def book(message, pipe):
            pipe.hincrby("stock", message.key, -1)

    The function gets a pipeline of redis-py that collects up to 1,000 commands. They run when it returns, together with
    the position, in one script. Redis undoes nothing: if a command behind the first one fails, PartialEffect stops the
    subscription until `oncelog effects resolve`.

    Args:
        redis: a client of redis-py, asyncio or not. It must write to the primary.
        hash_tag: in a Redis cluster all keys of an effect are in one slot: those that contain {hash_tag}.

    Raises InvalidArgument.
    """

    def __init__(self, redis: RedisClient, *, hash_tag: str | None = None) -> None:
        if not callable(getattr(redis, "execute_command", None)):
            raise InvalidArgument("redis must be a client of redis-py", field="redis")
        if hash_tag is not None and (not hash_tag or set(hash_tag) & set("{}")):
            raise InvalidArgument("a hash tag is not empty and has no braces", field="hash_tag")
        self._redis: Any = redis
        self._is_async = iscoroutinefunction(redis.execute_command)
        self._prefix = "oncelog:" if hash_tag is None else f"oncelog:{{{hash_tag}}}:"
        self._hash_tag = hash_tag
        self._store_id = ""
        self._in_cluster = False
        #: {name of a command: what the server says of it}
        self._commands: Mapping[str, Any] = {}

    @property
    def place(self) -> str:
        """For messages; without a password."""
        pool = getattr(self._redis, "connection_pool", None)
        settings = getattr(pool, "connection_kwargs", {})
        address = settings.get("path") or f"{settings.get('host', 'cluster')}:{settings.get('port', '')}"
        return f"Redis at {address}"

    # --- EffectsStore -------------------------------------------------------------------------------------------------

    async def store_id(self) -> str:
        if not self._store_id:
            await self._check_server()
            self._commands = {_text(name).lower(): about for name, about in (await self._info("COMMAND")).items()}
            await self._execute("SET", self._id_key, uuid.uuid4().hex, "NX")
            self._store_id = _text(await self._execute("GET", self._id_key))
        return self._store_id

    async def claim(
        self, source: Source, names: SourceNames, decide: Callable[[StoredPosition | None], StoredPosition]
    ) -> StoredPosition:
        await self._check_server()
        known, found = await self.store_id(), _text(await self._execute("GET", self._id_key) or b"")
        if known != found:
            # hazard store-replaced-while-running
            raise StoreMismatch(
                f"{self.place} was store {known} when this program began, and is store {found or 'no store'} now: its "
                "data was deleted or replaced; start the program again"
            )
        while True:
            fields = await self._row(source)
            if (partial := partial_in(fields)) is not None:
                raise error_of(partial, self.place)
            decided = decide(stored_in(fields))
            if await self._write(source, fields, fields_of(decided) | _named(source, names)):
                return decided

    async def apply(
        self,
        source: Source,
        claimed: StoredPosition,
        following: StoredPosition,
        run: Callable[[EffectPipeline], Awaitable[None] | None] | None,
    ) -> None:
        """The function runs before the script: a claim that comes meanwhile voids it."""
        commands: list[Command] = []
        await self.store_id()
        if run is not None:
            pipeline = EffectPipeline()
            await call(run, pipeline)
            commands = commands_of(pipeline, self._redis.get_encoder().encode, self._commands)
        key = self._key(source)
        keys = [key, *await self._keys_of(commands, key)]
        expected = (claimed.claim, str(claimed.position), pending_text(claimed))
        becomes = (str(following.position), following.last_message, pending_text(following))
        prefix = partial_prefix(claimed, following)
        answer = await self._script(_APPLY, keys, [*expected, *becomes, prefix, *words_of(commands)])
        match [_text(each) for each in answer]:
            case ["ok"]:
                return
            case ["lost"]:
                raise ClaimLost
            case ["refused", error]:
                raise EffectRefused(f"{self.place}: command 1 has failed, so nothing has taken effect: {error}")
            case ["partial", text]:
                raise error_of(partial_of(text), self.place)
        raise StoreUnavailable(f"{self.place} gave an answer that is none: {answer!r}")

    # --- operators ----------------------------------------------------------------------------------------------------

    @classmethod
    def at(cls, url: str, *, hash_tag: str | None = None) -> "RedisEffects":
        """url: redis://HOST:PORT/DATABASE, or rediss://. Raises InvalidArgument."""
        try:
            return cls(Redis.from_url(url), hash_tag=hash_tag)
        except ValueError as error:
            raise InvalidArgument(f"not a URL of Redis: {error}", field="redis") from error

    async def partials(self) -> list[tuple[Source, SourceNames, Partial]]:
        """Every source that a partial effect has stopped. Raises StoreUnavailable."""
        found: list[tuple[Source, SourceNames, Partial]] = []
        cursor, pattern = 0, f"{self._prefix.replace('[', '?')}*:*:*"
        while True:
            cursor, keys = await self._info("SCAN", cursor, "MATCH", pattern, "COUNT", 1_000, "TYPE", "hash")
            for key in map(_text, keys):
                effect, topic_id, partition = key.removeprefix(self._prefix).rsplit(":", 2)
                source = Source(effect, topic_id, int(partition))
                fields = await self._row(source)
                if (partial := partial_in(fields)) is not None:
                    names = SourceNames(fields["topic"], fields["subscription"], fields["cluster_id"])
                    found.append((source, names, partial))
            if not int(cursor):
                return found

    async def resolve(self, source: Source, resolution: Resolution) -> StoredPosition:
        """End the partial effect of a source. Returns its row. Raises NotFound, InvalidArgument, StoreUnavailable."""
        while True:
            fields = await self._row(source)
            stored, partial = stored_in(fields), partial_in(fields)
            if stored is None or partial is None:
                raise NotFound(f"{self.place} has no partial effect {source.effect} of topic id {source.topic_id}")
            after = resolved(stored, partial, resolution, uuid.uuid4().hex)
            if await self._write(source, fields, fields_of(after)):
                return after

    # --- the server ---------------------------------------------------------------------------------------------------

    async def _check_server(self) -> None:
        """Raises StoreNotTransactional, InvalidArgument: an evicted position would have its effects again."""
        info = await self._info("INFO", "everything")
        version = tuple(int(part) for part in str(info.get("redis_version", "0")).split(".")[:2])
        if version < VERSION_MIN:
            raise StoreNotTransactional(f"{self.place} has version {info.get('redis_version')}: 6.2 is needed")
        if info.get("maxmemory_policy") != _POLICY:
            raise StoreNotTransactional(
                f"{self.place} has the maxmemory-policy {info.get('maxmemory_policy')}, which may delete the position "
                f"of effects that are still there: set it to {_POLICY}"
            )
        self._in_cluster = bool(int(info.get("cluster_enabled", 0)))
        if self._in_cluster and self._hash_tag is None:
            raise InvalidArgument(
                f"{self.place} is a cluster, where all keys of an effect must be in one slot: give a hash_tag, and use "
                "keys that contain it in braces",
                field="hash_tag",
            )

    async def _keys_of(self, commands: Sequence[Command], row: str) -> list[bytes]:
        """Those of the commands, which a cluster must know before the script. Raises EffectMisuse."""
        found: list[bytes] = []
        for command in commands:
            if row.encode() in command or self._id_key.encode() in command:
                raise EffectMisuse(f"the function must not use the key {row} of its position")
            if self._in_cluster:
                found += await self._info("COMMAND GETKEYS", *command)
        for key in found:
            if key_slot(_bytes(key)) != key_slot(row.encode()):
                raise EffectMisuse(
                    f"key {_text(key)} is in another slot of the cluster than the position (CROSSSLOT): use keys that "
                    f"contain {{{self._hash_tag}}}"
                )
        return found

    async def _row(self, source: Source) -> dict[str, str]:
        fields = await self._execute("HGETALL", self._key(source))
        return {_text(name): _text(value) for name, value in fields.items()}

    async def _write(self, source: Source, found: Mapping[str, str], fields: Mapping[str, str]) -> bool:
        """Whether the row was still as it was found."""
        names = ("claim", "position", "pending_dead", "partial")
        before = [found.get(name, "").encode(errors="surrogateescape") for name in names]
        pairs = [word for pair in fields.items() for word in pair]
        return bool(await self._script(_CLAIM, [self._key(source)], [*before, *pairs]))

    async def _script(self, text: str, keys: Sequence[Any], words: Sequence[Any]) -> Any:
        sha = hashlib.sha1(text.encode(), usedforsecurity=False).hexdigest()
        try:
            return await self._execute("EVALSHA", sha, len(keys), *keys, *words)
        except StoreUnavailable as error:
            if not isinstance(error.__cause__, NoScriptError):
                raise
        return await self._execute("EVAL", text, len(keys), *keys, *words)

    async def _info(self, *args: Any) -> Any:
        """A command without keys: to the server that has the position."""
        node_of = getattr(self._redis, "get_node_from_key", None)
        if node_of is None:
            return await self._execute(*args)
        return await self._execute(*args, target_nodes=node_of(self._id_key))

    async def _execute(self, *args: Any, **options: Any) -> Any:
        """Raises StoreUnavailable: a command that writes may have been performed."""
        try:
            if self._is_async:
                return await self._redis.execute_command(*args, **options)
            return await in_thread(lambda: self._redis.execute_command(*args, **options))
        except (RedisError, OSError) as error:
            raise StoreUnavailable(f"{self.place}: {type(error).__name__}: {error}") from error

    @property
    def _id_key(self) -> str:
        return f"{self._prefix}store"

    def _key(self, source: Source) -> str:
        return f"{self._prefix}{source.effect}:{source.topic_id}:{source.partition}"


def _named(source: Source, names: SourceNames) -> dict[str, str]:
    """For people who look at the hash."""
    return {"topic": names.topic, "subscription": names.subscription, "cluster_id": names.cluster_id}


def _text(value: Any) -> str:
    """Bytes that are no UTF-8, as in an error that repeats a key, can be written back."""
    return value.decode(errors="surrogateescape") if isinstance(value, bytes) else str(value)


def _bytes(value: Any) -> bytes:
    return value if isinstance(value, bytes) else str(value).encode()
