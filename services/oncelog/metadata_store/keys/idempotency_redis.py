"""Idempotency keys in Redis, through scripts that check the server and its data before they read or write.

Below `oncelog:{<cluster id>}:`, in one hash slot: `marker` and `writes` (`core.http_publish.key_dataset`),
`key:<topic id>:<digest>` for each key, `lease:<producer name>` for each keyed producer with claims in progress.

Rules
- Each script gets the guard that its caller expects: marker, run of the server, writes seen, whether there are
  replicas. If one of them differs, the script does nothing and reports that; the caller then reads all of them again.
- A write is sent once. If its reply is lost it is UNKNOWN: applied, not applied, or applied later. If the server
  refuses it before it runs (no memory left, read only, loading, its append-only file fails, wrong password), it was not
  written, and IdempotencyUnavailable is raised.
- Redis must evict nothing and sync each write: a lost claim would duplicate a message. Only leases may be lost, because
  no decision depends on them.
"""

from collections.abc import Awaitable, Callable
from typing import Any, cast

from redis.asyncio import BlockingConnectionPool, Redis
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import AuthenticationError, RedisError, ResponseError
from redis.exceptions import ConnectionError as RedisConnectionError

from oncelog.core.errors import IdempotencyUnavailable
from oncelog.core.http_publish.idempotency import RETRY
from oncelog.core.http_publish.key_dataset import FoundDataset
from oncelog.core.records.status import WriteStatus
from oncelog.metadata_store.keys.idempotency_backend import Guard, Holder, KeyReply
from oncelog.metadata_store.keys.redis_address import RedisAddress

TIMEOUT_S = 2.0
CONNECTIONS_MAX = 32
#: The settings that Redis must have.
_REQUIRED = {"appendonly": "yes", "appendfsync": "always", "maxmemory-policy": "noeviction"}
#: Errors of requests that were refused before they ran.
_REFUSALS = ("OOM", "READONLY", "LOADING", "MISCONF", "NOREPLICAS", "NOPERM", "NOAUTH", "BUSY", "MASTERDOWN")

_GUARD = """
local server = redis.call('INFO', 'server')
local replicas = string.match(redis.call('INFO', 'replication'), 'connected_slaves:(%d+)')
if string.match(server, 'run_id:(%x+)') ~= ARGV[2] or redis.call('GET', KEYS[1]) ~= ARGV[1]
    or tonumber(redis.call('GET', KEYS[2]) or '0') < tonumber(ARGV[3])
    or (ARGV[4] == '0' and tonumber(replicas or '0') > 0) then
    return {0}
end
"""
# KEYS: marker, writes, key. ARGV: the four values of the guard.
_READ = f"""{_GUARD}
return {{1, redis.call('GET', KEYS[3])}}
"""
# KEYS: marker, writes, key, lease. ARGV: the guard's four, value, 1 to replace, the value to replace, window ms, lease
# ms.
_WRITE = f"""{_GUARD}
local found = redis.call('GET', KEYS[3])
if (ARGV[6] == '0' and found) or (ARGV[6] == '1' and found ~= ARGV[7]) then
    return {{2, found}}
end
redis.call('SET', KEYS[3], ARGV[5], 'PX', ARGV[8])
if ARGV[9] ~= '0' then
    redis.call('SET', KEYS[4], '1', 'PX', ARGV[9])
end
return {{1, redis.call('INCR', KEYS[2])}}
"""
# KEYS: marker, writes.
_LOOK = """
local server = redis.call('INFO', 'server')
local replicas = string.match(redis.call('INFO', 'replication'), 'connected_slaves:(%d+)')
return {redis.call('GET', KEYS[1]), string.match(server, 'run_id:(%x+)'), redis.call('GET', KEYS[2]), replicas}
"""
# KEYS: marker. ARGV: the new one, 1 to replace, the marker to replace.
_INSTALL = """
local found = redis.call('GET', KEYS[1])
if (ARGV[2] == '0' and not found) or (ARGV[2] == '1' and found == ARGV[3]) then
    redis.call('SET', KEYS[1], ARGV[1])
end
return 1
"""


class RedisKeyServer:
    """One Redis server. check_config False: it is managed and forbids CONFIG; the operator must check its settings."""

    def __init__(self, address: RedisAddress, cluster_id: str, *, check_config: bool = True) -> None:
        """Connects with the first request."""
        options = {
            "max_connections": CONNECTIONS_MAX,
            "timeout": TIMEOUT_S,
            "socket_timeout": TIMEOUT_S,
            "socket_connect_timeout": TIMEOUT_S,
            "retry": Retry(NoBackoff(), 0),
        }
        pool = BlockingConnectionPool(**{**options, **address.options, "credential_provider": address})
        self._client: Redis = Redis.from_pool(pool)
        self._check_config = check_config
        self._prefix = f"oncelog:{{{cluster_id}}}:"
        self._dataset = [f"{self._prefix}marker", f"{self._prefix}writes"]
        self._read, self._write, self._look, self._install = map(
            self._client.register_script, (_READ, _WRITE, _LOOK, _INSTALL)
        )

    async def check_settings(self) -> None:
        if not self._check_config:
            return
        try:
            found = cast("dict[Any, Any]", await self._client.config_get(*_REQUIRED))
        except AuthenticationError as error:
            raise _unavailable(error) from error
        except ResponseError as error:
            message = (
                f"cannot read the settings of Redis ({error}): if it is managed, check that it has "
                f"{_shown(_REQUIRED)}, and set ONCELOG_REDIS_CONFIG_CHECK=false"
            )
            raise IdempotencyUnavailable(message) from error
        except (RedisError, OSError) as error:
            raise _unavailable(error) from error
        settings = {_text(name): _text(value) for name, value in found.items()}
        wrong = {name: value for name, value in _REQUIRED.items() if settings.get(name) != value}
        if wrong:
            message = f"Redis could lose or evict keys: it has {_shown({n: settings.get(n, '') for n in wrong})}"
            raise IdempotencyUnavailable(f"{message}; set {_shown(wrong)}")

    async def look(self) -> FoundDataset:
        marker, run, writes, replicas = await self._run(self._look, self._dataset, [])
        return FoundDataset(None if marker is None else _text(marker), _text(run), int(writes or 0), int(replicas or 0))

    async def install(self, marker: str, *, replaces: str | None) -> None:
        await self._run(self._install, self._dataset[:1], [marker, int(replaces is not None), replaces or ""])

    async def read(self, guard: Guard, key: str) -> KeyReply:
        holds, *found = await self._run(self._read, [*self._dataset, f"{self._prefix}key:{key}"], _arguments(guard))
        return KeyReply(bool(holds), value=found[0] if found else None)

    async def write(
        self, guard: Guard, key: str, value: bytes, *, replaces: bytes | None, window_ms: int, lease: Holder | None
    ) -> KeyReply:
        keys = [*self._dataset, f"{self._prefix}key:{key}", self._lease_key(lease.name if lease else "")]
        more: list[Any] = [value, int(replaces is not None), replaces or b"", window_ms, lease.lease_ms if lease else 0]
        try:
            done, *rest = await self._write(keys=keys, args=[*_arguments(guard), *more])
        except ResponseError as error:
            if str(error).startswith(_REFUSALS):
                raise _unavailable(error) from error
            return KeyReply(True, WriteStatus.UNKNOWN)
        except AuthenticationError as error:
            raise _unavailable(error) from error
        except (RedisError, OSError):
            await self._client.connection_pool.disconnect(inuse_connections=False)
            return KeyReply(True, WriteStatus.UNKNOWN)
        if done == 2:
            return KeyReply(True, WriteStatus.CONFLICT, rest[0])
        return KeyReply(done == 1, writes=rest[0] if rest else 0)

    async def renew(self, lease: Holder) -> None:
        await self._repeated(lambda: self._client.set(self._lease_key(lease.name), "1", px=lease.lease_ms))

    async def drop(self, name: str) -> None:
        await self._repeated(lambda: self._client.delete(self._lease_key(name)))

    async def holds(self, name: str) -> bool:
        return bool(await self._repeated(lambda: self._client.exists(self._lease_key(name))))

    async def close(self) -> None:
        await self._client.aclose()
        await self._client.connection_pool.disconnect()

    async def _run(self, script: Any, keys: list[str], arguments: list[Any]) -> Any:
        return await self._repeated(lambda: script(keys=keys, args=arguments))

    async def _repeated(self, call: Callable[[], Awaitable[Any]]) -> Any:
        """For calls that may be repeated. A connection that a restart broke fails at its next use."""
        try:
            try:
                return await call()
            except (RedisConnectionError, OSError):
                await self._client.connection_pool.disconnect(inuse_connections=False)
                return await call()
        except (RedisError, OSError) as error:
            raise _unavailable(error) from error

    def _lease_key(self, name: str) -> str:
        return f"{self._prefix}lease:{name}"


def _arguments(guard: Guard) -> list[Any]:
    return [guard.marker, guard.run, guard.writes, int(guard.replicated)]


def _text(value: bytes | str) -> str:
    return value.decode() if isinstance(value, bytes) else value


def _shown(settings: dict[str, str]) -> str:
    return ", ".join(f"{name} {value or 'unset'}" for name, value in settings.items())


def _unavailable(error: Exception) -> IdempotencyUnavailable:
    reason = str(error) or type(error).__name__
    return IdempotencyUnavailable(f"Redis is unavailable for keys ({reason[:200]}){RETRY}")
