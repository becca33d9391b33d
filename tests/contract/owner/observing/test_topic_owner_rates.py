"""The rates of an owner are what it did between two samples."""

import time
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oncelog.core.errors import InvalidArgument
from oncelog.rpc.channel import Channel
from oncelog.rpc.codecs.owner_codec import RATES
from oncelog.runtime.telemetry import LATENCY_BUCKETS_S
from oncelog.topic_owner.observe.rates import quantile_ms
from oncelog.wire import observation_pb2 as pb
from tests.contract.owner.owner_world import PublishClient, batch_of, owner_world
from tests.contract.sdk.fakes.consume_client import ConsumeClient

TIMEOUT_MS = 10_000


async def samples(channel: Channel) -> list[pb.RatesSample]:
    answer = await channel.call(RATES, pb.RatesRequest(seconds=600), timeout_ms=TIMEOUT_MS)
    return list(answer.samples)


@pytest.mark.asyncio
async def test_sample_counts_what_happened_since_the_one_before(tmp_path: Path) -> None:
    """Stored and refused messages, deliveries, acknowledgements, and how long a publish took."""
    async with owner_world(tmp_path) as (world, channel):
        runner = await world.serve("orders")
        publisher = PublishClient(channel)
        granted = await publisher.open(runner, "importer")
        batch = batch_of(granted, range(5))
        await publisher.stored(granted, batch)
        await world.rates.sample(now_ms=int(time.monotonic() * 1000))
        (first,) = await samples(channel)
        assert (first.stored, first.duplicates, first.delivered, first.acknowledged) == (5, 0, 0, 0)
        assert first.received_bytes == len(batch)
        assert first.publish_p99_ms >= first.publish_p50_ms > 0

        await publisher.stored(granted, batch)
        consumer = ConsumeClient(channel, runner)
        attached = await consumer.attach()
        assert await consumer.received(5) == list(range(5))
        await world.rates.sample(now_ms=int(time.monotonic() * 1000))
        assert (await consumer.ack(attached, 0, 2)).error is None
        await world.rates.sample(now_ms=int(time.monotonic() * 1000))
        _, second, third = await samples(channel)
        assert (second.stored, second.duplicates, second.delivered, second.acknowledged) == (0, 5, 5, 0)
        assert (third.stored, third.duplicates, third.delivered, third.acknowledged) == (0, 0, 0, 3)

        await world.rates.sample(now_ms=int(time.monotonic() * 1000))
        *_, idle = await samples(channel)
        counted = [field.name for field, _ in idle.ListFields()]
        assert counted == ["at_ms", "interval_ms"]
        assert all(each.interval_ms > 0 for each in await samples(channel))


@pytest.mark.asyncio
async def test_refused_messages_count_as_in_the_statistics_of_their_topic(tmp_path: Path) -> None:
    """Also those whose whole batch was refused with an error, and those of a topic that is not served any more."""
    async with owner_world(tmp_path) as (world, channel):
        runner = await world.serve("orders")
        served = runner.core.serving
        assert served is not None
        for refused in (3, 4):
            publisher = PublishClient(channel)
            granted = await publisher.open(runner, f"till-{refused}")
            await publisher.stored(granted, batch_of(granted, [0]), batch_of(granted, [10]))
            await publisher.stored(granted, batch_of(granted, [0]))
            await publisher.send(granted.session, batch_of(granted, range(1, 1 + refused)))
            await publisher.receive()
            if refused == 4:
                await world.topics.unload(runner.topic_id)
            await world.rates.sample(now_ms=int(time.monotonic() * 1000))
        first, second = await samples(channel)
        assert [(each.stored, each.duplicates, each.stale) for each in (first, second)] == [(2, 1, 3), (2, 1, 4)]
        counters = served.sessions.counters
        assert (counters["duplicate"], counters["stale_sequence"]) == (2, 7)


@pytest.mark.asyncio
async def test_rates_of_no_time_are_refused(tmp_path: Path) -> None:
    """The error names the field."""
    async with owner_world(tmp_path) as (_, channel):
        with pytest.raises(InvalidArgument) as refused:
            await channel.call(RATES, pb.RatesRequest(), timeout_ms=TIMEOUT_MS)
        assert refused.value.details["field"] == "seconds"


@given(st.lists(st.floats(0.0001, 40), min_size=1, max_size=200), st.sampled_from([0.5, 0.99]))
def test_quantile_is_within_the_bucket_of_the_measurement(seconds: list[float], share: float) -> None:
    """So it is wrong by the width of a bucket at most; what is above the last bound counts as that."""
    bounds = LATENCY_BUCKETS_S
    buckets = [sum(low < one <= high for one in seconds) for low, high in pairwise((0.0, *bounds, float("inf")))]
    found = quantile_ms(buckets, share)
    assert found is not None
    exact = sorted(seconds)[max(0, -(-int(share * 1_000_000) * len(seconds) // 1_000_000) - 1)]
    low, high = next((low, high) for low, high in pairwise((0.0, *bounds, 1e9)) if low < exact <= high)
    assert low * 1000 - 0.001 <= found <= min(high, bounds[-1]) * 1000 + 0.001


def test_quantile_of_no_measurements_is_unknown() -> None:
    """It is not 0 ms."""
    assert quantile_ms([0] * (len(LATENCY_BUCKETS_S) + 1), 0.5) is None
