"""The records of each era have a root of their own, and processes live in one era: the fake and a real ZooKeeper."""

import asyncio
import logging
from dataclasses import replace

import pytest

from oncelog.core.era import FIRST_ERA, Era
from oncelog.core.errors import CorruptEntry, NotFound, OncelogError, StaleEra
from oncelog.core.ids import Incarnation, TopicId
from oncelog.core.node.starts import JournalEnd, LastStart, StorageEnd, why_past
from oncelog.core.records.id_claim import Counter, CounterRecord
from oncelog.core.records.records import ABSENT_VERSION
from oncelog.core.records.status import WriteStatus
from oncelog.metadata_store.joining.history_watch import HistoryWatch
from oncelog.metadata_store.joining.joining import join_cluster
from oncelog.metadata_store.records.cluster_store import ClusterRecord, ClusterState, ClusterStore
from oncelog.metadata_store.records.counter_store import CounterStore
from oncelog.metadata_store.records.registry import LiveStorageNode, Registry, StorageCookie
from oncelog.metadata_store.session import paths
from oncelog.metadata_store.session.store_session import (
    CheckStep,
    CreateStep,
    DeleteStep,
    Step,
    StoreSession,
    WriteStep,
)
from oncelog.runtime.process import Shutdown
from oncelog.runtime.settings import ProcessSettings
from tests.cluster.until import until, yield_to_loop
from tests.contract.stores.memory_store import MemorySession, MemoryTree
from tests.contract.stores.store_backends import Backend, new_cluster

pytestmark = pytest.mark.asyncio

OK = WriteStatus.OK
TWO, THREE = Era(2, "a" * 32), Era(3, "b" * 32)
OWNER, RESTORER = Incarnation("a" * 32), Incarnation("c" * 32)
NODES = [Incarnation(letter * 32) for letter in "def"]
TOPIC = TopicId("0f" * 16)
DEADLINE_S = 30.0
PATIENT = ProcessSettings(zookeeper_hosts="zookeeper:2181", start_timeout_ms=1)


async def in_era(session: StoreSession, era: Era) -> StoreSession:
    """The root of that era, with its folders."""
    below = session.below(paths.era_root(era.number))
    for folder in ("", *paths.FOLDERS):
        await below.ensure_path(folder)
    return below


# --- the root ---------------------------------------------------------------------------------------------------------


async def test_all_but_the_clusters_record_is_below_the_root_of_the_era(backend: Backend) -> None:
    """Each kind of call; another process sees it, and finds nothing where the first era is."""
    base = await backend.open()
    await ClusterStore(base).establish("test-cluster")
    session, other = await in_era(base, TWO), await backend.open()
    assert base.below("") is base
    assert await session.create("/ids/one", b"1") is OK
    assert (await session.write("/ids/one", b"2", version=0)).status is OK
    steps: list[Step] = [CheckStep("/ids/one", 1), CreateStep("/ids/two", b"2"), WriteStep("/ids/one", b"3", 1)]
    assert await session.transact(steps) is OK
    assert await session.transact([DeleteStep("/ids/two", 0), WriteStep(paths.CLUSTER, b"new", 0)]) is OK
    status, created = await session.create_sequential(f"{paths.METADATA}/", b"me")
    assert (status, created) == (OK, f"{paths.METADATA}/0000000000")
    assert await session.children("/ids") == ["one"]
    found, live = await other.read("/era-2/ids/one"), await other.read(f"/era-2{created}")
    assert found is not None
    assert live is not None
    assert (found.data, found.version, live.holder) == (b"3", 2, session.session_id)
    unsynced, cluster = await session.read_unsynced("/ids/one"), await other.read(paths.CLUSTER)
    assert unsynced is not None
    assert cluster is not None
    assert (unsynced.data, cluster.data) == (b"3", b"new")
    assert await other.children("/ids") == ["ledger", "producer"], "of the first era"
    assert await session.delete("/ids/one", version=2) is OK
    with pytest.raises(NotFound):
        await session.children("/era-2/ids")


async def test_registrations_and_watches_of_an_era_are_its_own(backend: Backend) -> None:
    """A process of the former era that is still registered in the same ZooKeeper is not seen."""
    former, base = await new_cluster(backend), await backend.open()
    session = await in_era(base, TWO)
    await Registry(former).register_storage_node(LiveStorageNode(NODES[0], "one", 1, 1)).establish()
    seen = Registry(session).storage_nodes.watch()
    assert await anext(seen) == {}
    registration = Registry(session).register_storage_node(LiveStorageNode(NODES[1], "two", 1, 1))
    keeping = asyncio.ensure_future(registration.keep())
    assert list(await anext(seen)) == [NODES[1]]
    await backend.expire(base)
    async with asyncio.timeout(DEADLINE_S):
        while list(await anext(seen)) != [NODES[1]] or session.session_id is None:
            pass
    assert list(await Registry(former).storage_nodes.live()) == [NODES[0]]
    keeping.cancel()
    await asyncio.wait([keeping])
    await seen.aclose()


@pytest.mark.hazard("versions-begin-again")
async def test_a_compare_and_set_of_a_former_owner_does_not_reach_the_restored_record(backend: Backend) -> None:
    """The versions of restored records begin at 0 again. The former owner's write fits by its version, and would
    replace the list of ledgers of the new one."""
    former = await new_cluster(backend)
    restored = await in_era(await backend.open(), TWO)
    for session, owner in ((former, OWNER), (restored, RESTORER)):
        assert await session.create(paths.topic(TOPIC), b"list of " + owner.encode()) is OK
    before, mine = await restored.read(paths.topic(TOPIC)), await former.read(paths.topic(TOPIC))
    assert before is not None
    assert mine is not None
    assert before.version == mine.version == 0, "equal on purpose"
    assert (await former.write(paths.topic(TOPIC), b"list of a former owner", version=0)).status is OK
    assert await former.transact([WriteStep(paths.topic(TOPIC), b"and again", 1)]) is OK
    assert await restored.read(paths.topic(TOPIC)) == before


# --- ids --------------------------------------------------------------------------------------------------------------


@pytest.mark.hazard("ids-again")
@pytest.mark.parametrize("counter", list(Counter))
async def test_a_counter_below_the_ids_of_its_era_gives_no_id(counter: Counter) -> None:
    """It was taken from a backup, or from nothing: it would give ids that storage nodes hold from a former era."""
    base = MemorySession(MemoryTree())
    store = CounterStore(await in_era(base, TWO), counter, TWO)
    with pytest.raises(CorruptEntry, match=rf"/ids/{counter.value} is missing in ZooKeeper"):
        await store.read()
    low = CounterRecord(TWO.first_id - 1, RESTORER, "n")
    assert (await store.write(low, version=ABSENT_VERSION)).status is OK
    with pytest.raises(CorruptEntry, match=f"ids of era 2 begin at {TWO.first_id}.*backup restore"):
        await store.read()
    assert (await store.write(replace(low, next=TWO.first_id), version=0)).status is OK
    assert (await store.read()).value.next == TWO.first_id


async def test_no_directory_is_one_of_the_past_because_an_era_begins_without_noted_ends() -> None:
    """Ends of journals are of processes, and no restore writes them. Otherwise all nodes would be in limbo."""
    assert why_past(LastStart(7, "this", "former"), None) == ""
    noted = StorageEnd(9, "another", JournalEnd(1, 0))
    assert why_past(LastStart(7, "this", "former"), noted) != ""


# --- joining ----------------------------------------------------------------------------------------------------------


async def written(session: StoreSession, record: ClusterRecord) -> None:
    store = ClusterStore(session)
    found = await store.find()
    assert (await store.write(record, version=ABSENT_VERSION if found is None else found.version)).status is OK


async def test_a_start_waits_while_the_records_are_restored_and_joins_the_new_era(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Longer than its start may take, because a restore may wait for an operator. It says which restore, and what shows
    it."""
    caplog.set_level(logging.INFO)
    tree, reasons = MemoryTree(), list[str]()
    session = MemorySession(tree)
    await session.ensure_path("")
    restoring = ClusterRecord("test-cluster", era=TWO, state=ClusterState.RESTORING)
    await written(session, restoring)

    async def connect(_timeout_ms: int) -> StoreSession:
        return MemorySession(tree)

    join = asyncio.create_task(join_cluster(PATIENT, Shutdown(), on_waiting=reasons.append, connect=connect))
    await until(lambda: reasons, DEADLINE_S)
    assert f"the records of era 2 are being restored, by restore {'a' * 32}" in reasons[0]
    assert "`oncelog admin backup restore`" in reasons[0]
    assert "waiting for the restore of ZooKeeper's records" in caplog.messages
    assert not join.done()
    await written(session, replace(restoring, state=ClusterState.SERVING))
    joined = await join
    assert joined is not None
    await in_era(session, TWO)
    assert await joined.session.create("/ids/x", b"") is OK
    assert await session.read("/era-2/ids/x") is not None
    await joined.session.close()


# --- processes of a former era ----------------------------------------------------------------------------------------


class Watched:
    """A process that has joined in era 2."""

    def __init__(self, *, stays: bool = False) -> None:
        self.base = MemorySession(MemoryTree(), operation_timeout_ms=100)
        self.lost: list[OncelogError] = []
        self.joined = ClusterRecord("test-cluster", era=TWO)
        self._stays = stays

    async def begin(self) -> None:
        session = await in_era(self.base, TWO)
        await written(self.base, self.joined)
        counter = CounterRecord(TWO.first_id, RESTORER, "n")
        await CounterStore(session, Counter.LEDGER, TWO).write(counter, version=ABSENT_VERSION)
        for node in NODES:
            await Registry(session).write_cookie(StorageCookie(node, node[:4], 1), version=ABSENT_VERSION)
        gone = StorageCookie(RESTORER, "gone", 1, retired=True)
        await Registry(session).write_cookie(gone, version=ABSENT_VERSION)
        self.watch = HistoryWatch(session, self.joined, on_lost=self.lost.append, stays_while_restoring=self._stays)
        await self.looked()
        assert self.lost == []

    async def looked(self) -> None:
        self.watch.look_soon()
        for _ in range(30):
            await self.base.read(paths.CLUSTER)
            await yield_to_loop()

    async def sees(self, era: Era, state: ClusterState = ClusterState.SERVING) -> str:
        """Why the process ends when the cluster's record is this one; empty if it does not."""
        await written(self.base, replace(self.joined, era=era, state=state))
        await self.looked()
        return " ".join(error.message for error in self.lost)


@pytest.mark.hazard("the-lost-ensemble-returns")
async def test_process_ends_when_the_clusters_record_names_another_era() -> None:
    """Both are named. An equal number with another restore id is another era, too."""
    for era, state, says in [
        (THREE, ClusterState.SERVING, "its records were restored since"),
        (THREE, ClusterState.RESTORING, "its records are being restored: the next start waits"),
        (Era(2, "d" * 32), ClusterState.SERVING, "its records were restored since"),
        (FIRST_ERA, ClusterState.SERVING, "it was restored from a backup, or is the one that the cluster has lost"),
    ]:
        process = Watched()
        await process.begin()
        message = await process.sees(era, state)
        assert f"ZooKeeper is in era {era}, and this process joined in era {TWO}: {says}" in message
        assert isinstance(process.lost[0], StaleEra)
        await process.base.close()


async def test_who_restores_and_who_is_asked_go_on_until_the_new_era_serves() -> None:
    """The metadata service that restores, and the storage nodes. Neither may stay in the former era afterwards."""
    for process in (Watched(stays=True), Watched()):
        await process.begin()
        process.watch.restores = THREE
        for node in NODES:
            process.watch.heard_stale(node, StaleEra("raised by this process", era=str(THREE)))
        assert await process.sees(THREE, ClusterState.RESTORING) == ""
        assert "its records were restored since" in await process.sees(THREE)
        await process.base.close()


@pytest.mark.hazard("the-lost-ensemble-returns")
@pytest.mark.parametrize("away", [False, True], ids=["with ZooKeeper", "without ZooKeeper"])
async def test_process_ends_when_most_storage_nodes_say_that_its_era_is_a_former_one(away: bool) -> None:
    """Its own ZooKeeper is the one that was lost, so it shows nothing. One node, or one that was replaced long ago, is
    not enough: a restore that was given up may have reached it."""
    process = Watched()
    await process.begin()
    if away:
        process.base.faults.suspend()
    stale = StaleEra("of a former era", era=str(THREE))
    for address in ("d:1", "d:1"):
        process.watch.heard_stale(address, stale)
        for _ in range(30):
            await yield_to_loop()
    assert process.lost == []
    process.watch.heard_stale("e:1", stale)
    if away:
        await until(lambda: process.lost, DEADLINE_S)
    else:
        await process.looked()
    (error,) = process.lost
    assert f"2 of 3 storage nodes are in era {THREE}, and this process joined in era {TWO}" in error.message
    await process.base.close()
