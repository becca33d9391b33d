"""What an owner gives metadata services for plots."""

from pathlib import Path

import pytest

from oncelog.core.errors import InvalidArgument
from oncelog.rpc.channel import Channel
from oncelog.rpc.codecs.owner_codec import SAMPLE_TOPICS
from oncelog.topic_owner.observe.topic_samples import SAMPLED_MAX
from oncelog.wire import observation_pb2 as pb
from tests.contract.owner.consuming.test_topic_owner_consuming import stored
from tests.contract.owner.consuming.test_topic_owner_subscriptions import Administrator
from tests.contract.owner.owner_world import owner_world
from tests.contract.owner.test_topic_owner_listing import stored_more

pytestmark = pytest.mark.asyncio
TIMEOUT_MS = 10_000


async def samples(channel: Channel, limit: int = 100) -> pb.SampleTopicsAnswer:
    return await channel.call(SAMPLE_TOPICS, pb.SampleTopicsRequest(limit=limit), timeout_ms=TIMEOUT_MS)


async def test_busy_topics_are_sampled_with_their_backlogs_and_idle_ones_are_left_out(tmp_path: Path) -> None:
    """The busiest first. A topic whose consumers are done is idle, however many messages it has."""
    async with owner_world(tmp_path) as (world, channel):
        orders, bills, done = [await world.serve(name) for name in ("orders", "bills", "done")]
        for runner, count in ((orders, 3), (bills, 2), (done, 4)):
            await stored(channel, runner, count)
        for name, index in (("audit", 0), ("billing", 2)):
            await Administrator(channel, orders).create(name, index=index)
        await Administrator(channel, bills).create("billing")
        await Administrator(channel, done).create("x", index=4)
        assert not (await samples(channel)).HasField("newest")
        await world.rates.sample(now_ms=10_000)
        await stored_more(channel, orders, 5)
        await world.rates.sample(now_ms=20_000)
        answer = await samples(channel)
        assert (answer.served, answer.backlog_messages, answer.left_out) == (3, 8 + 6 + 2, 0)
        assert answer.newest.stored == 5
        first, second = answer.topics
        assert (first.topic, first.rate_in, second.topic, second.rate_in) == (
            "public/default/orders", 0.5, "public/default/bills", 0,
        )  # fmt: skip
        assert [(one.name, one.backlog_messages) for one in first.subscriptions] == [("audit", 8), ("billing", 6)]
        assert all(one.oldest_unacked_ms > 0 for one in first.subscriptions)


async def test_busiest_are_named_if_there_are_too_many(tmp_path: Path) -> None:
    """And the answer says how many topics and subscriptions are missing."""
    async with owner_world(tmp_path) as (world, channel):
        for name in ("orders", "bills"):
            runner = await world.serve(name)
            await stored(channel, runner, 1)
            for subscription in ("a", "b"):
                await Administrator(channel, runner).create(subscription)
        answer = await samples(channel, limit=1)
        assert [(one.topic, len(one.subscriptions)) for one in answer.topics] == [("public/default/bills", 1)]
        assert answer.left_out == 2
        for limit in (0, SAMPLED_MAX + 1):
            with pytest.raises(InvalidArgument, match="limit"):
                await samples(channel, limit=limit)
