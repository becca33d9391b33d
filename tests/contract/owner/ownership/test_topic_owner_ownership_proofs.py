"""Questions to an owner that was deposed and does not know it: no answer is from the past, and no reader is held."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from oncelog.core.era import Era
from oncelog.core.errors import NotOwner, TopicNotFound
from oncelog.core.ids import OwnerEpoch
from oncelog.core.ledger.member_status import ReadStatus
from oncelog.core.names import parse_topic
from oncelog.core.topic.topic import Phase, open_ledger
from oncelog.metadata_store.records.deletion_store import DeletionStore
from oncelog.rpc.channel import Channel
from oncelog.rpc.codecs.owner_codec import LAST_MESSAGE, PRODUCER_NAMES, OpenGranted
from oncelog.rpc.codecs.reader_codec import READ, ReadControl, ReaderStart, ReceivedEntries, StartEdge
from oncelog.rpc.codecs.storage_codec import FENCE_STATES
from oncelog.runtime.observing.events import EventKind
from oncelog.topic_owner.shell.ownership_watch import OwnershipWatch
from oncelog.topic_owner.shell.topic_runner import TopicRunner
from oncelog.wire import owner_pb2 as pb
from oncelog.wire.storage_pb2 import FenceState, FenceStatesRequest
from tests.cluster.until import until
from tests.contract.noted import noted
from tests.contract.owner.owner_world import ANOTHER, DEADLINE_S, OwnerWorld, PublishClient, batch_of, owner_world
from tests.contract.owner.ownership.fencing import fence

pytestmark = pytest.mark.asyncio


@asynccontextmanager
async def one_message(tmp_path: Path) -> AsyncIterator[tuple[OwnerWorld, Channel, TopicRunner, OpenGranted]]:
    """A served topic with a message in its open ledger."""
    async with owner_world(tmp_path) as (world, channel):
        runner = await world.serve("flights")
        client = PublishClient(channel)
        granted = await client.open(runner, "importer")
        await client.stored(granted, batch_of(granted, [1]))
        yield world, channel, runner, granted


async def last_message(channel: Channel, runner: TopicRunner, *, seen: int = 0) -> pb.LastMessageAnswer:
    request = pb.LastMessageRequest(topic=runner.name, topic_id=runner.topic_id, owner_epoch_seen=seen)
    return await channel.call(LAST_MESSAGE, request, timeout_ms=30_000)


async def at_end(channel: Channel, runner: TopicRunner) -> AsyncIterator[ReceivedEntries]:
    """The frames of a reader that waits at the end of the log."""
    stream = channel.stream(READ)
    start = ReaderStart(runner.name, runner.topic_id, StartEdge.EARLIEST, OwnerEpoch(0))
    await stream.write(ReadControl(start, 1 << 20))
    frames = aiter(stream)
    while not (await anext(frames)).at_end:
        pass
    await until(lambda: runner.progress.waiting_count, DEADLINE_S)
    return frames


async def test_storage_node_reports_fence_states(tmp_path: Path) -> None:
    """Unfenced, fenced and unknown ledgers. A call for another incarnation is refused."""
    async with one_message(tmp_path) as (world, _, runner, _), Channel(world.node.address) as node:
        ledger = open_ledger(runner.core)
        assert ledger is not None

        async def states(target: str) -> tuple[ReadStatus, list[str]]:
            request = FenceStatesRequest(target=target, ledger_ids=[ledger.ledger_id, 999])
            answer = await node.call(FENCE_STATES, request, timeout_ms=30_000)
            names = [FenceState.Name(state).removeprefix("FENCE_STATE_") for state in answer.states]
            return ReadStatus(answer.status), names

        assert await states(world.node.incarnation) == (ReadStatus.OK, ["HELD", "UNKNOWN"])
        await fence(world, runner)
        assert await states(world.node.incarnation) == (ReadStatus.OK, ["FENCED", "UNKNOWN"])
        assert await states("e" * 32) == (ReadStatus.WRONG_INCARNATION, [])


async def test_question_is_refused_once_a_newer_owner_has_fenced_the_ledger(tmp_path: Path) -> None:
    """Only the deposed owner lost ZooKeeper. It cannot read that it is deposed, and must not answer."""
    async with one_message(tmp_path) as (world, channel, runner, _):
        assert (await last_message(channel, runner)).present
        await world.place(runner.topic_id, ANOTHER)
        await fence(world, runner)
        world.session.faults.suspend()
        with pytest.raises(NotOwner):
            await last_message(channel, runner)
        world.session.faults.resume()
        await until(lambda: runner.core.phase is Phase.DEPOSED, DEADLINE_S)


@pytest.mark.hazard("the-lost-ensemble-returns")
async def test_record_of_the_lost_zookeeper_proves_nothing(tmp_path: Path) -> None:
    """The records were restored into another ZooKeeper, and the storage nodes are of its era. This owner can still read
    the old record, which names it; others have acknowledged messages since."""
    async with one_message(tmp_path) as (world, channel, runner, _):
        assert (await last_message(channel, runner)).present
        await world.node.runner.raise_era(world.node.incarnation, Era(2, "a" * 32), committed=False)
        with pytest.raises(NotOwner, match="is fenced"):
            await last_message(channel, runner)


@pytest.mark.hazard("the-lost-ensemble-returns")
async def test_record_proves_nothing_without_storage_nodes(tmp_path: Path) -> None:
    """A network partition leaves the owner alone with its ZooKeeper, which names it, and may be the one that was lost.
    So few storage nodes respond that a restore into another ZooKeeper can have ended."""
    async with one_message(tmp_path) as (world, channel, runner, _):
        address = world.node.address
        world.parts.links.update_addresses({world.node.incarnation: "127.0.0.1:1"})
        with pytest.raises(NotOwner, match="fewer than 1 storage nodes respond"):
            await last_message(channel, runner)
        world.parts.links.update_addresses({world.node.incarnation: address})
        assert (await last_message(channel, runner)).present


async def test_open_topic_answers_without_zookeeper(tmp_path: Path) -> None:
    """The storage nodes prove that no newer owner has recovered the log."""
    async with one_message(tmp_path) as (world, channel, runner, _):
        world.session.faults.suspend()
        answer = await last_message(channel, runner)
        assert (answer.present, answer.next_index, answer.owner_epoch) == (True, 1, 1)
        world.session.faults.resume()


async def test_known_producer_names_are_answered_without_a_proof(tmp_path: Path) -> None:
    """A consumer hands out nothing before it has the names, and a slow proof must not stop it. That a name is missing
    is said only by an owner that has proved itself: another one may know it."""
    async with one_message(tmp_path) as (world, channel, runner, granted):
        await world.place(runner.topic_id, ANOTHER)
        await fence(world, runner)
        request = pb.ProducerNamesRequest(topic=runner.name, topic_id=runner.topic_id, owner_epoch_seen=1)
        request.producer_ids.append(granted.producer_id)
        answer = await channel.call(PRODUCER_NAMES, request, timeout_ms=30_000)
        assert [(each.producer_id, each.name) for each in answer.names] == [(granted.producer_id, "importer")]
        request.producer_ids.append(granted.producer_id + 1)
        with pytest.raises(NotOwner):
            await channel.call(PRODUCER_NAMES, request, timeout_ms=30_000)


async def test_topic_record_is_read_when_the_open_ledger_has_no_entry(tmp_path: Path) -> None:
    """No member holds the ledger, so fences prove nothing. The record names another owner."""
    async with owner_world(tmp_path) as (world, channel):
        runner = await world.serve("flights")
        assert not (await last_message(channel, runner)).present
        await world.place(runner.topic_id, ANOTHER)
        with pytest.raises(NotOwner):
            await last_message(channel, runner)
        await until(lambda: runner.core.phase is Phase.DEPOSED, DEADLINE_S)


@pytest.mark.parametrize("recorded", [False, True])
async def test_question_with_a_higher_epoch_is_refused(tmp_path: Path, recorded: bool) -> None:
    """If the record confirms the epoch, the owner steps down. A claim alone has no effect on it."""
    async with one_message(tmp_path) as (world, channel, runner, granted):
        if recorded:
            await world.place(runner.topic_id, ANOTHER)
        with pytest.raises(NotOwner):
            await last_message(channel, runner, seen=2)
        names = pb.ProducerNamesRequest(
            topic=runner.name, topic_id=runner.topic_id, producer_ids=[granted.producer_id], owner_epoch_seen=2
        )
        with pytest.raises(NotOwner):
            await channel.call(PRODUCER_NAMES, names, timeout_ms=30_000)
        if recorded:
            await until(lambda: runner.core.phase is Phase.DEPOSED, DEADLINE_S)
        else:
            assert (await last_message(channel, runner)).present


@pytest.mark.hazard("deposed-owner-refuses")
async def test_waiting_reader_is_ended_when_the_ledger_is_fenced(tmp_path: Path) -> None:
    """The reader asks nothing and the owner writes nothing, so only a check can notice the newer owner."""
    async with one_message(tmp_path) as (world, channel, runner, _):
        watch = OwnershipWatch(world.topics, world.parts.links, doubt_after_ms=1_000_000)
        frames = await at_end(channel, runner)
        await watch.check()
        assert runner.progress.waiting_count == 1, "no member is fenced"
        await world.place(runner.topic_id, ANOTHER)
        await fence(world, runner)
        world.session.faults.suspend()
        await watch.check()
        assert isinstance((await anext(frames)).error, NotOwner)
        assert noted(world.metrics.events, EventKind.LEDGER_FAILED)[0].topic == runner.name
        world.session.faults.resume()
        await until(lambda: runner.core.phase is Phase.DEPOSED, DEADLINE_S)


async def test_waiting_reader_is_ended_when_no_storage_node_responds(tmp_path: Path) -> None:
    """The owner can reach nobody but its readers. It serves them again once it has proved that it is current."""
    async with one_message(tmp_path) as (world, channel, runner, _):
        watch = OwnershipWatch(world.topics, world.parts.links, doubt_after_ms=-1)
        frames = await at_end(channel, runner)
        address = world.node.address
        world.parts.links.update_addresses({world.node.incarnation: "127.0.0.1:1"})
        await watch.check()
        assert isinstance((await anext(frames)).error, NotOwner)
        world.parts.links.update_addresses({world.node.incarnation: address})
        await at_end(channel, runner)
        await watch.check()
        assert runner.progress.waiting_count == 1


async def test_concurrent_questions_share_a_proof(tmp_path: Path) -> None:
    """A proof that began before a question does not count for it. The next proof serves all waiting questions."""
    async with one_message(tmp_path) as (_, channel, runner, _):
        before = runner.ownership_proofs._begun
        await asyncio.gather(*(last_message(channel, runner) for _ in range(50)))
        assert before < runner.ownership_proofs._begun < before + 50


async def test_last_message_of_a_deleted_topic_is_topic_not_found(tmp_path: Path) -> None:
    """The owner does not know of the deletion yet, and the records of the ledgers are gone. That is not a hole."""
    async with owner_world(tmp_path) as (world, channel):
        runner = await world.serve("flights")
        deletion = await DeletionStore(world.session).begin(parse_topic("flights"))
        for ledger_id in deletion.ledgers:
            await world.parts.ledgers.remove(ledger_id)
        with pytest.raises(TopicNotFound):
            await last_message(channel, runner)


async def test_reader_of_a_deleted_topic_gets_topic_not_found(tmp_path: Path) -> None:
    """The next ledger of the reader has no record. The owner learns of the deletion by it."""
    async with one_message(tmp_path) as (world, channel, runner, _):
        await world.topics.unload(runner.topic_id)
        await world.place(runner.topic_id, runner.core.ownership.me)
        world.topics.assign(runner.topic_id)
        again = world.topics.find(runner.topic_id)
        assert again is not None
        await again.progress.until_serving()
        client = PublishClient(channel)
        granted = await client.open(again, "importer")
        await client.stored(granted, batch_of(granted, [2]))
        stream = channel.stream(READ)
        start = ReaderStart(again.name, again.topic_id, StartEdge.EARLIEST, OwnerEpoch(0))
        deletion = await DeletionStore(world.session).begin(parse_topic("flights"))
        for ledger_id in deletion.ledgers:
            await world.parts.ledgers.remove(ledger_id)
        await stream.write(ReadControl(start, 1 << 20))
        frames = [frame async for frame in stream]
        assert [type(frame.error) for frame in frames] == [TopicNotFound]
        assert again.ownership_proofs._ended == (1, None), "storage nodes proved the owner, not the record"


async def test_unloaded_topic_is_not_taken_again_at_its_old_epoch(tmp_path: Path) -> None:
    """A look-up that read the old record assigns the topic again, before a placement raises its epoch."""
    async with one_message(tmp_path) as (world, _, runner, _):
        topic_id = runner.topic_id
        await world.topics.unload(topic_id)
        world.topics.assign(topic_id)
        late = world.topics.find(topic_id)
        assert late is not None
        await late.progress.until_ended()
        assert world.topics.find(topic_id) is None
        await world.place(topic_id, runner.core.ownership.me)
        world.topics.assign(topic_id)
        anew = world.topics.find(topic_id)
        assert anew is not None
        await anew.progress.until_serving()
        assert anew.owner_epoch == 2
