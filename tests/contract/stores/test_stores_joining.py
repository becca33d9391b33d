"""A process that starts before the rest of its cluster: it waits, logs what it waits for, and fails with advice."""

import asyncio
import logging
from collections.abc import Callable

import pytest

from oncelog.core.errors import CorruptEntry, NotFound, OncelogError, StoreUnavailable, Unauthenticated, WrongCluster
from oncelog.metadata_store.joining.joining import ATTEMPT_TIMEOUT_MS, Find, JoinedCluster, join_cluster
from oncelog.metadata_store.records.cluster_store import ClusterRecord, ClusterStore
from oncelog.metadata_store.session import paths
from oncelog.metadata_store.session.store_session import Fired, StoreSession, Znode
from oncelog.runtime.process import Shutdown
from oncelog.runtime.settings import ProcessSettings
from tests.cluster.until import until
from tests.contract.stores.memory_store import MemorySession, MemoryTree

pytestmark = pytest.mark.asyncio

DEADLINE_S = 30.0
PATIENT = ProcessSettings(zookeeper_hosts="zookeeper:2181", start_timeout_ms=60_000)
HASTY = ProcessSettings(zookeeper_hosts="zookeeper:2181", start_timeout_ms=1)


class Session(MemorySession):
    """Counts the reads, and fails the first ones."""

    def __init__(self, tree: MemoryTree, refusals: list[OncelogError]) -> None:
        super().__init__(tree, root="/oncelog")
        self.reads = 0
        self._refusals = refusals

    async def read(self, path: str, *, fired: Fired | None = None, timeout_ms: int | None = None) -> Znode | None:
        self.reads += 1
        if self._refusals:
            raise self._refusals.pop(0)
        return await super().read(path, fired=fired, timeout_ms=timeout_ms)


class Store:
    """Refuses a number of connections and reads, and keeps every session that it opened."""

    def __init__(self, *refusals: OncelogError, reads: list[OncelogError] | None = None) -> None:
        self.tree = MemoryTree()
        self.refusals = list(refusals)
        self.reads_refused = reads or []
        self.sessions: list[Session] = []
        #: of each connection that was tried
        self.timeouts_ms: list[int] = []

    async def connect(self, timeout_ms: int) -> StoreSession:
        self.timeouts_ms.append(timeout_ms)
        if self.refusals:
            raise self.refusals.pop(0)
        self.sessions.append(Session(self.tree, self.reads_refused))
        await self.sessions[-1].ensure_path("")
        return self.sessions[-1]

    async def make_cluster(self) -> str:
        session = MemorySession(self.tree, root="/oncelog")
        return (await ClusterStore(session).establish()).cluster_id


def away(times: int) -> list[OncelogError]:
    return [StoreUnavailable("no ZooKeeper answers")] * times


async def waiting(join: "asyncio.Task[JoinedCluster | None]", said: Callable[[], bool]) -> None:
    await until(said, DEADLINE_S)
    assert not join.done()


async def test_start_waits_for_zookeeper_and_then_for_the_record(caplog: pytest.LogCaptureFixture) -> None:
    """In any order: each wait is logged, and after both the process starts."""
    caplog.set_level(logging.INFO)
    store = Store(*away(2))
    join = asyncio.create_task(join_cluster(PATIENT, Shutdown(), connect=store.connect))
    await waiting(join, lambda: "waiting for ZooKeeper" in caplog.messages)
    await waiting(join, lambda: "waiting for the cluster's record" in caplog.messages)
    cluster_id = await store.make_cluster()
    joined = await join
    assert joined is not None
    assert joined.cluster.cluster_id == cluster_id
    assert joined.session is store.sessions[0]
    assert (len(store.timeouts_ms), joined.session.closed) == (3, False)
    await joined.session.close()


async def test_wait_for_the_record_is_logged_rarely(caplog: pytest.LogCaptureFixture) -> None:
    """It reads often, so that a start is fast, but a cluster that comes up late must not flood the log."""
    store = Store()
    join = asyncio.create_task(join_cluster(PATIENT, Shutdown(), connect=store.connect))
    await waiting(join, lambda: bool(store.sessions) and store.sessions[0].reads >= 3)
    await store.make_cluster()
    joined = await join
    assert joined is not None
    await joined.session.close()
    assert caplog.messages.count("waiting for the cluster's record") == 1


@pytest.mark.parametrize("find", [ClusterStore.require, ClusterStore.establish])
async def test_start_waits_for_zookeeper_that_goes_away_again(find: Find) -> None:
    """It was reached and lost again before the record was read, as happens when a whole cluster starts at once."""
    store = Store(reads=away(2))
    await store.make_cluster()
    joined = await join_cluster(PATIENT, Shutdown(), find=find, connect=store.connect)
    assert joined is not None
    assert len(store.sessions) == 1
    await joined.session.close()


async def test_process_that_creates_the_cluster_waits_only_for_zookeeper() -> None:
    """`--create-cluster` on an empty ZooKeeper."""
    store = Store(*away(1))
    joined = await join_cluster(PATIENT, Shutdown(), find=ClusterStore.establish, connect=store.connect)
    assert joined is not None
    assert joined.cluster == await ClusterStore(joined.session).require()
    await joined.session.close()


async def test_deadline_without_zookeeper_names_the_address_and_its_setting() -> None:
    """The last log line says what to do."""
    store = Store(*away(100))
    with pytest.raises(StoreUnavailable, match=r"zookeeper:2181 .*start it, or correct ONCELOG_ZOOKEEPER_HOSTS"):
        await join_cluster(HASTY, Shutdown(), connect=store.connect)
    assert set(store.timeouts_ms) == {1}, "an attempt is no longer than what is left"
    store = Store(*away(1))
    joined = await join_cluster(PATIENT, Shutdown(), find=ClusterStore.establish, connect=store.connect)
    assert joined is not None
    assert set(store.timeouts_ms) == {ATTEMPT_TIMEOUT_MS}, "nor as long as all that is left: the log would be silent"
    await joined.session.close()


@pytest.mark.hazard("emptied-zookeeper")
async def test_deadline_without_a_cluster_names_both_possible_causes() -> None:
    """A cluster that was not created yet, or a ZooKeeper that has lost its data: nothing is created. The reason is also
    given while the start waits. The session is closed."""
    store = Store()
    reasons: list[str] = []
    with pytest.raises(NotFound, match=r"ONCELOG_ZOOKEEPER_HOSTS.*--create-cluster.*has lost its data") as raised:
        await join_cluster(HASTY, Shutdown(), on_waiting=reasons.append, connect=store.connect)
    assert "keep the data of all storage nodes" in raised.value.message
    assert store.sessions[0].closed
    assert await ClusterStore(MemorySession(store.tree, root="/oncelog")).read() is None
    patient = asyncio.create_task(join_cluster(PATIENT, Shutdown(), on_waiting=reasons.append, connect=store.connect))
    await waiting(patient, lambda: bool(reasons))
    assert "ZooKeeper has no record of a cluster" in reasons[0]
    patient.cancel()
    await asyncio.wait((patient,))


async def test_process_that_serves_a_restore_waits_for_the_record_without_a_deadline() -> None:
    """It holds what the restore needs. It gets the session at once, to look at ZooKeeper meanwhile."""
    store, sessions, reasons = Store(), list[StoreSession](), list[str]()
    join = asyncio.create_task(
        join_cluster(
            HASTY,
            Shutdown(),
            connect=store.connect,
            on_session=sessions.append,
            on_waiting=reasons.append,
            for_ever=True,
        )
    )
    await waiting(join, lambda: store.sessions != [] and store.sessions[0].reads > 1)
    assert sessions == store.sessions
    assert "ZooKeeper has no record of a cluster" in reasons[0]
    cluster_id = await store.make_cluster()
    joined = await join
    assert joined is not None
    assert joined.cluster.cluster_id == cluster_id
    await joined.session.close()


async def test_record_that_cannot_be_read_is_waited_for_as_one_that_is_missing() -> None:
    """A restore writes it anew, and a metadata service must be there for that. Other processes end at the deadline."""
    store, reasons = Store(), list[str]()
    await store.make_cluster()
    sound = store.tree.nodes["/oncelog/cluster"]
    store.tree.nodes["/oncelog/cluster"] = sound._replace(data=b"garbage")
    with pytest.raises(CorruptEntry, match="oncelog admin backup restore"):
        await join_cluster(HASTY, Shutdown(), connect=store.connect)
    join = asyncio.create_task(
        join_cluster(HASTY, Shutdown(), connect=store.connect, on_waiting=reasons.append, for_ever=True)
    )
    await waiting(join, lambda: bool(reasons))
    assert "cannot read the cluster record" in reasons[0]
    store.tree.nodes["/oncelog/cluster"] = sound
    joined = await join
    assert joined is not None
    await joined.session.close()


async def test_reason_that_changes_is_logged_at_once(caplog: pytest.LogCaptureFixture) -> None:
    """The next log line of the same reason comes much later."""
    reasons = iter(("first", "second"))

    async def find(store: ClusterStore) -> ClusterRecord:
        if (reason := next(reasons, None)) is not None:
            raise NotFound(reason)
        return await store.establish()

    joined = await join_cluster(PATIENT, Shutdown(), find=find, connect=Store().connect)
    assert joined is not None
    await joined.session.close()
    assert caplog.messages.count("waiting for the cluster's record") == 2


async def test_error_that_waiting_cannot_solve_ends_the_start_at_once() -> None:
    """Wrong credentials, and a cluster of another format."""
    with pytest.raises(Unauthenticated):
        await join_cluster(PATIENT, Shutdown(), connect=Store(Unauthenticated("correct them")).connect)
    store = Store()
    session = MemorySession(store.tree, root="/oncelog")
    await session.ensure_path("")
    await session.create(paths.CLUSTER, b'{"cluster_id": "c", "format": 99}')
    with pytest.raises(WrongCluster, match="format 99"):
        await join_cluster(PATIENT, Shutdown(), connect=store.connect)
    assert store.sessions[0].closed


async def test_shutdown_request_ends_a_waiting_start() -> None:
    """A rollout that is cancelled must not wait for the deadline of a pod that cannot start."""
    store, shutdown = Store(), Shutdown()
    join = asyncio.create_task(join_cluster(PATIENT, shutdown, connect=store.connect))
    await waiting(join, lambda: bool(store.sessions))
    shutdown.request("SIGTERM")
    async with asyncio.timeout(DEADLINE_S):
        assert await join is None
    assert store.sessions[0].closed
