"""What waits at an owner until clients read it stays within the budget of all streams, and every client that reads goes
on (hazard unread-windows)."""

import asyncio
import gc
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import grpc
import pytest

from oncelog.core.acks.changes import SubscriptionType
from oncelog.core.delivery.events import (
    DeliverMessages,
    FlowReported,
    Subscribed,
)
from oncelog.core.errors import TooManyRequests
from oncelog.core.formats.columns import encode_values
from oncelog.log_storage.serve import service
from oncelog.rpc.channel import Channel
from oncelog.rpc.codecs.reader_codec import READ, ReadControl, ReaderFrame, ReaderStart, StartEdge
from oncelog.rpc.options import FRAME_BYTES_TARGET as PAGE_BYTES
from oncelog.topic_owner.shell.topic_runner import TopicRunner
from tests.cluster.until import until
from tests.contract.owner.owner_world import (
    DEADLINE_S,
    OwnerLimits,
    OwnerWorld,
    PublishClient,
    batch_of,
    owner_world,
)
from tests.contract.owner.unread_stream import ENDLESS, OPTIONS, Unread
from tests.contract.sdk.fakes.consume_client import ConsumeClient

pytestmark = pytest.mark.asyncio

MESSAGE_BYTES = 100_000
#: what a message takes of the budget at most
COST_BYTES = MESSAGE_BYTES + 2_000
MESSAGES = 60
BUDGET_BYTES = 2_000_000
LIMITS = OwnerLimits(stream_bytes_max=BUDGET_BYTES)


async def stored(channel: Channel, runner: TopicRunner, count: int, size: int = MESSAGE_BYTES) -> None:
    """So many entries of one message each."""
    client = PublishClient(channel)
    granted = await client.open(runner, "importer")
    for number in range(count):
        await client.stored(granted, batch_of(granted, [number], payload=encode_values([bytes(size)])))


@asynccontextmanager
async def unread(channel: Channel, runner: TopicRunner, *subscriptions: str) -> AsyncIterator[Unread]:
    client = Unread(channel.address, runner.name, runner.topic_id)
    try:
        await client.open(subscriptions)
        yield client
    finally:
        await client.close()


@asynccontextmanager
async def unread_log(channel: Channel, start: ReadControl) -> AsyncIterator[None]:
    """A read stream of which nothing is read."""
    async with grpc.aio.insecure_channel(channel.address, options=OPTIONS) as own:
        stream: Any = own.stream_stream(READ.path)()
        await stream.write(READ.encode_request(start))
        yield
        stream.cancel()


async def all_received(client: ConsumeClient, attached: Subscribed, count: int) -> list[int]:
    """Receive so many messages and report each as handed out."""
    got: list[int] = []
    while len(got) < count:
        frame = await client.report(DeliverMessages)
        got += [i for each in frame.entries for first, last in each.ranges for i in range(first, last + 1)]
        await client.send(FlowReported(attached.consumer, len(got), ENDLESS))
    return got


async def until_quiet(world: OwnerWorld) -> None:
    """Until the streams have taken what they can: alone, one has no more room at a quarter of the budget (rules of
    `core.stream_budget`). With several, what they hold does not change any more."""
    budget, before = world.rooms.budget, -1

    def quiet() -> bool:
        nonlocal before
        same, before = before == budget.bytes, budget.bytes
        return same and 4 * budget.bytes >= budget.bytes_max

    await until(quiet, DEADLINE_S, every_s=0.5, waiting_for="the streams to take what they can")


@pytest.mark.hazard("unread-windows")
async def test_unread_windows_of_many_consumers_stay_within_the_budget(tmp_path: Path) -> None:
    """One frame opened windows of 150 consumers that read nothing: the owner held the window of each of them, 2 GB.
    When the stream ends, its part is free."""
    async with owner_world(tmp_path, LIMITS) as (world, channel):
        runner = await world.serve("orders")
        await stored(channel, runner, MESSAGES)
        budget = world.rooms.budget
        async with unread(channel, runner, *(f"s{number}" for number in range(150))):
            await until_quiet(world)
            assert COST_BYTES < budget.bytes <= BUDGET_BYTES + COST_BYTES
            assert budget.kept_bytes <= budget.kept_bytes_max + 2 * COST_BYTES
        await until(lambda: (budget.bytes, budget.kept_bytes, budget.stream_count) == (0, 0, 0), DEADLINE_S)
        budget.check_invariants()


@pytest.mark.hazard("unread-windows")
async def test_memory_of_a_stream_is_freed_when_it_ends(tmp_path: Path) -> None:
    """Without the garbage collector, which runs rarely: what a stream held was kept for hours."""

    def held() -> int:
        return sum(isinstance(each, DeliverMessages | ReaderFrame) for each in gc.get_objects())

    async with owner_world(tmp_path, LIMITS) as (world, channel):
        runner = await world.serve("orders")
        await stored(channel, runner, MESSAGES)
        gc.collect()
        # Of other tests of this process: a failed one keeps what its calls held.
        before = held()
        gc.disable()
        try:
            start = ReadControl(ReaderStart(runner.name, runner.topic_id, StartEdge.EARLIEST), ENDLESS)
            async with unread(channel, runner, *(f"s{number}" for number in range(10))), unread_log(channel, start):
                await until_quiet(world)
                # The room may be taken for entries that are still being read.
                await until(lambda: held() > before, DEADLINE_S)
            await until(lambda: world.rooms.budget.stream_count == 0, DEADLINE_S)
            await until(lambda: held() <= before, DEADLINE_S)
        finally:
            gc.enable()


@pytest.mark.hazard("unread-windows")
async def test_topic_that_leaves_gives_back_what_was_not_sent(tmp_path: Path) -> None:
    """The stream goes on for other topics: once its client has read what waited, it holds nothing."""
    async with owner_world(tmp_path, LIMITS) as (world, channel):
        runner = await world.serve("orders")
        await stored(channel, runner, MESSAGES)
        budget = world.rooms.budget
        async with unread(channel, runner, *(f"s{number}" for number in range(10))) as client:
            await until_quiet(world)
            await world.topics.unload(runner.topic_id)
            reading = asyncio.create_task(client.read())
            await until(lambda: budget.bytes == 0, DEADLINE_S)
            reading.cancel()
            assert (budget.kept_bytes, budget.stream_count) == (0, 1)
            budget.check_invariants()


@pytest.mark.hazard("unread-windows")
async def test_client_that_reads_goes_on_beside_streams_that_nobody_reads(tmp_path: Path) -> None:
    """Its stream waits in line and is woken: it gets every message, by a subscription of each type. What it waits for
    is not read again: each entry took a read of 1 MiB, of which all else was dropped."""
    async with owner_world(tmp_path, LIMITS) as (world, channel), AsyncExitStack() as stack:
        runner = await world.serve("orders")
        await stored(channel, runner, MESSAGES * 2, 10_000)
        for number in range(5):
            await stack.enter_async_context(unread(channel, runner, f"s{number}"))
        await until_quiet(world)
        budget, counts = world.rooms.budget, world.node.runner.counts
        assert budget.bytes > BUDGET_BYTES // 4
        before = counts.bytes_read
        for kind in SubscriptionType:
            client = ConsumeClient(channel, runner)
            attached = await client.ask(kind, subscription=kind.name)
            assert isinstance(attached, Subscribed)
            await client.send(FlowReported(attached.consumer, 0, ENDLESS))
            assert sorted(await all_received(client, attached, MESSAGES * 2)) == list(range(MESSAGES * 2)), kind
            assert budget.bytes <= BUDGET_BYTES + COST_BYTES
            budget.check_invariants()
            client.stream.cancel()
        assert counts.bytes_read - before < 1.5 * len(SubscriptionType) * MESSAGES * 2 * 10_000


@pytest.mark.hazard("unread-windows")
async def test_clients_that_read_get_everything_out_of_a_budget_below_one_message(tmp_path: Path) -> None:
    """A message above the budget goes alone, one client after the other; and so does what is behind it."""
    limits = OwnerLimits(stream_bytes_max=1_000_000, message_bytes_max=6 << 20)
    async with owner_world(tmp_path, limits) as (world, channel):
        runner = await world.serve("orders")
        await stored(channel, runner, 3, 5 << 20)

        async def consume(name: str) -> list[int]:
            client = ConsumeClient(channel, runner)
            attached = await client.ask(SubscriptionType.SHARED, subscription=name)
            assert isinstance(attached, Subscribed)
            await client.send(FlowReported(attached.consumer, 0, ENDLESS))
            return await all_received(client, attached, 3)

        assert await asyncio.gather(*(consume(f"s{number}") for number in range(4))) == [[0, 1, 2]] * 4


@pytest.mark.hazard("unread-windows")
async def test_consumers_of_one_subscription_share_a_stream_without_room(tmp_path: Path) -> None:
    """Messages that one consumer cannot be sent go to another one, and each is delivered once."""
    async with owner_world(tmp_path, LIMITS) as (world, channel):
        runner = await world.serve("orders")
        await stored(channel, runner, MESSAGES)
        async with unread(channel, runner, *["billing"] * 20) as client:
            await until_quiet(world)
            held = world.rooms.budget.bytes // MESSAGE_BYTES
            reading = ConsumeClient(channel, runner)
            attached = await reading.attach(name="reading", window=MESSAGES)
            got = await all_received(reading, attached, MESSAGES - held)
            assert len(set(got)) == len(got)
            assert len(client.consumers) == 20


@pytest.mark.hazard("unread-windows")
async def test_read_streams_take_their_part_of_the_budget(tmp_path: Path) -> None:
    """Readers with permits that do not read what they get hold a page each at most, within the budget; a reader that
    reads gets the whole log, and streams that end give their part back."""
    async with owner_world(tmp_path, OwnerLimits(stream_bytes_max=8 * PAGE_BYTES)) as (world, channel):
        runner = await world.serve("orders")
        await stored(channel, runner, MESSAGES)
        budget = world.rooms.budget
        start = READ.encode_request(ReadControl(ReaderStart(runner.name, runner.topic_id, StartEdge.EARLIEST), ENDLESS))
        async with grpc.aio.insecure_channel(channel.address, options=OPTIONS) as unread_channel:
            streams: list[Any] = [unread_channel.stream_stream(READ.path)() for _ in range(10)]
            for stream in streams:
                await stream.write(start)
            await until_quiet(world)
            await until(lambda: budget.waiting_count > 0, DEADLINE_S)
            assert budget.bytes <= 8 * PAGE_BYTES
            for stream in streams[:8]:
                stream.cancel()
            await until(lambda: budget.stream_count == 2, DEADLINE_S)
            reader = channel.stream(READ)
            await reader.write(ReadControl(ReaderStart(runner.name, runner.topic_id, StartEdge.EARLIEST), ENDLESS))
            count = 0
            while count < MESSAGES:
                count += len((await anext(aiter(reader))).entries)
            assert count == MESSAGES
        reader.cancel()
        await until(lambda: (budget.bytes, budget.stream_count) == (0, 0), DEADLINE_S)


@pytest.mark.hazard("unread-windows")
async def test_readers_that_stop_keep_no_reads_of_storage_nodes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In the middle of the log, without a permit. Each of them kept a read open for a minute. A node serves 256, and
    then refused all other readers, owners and recovery."""
    monkeypatch.setattr(service, "READS_MAX", 3)
    count_all = 4 * MESSAGES  # more than a connection takes while nobody reads
    async with owner_world(tmp_path, LIMITS) as (world, channel):
        runner = await world.serve("orders")
        await stored(channel, runner, count_all)
        counts = world.node.runner.counts
        first = ReaderStart(runner.name, runner.topic_id, StartEdge.EARLIEST)
        stopped = [channel.stream(READ) for _ in range(4)]
        for stream in stopped:
            await stream.write(ReadControl(first, 1))
            assert (await anext(aiter(stream))).entries
        before = counts.bytes_read
        assert before < len(stopped) * 2 * MESSAGE_BYTES
        reader = channel.stream(READ)
        await reader.write(ReadControl(first, ENDLESS))
        count = 0
        while count < count_all:
            frame = await anext(aiter(reader))
            assert frame.error is None
            count += len(frame.entries)
        assert counts.bytes_read - before < 1.2 * count_all * MESSAGE_BYTES
        for stream in (*stopped, reader):
            stream.cancel()


@pytest.mark.hazard("unread-windows")
async def test_reader_at_the_end_holds_nothing(tmp_path: Path) -> None:
    """It came there through entries that are not cached, as after a takeover, and had the room for another page."""
    async with owner_world(tmp_path, LIMITS) as (world, channel):
        runner = await world.serve("orders")
        await stored(channel, runner, 5)
        await stored(channel, await world.serve("others"), MESSAGES)
        reader = channel.stream(READ)
        await reader.write(ReadControl(ReaderStart(runner.name, runner.topic_id, StartEdge.EARLIEST), ENDLESS))
        count = 0
        while count < 5:
            count += len((await anext(aiter(reader))).entries)
        await until(lambda: runner.progress.waiting_count == 1, DEADLINE_S)
        assert world.rooms.budget.bytes == 0
        reader.cancel()


@pytest.mark.hazard("unread-windows")
async def test_streams_of_one_caller_are_limited(tmp_path: Path) -> None:
    """The error names the limit; a stream that ends makes room."""
    async with owner_world(tmp_path, OwnerLimits(caller_streams_max=2)) as (world, channel):
        runner = await world.serve("orders")
        client = ConsumeClient(channel, runner)
        await client.attach()
        reader = channel.stream(READ)
        start = ReadControl(ReaderStart(runner.name, runner.topic_id, StartEdge.EARLIEST), 1)
        await reader.write(start)
        await anext(aiter(reader))
        refused = channel.stream(READ)
        await refused.write(start)
        with pytest.raises(TooManyRequests, match="2 streams") as error:
            await anext(aiter(refused))
        assert (error.value.details["field"], error.value.details["limit"]) == ("streams", 2)
        client.stream.cancel()
        await until(lambda: world.rooms.budget.stream_count == 1, DEADLINE_S)
        again = ConsumeClient(channel, runner)
        await again.attach(name="again")
