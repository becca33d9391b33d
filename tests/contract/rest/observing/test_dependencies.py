"""What a metadata service sees of the others, of ZooKeeper and of Redis: also while they are away, with since when."""

import pytest

from oncelog.metadata.observing.dependencies import Dependencies, KeysState
from oncelog.metadata.service import running_tasks
from oncelog.metadata_store.keys.idempotency_keys import DatasetStore, KeyStore
from oncelog.metadata_store.records.registry import LiveMetadata, Registry
from oncelog.metadata_store.session.store_session import SessionState
from tests.cluster.until import until
from tests.contract.rest.admin.admin_world import Admin, serving
from tests.contract.stores.memory_key_server import MemoryKeyServer
from tests.contract.stores.memory_store import MemorySession, MemoryTree

pytestmark = pytest.mark.asyncio

PATH = "/admin/v2/dependencies"
DEADLINE_S = 60.0


async def registered(admin: Admin, *ports: int) -> None:
    """Metadata services with these ports, in this order."""
    for port in ports:
        session = await admin.world.session()
        await Registry(session).register_metadata(LiveMetadata("127.0.0.1", {"grpc": port})).establish()


async def test_metadata_services_are_listed_with_the_elected_one() -> None:
    """The one that registered first is elected; without Redis, that is off."""
    async with serving() as admin:
        await registered(admin, 4711, 4712)
        seen = await admin.get(PATH)
        assert seen["metadata"] == [
            {"address": "127.0.0.1:4711", "elected": True},
            {"address": "127.0.0.1:4712", "elected": False},
        ]
        assert (seen["zookeeper"]["state"], seen["zookeeper"]["reason"]) == ("connected", None)
        assert (seen["redis"]["state"], seen["redis"]["reason"]) == ("off", None)


async def test_answer_without_zookeeper_is_the_last_view() -> None:
    """With the state of the session, since when, and when the list was read."""
    async with serving() as admin:
        await registered(admin, 4711)
        before = await admin.get(PATH)
        admin.replica.session.faults.suspend()
        seen = await admin.get(PATH)
        assert (seen["metadata"], seen["as_of_ms"]) == (before["metadata"], before["as_of_ms"])
        assert seen["zookeeper"]["state"] == "suspended"
        assert seen["zookeeper"]["since_ms"] >= before["as_of_ms"]
        admin.replica.session.faults.expire()
        assert (await admin.get(PATH))["zookeeper"]["state"] == "lost"
        admin.replica.session.faults.resume()

        async def connected() -> bool:
            return bool((await admin.get(PATH))["zookeeper"]["state"] == "connected")

        await until(connected, DEADLINE_S)


async def test_list_that_was_never_read_is_unknown() -> None:
    """Unknown is not an empty list."""
    async with serving() as admin:
        admin.replica.session.faults.suspend()
        seen = await admin.get(PATH)
        assert (seen["metadata"], seen["as_of_ms"]) == (None, None)
        admin.replica.session.faults.resume()


class StalledSession(MemorySession):
    """Says that it is connected, and answers no read once it stalls: a ZooKeeper that is paused."""

    stalled = False

    @property
    def state(self) -> SessionState:
        return SessionState.CONNECTED if self.stalled else super().state

    def stall(self) -> None:
        self.stalled = True
        self.faults.suspend()


async def test_connected_session_without_an_answer_is_silent() -> None:
    """A session learns of a paused server only after a while."""
    session = StalledSession(MemoryTree(), root="/oncelog", operation_timeout_ms=50)
    await session.ensure_path("/metadata")
    session.stall()
    async with running_tasks() as start:
        seen = await Dependencies(session, Registry(session), start, check_keys=None).seen()
        assert seen.zookeeper.state == "silent"
        assert "no answer" in str(seen.zookeeper.reason)
        assert seen.zookeeper.since_ms == seen.replicas.silent_since_ms


async def test_redis_that_does_not_answer_has_failed_since_then() -> None:
    """Each look reads it, so a Redis that worked before is not taken for one that works."""
    session, server = MemorySession(MemoryTree(), root="/oncelog"), MemoryKeyServer()
    await session.ensure_path("/metadata")
    keys = KeyStore(server, DatasetStore(session), window_ms=60_000, now_ms=lambda: 1)
    async with running_tasks() as start:
        dependencies = Dependencies(session, Registry(session), start, check_keys=keys.check, fresh_ms=0)
        good = (await dependencies.seen()).redis
        assert good.state is KeysState.OK
        server.down = True
        failed = (await dependencies.seen()).redis
        assert failed.state is KeysState.FAILED
        assert failed.reason
        assert "retry" not in failed.reason
        assert failed.since_ms >= good.since_ms
        assert (await dependencies.seen()).redis == failed
        server.down = False
        again = (await dependencies.seen()).redis
        assert (again.state, again.reason) == (KeysState.OK, None)
        assert (await dependencies.seen()).redis == again
    await session.close()
