"""Administration of subscriptions at a real owner: each change is durable when it is answered."""

import asyncio
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from crc32c import crc32c

from oncelog.client.values.messages import open_entry
from oncelog.core.acks.changes import SubscriptionType
from oncelog.core.delivery.events import EndConsumer, FlowReported, Subscribed
from oncelog.core.delivery.limits import SUBSCRIPTIONS_MAX
from oncelog.core.errors import (
    Conflict,
    DeadlineExceeded,
    InvalidArgument,
    LimitReached,
    NotFound,
    NotOwner,
    ServiceUnavailable,
    SubscriptionGone,
    SubscriptionNotFound,
)
from oncelog.core.topic_events.events import ClockChecked
from oncelog.rpc.channel import Channel
from oncelog.rpc.codecs.owner_codec import TOPIC_STATES
from oncelog.rpc.codecs.subscription_codec import CHANGE_SUBSCRIPTION, DESCRIBE_SUBSCRIPTIONS, PEEK_MESSAGE
from oncelog.topic_owner.observe.subscription_states import subscriptions_of
from oncelog.topic_owner.shell.topic_runner import TopicRunner
from oncelog.wire import owner_pb2
from oncelog.wire import subscriptions_pb2 as pb
from oncelog.wire.consumer_pb2 import SubscriptionProperty
from tests.cluster.until import until
from tests.contract.owner.consuming.test_topic_owner_consuming import stored
from tests.contract.owner.owner_world import ANOTHER, DEADLINE_S, OwnerWorld, owner_world
from tests.contract.sdk.fakes.consume_client import ConsumeClient

pytestmark = pytest.mark.asyncio

TIMEOUT_MS = 10_000


class Administrator:
    """Calls of a metadata service about one topic."""

    def __init__(self, channel: Channel, runner: TopicRunner) -> None:
        self._channel = channel
        self._topic: dict[str, Any] = {"topic": runner.name, "topic_id": runner.topic_id}

    async def change(self, name: str = "billing", **change: Any) -> None:
        request = pb.ChangeSubscriptionRequest(subscription=name, **self._topic, **change)
        await self._channel.call(CHANGE_SUBSCRIPTION, request, timeout_ms=TIMEOUT_MS)

    async def create(self, name: str = "billing", index: int = 0, **properties: str) -> None:
        start = owner_pb2.ReaderStart(index=index)
        listed = [SubscriptionProperty(name=name, value=value) for name, value in properties.items()]
        await self.change(name, create=pb.CreateSubscription(start=start, properties=listed))

    async def ask(self, name: str = "", *, consumed_from: int | None = None) -> pb.DescribeSubscriptionsAnswer:
        request = pb.DescribeSubscriptionsRequest(subscription=name, consumed_from=consumed_from, **self._topic)
        return await self._channel.call(DESCRIBE_SUBSCRIPTIONS, request, timeout_ms=TIMEOUT_MS)

    async def described(self) -> dict[str, dict[str, Any]]:
        return {name: json.loads((await self.ask(name)).statistics_json) for name in (await self.ask()).names}

    async def backlog(self, name: str = "billing") -> tuple[int, int]:
        """(messages, first unacknowledged)."""
        one = (await self.described())[name]
        return one["msg_backlog"], one["mark_delete"]

    async def peek(self, number: int, name: str = "billing") -> pb.PeekMessageAnswer:
        request = pb.PeekMessageRequest(subscription=name, number=number, **self._topic)
        return await self._channel.call(PEEK_MESSAGE, request, timeout_ms=TIMEOUT_MS)


def compared_clocks(world: OwnerWorld, ahead_ms: int) -> None:
    """The owner has just compared its clock with ZooKeeper's."""
    now_ms = time.time_ns() // 1_000_000
    world.parts.clock._checked = ClockChecked(now_ms, now_ms - ahead_ms)


async def test_subscription_without_consumers_is_created_and_consumed(tmp_path: Path) -> None:
    """It keeps its place until a consumer comes, who chooses the type."""
    async with owner_world(tmp_path) as (world, channel):
        runner = await world.serve("orders")
        await stored(channel, runner, 3, 3)
        admin = Administrator(channel, runner)
        await admin.create(index=2, team="payments")
        with pytest.raises(Conflict):
            await admin.create(index=2)
        shown = (await admin.described())["billing"]
        assert (shown["msg_backlog"], shown["mark_delete"], shown["properties"]) == (4, 2, {"team": "payments"})
        assert (shown["consumer_count"], shown["is_blocked_on_ack_state_persistent"]) == (0, False)
        client = ConsumeClient(channel, runner)
        attached = await client.ask(SubscriptionType.KEY_SHARED, first_index=None)
        assert isinstance(attached, Subscribed)
        await client.send(FlowReported(attached.consumer, 0, 100))
        assert sorted(await client.received(4)) == [2, 3, 4, 5]
        shown = (await admin.described())["billing"]
        assert (shown["type"], shown["unacked_messages"]) == ("key_shared", 4)
        assert shown["consumers"][0]["consumer_name"] == "c"


async def test_statistics_of_many_subscriptions_fit_into_an_answer(tmp_path: Path) -> None:
    """The first ones by name; the count is of all, and each is shown by its name."""
    async with owner_world(tmp_path) as (world, channel):
        runner = await world.serve("orders")
        admin = Administrator(channel, runner)
        names = [f"{number:02}{'x' * 200}" for number in range(30)]
        await asyncio.gather(*(admin.create(name, team="y" * 10_000) for name in reversed(names)))
        [state] = (await channel.call(TOPIC_STATES, owner_pb2.TopicStatesRequest(), timeout_ms=TIMEOUT_MS)).states
        shown = json.loads(state.stats_json)
        assert list(shown["subscriptions"]) == names
        assert shown["subscription_count"] == len((await admin.ask()).names) == 30
        serving = runner.core.serving
        assert serving is not None
        assert list(subscriptions_of(serving, bytes_max=120_000)) == names[:11]
        assert list(subscriptions_of(serving, count_max=3)) == names[:3]


async def test_topic_takes_a_limited_number_of_subscriptions(tmp_path: Path) -> None:
    """Each keeps its messages for ever. The error names the field and the limit, and a deletion makes room."""
    async with owner_world(tmp_path) as (world, channel):
        runner = await world.serve("orders")
        admin = Administrator(channel, runner)
        names = [f"s{number}" for number in range(SUBSCRIPTIONS_MAX)]
        await asyncio.gather(*(admin.create(name) for name in names))
        with pytest.raises(LimitReached, match="1000 subscriptions") as refused:
            await admin.create("one-more")
        assert (refused.value.details["field"], refused.value.details["limit"]) == ("subscription", 1_000)
        client = ConsumeClient(channel, runner)
        assert isinstance(await client.ask(SubscriptionType.SHARED, subscription="one-more"), LimitReached)
        assert isinstance(await client.ask(SubscriptionType.SHARED, subscription=names[7]), Subscribed)
        await admin.change(names[3], delete=pb.DeleteSubscription())
        await admin.create("one-more")


async def test_positions_change(tmp_path: Path) -> None:
    """Skip, seek, expire and clear, as the durable state shows them."""
    async with owner_world(tmp_path) as (world, channel):
        runner = await world.serve("orders")
        await stored(channel, runner, *[2] * 5)
        admin = Administrator(channel, runner)
        await admin.create()
        await admin.change(skip=3)
        assert await admin.backlog() == (7, 3)
        with pytest.raises(InvalidArgument, match="0 to 10"):
            await admin.change(seek=owner_pb2.ReaderStart(index=11))
        await admin.change(seek=owner_pb2.ReaderStart(index=1))
        assert await admin.backlog() == (9, 1)
        compared_clocks(world, 0)
        await admin.change(expire_after_ms=3_600_000)
        assert await admin.backlog() == (9, 1)
        await admin.change(skip_all=pb.SkipAll())
        assert await admin.backlog() == (0, 10)
        await admin.change(seek=owner_pb2.ReaderStart(earliest=owner_pb2.Earliest()))
        await admin.change(expire_after_ms=0)
        assert await admin.backlog() == (0, 10)
        await admin.change(properties=pb.SubscriptionProperties(properties=[SubscriptionProperty(name="a", value="b")]))
        assert (await admin.described())["billing"]["properties"] == {"a": "b"}


async def test_peek_shows_the_backlog(tmp_path: Path) -> None:
    """Message n of the backlog, whatever is acknowledged between; nothing changes."""
    async with owner_world(tmp_path) as (world, channel):
        runner = await world.serve("orders")
        await stored(channel, runner, 3, 3)
        admin = Administrator(channel, runner)
        client = ConsumeClient(channel, runner)
        attached = await client.attach()
        await client.received(6)
        await client.ack(attached, 1, 3)
        assert [(await admin.peek(number)).message_index for number in (1, 2, 3)] == [0, 4, 5]
        answer = await admin.peek(2)
        assert answer.producer_name == "importer"
        assert open_entry(answer.entry, crc32c).entry.base_index == 3
        with pytest.raises(NotFound):
            await admin.peek(4)
        with pytest.raises(InvalidArgument):
            await admin.peek(0)
        assert await admin.backlog() == (3, 0)


async def test_deletion_needs_force_while_consumers_are_connected(tmp_path: Path) -> None:
    """A forced one ends them; the name is free for another subscription."""
    async with owner_world(tmp_path) as (world, channel):
        runner = await world.serve("orders")
        await stored(channel, runner, 3)
        admin = Administrator(channel, runner)
        client = ConsumeClient(channel, runner)
        await client.attach()
        with pytest.raises(Conflict):
            await admin.change(delete=pb.DeleteSubscription())
        await admin.change(delete=pb.DeleteSubscription(force=True))
        assert isinstance((await client.report(EndConsumer)).error, SubscriptionGone)
        assert await admin.described() == {}
        await admin.create(index=1)
        assert await admin.backlog() == (2, 1)


@pytest.mark.parametrize(
    "change",
    [
        lambda: {"skip": 1}, lambda: {"skip_all": pb.SkipAll()}, lambda: {"delete": pb.DeleteSubscription()},
        lambda: {"seek": owner_pb2.ReaderStart(index=0)}, lambda: {"expire_after_ms": 5},
        lambda: {"properties": pb.SubscriptionProperties()}, lambda: {"redo": owner_pb2.ReaderStart(index=0)},
        lambda: {"rebind": pb.RebindStore(store_id="5a" * 16)},
    ],
)  # fmt: skip
async def test_unknown_subscription_is_refused(tmp_path: Path, change: Callable[[], dict[str, Any]]) -> None:
    """Each change says so."""
    async with owner_world(tmp_path) as (world, channel):
        admin = Administrator(channel, await world.serve("orders"))
        with pytest.raises(SubscriptionNotFound):
            await admin.change(**change())
        with pytest.raises(SubscriptionNotFound):
            await admin.ask("billing")


async def test_change_that_is_not_durable_is_not_answered(tmp_path: Path) -> None:
    """The caller's time-out ends first: the outcome is unknown, and it is not told as a success."""
    async with owner_world(tmp_path) as (world, channel):
        runner = await world.serve("orders")
        admin = Administrator(channel, runner)
        await admin.create()
        with world.node.hold():
            request = pb.ChangeSubscriptionRequest(
                topic=runner.name, topic_id=runner.topic_id, subscription="other",
                create=pb.CreateSubscription(start=owner_pb2.ReaderStart(index=0)),
            )  # fmt: skip
            with pytest.raises(DeadlineExceeded):
                await channel.call(CHANGE_SUBSCRIPTION, request, timeout_ms=300)
        assert "billing" in await admin.described()
        assert not runner.consumers._administering


@pytest.mark.parametrize("change", [{"skip": 1}, {"seek": owner_pb2.ReaderStart(index=1)}])
@pytest.mark.hazard("late-ack-after-seek")
async def test_change_in_flight_when_the_topic_moves_is_unknown(tmp_path: Path, change: dict[str, Any]) -> None:
    """The next owner may find it in the ack log. As NotOwner it was repeated there: skipped or sought twice."""
    async with owner_world(tmp_path) as (world, channel):
        runner = await world.serve("orders")
        await stored(channel, runner, 3)
        admin = Administrator(channel, runner)
        await admin.create()
        with world.node.hold():
            changing = asyncio.ensure_future(admin.change(**change))
            await until(lambda: bool(runner.consumers._administering), DEADLINE_S)
            await world.place(runner.topic_id, ANOTHER)
            world.topics.assign(runner.topic_id)
            with pytest.raises(DeadlineExceeded, match="may have been made"):
                await changing


async def test_change_that_a_draining_topic_refuses_was_not_made(tmp_path: Path) -> None:
    """NotOwner, so that the metadata service asks the next owner."""
    async with owner_world(tmp_path) as (world, channel):
        runner = await world.serve("orders")
        admin = Administrator(channel, runner)
        await admin.create()
        serving = runner.core.serving
        assert serving is not None
        serving.subscriptions.drain()
        with pytest.raises(NotOwner):
            await admin.change(skip=1)


@pytest.mark.parametrize("ahead_ms", [120_000, -120_000])
@pytest.mark.hazard("wrong-clock-expires")
async def test_nothing_expires_by_a_clock_that_differs(tmp_path: Path, ahead_ms: int) -> None:
    """A clock that is ahead would acknowledge messages that are young."""
    async with owner_world(tmp_path) as (world, channel):
        runner = await world.serve("orders")
        await stored(channel, runner, 3)
        admin = Administrator(channel, runner)
        await admin.create()
        compared_clocks(world, ahead_ms)
        with pytest.raises(ServiceUnavailable, match="120 s apart"):
            await admin.change(expire_after_ms=0)
        assert await admin.backlog() == (3, 0)
        compared_clocks(world, 0)
        await admin.change(expire_after_ms=0)
        assert await admin.backlog() == (0, 3)


async def test_skip_of_more_than_the_backlog_ends_at_its_end(tmp_path: Path) -> None:
    """At once, however large the number is."""
    async with owner_world(tmp_path) as (world, channel):
        runner = await world.serve("orders")
        await stored(channel, runner, 3)
        admin = Administrator(channel, runner)
        await admin.create()
        await admin.change(skip=(1 << 53) - 1)
        assert await admin.backlog() == (0, 3)
        await admin.change(skip=1)
        assert await admin.backlog() == (0, 3)
