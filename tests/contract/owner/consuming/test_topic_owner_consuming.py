"""Consume streams of a real owner: attaching, delivery, acknowledgements, seeks, and streams that go away."""

from pathlib import Path

import pytest

from oncelog.core.acks.changes import IndexRange, SubscriptionType
from oncelog.core.delivery.events import (
    AnswerSeek,
    AnswerSubscribe,
    ConsumerDetached,
    ConsumerOpening,
    DeliverMessages,
    EndConsumer,
    FlowReported,
    HeldMessages,
    NackRequested,
    SeekRequested,
    Subscribed,
    SubscriptionSought,
)
from oncelog.core.errors import (
    ConsumerBusy,
    ConsumerClosed,
    InvalidArgument,
    InvalidName,
    NotOwner,
    StaleSeekEpoch,
)
from oncelog.core.ids import SubscriptionNumber, TopicId
from oncelog.core.topic.topic import Phase
from oncelog.rpc.channel import Channel
from oncelog.rpc.codecs.consumer_codec import (
    OpenConsumer,
    SeekThrough,
)
from oncelog.rpc.codecs.reader_codec import (
    FIND_INDEX,
    ReaderStart,
    StartAt,
    StartEdge,
    StartIndex,
    StartMessage,
    StartTime,
    start_to_wire,
)
from oncelog.topic_owner.shell.ownership_watch import OwnershipWatch
from oncelog.topic_owner.shell.topic_runner import TopicRunner
from oncelog.wire.owner_pb2 import FindIndexAnswer, FindIndexRequest
from tests.cluster.until import until
from tests.contract.owner.owner_world import ANOTHER, DEADLINE_S, OwnerWorld, PublishClient, batch_of, owner_world
from tests.contract.owner.ownership.fencing import fence
from tests.contract.sdk.fakes.consume_client import WINDOW, ConsumeClient

pytestmark = pytest.mark.asyncio


async def stored(channel: Channel, runner: TopicRunner, *counts: int) -> None:
    """Store a batch for each count, so that the topic has entries of as many messages."""
    client = PublishClient(channel)
    granted = await client.open(runner, "importer")
    first = 0
    for count in counts:
        await client.stored(granted, batch_of(granted, range(first, first + count)))
        first += count


@pytest.mark.parametrize("kind", SubscriptionType)
async def test_messages_are_delivered_and_acknowledged(tmp_path: Path, kind: SubscriptionType) -> None:
    """The same for each type: what is acknowledged is not delivered to the next consumer, the rest is."""
    async with owner_world(tmp_path) as (world, channel):
        runner = await world.serve("orders")
        await stored(channel, runner, 3, 1, 4)
        client = ConsumeClient(channel, runner)
        attached = await client.attach(kind)
        assert sorted(await client.received(8)) == list(range(8))
        answer = await client.ack(attached, 0, 4)
        assert answer.error is None
        assert answer.durable
        await client.send(ConsumerDetached(attached.consumer, lost=False))
        again = await client.attach(kind, name="d")
        assert sorted(await client.received(3)) == [5, 6, 7]
        await stored_after(channel, runner)
        assert await client.received(1) == [8]
        assert (await client.ack(again, 5, 8)).error is None


async def stored_after(channel: Channel, runner: TopicRunner) -> None:
    client = PublishClient(channel)
    granted = await client.open(runner, "late")
    await client.stored(granted, batch_of(granted, [0]))


async def test_old_messages_come_from_storage(tmp_path: Path) -> None:
    """What the cache has lost is read from storage nodes, without control entries, from the middle of an entry on."""
    async with owner_world(tmp_path) as (world, channel):
        runner = await world.serve("orders")
        await stored(channel, runner, 3, 2, 4)
        runner.cache.clear()
        client = ConsumeClient(channel, runner)
        attached = await client.ask(SubscriptionType.EXCLUSIVE, first_index=4)
        assert isinstance(attached, Subscribed)
        await client.send(FlowReported(attached.consumer, 0, WINDOW))
        assert await client.received(5) == [4, 5, 6, 7, 8]


async def test_credit_bounds_what_is_sent(tmp_path: Path) -> None:
    """The owner sends up to handed_out + window, in the stream's own numbers (hazard relative-credit)."""
    async with owner_world(tmp_path) as (world, channel):
        runner = await world.serve("orders")
        await stored(channel, runner, *[1] * 6)
        client = ConsumeClient(channel, runner)
        attached = await client.attach(window=2)
        assert await client.received(2) == [0, 1]
        await client.ack(attached, 0, 0)
        assert not client._reports
        await client.send(FlowReported(attached.consumer, 2, 3))
        assert await client.received(3) == [2, 3, 4]


async def test_negatively_acknowledged_message_comes_again_with_its_count(tmp_path: Path) -> None:
    """The count is durable before the message goes out again."""
    async with owner_world(tmp_path) as (world, channel):
        runner = await world.serve("orders")
        await stored(channel, runner, 2)
        client = ConsumeClient(channel, runner)
        attached = await client.attach()
        assert await client.received(2) == [0, 1]
        await client.send(FlowReported(attached.consumer, 2, WINDOW))
        ranges = (IndexRange(1, 1),)
        await client.send(NackRequested(attached.consumer, 7, attached.seek_epoch, ranges, delay_ms=0))
        frame = await client.report(DeliverMessages)
        assert frame.delivery_counts == {1: 2}


@pytest.mark.hazard("delivered-while-held")
async def test_reconnected_consumer_keeps_what_it_presents(tmp_path: Path) -> None:
    """Its stream broke: it comes back on another one with what it holds, and gets none of it again."""
    async with owner_world(tmp_path) as (world, channel):
        runner = await world.serve("orders")
        await stored(channel, runner, 4)
        client = ConsumeClient(channel, runner)
        attached = await client.attach()
        assert await client.received(4) == [0, 1, 2, 3]
        client.stream.cancel()
        back = ConsumeClient(channel, runner)
        held = HeldMessages(
            attached.subscription_id, attached.seek_epoch, attached.generation, (IndexRange(0, 3),), (IndexRange(0, 1),)
        )
        resumed = await back.attach(resume=held)
        assert resumed.kept == (IndexRange(0, 3),)
        assert (await back.ack(resumed, 0, 3)).error is None
        await stored_after(channel, runner)
        assert await back.received(1) == [4]


async def test_consumer_that_does_not_come_back_loses_its_messages(tmp_path: Path) -> None:
    """Another consumer of the shared subscription gets what the lost one held."""
    async with owner_world(tmp_path) as (world, channel):
        runner = await world.serve("orders")
        await stored(channel, runner, 4)
        client = ConsumeClient(channel, runner)
        await client.attach()
        assert await client.received(4) == [0, 1, 2, 3]
        other = ConsumeClient(channel, runner)
        await other.attach(name="other")
        client.stream.cancel()
        assert sorted(await other.received(4)) == [0, 1, 2, 3]


async def test_seek_begins_again(tmp_path: Path) -> None:
    """The consumer is told, older acknowledgements are refused, and everything from the place on comes again."""
    async with owner_world(tmp_path) as (world, channel):
        runner = await world.serve("orders")
        await stored(channel, runner, 4)
        client = ConsumeClient(channel, runner)
        attached = await client.attach()
        await client.received(4)
        assert (await client.ack(attached, 0, 3)).error is None
        await client.send(SeekThrough(attached.consumer, SeekRequested(9, attached.number, 2)))
        sought = await client.report(SubscriptionSought)
        answer = await client.report(AnswerSeek)
        assert (answer.call, answer.result, sought.seek_epoch) == (9, sought.seek_epoch, attached.seek_epoch + 1)
        await client.send(FlowReported(attached.consumer, 4, WINDOW))
        assert await client.received(2) == [2, 3]
        assert isinstance((await client.ack(attached, 2, 3, request=2)).error, StaleSeekEpoch)


async def test_requests_for_consumers_of_other_streams_are_refused(tmp_path: Path) -> None:
    """A number proves nothing: a stream acts for its own consumers only."""
    async with owner_world(tmp_path) as (world, channel):
        runner = await world.serve("orders")
        await stored(channel, runner, 2)
        client, stranger = ConsumeClient(channel, runner), ConsumeClient(channel, runner)
        attached = await client.attach()
        assert await client.received(2) == [0, 1]
        assert isinstance((await stranger.ack(attached, 0, 1)).error, ConsumerClosed)
        await stranger.send(
            FlowReported(attached.consumer, 2, 5),
            ConsumerDetached(attached.consumer, lost=False),
            SeekThrough(attached.consumer, SeekRequested(1, attached.number, 0)),
        )
        assert isinstance((await stranger.report(AnswerSeek)).result, ConsumerClosed)
        other = SubscriptionNumber(attached.number + 1)
        await client.send(SeekThrough(attached.consumer, SeekRequested(2, other, 0)))
        assert isinstance((await client.report(AnswerSeek)).result, InvalidArgument)
        assert (await client.ack(attached, 0, 1)).error is None


async def test_openings_are_refused_with_the_reason(tmp_path: Path) -> None:
    """A second exclusive consumer, a name that is none, and a topic that is not here."""
    async with owner_world(tmp_path) as (world, channel):
        runner = await world.serve("orders")
        client = ConsumeClient(channel, runner)
        await client.attach(SubscriptionType.EXCLUSIVE)
        other = ConsumeClient(channel, runner)
        assert isinstance(await other.ask(SubscriptionType.EXCLUSIVE, name="second"), ConsumerBusy)
        assert isinstance(await other.ask(SubscriptionType.SHARED, subscription="a/b"), InvalidName)
        opening = ConsumerOpening(5, "billing", SubscriptionType.SHARED, "x", bytes(16))
        await other.send(OpenConsumer("public/default/none", TopicId("0" * 32), opening))
        assert (await other.report(AnswerSubscribe)).call == 5


async def test_end_of_the_topic_ends_its_consumers(tmp_path: Path) -> None:
    """An unloaded topic: the stream goes on, its consumer there is over, and nothing is left in the shell."""
    async with owner_world(tmp_path) as (world, channel):
        runner = await world.serve("orders")
        client = ConsumeClient(channel, runner)
        attached = await client.attach()
        await world.topics.unload(runner.topic_id)
        answer = await client.ack(attached, 0, 0)
        assert isinstance(answer.error, ConsumerClosed)
        assert not runner.consumers._consumers
        assert not runner.consumers._calls


async def test_stream_that_ends_takes_its_consumers_along(tmp_path: Path) -> None:
    """Nothing of it stays with the topic's shell, and its unanswered opening is withdrawn."""
    async with owner_world(tmp_path) as (world, channel):
        runner = await world.serve("orders")
        client = ConsumeClient(channel, runner)
        await client.attach()
        with world.node.hold():
            await opening_in_flight(world, client)
            client.stream.cancel()
            await until(lambda: not runner.consumers._calls, DEADLINE_S, waiting_for="the stream's end")
        assert not runner.consumers._consumers


async def opening_in_flight(world: OwnerWorld, client: ConsumeClient) -> None:
    """A subscription whose creation is not durable."""
    opening = ConsumerOpening(77, "another", SubscriptionType.SHARED, "c", bytes(16), first_index=0)
    await client.send(OpenConsumer(client.runner.name, client.runner.topic_id, opening))
    await until(lambda: bool(client.runner.consumers._calls), DEADLINE_S, waiting_for="the opening")


@pytest.mark.hazard("deposed-owner-delivers")
async def test_owner_that_was_stopped_delivers_nothing_before_it_has_proved_itself(tmp_path: Path) -> None:
    """Another process has the topic. The stopped one wakes up with messages in its cache and with free credit."""
    async with owner_world(tmp_path) as (world, channel):
        runner = await world.serve("orders")
        await stored(channel, runner, *[1] * 4)
        client = ConsumeClient(channel, runner)
        attached = await client.attach(window=1)
        assert await client.received(1) == [0]
        await world.place(runner.topic_id, ANOTHER)
        await fence(world, runner)
        runner.ownership_proofs.proved_at -= 60
        await client.send(FlowReported(attached.consumer, 1, WINDOW))
        report = (await anext(aiter(client.stream)))[0].report
        assert isinstance(report, EndConsumer)
        assert isinstance(report.error, NotOwner)


@pytest.mark.hazard("deposed-owner-delivers")
async def test_current_owner_goes_on_after_it_was_stopped(tmp_path: Path) -> None:
    """The storage nodes prove it, and what waited for that is delivered."""
    async with owner_world(tmp_path) as (world, channel):
        runner = await world.serve("orders")
        await stored(channel, runner, *[1] * 4)
        client = ConsumeClient(channel, runner)
        attached = await client.attach(window=1)
        assert await client.received(1) == [0]
        runner.ownership_proofs.proved_at -= 60
        await client.send(FlowReported(attached.consumer, 1, WINDOW))
        assert await client.received(3) == [1, 2, 3]
        assert (await client.ack(attached, 0, 3)).error is None


@pytest.mark.hazard("deposed-owner-delivers")
async def test_watch_renews_the_proof_of_topics_with_consumers(tmp_path: Path) -> None:
    """So a busy topic never waits for one."""
    async with owner_world(tmp_path) as (world, channel):
        runner = await world.serve("orders")
        await stored(channel, runner, 1)
        client = ConsumeClient(channel, runner)
        await client.attach()
        runner.ownership_proofs.proved_at = before = runner.ownership_proofs.proved_at - 60
        await OwnershipWatch(world.topics, world.parts.links, doubt_after_ms=60_000).check()
        assert runner.ownership_proofs.proved_at > before


@pytest.mark.hazard("deposed-owner-delivers")
async def test_consumer_leaves_a_deposed_owner_that_has_written_nothing(tmp_path: Path) -> None:
    """No ledger is open, so no fence tells this owner, and nothing is delivered or acknowledged here. Its ZooKeeper
    session lives, as after an unload that it did not hear of."""
    async with owner_world(tmp_path) as (world, channel):
        runner = await world.serve("orders")
        client = ConsumeClient(channel, runner)
        await client.attach()
        await world.place(runner.topic_id, ANOTHER)
        watch = OwnershipWatch(world.topics, world.parts.links, doubt_after_ms=60_000, proof_interval_ms=-1)
        await watch.check()
        await until(lambda: runner.core.phase is Phase.DEPOSED, DEADLINE_S)


async def test_absurd_ranges_cost_nothing(tmp_path: Path) -> None:
    """A bitmap of the range that this client reports as begun would take all memory of the owner."""
    async with owner_world(tmp_path) as (world, channel):
        runner = await world.serve("orders")
        await stored(channel, runner, 2)
        client = ConsumeClient(channel, runner)
        attached = await client.attach()
        assert await client.received(2) == [0, 1]
        absurd = (IndexRange(0, 1 << 61),)
        await client.send(FlowReported(attached.consumer, 0, WINDOW, absurd))
        client.stream.cancel()
        back = ConsumeClient(channel, runner)
        epoch, generation = attached.seek_epoch, attached.generation
        resumed = await back.attach(resume=HeldMessages(attached.subscription_id, epoch, generation, absurd, absurd))
        assert resumed.kept == (IndexRange(0, 1),)


@pytest.mark.parametrize(
    ("at", "begins_at"),
    [
        (StartEdge.EARLIEST, 0), (StartEdge.LATEST, 6), (StartIndex(4), 4), (StartIndex(99), 6), (StartTime(0), 0),
        (StartTime(1 << 60), 6),
    ],
)  # fmt: skip
async def test_find_index(tmp_path: Path, at: StartAt, begins_at: int) -> None:
    """Each place of a topic has an index, between its first and its next one."""
    async with owner_world(tmp_path) as (world, channel):
        runner = await world.serve("orders")
        await stored(channel, runner, 3, 3)
        request = FindIndexRequest(start=start_to_wire(ReaderStart(runner.name, runner.topic_id, at)))
        found = await channel.call(FIND_INDEX, request, timeout_ms=10_000)
        assert found == FindIndexAnswer(begins_at=begins_at, next_index=6, owner_epoch=runner.owner_epoch)


async def test_find_index_of_a_message(tmp_path: Path) -> None:
    """The message itself, or the one behind it, which is in the next entry."""
    async with owner_world(tmp_path) as (world, channel):
        runner = await world.serve("orders")
        await stored(channel, runner, 3, 3)
        client = ConsumeClient(channel, runner)
        await client.attach()
        frame = await client.report(DeliverMessages)
        position = frame.entries[0].entry.position
        for batch_index, inclusive, expected in ((0, True, 0), (1, False, 2), (2, False, 3)):
            start = ReaderStart(runner.name, runner.topic_id, StartMessage(position, batch_index, inclusive))
            request = FindIndexRequest(start=start_to_wire(start))
            assert (await channel.call(FIND_INDEX, request, timeout_ms=10_000)).begins_at == expected
