"""Open requests that time out, on real processes: a producer without a second instance is never fenced."""

import asyncio
import time
from collections.abc import Iterator

import pytest

import oncelog
from tests.cluster.cluster_fixture import DEADLINE_S, Cluster
from tests.cluster.sessions import SESSION_TIMEOUT_MS
from tests.cluster.until import until

pytestmark = pytest.mark.asyncio
#: More than the ids that an owner has in stock.
PRODUCERS = 150
#: Longer than the SDK's response timeout, shorter than the owners' sessions: no topic moves.
PAUSE_S = 5.6


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with Cluster.running(tmp_path_factory.mktemp("openings"), session_timeout_ms=SESSION_TIMEOUT_MS) as own:
        yield own


@pytest.mark.parametrize("what", ["zookeeper", "owner"])
async def test_producers_that_open_during_a_pause_are_not_fenced(cluster: Cluster, what: str) -> None:
    """Each client retries after 5 s. The owner once executed all the requests, and the older ones fenced the live
    instances."""
    async with await oncelog.connect(cluster.url, operation_timeout=DEADLINE_S) as client:
        topics = [f"{what}-{number % 3}" for number in range(PRODUCERS)]
        for topic in sorted(set(topics)):
            await (await client.create_producer(topic)).send(b"the topic is served")
        victim = "zookeeper" if what == "zookeeper" else await cluster.owner_of(topics[0])
        opening = asyncio.ensure_future(
            asyncio.gather(
                *[client.create_producer(topic, producer_name=f"p{number}") for number, topic in enumerate(topics)]
            )
        )
        with cluster.stopped(victim):
            began = time.monotonic()
            await until(lambda: time.monotonic() - began > PAUSE_S, DEADLINE_S)
        producers = await opening
        for _ in range(3):
            results = await asyncio.gather(*[producer.send(b"x") for producer in producers])
            assert not any(result.duplicate for result in results)
        assert [producer.failure for producer in producers] == [None] * PRODUCERS
        for topic in sorted(set(topics)):
            listed = (await cluster.stats(topic, "internalStats"))["producers"]
            assert {row["generation"] for row in listed if str(row["name"]).startswith("p")} == {1}
