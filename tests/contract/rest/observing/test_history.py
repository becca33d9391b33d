"""Figures over time over REST, as one replica has sampled them from fake owners."""

from collections.abc import AsyncIterator
from dataclasses import replace

import pytest
import pytest_asyncio

from oncelog.core.ids import Incarnation, OwnerEpoch
from oncelog.metadata.observing.history import SAMPLE_MS, wall_ms
from oncelog.wire.observation_pb2 import RatesSample, SampleTopicsAnswer, SubscriptionSample, TopicSample
from tests.cluster.metadata.metadata_world import FakeOwner
from tests.cluster.until import until
from tests.contract.rest.admin.admin_world import FLIGHTS, Admin, serving

pytestmark = pytest.mark.asyncio
HISTORY = "/admin/v2/history"


@pytest_asyncio.fixture
async def admin() -> AsyncIterator[Admin]:
    async with serving() as served:
        yield served


async def owners(admin: Admin, count: int) -> list[FakeOwner]:
    found = [await admin.world.owner(admin.replica) for _ in range(count)]
    await admin.replica.sees(*found)
    return found


def busy(rate: int, backlog: int, *, oldest_ms: int | None = None) -> SampleTopicsAnswer:
    """An owner of public/default/flights, with one subscription."""
    billing = SubscriptionSample(name="billing", backlog_messages=backlog, oldest_unacked_ms=oldest_ms)
    topic = TopicSample(topic="public/default/flights", rate_in=rate, rate_out=2 * rate, subscriptions=[billing])
    newest = RatesSample(interval_ms=10_000, stored=rate * 10, delivered=rate * 20, publish_p99_ms=rate)
    return SampleTopicsAnswer(topics=[topic], newest=newest, backlog_messages=backlog, served=1)


async def test_history_of_cluster_topic_and_subscription(admin: Admin) -> None:
    """Of all owners together; what is not named is 0 from then on."""
    one, other = await owners(admin, 2)
    sampler, now_ms = admin.replica.coordination.history, wall_ms()
    one.samples, other.samples = (
        busy(3, 70, oldest_ms=now_ms - 3 * SAMPLE_MS),
        SampleTopicsAnswer(newest=RatesSample(interval_ms=5_000, stored=10, publish_p99_ms=9.0), backlog_messages=5),
    )
    await sampler.sample(now_ms=now_ms - SAMPLE_MS)
    one.samples = SampleTopicsAnswer(newest=RatesSample(interval_ms=10_000))
    await sampler.sample(now_ms=now_ms)
    cluster = await admin.get(HISTORY)
    assert (cluster["step_ms"], cluster["kept"], cluster["since_ms"]) == (SAMPLE_MS, True, now_ms - SAMPLE_MS)
    assert values(cluster, "stored") == [5.0, 2.0]
    assert values(cluster, "publish_p99_ms") == [9.0, 9.0]
    assert values(cluster, "publish_p50_ms") == []
    assert values(cluster, "backlog_messages") == [75.0, 5.0]
    topic = await admin.get(f"{FLIGHTS}/history")
    assert (values(topic, "stored"), values(topic, "delivered")) == ([3.0, 0.0], [6.0, 0.0])
    subscription = await admin.get(f"{FLIGHTS}/subscription/billing/history", params={"range": "24h"})
    assert (subscription["step_ms"], len(subscription["lines"]["oldest_s"])) == (300_000, 288)
    assert max(values(subscription, "backlog_messages")) == 70.0
    assert max(values(subscription, "oldest_s")) == 20.0
    assert (topic["series"], topic["dropped"], topic["refused"], topic["left_out"]) == (2, 0, 0, 0)
    assert 0 < topic["bytes"] < topic["bytes_max"]


async def test_figures_are_unknown_while_an_owner_does_not_answer(admin: Admin) -> None:
    """Those of the cluster, and of what it serves; a topic of another owner goes on."""
    silent, sound = await owners(admin, 2)
    sampler, now_ms = admin.replica.coordination.history, wall_ms()
    silent.samples, sound.samples = (
        busy(3, 70),
        SampleTopicsAnswer(
            topics=[TopicSample(topic="public/default/other", rate_in=1.0)], newest=RatesSample(interval_ms=10_000)
        ),
    )
    await sampler.sample(now_ms=now_ms - SAMPLE_MS)
    silent.listed = None
    await sampler.sample(now_ms=now_ms)
    assert values(await admin.get(HISTORY), "stored") == [3.0]
    assert values(await admin.get(f"{FLIGHTS}/history"), "stored") == [3.0]
    other = (await admin.get("/admin/v2/persistent/public/default/other/history"))["lines"]["stored"]
    assert other[-2:] == [1.0, 1.0]


async def test_figures_of_a_topic_without_an_owner_are_unknown(admin: Admin) -> None:
    """Its backlog is not 0: there is no owner that counts it. So it is for a series that is kept, and for one that is
    not."""
    lost, other = await owners(admin, 2)
    sampler, now_ms = admin.replica.coordination.history, wall_ms()
    lost.samples = busy(3, 70)
    await admin.change("PUT", FLIGHTS)
    await sampler.sample(now_ms=now_ms - 2 * SAMPLE_MS)
    record = await admin.world.record()
    await admin.world.topics.write(replace(record, owner=Incarnation("d" * 32), owner_epoch=OwnerEpoch(1)), version=0)
    lost.samples = other.samples

    async def gap() -> bool:
        await sampler.sample(now_ms=now_ms)
        return admin.replica.coordination.unowned.is_unowned("public/default/flights")

    await until(gap, 30.0)
    later_ms = now_ms + SAMPLE_MS
    await sampler.sample(now_ms=later_ms)
    lines, kept = sampler.lines(("subscription", "public/default/flights", "billing"), 600_000, later_ms)
    assert kept
    assert lines.values[0][-1] is None
    assert 70.0 in lines.values[0]
    unkept = await admin.get(f"{FLIGHTS}/subscription/audit/history")
    assert not unkept["kept"]
    assert values(unkept, "backlog_messages") == []


async def test_idle_topic_was_zero_whenever_all_owners_answered(admin: Admin) -> None:
    """Nothing is kept of it, so thousands of idle topics take no memory; before the first sample all is unknown."""
    empty = await admin.get(HISTORY)
    assert (values(empty, "stored"), empty["since_ms"], empty["kept"]) == ([], None, True)
    await owners(admin, 1)
    await admin.replica.coordination.history.sample(now_ms=wall_ms())
    idle = await admin.get(f"{FLIGHTS}/history", params={"range": "1h"})
    assert (values(idle, "stored"), idle["kept"], idle["series"], len(idle["lines"]["stored"])) == ([0.0], False, 0, 60)
    await admin.refused("GET", HISTORY, 422, "invalid_argument", params={"range": "2h"})


def values(view: dict[str, dict[str, list[float | None]]], line: str) -> list[float]:
    """Those that are known."""
    return [each for each in view["lines"][line] if each is not None]
