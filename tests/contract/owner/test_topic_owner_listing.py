"""Topics by state at a real owner: which are held, wait, or have a backlog, and what their statistics say of it."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from oncelog.core.acks.changes import SubscriptionType
from oncelog.core.errors import InvalidArgument
from oncelog.core.ledger.member_selection import StorageNodesUpdated
from oncelog.core.names import parse_topic
from oncelog.core.policies.retention_rules import BacklogQuota, QuotaAction
from oncelog.core.topic.listing import UNCONSUMED_MS, ListPosition
from oncelog.rpc.channel import Channel
from oncelog.rpc.codecs.owner_codec import LIST_TOPICS, TOPIC_STATES
from oncelog.runtime.observing.events import EventKind
from oncelog.topic_owner.observe import topic_states
from oncelog.topic_owner.observe.topic_listing import LISTED_MAX
from oncelog.topic_owner.shell.topic_runner import TopicRunner
from oncelog.wire import observation_pb2 as pb
from oncelog.wire.owner_pb2 import TopicStatesRequest
from oncelog.wire.subscriptions_pb2 import DeleteSubscription
from tests.cluster.until import until
from tests.contract.noted import noted
from tests.contract.owner.consuming.test_topic_owner_consuming import stored
from tests.contract.owner.consuming.test_topic_owner_series import series
from tests.contract.owner.consuming.test_topic_owner_subscriptions import Administrator
from tests.contract.owner.owner_world import DEADLINE_S, PATIENT, OwnerLimits, PublishClient, batch_of, owner_world
from tests.contract.sdk.fakes.consume_client import ConsumeClient

pytestmark = pytest.mark.asyncio
TIMEOUT_MS = 10_000
NAMESPACE = "public/default"


async def listed(channel: Channel, state: str, **request: Any) -> dict[str, dict[str, Any]]:
    """{topic: its summary}, in order."""
    asked = pb.ListTopicsRequest(state=state, **({"limit": 10} | request))
    answer = await channel.call(LIST_TOPICS, asked, timeout_ms=TIMEOUT_MS)
    return {each.topic.removeprefix(f"{NAMESPACE}/"): json.loads(each.summary_json) for each in answer.topics}


async def stats_of(channel: Channel, runner: TopicRunner) -> dict[str, Any]:
    asked = TopicStatesRequest(topic_ids=[runner.topic_id])
    (state,) = (await channel.call(TOPIC_STATES, asked, timeout_ms=TIMEOUT_MS)).states
    found: dict[str, Any] = json.loads(state.stats_json)
    return found


async def test_topic_that_a_subscription_holds_is_listed_with_its_name(tmp_path: Path) -> None:
    """Also in the subscription's own statistics, which showed nothing of it, and as metrics."""
    async with owner_world(tmp_path, OwnerLimits(replace(PATIENT, tick_ms=20))) as (world, channel):
        quota = BacklogQuota(QuotaAction.HOLD, bytes_max=1)
        other, runner = await world.serve("orders"), await world.serve("bills")
        for each in (other, runner):
            await stored(channel, each, 3)
            await Administrator(channel, each).create("billing")
        await Administrator(channel, runner).create("ahead", index=3)
        assert await listed(channel, "held") == {}
        await world.parts.policies.change(runner.topic_id, lambda before: replace(before, backlog_quota=quota))

        async def held() -> bool:
            return bool(await listed(channel, "held"))

        await until(held, DEADLINE_S, waiting_for="the quota to hold publishing")
        found = await listed(channel, "held")
        assert list(found) == ["bills"]
        one = found["bills"]
        wanted = {
            "phase": "serving", "states": ["held", "backlog"], "publishing": "held", "held_by": "billing",
            "backlog_messages": 3, "backlog_subscription": "billing", "subscriptions": 2, "blocked_subscriptions": 0,
        }  # fmt: skip
        assert {name: one[name] for name in wanted} == wanted
        stats = await stats_of(channel, runner)
        shared = ("held_by", "held_since_ms", "backlog_messages", "backlog_subscription", "bytes", "oldest_unacked_ms")
        assert {name: stats[name] for name in shared} == {name: one[name] for name in shared}
        described = await Administrator(channel, runner).described()
        assert {name: each["holds_publishing_since_ms"] for name, each in described.items()} == {
            "billing": one["held_since_ms"], "ahead": None,
        }  # fmt: skip
        assert described["ahead"]["oldest_unacked_ms"] is None
        assert described["billing"]["oldest_unacked_ms"] == one["oldest_unacked_ms"] >= 0
        metrics = series(world)
        assert metrics['oncelog_topics_held{publishing="held"}'] == 1
        assert metrics['oncelog_topics_held{publishing="refused"}'] == 0
        assert metrics["oncelog_subscription_backlog_messages_max"] == 3
        assert metrics["oncelog_topics_held_seconds"] >= 0
        assert metrics["oncelog_subscription_oldest_unacked_seconds"] >= 0

        await Administrator(channel, runner).change("billing", delete=DeleteSubscription())

        async def open_again() -> bool:
            return not await listed(channel, "held")

        quotas = noted(world.metrics.events, EventKind.QUOTA)
        assert [(one.message[-4:], one.topic, one.fields["subscription"]) for one in quotas] == [
            ("held", "public/default/bills", "billing")
        ]
        await until(open_again, DEADLINE_S, waiting_for="publishing to go on")
        assert topic_states.stats(runner)["held_by"] is None


async def test_topics_are_listed_by_backlog_and_in_pages(tmp_path: Path) -> None:
    """The largest first; a page begins behind the last topic of the one before. Topics of one rank are in order."""
    async with owner_world(tmp_path) as (world, channel):
        for name, count in (("a", 2), ("b", 5), ("c", 2), ("d", 1)):
            runner = await world.serve(name)
            await stored(channel, runner, count)
            if name != "d":
                await Administrator(channel, runner).create()
        assert list(await listed(channel, "backlog")) == ["b", "a", "c"]
        assert list(await listed(channel, "")) == ["a", "b", "c", "d"]
        asked = pb.ListTopicsRequest(state="backlog", limit=1)
        places: list[ListPosition] = []
        while True:
            answer = await channel.call(LIST_TOPICS, asked, timeout_ms=TIMEOUT_MS)
            assert answer.total == 3
            if not answer.topics:
                break
            (one,) = answer.topics
            places.append(ListPosition(one.rank, one.topic))
            asked.after_rank, asked.after_topic = places[-1]
        assert places == [
            ListPosition(-5, f"{NAMESPACE}/b"),
            ListPosition(-2, f"{NAMESPACE}/a"),
            ListPosition(-2, f"{NAMESPACE}/c"),
        ]
        assert list(await listed(channel, "backlog", namespace=NAMESPACE)) == ["b", "a", "c"]
        assert await listed(channel, "backlog", namespace="public/def") == {}
        for wrong, field in (
            ({"limit": 0}, "limit"), ({"limit": LISTED_MAX + 1}, "limit"), ({"limit": 1, "state": "gone"}, "state"),
            ({"limit": 1, "sort": "colour"}, "sort"), ({"limit": 1, "sort": "bytes", "folded": True}, "sort"),
        ):  # fmt: skip
            with pytest.raises(InvalidArgument) as refused:
                await channel.call(LIST_TOPICS, pb.ListTopicsRequest(**wrong), timeout_ms=TIMEOUT_MS)
            assert refused.value.details["field"] == field


async def test_topic_that_waits_is_listed_with_the_reason(tmp_path: Path) -> None:
    """Here no storage node is there to open a ledger."""
    async with owner_world(tmp_path) as (world, channel):
        await world.serve("orders")
        world.topics.update_nodes(StorageNodesUpdated(()))
        topic_id = await world.new_topic("bills")
        world.topics.assign(topic_id)

        async def waits() -> bool:
            return (await listed(channel, "waiting")).get("bills", {}).get("waiting_for") == "not_enough_storage_nodes"

        await until(waits, DEADLINE_S, waiting_for="the reason")
        one = (await listed(channel, "waiting"))["bills"]
        assert one["states"] == ["waiting"]
        assert one["waiting_message"]
        assert one["waiting_since_ms"] > 0
        assert "orders" not in await listed(channel, "waiting")


async def test_topics_are_listed_by_figures_and_by_name(tmp_path: Path) -> None:
    """The largest first; what is equal by name. A filter finds text anywhere in the name, in any case."""
    async with owner_world(tmp_path) as (world, channel):
        runners = {name: await world.serve(name) for name in ("Flights", "bills", "orders")}
        await stored(channel, runners["bills"], 2)
        await stored(channel, runners["orders"], 3)
        for name, runner in runners.items():
            await Administrator(channel, runner).create(index=3 if name == "orders" else 0)
        await world.rates.sample(now_ms=10_000)
        await stored_more(channel, runners["orders"], 5)
        await world.rates.sample(now_ms=20_000)
        found = await listed(channel, "", sort="messages")
        assert [(name, each["message_count"]) for name, each in found.items()] == [
            ("orders", 8), ("bills", 2), ("Flights", 0),
        ]  # fmt: skip
        assert [each["rate_in"] for each in found.values()] == [0.5, 0, 0]
        assert (await stats_of(channel, runners["orders"]))["rate_in"] == 0.5
        assert found["orders"]["bytes"] > found["bills"]["bytes"] > found["Flights"]["bytes"] == 0
        assert found["bills"]["first_index"] == found["bills"]["backlog_change_10m"] == 0
        assert list(await listed(channel, "", sort="name")) == ["Flights", "bills", "orders"]
        assert list(await listed(channel, "", sort="backlog")) == ["orders", "bills", "Flights"]
        for sort in ("bytes", "rate_in"):
            assert next(iter(await listed(channel, "", sort=sort))) == "orders"
        assert list(await listed(channel, "backlog", sort="name")) == ["bills", "orders"]
        assert list(await listed(channel, "", name="LIGHT")) == ["Flights"]
        assert list(await listed(channel, "", name="default/", sort="rate_out")) == ["Flights", "bills", "orders"]
        assert await listed(channel, "", name="none") == {}
        asked = pb.ListTopicsRequest(limit=1, sort="messages", after_rank=-8, after_topic=f"{NAMESPACE}/orders")
        answer = await channel.call(LIST_TOPICS, asked, timeout_ms=TIMEOUT_MS)
        assert [(each.topic, each.rank) for each in answer.topics] == [(f"{NAMESPACE}/bills", -2)]


async def test_topics_are_listed_by_the_messages_that_were_not_stored(tmp_path: Path) -> None:
    """A topic whose producer sends only duplicates stores nothing, and is not the busiest one."""
    async with owner_world(tmp_path) as (world, channel):
        sound, repeated = await world.serve("bills"), await world.serve("orders")
        await stored(channel, sound, 9)
        client = PublishClient(channel)
        granted = await client.open(repeated, "till")
        batch = batch_of(granted, [0, 1, 2])
        await client.stored(granted, batch, batch, batch)
        found = await listed(channel, "", sort="refused")
        assert [(name, each["refused"]) for name, each in found.items()] == [("orders", 6), ("bills", 0)]


async def stored_more(channel: Channel, runner: TopicRunner, count: int) -> None:
    client = PublishClient(channel)
    granted = await client.open(runner, "another")
    await client.stored(granted, batch_of(granted, range(count)))


async def test_topic_whose_backlog_grows_for_ten_minutes_is_listed_as_growing(tmp_path: Path) -> None:
    """With the subscription. The time is that of the samples, which a test gives itself."""
    async with owner_world(tmp_path) as (world, channel):
        runner, other = await world.serve("orders"), await world.serve("bills")
        await Administrator(channel, runner).create("billing")
        client = PublishClient(channel)
        granted = await client.open(runner, "importer")
        for minute in range(11):
            await client.stored(granted, batch_of(granted, [minute]))
            await world.rates.sample(now_ms=1_000_000 + minute * 60_000)
        found = await listed(channel, "growing")
        assert list(found) == ["orders"]
        assert (found["orders"]["growing_subscription"], found["orders"]["backlog_change_10m"]) == ("billing", 10)
        assert found["orders"]["states"] == ["backlog", "growing"]
        assert (await listed(channel, ""))["bills"]["growing_subscription"] is None
        assert world.rates.of(other) is not None


async def test_backlog_that_nobody_consumes_is_listed(tmp_path: Path) -> None:
    """Also if it does not grow: the program that consumed it is gone. Ten minutes leave time for a restart of it."""
    async with owner_world(tmp_path) as (world, channel):
        runner, other = await world.serve("orders"), await world.serve("bills")
        for each in (runner, other):
            await Administrator(channel, each).create("billing")
        await stored(channel, runner, 3)
        assert await listed(channel, "unconsumed") == {}
        world.later_ms = UNCONSUMED_MS
        found = await listed(channel, "unconsumed")
        assert list(found) == ["orders"]
        assert (found["orders"]["states"], found["orders"]["unconsumed_subscription"]) == (
            ["backlog", "unconsumed"], "billing",
        )  # fmt: skip
        assert found["orders"]["unconsumed_since_ms"] == found["orders"]["oldest_unacked_ms"]
        await ConsumeClient(channel, runner).attach(SubscriptionType.SHARED)
        assert await listed(channel, "unconsumed") == {}
        assert (await listed(channel, "backlog"))["orders"]["unconsumed_subscription"] is None


async def test_partitions_are_folded_into_their_topic(tmp_path: Path) -> None:
    """Their figures are sums; a topic that is not partitioned stays as it is."""
    async with owner_world(tmp_path) as (world, channel):
        await world.parts.topics.create(parse_topic("orders"), partitions=2)
        for name, count in (("orders-partition-0", 2), ("orders-partition-1", 3), ("bills", 1)):
            runner = await world.serve(name)
            await stored(channel, runner, count)
            await Administrator(channel, runner).create()
        asked = pb.ListTopicsRequest(limit=10, folded=True)
        answer = await channel.call(LIST_TOPICS, asked, timeout_ms=TIMEOUT_MS)
        assert answer.total == 3
        bills, orders = answer.topics
        assert (bills.topic, orders.topic, orders.topic_id) == (f"{NAMESPACE}/bills", f"{NAMESPACE}/orders", "")
        assert bills.topic_id
        row = json.loads(orders.summary_json)
        assert (row["partitions"], row["message_count"], row["backlog_messages"]) == (2, 5, 5)
        assert "partitions" not in json.loads(bills.summary_json)
        behind = pb.ListTopicsRequest(limit=1, folded=True, after_topic=bills.topic)
        answer = await channel.call(LIST_TOPICS, behind, timeout_ms=TIMEOUT_MS)
        assert [each.topic for each in answer.topics] == [f"{NAMESPACE}/orders"]
