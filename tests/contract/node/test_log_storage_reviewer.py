"""A storage node erases the copies that are not needed, and keeps those whose records are only missing."""

from dataclasses import replace
from pathlib import Path

import pytest

from oncelog.core.chain.next_ledger import LedgerPurpose
from oncelog.core.errors import StoreUnavailable, WrongCluster
from oncelog.core.formats.topic_record import LedgerLink
from oncelog.core.ids import NO_ENTRY, EntryId, Incarnation, LedgerId, TopicId
from oncelog.core.ledger.metadata import EntryRange, LedgerMetadata
from oncelog.core.names import parse_topic
from oncelog.core.node.node_ledger import LedgerOrigin
from oncelog.core.records.records import ABSENT_VERSION
from oncelog.log_storage.serve.service import StorageService
from oncelog.log_storage.upkeep.reviewer import LedgerReviewer
from oncelog.metadata.repair.chain_listing import ChainListing
from oncelog.metadata.repair.unlisted_records import UnlistedRecords
from oncelog.metadata_store.records.cluster_store import ClusterStore
from oncelog.metadata_store.records.cursor_store import CursorStore
from oncelog.metadata_store.records.deletion_store import DeletionStore
from oncelog.metadata_store.records.ledger_store import LedgerLookup, LedgerStore
from oncelog.metadata_store.records.topic_store import TopicStore
from oncelog.rpc.channel import Channel
from oncelog.runtime.observing.events import EventKind
from oncelog.storage_client.inventory_calls import read_inventory
from oncelog.wire import storage_pb2 as pb
from tests.cluster.until import until
from tests.contract.noted import noted
from tests.contract.owner.owner_world import (
    DEADLINE_S,
    ME,
    OwnerLimits,
    OwnerWorld,
    PublishClient,
    batch_of,
    owner_world,
)
from tests.contract.storage_client.ledger_world import B, C, nodes

pytestmark = pytest.mark.asyncio

TOPIC = TopicId("t" * 32)


async def describe(_request: pb.DescribeRequest) -> pb.DescribeAnswer:
    return pb.DescribeAnswer()


def held(world: OwnerWorld) -> set[int]:
    return set(world.node.runner.index.entries.ledgers())


def reviewer(world: OwnerWorld, cluster_id: str = "test-cluster") -> LedgerReviewer:
    ledgers = LedgerStore(world.session)

    async def list_ledgers() -> list[LedgerId]:
        await ClusterStore(world.session).require(cluster_id)
        return await ledgers.ids()

    return LedgerReviewer(world.node.runner, list_ledgers, ledgers.read_unsynced, interval_ms=60_000)


async def test_entries_of_a_deleted_topic_are_deleted_after_the_second_listing(tmp_path: Path) -> None:
    """Ledgers in use are not touched, and deleted ones are not there after a restart either."""
    async with owner_world(tmp_path) as (world, channel):
        kept: set[int] = set()
        for name in ("kept", "gone"):
            runner = await world.serve(name)
            client = PublishClient(channel)
            granted = await client.open(runner, "importer")
            await client.stored(granted, batch_of(granted, [1]))
            kept = kept or held(world)
        reviewing = reviewer(world)
        for _ in range(3):
            await reviewing.review()
        every = held(world)
        assert kept < every
        begun = await DeletionStore(world.session).begin(parse_topic("gone"))
        world.topics.assign(begun.topic_id)
        await until(lambda: world.topics.find(begun.topic_id) is None, DEADLINE_S)
        assert set(begun.ledgers) >= every - kept
        for ledger_id in begun.ledgers:
            await LedgerStore(world.session).remove(ledger_id)
        await reviewing.review()
        assert held(world) == every
        await reviewing.review()
        await until(lambda: held(world) == kept, DEADLINE_S, waiting_for="the entries to be dropped")
        await world.node.stop()
        await world.node.start()
        assert held(world) == kept


@pytest.mark.hazard("missing-record-is-no-deletion")
async def test_ledger_whose_record_was_deleted_by_mistake_is_kept_and_reported(tmp_path: Path) -> None:
    """A missing record proves nothing while the topic lists the ledger (hazard missing-record-is-no-deletion)."""
    async with owner_world(tmp_path) as (world, channel):
        runner = await world.serve("kept")
        client = PublishClient(channel)
        granted = await client.open(runner, "importer")
        await client.stored(granted, batch_of(granted, [1]))
        before, ledgers = held(world), LedgerStore(world.session)
        records = {ledger_id: await ledgers.read(LedgerId(ledger_id)) for ledger_id in before}
        for ledger_id in before:
            await ledgers.remove(LedgerId(ledger_id))
        reviewing, counts = reviewer(world), world.node.runner.counts
        for _ in range(3):
            await reviewing.review()
        await until(lambda: counts.orphaned == before, DEADLINE_S, waiting_for="the ledgers to be reported")
        reported = noted(world.node.runner.events, EventKind.COPY_LOST)
        assert {one.fields["ledger_id"] for one in reported} == before
        assert held(world) == before
        for record in records.values():
            assert record is not None
            await ledgers.write(record.value, version=ABSENT_VERSION)
        await reviewing.review()
        assert held(world) == before
        assert not counts.orphaned


async def test_trimmed_ledger_is_deleted(tmp_path: Path) -> None:
    """The floor in the topic's record proves it. A list that names only higher ids does not (hazard
    missing-record-is-no-deletion)."""
    async with owner_world(tmp_path) as (world, channel):
        runner = await world.serve("kept")
        client = PublishClient(channel)
        granted = await client.open(runner, "importer")
        await client.stored(granted, batch_of(granted, [1]))
        topics, (log,) = TopicStore(world.session), tuple(held(world))
        listed = await topics.read(runner.topic_id)
        assert listed is not None
        trimmed = replace(listed.value, ledgers=(LedgerLink(LedgerId(log + 1), 1),))
        written = await topics.write(trimmed, version=listed.version)
        await LedgerStore(world.session).remove(LedgerId(log))
        reviewing = reviewer(world)
        for _ in range(3):
            await reviewing.review()
        assert held(world) == {log}
        floored = replace(trimmed, deleted_below=LedgerId(log + 1))
        await topics.write(floored, version=written.version)
        await reviewing.review()
        await until(lambda: not held(world), DEADLINE_S, waiting_for="the entries to be erased")


async def test_floor_of_an_ack_log_is_in_the_topic_record(tmp_path: Path) -> None:
    """Ids of both chains come from one counter, so the floor of the log says nothing about the ack log."""
    async with owner_world(tmp_path) as (world, _channel):
        created = await TopicStore(world.session).create(parse_topic("public/default/acked"))
        topics, topic_id = TopicStore(world.session), created.name.value.topic_id
        listed = await topics.read(topic_id)
        assert listed is not None
        record = replace(listed.value, deleted_below=LedgerId(50)).with_ack_ledger(LedgerId(4))
        record = record.with_ack_ledger(LedgerId(9)).without_first_acks(1)
        await topics.write(record, version=listed.version)
        lookup, origin = LedgerLookup(world.session), LedgerOrigin(topic_id, LedgerPurpose.ACKS)
        assert await lookup.was_deleted(LedgerId(4), origin)
        assert not await lookup.was_deleted(LedgerId(9), origin)
        assert await lookup.floor(origin) == 9


async def test_tombstone_of_a_copy_goes_when_its_ledger_is_trimmed(tmp_path: Path) -> None:
    """Repair has moved the copy to other nodes, and the ledger is trimmed later, after a restart of this node."""
    async with owner_world(tmp_path) as (world, channel):
        runner = await world.serve("kept")
        client = PublishClient(channel)
        granted = await client.open(runner, "importer")
        await client.stored(granted, batch_of(granted, [1]))
        ledgers, topics, (log,) = LedgerStore(world.session), TopicStore(world.session), tuple(held(world))
        stored = await ledgers.read(LedgerId(log))
        assert stored is not None
        closed = stored.value.in_recovery().closed(end=EntryId(1), length=1)
        elsewhere = replace(closed, members=(Incarnation("e" * 32),), verified=True)
        await ledgers.write(elsewhere, version=stored.version)
        reviewing = reviewer(world)
        await reviewing.review()
        await until(lambda: not held(world), DEADLINE_S, waiting_for="the copy to be erased")
        await world.node.stop()
        await world.node.start()
        tombstones = world.node.runner.core.ledgers.tombstones
        assert tombstones == {log: LedgerOrigin(runner.topic_id, LedgerPurpose.LOG)}
        listed = await topics.read(runner.topic_id)
        assert listed is not None
        trimmed = replace(listed.value, ledgers=(), deleted_below=LedgerId(log + 1))
        await topics.write(trimmed, version=listed.version)
        await ledgers.remove(LedgerId(log))
        reviewing = reviewer(world)
        await reviewing.review()
        assert tombstones[LedgerId(log)] is not None, "one listing is no proof"
        await reviewing.review()
        await until(lambda: tombstones[LedgerId(log)] is None, DEADLINE_S, waiting_for="the proof of the deletion")
        assert world.node.runner.journal.control.deleted == {log}


async def test_store_of_another_cluster_proves_nothing(tmp_path: Path) -> None:
    """An empty ZooKeeper, or another cluster's, must not empty the node. Neither listing counts."""
    async with owner_world(tmp_path) as (world, channel):
        runner = await world.serve("kept")
        client = PublishClient(channel)
        granted = await client.open(runner, "importer")
        await client.stored(granted, batch_of(granted, [1]))
        before = held(world)
        foreign = reviewer(world, cluster_id="another")
        with pytest.raises(WrongCluster):
            await foreign._list_ledgers()
        for ledger_id in before:
            await LedgerStore(world.session).remove(LedgerId(ledger_id))
        for _ in range(3):
            await foreign.review()
        assert held(world) == before


async def test_ledger_missing_in_one_listing_only_is_kept(tmp_path: Path) -> None:
    """A server that lags, or a leader that was cut off, does not have the newest records yet."""
    async with owner_world(tmp_path) as (world, channel):
        runner = await world.serve("kept")
        client = PublishClient(channel)
        granted = await client.open(runner, "importer")
        await client.stored(granted, batch_of(granted, [1]))
        before = held(world)
        answers = [[], [LedgerId(ledger_id) for ledger_id in before], [], [], []]

        async def list_ledgers() -> list[LedgerId]:
            return answers.pop(0)

        checked = world.node.runner.counts.checks
        read_unsynced = LedgerStore(world.session).read_unsynced
        reviewing = LedgerReviewer(world.node.runner, list_ledgers, read_unsynced, interval_ms=60_000)
        for _ in range(3):
            await reviewing.review()
        assert (held(world), world.node.runner.counts.checks) == (before, checked)
        # Even twice in a row the core reads the record itself before it believes it.
        for _ in range(2):
            await reviewing.review()
        await until(lambda: world.node.runner.counts.checks > checked, DEADLINE_S)
        await client.stored(granted, batch_of(granted, [2]))
        assert held(world) == before


@pytest.mark.hazard("damaged-fence")
async def test_ledger_of_which_damage_left_nothing_is_reported(tmp_path: Path) -> None:
    """At once, and before that no damage is reported: another node must not be replaced meanwhile. Empty ledgers and
    those of other nodes are not reported."""
    async with nodes(tmp_path, 1) as (node,):
        node.runner.core.ledgers.limbo.begin(LedgerId(10))
        away: list[StoreUnavailable] = [StoreUnavailable("not now")]

        async def list_ledgers() -> list[LedgerId]:
            if away:
                raise away[0]
            return [*node.records, LedgerId(7)]

        reviewing = LedgerReviewer(node.runner, list_ledgers, node.read, interval_ms=60_000)
        service = StorageService(
            node.runner, describe, queue_bytes_max=1 << 20, damage_known=lambda: reviewing.damage_known
        )
        here, other = (node.incarnation, B, C), (Incarnation("d" * 32), B, C)
        end = EntryId(4)
        node.records[LedgerId(3)] = LedgerMetadata(LedgerId(3), TOPIC, here, 2).closed(end=end, length=1)
        node.records[LedgerId(4)] = LedgerMetadata(LedgerId(4), TOPIC, here, 2).closed(end=NO_ENTRY, length=0)
        node.records[LedgerId(5)] = LedgerMetadata(LedgerId(5), TOPIC, other, 2).closed(end=end, length=1)
        node.records[LedgerId(6)] = LedgerMetadata(LedgerId(6), TOPIC, here, 2)
        node.records[LedgerId(12)] = LedgerMetadata(LedgerId(12), TOPIC, here, 2).closed(end=end, length=1)
        request = pb.DamageRequest(target=node.incarnation, after_ledger=-1, ledgers_max=100)
        await reviewing.find_lost()
        with pytest.raises(StoreUnavailable, match="has not read yet"):
            await service.damage(request)
        away.clear()
        await reviewing.find_lost()
        assert (await service.damage(request)).ledger_ids == [LedgerId(3), LedgerId(6)]
        await node.runner.review(node.incarnation, LedgerId(4))
        found = noted(node.runner.events, EventKind.COPY_FOUND)
        assert [one.fields for one in found] == [{"ledger_id": LedgerId(4)}], "it is not in limbo any more"
        service.close()


@pytest.mark.hazard("older-disk-is-missing")
async def test_limbo_is_over_once_every_ledger_was_looked_at(tmp_path: Path) -> None:
    """Not while a record that names this node may have entries that it lacks. It stays over after the next start. A
    ledger with lost entries, of which all others are here, keeps nobody in limbo, nor does one that was deleted after
    it had been found that nothing of it is here."""
    async with nodes(tmp_path, 1) as (node,):
        node.runner.core.ledgers.limbo.begin(LedgerId(10))
        node.records[LedgerId(3)] = LedgerMetadata(LedgerId(3), TOPIC, (node.incarnation, B, C), 2)

        closed = LedgerMetadata(LedgerId(4), TOPIC, (node.incarnation, B, C), 2).closed(end=EntryId(4), length=1)
        node.records[LedgerId(4)] = closed
        node.records[LedgerId(5)] = replace(closed, ledger_id=LedgerId(5))

        async def list_ledgers() -> list[LedgerId]:
            return [*node.records]

        reviewing = LedgerReviewer(node.runner, list_ledgers, node.read, interval_ms=60_000)
        await reviewing.find_lost()
        lost = closed.mark_lost([EntryRange(EntryId(0), EntryId(4))])
        node.records[LedgerId(4)] = lost.give_up_entries((), by="operator")
        await reviewing.review()
        assert node.runner.core.ledgers.in_limbo == [LedgerId(3), LedgerId(5)]
        del node.records[LedgerId(5)]
        for _ in range(2):
            await reviewing.review()
        assert node.runner.core.ledgers.in_limbo == [LedgerId(3)]
        assert node.runner.limbo_below == 10
        node.records[LedgerId(3)] = LedgerMetadata(LedgerId(3), TOPIC, (Incarnation("d" * 32), B, C), 2)
        await node.runner.review(node.incarnation, LedgerId(3))
        await reviewing.review()
        assert node.runner.limbo_below == 0
        await node.stop()
        await node.start()
        assert node.runner.limbo_below == 0


@pytest.mark.hazard("prepared-ledger-is-left", "older-disk-is-missing")
async def test_ledger_that_its_owner_never_linked_keeps_no_node_in_limbo(tmp_path: Path) -> None:
    """The owner was killed between creating the record and linking it, and the node's directory went back in time: no
    restore can use it. Once another owner has taken the topic over, the record goes, and limbo with it."""
    async with owner_world(tmp_path) as (world, _channel):
        runner = await world.serve("flights")
        ledgers, topic_id = LedgerStore(world.session), runner.topic_id
        (first,) = await ledgers.ids()
        stored = await ledgers.read(first)
        assert stored is not None
        assert stored.value.owner_epoch == 1
        left = LedgerId(await world.parts.ledger_ids.next_id())
        await ledgers.write(replace(stored.value, ledger_id=left), version=ABSENT_VERSION)
        next_owner = OwnerWorld(world.session, world.node, OwnerLimits())
        next_owner.see_the_node()
        await next_owner.place(topic_id, ME)
        next_owner.topics.assign(topic_id)
        serving = next_owner.topics.find(topic_id)
        assert serving is not None
        await serving.progress.until_serving()
        world.node.runner.core.ledgers.limbo.begin(LedgerId(left + 1))
        reviewing = reviewer(world)

        async def limbo_below() -> LedgerId:
            """As a restore sees it, after some reviews."""
            for _ in range(3):
                await reviewing.review()
            async with Channel(world.node.address) as channel:
                return (await read_inventory(channel, world.node.incarnation)).limbo_below

        assert await limbo_below() == left + 1
        chains = ChainListing(TopicStore(world.session), CursorStore(world.session))
        removing = UnlistedRecords(ledgers, chains, DeletionStore(world.session), owners=lambda: [ME])
        records = [record for each in await ledgers.ids() if (record := await ledgers.record(each)) is not None]
        await removing.look(lambda: records)
        assert removing.removed == 1
        assert await ledgers.read(left) is None
        assert await limbo_below() == 0
        for taken in next_owner.topics:
            taken._executor.cancel()
        await next_owner.parts.links.close()
