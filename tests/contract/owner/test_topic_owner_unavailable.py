"""An owner whose storage nodes are away: its readers and producers get the reason, and its statistics show it."""

from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from crc32c import crc32c

from oncelog.core.errors import LedgerUnavailable, NotOwner
from oncelog.core.formats.entry import GIVEN_UP_INDEXES, peek_header
from oncelog.core.formats.outcome import ResultKind
from oncelog.core.ids import EntryId, Incarnation, LedgerId, Position
from oncelog.core.ledger.member_selection import StorageNodesUpdated
from oncelog.core.ledger.metadata import LedgerMetadata
from oncelog.core.records.records import ABSENT_VERSION
from oncelog.core.topic.topic import Phase
from oncelog.rpc.channel import Channel
from oncelog.rpc.codecs.owner_codec import OpenGranted
from oncelog.rpc.codecs.reader_codec import READ, ReadControl, ReaderStart, StartEdge
from oncelog.storage_client.reader import read_entries
from oncelog.topic_owner.observe.topic_states import stats
from oncelog.topic_owner.shell.log_view import LogView
from oncelog.topic_owner.shell.topic_runner import TopicRunner
from oncelog.verify.range_fold import RangeFold
from oncelog.verify.stored_log import parse_entry
from tests.cluster.until import until
from tests.contract.owner.owner_world import DEADLINE_S, OwnerWorld, PublishClient, batch_of, owner_world
from tests.contract.owner.reading.test_topic_owner_waiting import (
    REFUSES_SOON,
    TOPIC,
    issued_until,
    lost_ledger,
    opening,
    waiting,
)
from tests.contract.owner.test_topic_owner_space import served_again
from tests.contract.storage_client.ledger_world import nodes, scripted
from tests.oracles.fold import LogFold

pytestmark = pytest.mark.asyncio


async def take_away(world: OwnerWorld) -> None:
    """The only storage node refuses connections from now on."""
    async with scripted() as gone:
        pass
    world.parts.links.update_addresses({world.node.incarnation: gone})


@pytest.mark.hazard("lost-too-early")
async def test_reader_of_entries_without_a_live_copy_gets_the_range_and_the_holder(tmp_path: Path) -> None:
    """It used to wait for ever. The statistics of the topic show the same, until the entries are read."""
    async with owner_world(tmp_path) as (world, channel), nodes(tmp_path, 1) as (other,):
        client = PublishClient(channel)
        runner = await world.serve(TOPIC)
        granted = await client.open(runner, "importer")
        await client.stored(granted, batch_of(granted, [0]), batch_of(granted, [1]))
        runner.cache.clear()
        await take_away(world)
        start = ReaderStart(TOPIC, runner.topic_id, StartEdge.EARLIEST, runner.owner_epoch)
        stream = channel.stream(READ)
        await stream.write(ReadControl(start, 1 << 20))
        error = (await anext(aiter(stream))).error
        assert isinstance(error, NotOwner)
        assert "fewer than 1 storage nodes respond in the era of this process" in error.message
        # Another node answers, so the owner can prove that it is the owner.
        world.parts.links.update_addresses({world.node.incarnation: "127.0.0.1:1", other.incarnation: other.address})
        world.topics.update_nodes(StorageNodesUpdated((world.node.incarnation, other.incarnation)))
        log = runner.core.ownership.record.ledgers[-1].ledger_id
        stream = channel.stream(READ)
        await stream.write(ReadControl(start, 1 << 20))
        error = (await anext(aiter(stream))).error
        assert isinstance(error, LedgerUnavailable)
        place = {"ledger_id": log, "first": 0, "last": 3}
        assert error.details == {**place, "waiting_for": world.node.incarnation}
        assert stats(runner)["unavailable"] == [{**place, "waiting_for": [world.node.incarnation]}]
        world.see_the_node()
        stream = channel.stream(READ)
        await stream.write(ReadControl(start, 1 << 20))
        frame = await anext(aiter(stream))
        assert [peek_header(entry).position for entry in frame.entries] == [Position(log, EntryId(at)) for at in (2, 3)]
        assert stats(runner)["unavailable"] == []


@pytest.mark.hazard("lost-too-early")
async def test_replay_without_a_live_copy_names_the_range_and_goes_on_later(tmp_path: Path) -> None:
    """The takeover waits for the node, and says so; a member that is away proves nothing about the entries."""
    async with owner_world(tmp_path) as (world, channel):
        await take_away(world)
        runner = await lost_ledger(world)

        def reason() -> str | None:
            found = runner.wait_reason()
            return None if found is None else found.code

        await until(lambda: reason() == "ledger_unavailable", DEADLINE_S, waiting_for="the reason")
        shown = await waiting(channel, runner.topic_id)
        assert shown is not None
        assert (shown["entry_id"], shown["last_entry_id"]) == (0, 5)
        assert shown["members"] == {world.node.incarnation: "is waited for"}
        world.see_the_node()
        await until(lambda: runner.core.phase is Phase.WAITING, DEADLINE_S, waiting_for="the node's answer")
        # The reason follows the phase with the next look at the topic.
        await until(lambda: reason() == "unreadable_entry", DEADLINE_S, waiting_for="its reason")


@dataclass
class SendsAgain:
    """A producer sends its message 5 again, and the owner knows that it stored 0, 5 and 9 by their entry only."""

    runner: TopicRunner
    client: PublishClient
    granted: OpenGranted

    async def send(self, caplog: pytest.LogCaptureFixture) -> None:
        """Until the owner waits for the entry."""
        await self.client.send(self.granted.session, batch_of(self.granted, [5]))
        await until(lambda: "are waited for, and so is its producer" in caplog.text, DEADLINE_S)

    async def result(self) -> list[ResultKind]:
        [(_, result)] = (await self.client.receive()).answers[self.granted.session]
        assert isinstance(result, tuple), result
        return [part.kind for part in result]


async def sends_again(world: OwnerWorld, channel: Channel) -> SendsAgain:
    runner, client = await world.serve(TOPIC), PublishClient(channel)
    granted = await client.open(runner, "importer")
    await client.stored(granted, batch_of(granted, [0, 5, 9]))
    runner, client = await served_again(world, runner.topic_id), PublishClient(channel)
    granted = await client.open(runner, "importer")
    assert runner.core.serving is not None
    runner.core.serving.log.table.state.producers.make_idle(before_ms=1 << 60)
    return SendsAgain(runner, client, granted)


async def test_ids_that_no_storage_node_gives_are_read_when_one_is_back(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The producer waits meanwhile."""
    async with owner_world(tmp_path) as (world, channel):
        producer = await sends_again(world, channel)
        await take_away(world)
        await producer.send(caplog)
        world.see_the_node()
        assert await producer.result() == [ResultKind.DUPLICATE]


@pytest.mark.hazard("missing-record-is-no-deletion")
async def test_ids_in_a_ledger_whose_record_is_missing_are_read_when_it_is_back(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """It counted as trimmed: the owner forgot the batch, and the producer was told that its message is not verified."""
    async with owner_world(tmp_path) as (world, channel):
        producer = await sends_again(world, channel)
        ledger_id = producer.runner.core.ownership.record.ledgers[0].ledger_id
        lost = await world.parts.ledgers.read(ledger_id)
        assert lost is not None
        await world.parts.ledgers.delete(ledger_id, version=lost.version)
        await producer.send(caplog)
        await world.parts.ledgers.write(lost.value, version=ABSENT_VERSION)
        assert await producer.result() == [ResultKind.DUPLICATE]


async def test_ids_in_a_ledger_that_a_restore_has_left_out_are_not_verified(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """No list names it, and its record does not come back."""
    async with owner_world(tmp_path) as (world, channel):
        producer = await sends_again(world, channel)
        ownership = producer.runner.core.ownership
        ledger_id = ownership.record.ledgers[0].ledger_id
        ownership.record = replace(ownership.record, ledgers=ownership.record.ledgers[1:])
        await world.parts.ledgers.delete_all([ledger_id])
        await producer.send(caplog)
        assert await producer.result() == [ResultKind.BELOW_MARK]


@pytest.mark.hazard("open-ledger-without-quorum")
async def test_producers_are_refused_where_an_open_ledger_cannot_be_closed(tmp_path: Path) -> None:
    """Two of three members are away, so no recovery can end the ledger. The error names them, and is retriable."""
    away = [Incarnation("a" * 32), Incarnation("b" * 32)]
    async with owner_world(tmp_path, REFUSES_SOON) as (world, channel):
        world.topics.update_nodes(StorageNodesUpdated((world.node.incarnation,), absent=tuple(away)))
        topic_id = await world.new_topic(TOPIC)
        ledger_id = LedgerId(1 << 40)
        await issued_until(world, ledger_id)
        await world.parts.ledgers.write(
            LedgerMetadata(ledger_id, topic_id, (world.node.incarnation, *away), 2), version=ABSENT_VERSION
        )
        await world.list_ledger(topic_id, ledger_id)
        world.topics.assign(topic_id)
        runner = world.topics.find(topic_id)
        assert runner is not None
        error = await opening(PublishClient(channel), runner, "importer")
        assert isinstance(error, LedgerUnavailable)
        assert error.details["ledger_id"] == ledger_id
        assert error.details["waiting_for"] == ",".join(away)
        assert f"ledger {ledger_id} is open and cannot be closed" in error.message


@pytest.mark.hazard("index-given-twice")
async def test_topic_goes_on_behind_a_ledger_that_was_given_up(tmp_path: Path) -> None:
    """The log says so first. Then names are granted, and readers get the messages behind the gap in the numbers."""
    gone = (Incarnation("a" * 32), Incarnation("b" * 32))
    async with owner_world(tmp_path) as (world, channel):
        topic_id = await world.new_topic(TOPIC)
        ledger_id = LedgerId(1)
        record = LedgerMetadata(ledger_id, topic_id, (world.node.incarnation, *gone), 2)
        await world.parts.ledgers.write(record.give_up(gone, by="ann"), version=ABSENT_VERSION)
        await world.list_ledger(topic_id, ledger_id)
        world.parts.ledger_ids._claim._free.clear()
        await world.parts.ledger_ids.next_id()  # that was its id
        world.topics.assign(topic_id)
        runner = world.topics.find(topic_id)
        assert runner is not None
        client = PublishClient(channel)
        await runner.progress.until_serving()
        granted = await client.open(runner, "importer")
        await client.stored(granted, batch_of(granted, [0, 1]))
        stream = channel.stream(READ)
        start = ReaderStart(TOPIC, topic_id, StartEdge.EARLIEST, runner.owner_epoch)
        await stream.write(ReadControl(start, 1 << 20))
        frame = await anext(aiter(stream))
        [message] = map(peek_header, frame.entries)
        assert (message.base_index, message.count) == (GIVEN_UP_INDEXES, 2)
        assert message.entry_id == 3, "behind the head, GivenUp and the grant"
        last = await LogView(runner.log).last_message()
        assert last is not None
        assert last[0] == message.position
        serving = runner.core.serving
        assert serving is not None
        writer = serving.log.ledgers.writer
        assert writer is not None
        fold, audit = LogFold(), RangeFold(topic_id)
        async for page in read_entries(world.parts.links, writer.metadata, EntryId(0), EntryId(3)):
            for entry_id, data in page:
                entry = parse_entry(bytes(data), Position(writer.ledger_id, entry_id), crc32c)
                fold.add(entry)
                audit.add(entry)
        fold.compare(serving.log.table.state)
        [finding] = audit.summary.findings
        assert "ann has given up the entries from 1:0 on" in finding.message
        closed = await world.parts.ledgers.record(ledger_id)
        assert closed is not None
        assert (closed.end, closed.given_up, closed.given_up_by) == (-1, gone, "ann")
