"""The lags of subscriptions at a real owner, and which of its topics have dead letters."""

import json
import time
from pathlib import Path
from typing import Any

import pytest

from oncelog.core.acks.changes import SubscriptionType
from oncelog.core.errors import InvalidArgument
from oncelog.core.names import REDRIVE_TOPIC
from oncelog.rpc.channel import Channel
from oncelog.rpc.codecs.owner_codec import LIST_LAGS, RATES
from oncelog.topic_owner.observe.lag_listing import LISTED_MAX
from oncelog.wire import observation_pb2 as pb
from tests.cluster.until import until
from tests.contract.owner.consuming.test_topic_owner_consuming import stored
from tests.contract.owner.consuming.test_topic_owner_subscriptions import Administrator
from tests.contract.owner.owner_world import OwnerWorld, PublishClient, batch_of, owner_world
from tests.contract.owner.reading.test_topic_owner_waiting import lost_ledger
from tests.contract.owner.test_topic_owner_deduplication import taken_over_again
from tests.contract.owner.test_topic_owner_listing import listed
from tests.contract.sdk.fakes.consume_client import ConsumeClient

pytestmark = pytest.mark.asyncio
TIMEOUT_MS = 10_000
DEADLINE_S = 30.0
NAMESPACE = "public/default"


def now_ms() -> int:
    return time.time_ns() // 1_000_000


async def lags(channel: Channel, **request: Any) -> pb.ListLagsAnswer:
    return await channel.call(LIST_LAGS, pb.ListLagsRequest(**({"limit": 10} | request)), timeout_ms=TIMEOUT_MS)


async def names(channel: Channel, **request: Any) -> list[tuple[str, str]]:
    """(topic, subscription), in order."""
    found = (await lags(channel, **request)).lags
    return [(each.topic.removeprefix(f"{NAMESPACE}/"), each.subscription) for each in found]


async def filled(world: OwnerWorld, channel: Channel) -> None:
    """Backlogs: orders/audit 5, orders/billing 3, bills/billing 1, bills/done 0. bills/billing has a consumer."""
    for topic, count, subscriptions in (
        ("orders", 5, {"billing": 2, "audit": 0}),
        ("bills", 1, {"billing": 0, "done": 1}),
    ):
        runner = await world.serve(topic)
        await stored(channel, runner, count)
        for name, index in subscriptions.items():
            await Administrator(channel, runner).create(name, index=index)
        if topic == "bills":
            await ConsumeClient(channel, runner).attach(SubscriptionType.SHARED, window=0)


async def test_subscriptions_of_all_topics_are_listed_by_lag(tmp_path: Path) -> None:
    """The largest backlog or the oldest message first, with the sums of all for which the request holds."""
    async with owner_world(tmp_path) as (world, channel):
        await filled(world, channel)
        everything = [("orders", "audit"), ("orders", "billing"), ("bills", "billing"), ("bills", "done")]
        assert await names(channel) == everything
        assert await names(channel, state="backlog") == everything[:3]
        assert await names(channel, state="no_consumer") == everything[:2]
        assert await names(channel, state="blocked") == []
        assert await names(channel, sort="name") == [everything[2], everything[3], *everything[:2]]
        assert (await names(channel, sort="age"))[-1] == ("bills", "done")
        assert await names(channel, topic="ORD", subscription="Bill") == [("orders", "billing")]
        assert await names(channel, namespace="public/other") == []
        answer = await lags(channel, state="no_consumer", limit=1)
        assert (answer.total, answer.backlog_messages, len(answer.lags)) == (2, 8, 1)
        row = json.loads(answer.lags[0].summary_json)
        assert (row["msg_backlog"], row["consumer_count"], row["mark_delete"]) == (5, 0, 0)
        assert answer.oldest_unacked_ms == row["oldest_unacked_ms"] > 0
        assert not (await lags(channel, topic="none")).HasField("oldest_unacked_ms")


async def test_topics_that_are_not_served_yet_are_counted(tmp_path: Path) -> None:
    """One whose entries are lost: it has an owner, which does not know its subscriptions. The text and the namespace of
    the request choose here, too."""
    async with owner_world(tmp_path) as (world, channel):
        await filled(world, channel)
        assert (await lags(channel)).waiting == 0
        runner = await lost_ledger(world)
        await until(lambda: runner.name, DEADLINE_S, waiting_for="the topic at its owner")
        answer = await lags(channel)
        assert (answer.waiting, list(answer.waiting_first), answer.total) == (1, [f"{NAMESPACE}/flights"], 4)
        assert (await lags(channel, topic="FLIGHTS", namespace=NAMESPACE)).waiting == 1
        assert (await lags(channel, topic="orders")).waiting == 0
        assert (await lags(channel, namespace="public/other")).waiting == 0


async def test_lags_are_listed_in_pages(tmp_path: Path) -> None:
    """Each subscription once; a page begins behind the last one of the page before."""
    async with owner_world(tmp_path) as (world, channel):
        await filled(world, channel)
        asked: dict[str, Any] = {}
        found: list[str] = []
        while page := (await lags(channel, limit=1, **asked)).lags:
            found.append(f"{page[0].topic} {page[0].subscription}")
            asked = {"after_rank": page[0].rank, "after_name": found[-1]}
        assert found == [f"{NAMESPACE}/{topic} {name}" for topic, name in await names(channel)]
        for wrong in ({"limit": 0}, {"limit": LISTED_MAX + 1}, {"state": "stuck"}, {"sort": "size"}):
            with pytest.raises(InvalidArgument, match=next(iter(wrong))):
                await lags(channel, **wrong)


async def test_topic_with_dead_letters_is_listed(tmp_path: Path) -> None:
    """All of its messages wait until a redrive has read it; then what that has left. Its subscription is not one that
    nobody consumes."""
    async with owner_world(tmp_path) as (world, channel):
        letters, other = await world.serve("orders-billing-DLQ"), await world.serve("orders")
        for each in (letters, other):
            await stored(channel, each, 3)
        found = await listed(channel, "dead_letters")
        assert {name: row["dead_letters"] for name, row in found.items()} == {"orders-billing-DLQ": 3}
        assert found["orders-billing-DLQ"]["states"] == ["dead_letters"]
        assert (await listed(channel, ""))["orders"]["dead_letters"] is None
        await Administrator(channel, letters).create("redrive-1", index=2, **{REDRIVE_TOPIC: "public/default/orders"})
        assert (await listed(channel, "dead_letters"))["orders-billing-DLQ"]["dead_letters"] == 1
        assert await names(channel, state="no_consumer") == []
        named = await world.serve("refused")
        client = PublishClient(channel)
        granted = await client.open(named, "dead-letters/1/1")
        await client.stored(granted, batch_of(granted, range(2)))
        assert (await listed(channel, "dead_letters"))["refused"]["dead_letters"] == 2


async def test_age_of_the_oldest_message_is_exact_after_a_takeover(tmp_path: Path) -> None:
    """The ledger of the former owner says when its last message was stored: an alert on the age would fire late. The
    time is read from the entry once somebody has asked, and each message has its own."""
    async with owner_world(tmp_path) as (world, channel):
        runner = await world.serve("orders")
        client = PublishClient(channel)
        granted = await client.open(runner, "importer")
        between: list[int] = []
        for number in range(3):
            await client.stored(granted, batch_of(granted, [number]))
            between.append(now_ms())
            await until(lambda: now_ms() > between[-1], DEADLINE_S)
        for name, index in (("audit", 0), ("billing", 1)):
            await Administrator(channel, runner).create(name, index=index)
        await taken_over_again(world, runner)
        found: dict[str, int | None] = {}

        async def exact() -> bool:
            """An answer before the entry has been read has no time, or that of an earlier message."""
            rows = [json.loads(each.summary_json) for each in (await lags(channel)).lags]
            found.update({row["name"]: row["oldest_unacked_ms"] for row in rows})
            assert (found["audit"] or 0) <= between[0]
            assert (found["billing"] or 0) <= between[1]
            return found["audit"] is not None and (found["billing"] or 0) > between[0]

        await until(exact, DEADLINE_S)


async def test_rates_count_what_is_connected_and_served(tmp_path: Path) -> None:
    """For the picture of the cluster."""
    async with owner_world(tmp_path) as (world, channel):
        await filled(world, channel)
        answer = await channel.call(RATES, pb.RatesRequest(seconds=10), timeout_ms=TIMEOUT_MS)
        sessions = sum(len(each.core.serving.sessions.open_sessions) for each in world.topics if each.core.serving)
        assert (answer.topics, answer.consumers, answer.producers) == (2, 1, sessions)
        assert sessions > 0
