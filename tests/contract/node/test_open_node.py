"""A storage node that waits for the record of its cluster: what it serves, and that it changes nothing meanwhile."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from oncelog.core.era import Era
from oncelog.core.errors import (
    CorruptEntry,
    JournalFailed,
    NotFound,
    ServiceUnavailable,
    StorageDirectoryRefused,
    StoreUnavailable,
)
from oncelog.core.formats.topic_record import LedgerLink, TopicRecord, encode_topic
from oncelog.core.ids import Incarnation, LedgerId
from oncelog.core.ledger.member_status import CopyState
from oncelog.core.node.era import EraState, StoredEra
from oncelog.core.node.node_ledger import RecordKind
from oncelog.core.node.starts import JournalEnd
from oncelog.core.records.id_claim import Counter, CounterRecord
from oncelog.core.records.status import WriteStatus
from oncelog.log_storage.directory.directory_starts import DirectoryStarts, mark_restored
from oncelog.log_storage.open_node import OpenNode
from oncelog.log_storage.serve.node_registration import refuse_older_zookeeper
from oncelog.metadata_store.records.cluster_store import ClusterState, ClusterStore
from oncelog.metadata_store.records.counter_store import CounterStore
from oncelog.metadata_store.records.ledger_store import LedgerLookup
from oncelog.metadata_store.records.registry import Registry
from oncelog.metadata_store.session import paths
from oncelog.rpc.channel import Channel
from oncelog.rpc.codecs.restore_codec import INVENTORY, RAISE_ERA
from oncelog.rpc.codecs.storage_codec import DESCRIBE
from oncelog.runtime.security import OPEN
from oncelog.runtime.settings import LogStorageSettings
from oncelog.storage_client.inventory_calls import read_inventory
from oncelog.storage_client.note_calls import put_notes, read_notes
from oncelog.wire import recovery_pb2
from oncelog.wire import storage_pb2 as pb
from oncelog.wire.recovery_pb2 import InventoryRequest
from tests.contract.node.directory.small_log import CLUSTER, examine
from tests.contract.node.test_log_storage_service import LEDGER, TIMEOUT_MS, append, opened, spoil
from tests.contract.storage_client.ledger_world import TOPIC, adds_of, ledger, nodes, whole, writer_of
from tests.contract.stores.memory_store import MemorySession, MemoryTree
from tests.core.node.test_notes import note

pytestmark = [pytest.mark.asyncio, pytest.mark.hazard("emptied-zookeeper")]

TWO = Era(2, "a" * 32)
ENTRIES = 3


async def used_directory(tmp_path: Path, *, damaged: bool = False) -> Path:
    """A directory with a ledger of three entries, of which the first is damaged, and with a note."""
    async with nodes(tmp_path, 1) as (node,), Channel(node.address) as channel:
        adds = adds_of(writer_of(opened(node)), ENTRIES)
        for each in adds:
            await append(channel, node.incarnation, [each])
        await put_notes(channel, node.incarnation, [note(1, 0)])
        path = node.path
    if damaged:
        spoil(path, whole(adds)[adds[0].entry_id])
    return path


def settings_of(path: Path) -> LogStorageSettings:
    return LogStorageSettings(
        listen_host="127.0.0.1", grpc_port=0, data_directory=path, segment_bytes=1 << 20, free_bytes_min=1
    )


@asynccontextmanager
async def open_node(path: Path) -> AsyncIterator[OpenNode]:
    failed: list[JournalFailed] = []
    async with asyncio.timeout(60), AsyncExitStack() as stack:
        yield await OpenNode.open(settings_of(path), OPEN, stack, CLUSTER, on_failed=failed.append, disk=None)
    assert not failed


def content(path: Path) -> dict[str, bytes]:
    """All of the directory but the lock, which has the pid of the process."""
    files = (file for file in path.rglob("*") if file.is_file() and file.name != "lock")
    return {str(file.relative_to(path)): file.read_bytes() for file in files}


async def waiting(node: OpenNode, store: ClusterStore) -> str:
    """Why it waits."""
    with pytest.raises(NotFound) as refused:
        await node.find(store)
    return refused.value.message


def empty_store() -> ClusterStore:
    return ClusterStore(MemorySession(MemoryTree(), root="/oncelog"))


async def test_node_without_a_cluster_serves_what_a_restore_asks_for_and_nothing_else(tmp_path: Path) -> None:
    """It has a part of what ZooKeeper's records are rebuilt from. It takes no data: nothing shows whose it is."""
    path = await used_directory(tmp_path)
    before = content(path)
    async with open_node(path) as node:
        me, reason = node.runner.incarnation, await waiting(node, empty_store())
        assert reason.startswith("cluster record missing: restore or rebuild it")
        assert f"{path} has data of cluster {CLUSTER}" in reason
        async with Channel(node.address) as channel:
            described = await channel.call(DESCRIBE, pb.DescribeRequest(ledger_ids=[1]), timeout_ms=TIMEOUT_MS)
            assert (described.incarnation, described.cluster_id, described.ledger_count) == (me, CLUSTER, 1)
            assert list(described.verified_ms_ago) == [-1]
            page = InventoryRequest(target=me, after_ledger=-1, ledgers_max=1)
            first = await channel.call(INVENTORY, page, timeout_ms=TIMEOUT_MS)
            assert (first.joined, first.refuses) == (False, "")
            node.refuses = TWO  # as it has found the records of that era to be older
            assert (await channel.call(INVENTORY, page, timeout_ms=TIMEOUT_MS)).refuses == str(TWO)
            inventory = await read_inventory(channel, me)
            assert [held.runs for held in inventory.ledgers.values()] == [((0, ENTRIES - 1),)]
            assert [each async for each in read_notes(channel, me)] == [note(1, 0)]
            with pytest.raises(StoreUnavailable, match="waits for the record of its cluster"):
                await put_notes(channel, me, [note(1, 1)])
            other = writer_of(ledger(9, [me]))
            with pytest.raises(ServiceUnavailable, match="waits for the record of its cluster"):
                await append(channel, me, adds_of(other, 1))
            node.server.refuses_others = ""  # as it serves its cluster
            assert (await channel.call(INVENTORY, page, timeout_ms=TIMEOUT_MS)).joined
    assert content(path) == before


async def test_node_waits_for_its_own_cluster_in_its_own_era(tmp_path: Path) -> None:
    """The ZooKeeper of another cluster, or the one that was lost, is not its own. While records are restored, it serves
    and waits, too."""
    path = await used_directory(tmp_path)
    async with open_node(path) as node:
        store = empty_store()
        await store.establish("f" * 32)
        assert f"belongs to cluster {CLUSTER}, but ZooKeeper has cluster {'f' * 32}" in await waiting(node, store)
        store = empty_store()
        await store.establish(CLUSTER)
        assert (await node.find(store)).cluster_id == CLUSTER
        async with Channel(node.address) as channel:
            await raised(channel, node, TWO)
        assert f"is in era {TWO}, and ZooKeeper in era 1: a restore has raised the node" in await waiting(node, store)
        found = await store.find()
        assert found is not None
        restored = replace(found.value, era=TWO, state=ClusterState.RESTORING)
        await store.write(restored, version=found.version)
        assert (await node.find(store)).state is ClusterState.RESTORING
    async with open_node(path) as node:
        await node.find(store)
        async with Channel(node.address) as channel:
            assert (await read_inventory(channel, node.runner.incarnation)).era == TWO


async def test_node_serves_a_restore_while_the_record_of_its_cluster_cannot_be_read(tmp_path: Path) -> None:
    path = await used_directory(tmp_path)
    async with open_node(path) as node:
        session = MemorySession(MemoryTree(), root="/oncelog")
        store = ClusterStore(session)
        await store.establish(CLUSTER)
        await session.write(paths.CLUSTER, b"garbage", version=0)
        with pytest.raises(CorruptEntry, match="oncelog admin backup restore"):
            await node.find(store)
        async with Channel(node.address) as channel:
            await raised(channel, node, TWO)


@pytest.mark.hazard("ids-hide-an-older-zookeeper")
async def test_node_does_not_join_a_zookeeper_that_lacks_its_newest_ledger(tmp_path: Path) -> None:
    """Also when ids above it have been given meanwhile. A listed ledger without a record is no reason, nor one whose
    topic was deleted."""
    path = await used_directory(tmp_path)
    session = MemorySession(MemoryTree(), root="/oncelog")
    await ClusterStore(session).establish(CLUSTER)
    lookup, counter = LedgerLookup(session), CounterStore(session, Counter.LEDGER)
    async with open_node(path) as node:
        newest = node.runner.newest_stored()
        assert newest is not None
        for following, reason in ((newest, f"it would give ledger id {newest} next"), (newest + 9, "does not know")):
            stored = await counter.read()
            given = CounterRecord(following, node.runner.incarnation, str(following))
            assert (await counter.write(given, version=stored.version)).status is WriteStatus.OK
            with pytest.raises(StorageDirectoryRefused, match=f"older than the data: .*{reason}"):
                await refuse_older_zookeeper(path, node.runner, lookup)
        await session.ensure_path(paths.topic(TOPIC))
        record = TopicRecord(TOPIC, "public/default/one", ledgers=(LedgerLink(LedgerId(newest + 1), 0),))
        await session.write(paths.topic(TOPIC), encode_topic(record), version=0)
        with pytest.raises(StorageDirectoryRefused, match="does not know"):
            await refuse_older_zookeeper(path, node.runner, lookup)
        listing = replace(record, ledgers=(LedgerLink(newest, 0), *record.ledgers))
        for known in (encode_topic(listing), b"[", encode_topic(replace(record, deleted_below=LedgerId(newest + 1)))):
            found = await session.read(paths.topic(TOPIC))
            assert found is not None
            await session.write(paths.topic(TOPIC), known, version=found.version)
            await refuse_older_zookeeper(path, node.runner, lookup)


async def raised(channel: Channel, node: OpenNode, era: Era) -> None:
    request = recovery_pb2.RaiseEraRequest(
        target=node.runner.incarnation, cluster_id=CLUSTER, era=era.number, restore_id=era.restore_id
    )
    answer = await channel.call(RAISE_ERA, request, timeout_ms=TIMEOUT_MS)
    assert Era(answer.era, answer.restore_id) == era


@pytest.mark.hazard("older-disk-is-missing")
@pytest.mark.parametrize("fault", ["damaged", "marked as restored"])
async def test_hole_that_is_found_without_a_cluster_is_told_and_durable_once_an_era_is_raised(
    tmp_path: Path, fault: str
) -> None:
    """Nobody knows the counter of ledger ids, so every ledger of the era may lack entries here."""
    path = await used_directory(tmp_path, damaged=fault == "damaged")
    if fault == "marked as restored":
        mark_restored(path)
    before = content(path)
    for _ in range(2):
        async with open_node(path) as node:
            await waiting(node, empty_store())
            async with Channel(node.address) as channel:
                inventory = await read_inventory(channel, node.runner.incarnation)
            assert inventory.limbo_below == TWO.first_id
            assert inventory.ledgers[LEDGER].state is CopyState.LIMBO
    assert content(path) == before
    async with open_node(path) as node:
        await waiting(node, empty_store())
        async with Channel(node.address) as channel:
            await raised(channel, node, TWO)
            assert (await read_inventory(channel, node.runner.incarnation)).limbo_below == TWO.first_id
    kinds = [(kind, ledger_id) for kind, ledger_id, _, _ in examine(path)[0]]
    assert kinds[-2:] == [(RecordKind.LIMBO, TWO.first_id), (RecordKind.ERA, 2)]


async def test_waiting_does_not_hide_that_the_directory_went_back(tmp_path: Path) -> None:
    """Even the smallest write at the end of the journal would."""
    path = await used_directory(tmp_path)
    async with open_node(path) as node:
        await waiting(node, empty_store())
        end = node.directory.scanned_end
    async with open_node(path) as node:
        registry = Registry(MemorySession(MemoryTree(), root="/oncelog"))
        noted = DirectoryStarts(path, Incarnation("0" * 32), registry, on_superseded=print)
        noted.known_end = JournalEnd(end.segment_id, end.offset + 1)
        node.compare(noted)
        assert "went back in time" in node.directory.new_holes[0].what
        assert node.runner.in_limbo(LedgerId(LEDGER + 100))


@pytest.mark.hazard("the-lost-ensemble-returns")
async def test_node_that_was_away_during_the_restore_takes_its_era_and_is_in_limbo(tmp_path: Path) -> None:
    """Before it registers. Its checks read the new records from then on, also after the next start."""
    path = await used_directory(tmp_path)
    session, looks = MemorySession(MemoryTree(), root="/oncelog"), list[Era]()
    await ClusterStore(session).establish(CLUSTER)
    for starts in range(2):
        async with open_node(path) as node:
            runner = node.runner
            await runner.begin(LedgerLookup(session, TWO), lambda: _counter(TWO.first_id))
            await runner.join_era(TWO)
            assert runner.core.ledgers.era == StoredEra(TWO, EraState.JOINED_LATE)
            assert runner.core.copy_state(LEDGER) is CopyState.LIMBO
            await runner.review(runner.incarnation, LEDGER)
            assert runner.counts.checks == 1
            runner.on_newer_caller = lambda: looks.append(TWO)
            with pytest.raises(ServiceUnavailable):
                runner.refuse_era(Era(3, "b" * 32))
            assert len(looks) == starts + 1, "the node looks at the cluster's record itself"


async def _counter(following: int) -> LedgerId:
    return LedgerId(following)
