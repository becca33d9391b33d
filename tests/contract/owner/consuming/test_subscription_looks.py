"""Looks at the subscriptions of a topic at a real owner: what they show is what then happens, and nothing changes."""

import json
import time
from pathlib import Path
from typing import Any

import pytest

from oncelog.core.errors import InvalidArgument, NotOwner, SubscriptionNotFound
from oncelog.rpc.channel import Channel
from oncelog.rpc.codecs.inspection_codec import DESCRIBE_ACK_STATE, LIST_SUBSCRIPTIONS, PREVIEW_SEEK
from oncelog.rpc.codecs.owner_codec import TOPIC_STATES
from oncelog.topic_owner.shell.topic_runner import TopicRunner
from oncelog.wire import inspection_pb2 as pb
from oncelog.wire import owner_pb2
from tests.contract.owner.consuming.test_topic_owner_consuming import stored
from tests.contract.owner.consuming.test_topic_owner_subscriptions import TIMEOUT_MS, Administrator
from tests.contract.owner.owner_world import owner_world
from tests.contract.sdk.fakes.consume_client import ConsumeClient

pytestmark = pytest.mark.asyncio


class Looks:
    """Calls of a metadata service about one topic, or about another that the owner does not have."""

    def __init__(self, channel: Channel, runner: TopicRunner, topic_id: str | None = None) -> None:
        self._channel = channel
        self._topic: dict[str, Any] = {"topic": runner.name, "topic_id": topic_id or runner.topic_id}

    async def page(self, *, by_backlog: bool = True, after: str = "", limit: int = 2) -> dict[str, Any]:
        request = pb.ListSubscriptionsRequest(by_backlog=by_backlog, after=after, limit=limit, **self._topic)
        return dict(json.loads((await self._channel.call(LIST_SUBSCRIPTIONS, request, timeout_ms=TIMEOUT_MS)).json))

    async def ack_state(self, *, buckets: int, subscription: str = "billing") -> dict[str, Any]:
        request = pb.AckStateRequest(subscription=subscription, buckets=buckets, **self._topic)
        return dict(json.loads((await self._channel.call(DESCRIBE_ACK_STATE, request, timeout_ms=TIMEOUT_MS)).json))

    async def seek(self, subscription: str = "billing", **place: Any) -> tuple[int, int, int]:
        """(where it begins, messages that come again, messages that are left out)"""
        start = owner_pb2.ReaderStart(**place)
        request = pb.PreviewSeekRequest(subscription=subscription, place=start, **self._topic)
        shown = json.loads((await self._channel.call(PREVIEW_SEEK, request, timeout_ms=TIMEOUT_MS)).json)
        return shown["index"], shown["delivered_again"], shown["left_out"]


async def test_ack_state_shows_what_is_acknowledged_and_who_holds_the_rest(tmp_path: Path) -> None:
    """Two consumers, holes between acknowledgements, and fewer messages than a bucket has."""
    async with owner_world(tmp_path) as (world, channel):
        runner = await world.serve("orders")
        await stored(channel, runner, *[2] * 5)
        looks = Looks(channel, runner)
        began_ms = time.time_ns() // 1_000_000
        client, other = ConsumeClient(channel, runner), ConsumeClient(channel, runner)
        attached = await client.attach(window=6)
        await client.received(6)
        await other.attach(name="d")
        await other.received(4)
        await client.ack(attached, 1, 2)
        await client.ack(attached, 4, 4, request=2)
        shown = await looks.ack_state(buckets=4)
        assert (shown["first"], shown["next"], shown["topic_first"], shown["bucket_messages"]) == (0, 10, 0, 3)
        parts = [(part["acknowledged"], part["in_flight"]) for part in shown["buckets"]]
        assert parts == [(2, 1), (1, 2), (0, 3), (0, 1)]
        assert shown["hole_count"] == 3
        assert [(hole["first"], hole["last"], hole["holder"]) for hole in shown["holes"]] == [
            (0, 0, "c"), (3, 3, "c"), (5, 9, "c"),
        ]  # fmt: skip
        now_ms = time.time_ns() // 1_000_000
        assert all(began_ms <= hole["held_since_ms"] <= now_ms for hole in shown["holes"])
        consumers = (await Administrator(channel, runner).described())["billing"]["consumers"]
        assert [(each["consumer_name"], each["lowest_held"]) for each in consumers] == [("c", 0), ("d", 6)]
        for each in consumers:
            assert each["connected_from"].startswith("127.0.0.1:")
            assert began_ms <= each["since_ms"] <= each["held_since_ms"] <= now_ms
        with pytest.raises(SubscriptionNotFound):
            await looks.ack_state(buckets=4, subscription="unknown")
        for buckets in (0, 1_001):
            with pytest.raises(InvalidArgument, match="give 1 to 1000"):
                await looks.ack_state(buckets=buckets)


async def test_preview_of_a_seek_says_what_the_seek_does(tmp_path: Path) -> None:
    """The backlog before, less what is left out, with what comes again, is the backlog after."""
    async with owner_world(tmp_path) as (world, channel):
        runner = await world.serve("orders")
        await stored(channel, runner, *[2] * 5)
        looks, admin = Looks(channel, runner), Administrator(channel, runner)
        client = ConsumeClient(channel, runner)
        attached = await client.attach()
        await client.received(10)
        await client.ack(attached, 1, 2)
        await client.ack(attached, 4, 4, request=2)
        assert await looks.seek(index=0) == (0, 3, 0)
        assert await looks.seek(index=5) == (5, 0, 2)
        assert await looks.seek(latest=owner_pb2.Latest()) == (10, 0, 7)
        assert await looks.seek(time_ms=1) == (0, 3, 0)
        with pytest.raises(InvalidArgument, match="0 to 10"):
            await looks.seek(index=11)
        with pytest.raises(SubscriptionNotFound):
            await looks.seek("unknown", index=0)
        backlog, _ = await admin.backlog()
        index, again, left_out = await looks.seek(index=2)
        assert await admin.backlog() == (backlog, 0)
        await admin.change(seek=owner_pb2.ReaderStart(index=2))
        assert await admin.backlog() == (backlog - left_out + again, index) == (8, 2)
        assert await looks.seek(index=0) == (0, 2, 0)


async def test_subscriptions_come_in_pages(tmp_path: Path) -> None:
    """By backlog or by name, without what grows with properties and consumers. Statistics leave them out on request."""
    async with owner_world(tmp_path) as (world, channel):
        runner = await world.serve("orders")
        await stored(channel, runner, 4)
        looks, admin = Looks(channel, runner), Administrator(channel, runner)
        for name, index in (("a", 3), ("b", 0), ("c", 4), ("d", 0)):
            await admin.create(name, index, team="x" * 1_000)
        first = await looks.page()
        assert [(one["name"], one["msg_backlog"]) for one in first["subscriptions"]] == [("b", 4), ("d", 4)]
        assert not {"consumers", "properties"} & first["subscriptions"][0].keys()
        second = await looks.page(after=first["next_after"])
        assert [(one["name"], one["msg_backlog"]) for one in second["subscriptions"]] == [("a", 1), ("c", 0)]
        assert (first["total"], second["next_after"]) == (4, None)
        named = await looks.page(by_backlog=False, limit=3)
        assert [one["name"] for one in named["subscriptions"]] == ["a", "b", "c"]
        last = await looks.page(by_backlog=False, after=named["next_after"], limit=3)
        assert [one["name"] for one in last["subscriptions"]] == ["d"]
        for bad in ({"after": "x"}, {"limit": 0}, {"limit": 1_001}):
            with pytest.raises(InvalidArgument):
                await looks.page(**bad)
        with pytest.raises(NotOwner):
            await Looks(channel, runner, "ab" * 16).page()
        request = owner_pb2.TopicStatesRequest(without_subscriptions=True)
        [state] = (await channel.call(TOPIC_STATES, request, timeout_ms=TIMEOUT_MS)).states
        shown = json.loads(state.stats_json)
        assert (shown["subscription_count"], "subscriptions" in shown) == (4, False)
