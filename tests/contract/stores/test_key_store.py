"""Idempotency keys over a fake and over a real Redis, and how both report lost data."""

from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Protocol
from uuid import uuid4

import pytest
import pytest_asyncio

from oncelog.core.errors import IdempotencyUnavailable
from oncelog.core.http_publish.key_record import KeyRecord
from oncelog.core.http_publish.keyed_producer import Claim
from oncelog.core.ids import SequenceId
from oncelog.core.records.status import WriteStatus
from oncelog.metadata_store.keys.idempotency_backend import Holder, KeyServer
from oncelog.metadata_store.keys.idempotency_keys import DatasetStore, KeyStore
from oncelog.metadata_store.keys.idempotency_redis import RedisKeyServer
from oncelog.metadata_store.keys.redis_address import RedisAddress
from tests.cluster.kills import idle
from tests.cluster.until import until
from tests.contract.stores.memory_key_server import MemoryKeyServer
from tests.contract.stores.memory_store import MemorySession, MemoryTree
from tests.contract.stores.redis_process import RedisProcess

pytestmark = pytest.mark.asyncio

WINDOW_MS = 60_000
RECORD = KeyRecord("body", Claim("http-1", SequenceId(0), 1))
DONE = KeyRecord("body", Claim("http-1", SequenceId(0), 1), "stored")


class Server(Protocol):
    def restart(self) -> None: ...
    def lose_everything(self) -> None: ...
    def client(self) -> KeyServer: ...


class Memory:
    def __init__(self) -> None:
        self.server = MemoryKeyServer()

    def restart(self) -> None:
        self.server.restart()

    def lose_everything(self) -> None:
        self.server.lose_everything()

    def client(self) -> KeyServer:
        return self.server


class Real:
    """Each test has its own cluster id on one server."""

    def __init__(self, process: RedisProcess) -> None:
        self.process = process
        self.cluster_id = uuid4().hex

    def restart(self) -> None:
        self.process.kill(once=idle)
        self.process.start()

    def lose_everything(self) -> None:
        self.process.kill(once=idle)
        self.process.lose_everything()
        self.process.start()

    def client(self) -> KeyServer:
        return RedisKeyServer(RedisAddress(self.process.url), self.cluster_id)


class Keys:
    """Processes of one cluster: each `open` is another process; all share one clock."""

    def __init__(self, server: Server) -> None:
        self.server = server
        self.now_ms = 1_000_000
        self.stores: list[KeyStore] = []
        self.session = MemorySession(MemoryTree(), root="/oncelog")

    def open(self) -> KeyStore:
        datasets = DatasetStore(self.session)
        self.stores.append(KeyStore(self.server.client(), datasets, window_ms=WINDOW_MS, now_ms=lambda: self.now_ms))
        return self.stores[-1]


@pytest.fixture(scope="module")
def redis(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RedisProcess]:
    with RedisProcess.running(tmp_path_factory.mktemp("redis")) as server:
        yield server


@pytest_asyncio.fixture(params=["memory", "redis"])
async def keys(request: pytest.FixtureRequest) -> AsyncIterator[Keys]:
    """The fake and the real thing."""
    server: Server = Memory() if request.param == "memory" else Real(request.getfixturevalue("redis"))
    own = Keys(server)
    await own.session.ensure_path("")
    yield own
    for store in own.stores:
        await store.close()


async def refused(store: KeyStore) -> IdempotencyUnavailable:
    with pytest.raises(IdempotencyUnavailable) as caught:
        await store.read("key")
    return caught.value


async def test_record_is_created_if_absent_and_replaced_only_by_its_bytes(keys: Keys) -> None:
    """Two processes write at once: the second gets the record of the first."""
    one, other = keys.open(), keys.open()
    assert await one.read("key") is None
    assert await one.write("key", RECORD, replaces=None) == (WriteStatus.OK, None)
    status, found = await other.write("key", DONE, replaces=None)
    assert (status, found and found.record) == (WriteStatus.CONFLICT, RECORD)
    assert found is not None
    assert await other.write("key", DONE, replaces=found.stored) == (WriteStatus.OK, None)
    status, found = await one.write("key", RECORD, replaces=found.stored)
    assert (status, found and found.record) == (WriteStatus.CONFLICT, DONE)
    assert await one.write("absent", RECORD, replaces=b"something") == (WriteStatus.CONFLICT, None)


async def test_lease_is_taken_with_the_claim_and_released(keys: Keys) -> None:
    """A process that finds the claim sees that another one works on it."""
    one, other = keys.open(), keys.open()
    assert not await other.holds("http-1")
    await one.write("key", RECORD, replaces=None, lease=Holder("http-1", 60_000))
    assert await other.holds("http-1")
    await one.drop("http-1")
    assert not await other.holds("http-1")
    await one.renew(Holder("http-1", 60_000))
    assert await other.holds("http-1")


async def test_restart_loses_nothing_and_refuses_no_key(keys: Keys) -> None:
    """Answered writes were synced. The next call reads the state again and continues."""
    store, other = keys.open(), keys.open()
    await other.check()
    await store.write("key", RECORD, replaces=None)
    keys.server.restart()
    for each in (store, other):
        found = await each.read("key")
        assert found is not None
        assert found.record == RECORD


@pytest.mark.hazard("key-without-message")
async def test_lost_data_is_noticed_and_keys_are_refused_for_one_window(keys: Keys) -> None:
    """In every process, including those started later. After the window keys are served again, without the lost
    ones."""
    store = keys.open()
    await store.write("key", RECORD, replaces=None)
    keys.server.lose_everything()
    assert (await refused(store)).details["retry_after_s"] == WINDOW_MS // 1000
    await refused(keys.open())
    keys.now_ms += WINDOW_MS
    later = keys.open()
    assert await later.read("key") is None
    assert await later.write("key", RECORD, replaces=None) == (WriteStatus.OK, None)


async def test_processes_that_start_at_once_agree_and_lose_nothing() -> None:
    """None of them treats another's marker as a loss."""
    keys = Keys(Memory())
    await keys.session.ensure_path("")
    for store in [keys.open() for _ in range(5)]:
        await store.check()
    assert await keys.open().read("key") is None


async def test_promoted_replica_counts_as_a_loss() -> None:
    """It may lack the last writes. So once a replica was seen, another run of the server is not trusted."""
    memory = Memory()
    keys = Keys(memory)
    await keys.session.ensure_path("")
    store = keys.open()
    await store.write("key", RECORD, replaces=None)
    memory.server.replicas = 1
    assert await store.read("key") is not None
    memory.server.restart()
    await refused(store)


async def test_older_copy_of_the_data_counts_as_a_loss() -> None:
    """It holds fewer writes than this process has seen."""
    memory = Memory()
    keys = Keys(memory)
    await keys.session.ensure_path("")
    store = keys.open()
    await store.write("key", RECORD, replaces=None)
    await store.write("other", RECORD, replaces=None)
    memory.server.writes -= 1
    await refused(store)


async def test_lost_reply_of_a_write_is_unknown() -> None:
    """It was applied here; the caller must not conclude either way."""
    memory = Memory()
    keys = Keys(memory)
    await keys.session.ensure_path("")
    store = keys.open()
    await store.check()
    memory.server.lose_replies = 1
    assert (await store.write("key", RECORD, replaces=None))[0] is WriteStatus.UNKNOWN


async def test_redis_that_is_down_is_reported(redis: RedisProcess, tmp_path: Path) -> None:
    """A read fails, a write is in doubt, and the keys are served again when Redis is back."""
    with RedisProcess.running(tmp_path / "redis") as own:
        keys = Keys(Real(own))
        await keys.session.ensure_path("")
        store = keys.open()
        await store.check()
        own.kill(once=idle)
        assert "Redis is unavailable for keys" in (await refused(store)).message
        assert (await store.write("key", RECORD, replaces=None))[0] is WriteStatus.UNKNOWN
        own.start()

        async def back() -> bool:
            try:
                return await store.read("key") is None
            except IdempotencyUnavailable:
                return False

        assert await until(back, 30)
        await store.close()


async def test_redis_with_a_replica_is_noted(redis: RedisProcess, tmp_path: Path) -> None:
    """Before anything more is written: from now on the replica could be promoted."""
    with RedisProcess.running(tmp_path / "first") as first:
        real = Real(first)
        keys = Keys(real)
        await keys.session.ensure_path("")
        store = keys.open()
        await store.write("key", RECORD, replaces=None)
        with RedisProcess.running(tmp_path / "second", "--replicaof", "127.0.0.1", str(first.port)):

            async def noted() -> bool:
                await store.read("key")
                stored = await DatasetStore(keys.session).read()
                return stored is not None and stored.value.replicated

            assert await until(noted, 60)
        await store.close()


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (("--appendfsync", "everysec"), "appendfsync always"),
        (("--appendonly", "no"), "appendonly yes"),
        (("--maxmemory-policy", "allkeys-lru"), "maxmemory-policy noeviction"),
        (("--rename-command", "CONFIG", ""), "ONCELOG_REDIS_CONFIG_CHECK=false"),
    ],
)
async def test_redis_that_could_lose_keys_is_refused(tmp_path: Path, options: tuple[str, ...], told: str) -> None:
    """The error says what to set. For a managed Redis that forbids CONFIG, the operator can disable the check."""
    with RedisProcess.running(tmp_path / "redis", *options) as own:
        server = RedisKeyServer(RedisAddress(own.url), "cluster")
        with pytest.raises(IdempotencyUnavailable) as caught:
            await server.check_settings()
        assert told in caught.value.message
        await server.close()
        trusted = RedisKeyServer(RedisAddress(own.url), "cluster", check_config=False)
        await trusted.check_settings()
        await trusted.close()
