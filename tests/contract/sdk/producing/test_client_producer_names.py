"""The names of producers that a consumer asks the topic owner for, while the owner is slow."""

import asyncio

import pytest

import oncelog
from oncelog.client.consuming.producer_names import ProducerNames
from oncelog.core.formats.entry import EntryKind
from oncelog.core.names import parse_topic
from tests.cluster.until import until
from tests.contract.sdk.consuming.test_client_consumer import DEADLINE_S, consume
from tests.contract.sdk.fakes.fake_cluster import FakeCluster

pytest_plugins = ["tests.contract.sdk.fakes.client_fixtures"]
pytestmark = pytest.mark.asyncio
TOPIC = "public/default/flights"


async def stored_by(client: oncelog.AsyncClient, cluster: FakeCluster, name: str) -> tuple[bytes, int]:
    """An entry of this producer, and the producer's number."""
    producer = await client.create_producer("flights", producer_name=name)
    await producer.send(b"a message")
    _, data = [each for each in cluster.topics[TOPIC].entries if each[0].kind == EntryKind.MESSAGES][-1]
    known = cluster.topics[TOPIC].table.state.producers
    return bytes(data), next(number for number, state in known.items() if state.name == name)


async def test_name_that_comes_late_is_used_from_then_on(client: oncelog.AsyncClient, cluster: FakeCluster) -> None:
    """Messages wait for a slow answer, but not for ever. Later ones have the name; names of others are waited for."""
    (first, number), (second, other) = [await stored_by(client, cluster, name) for name in ("slow", "other")]
    cluster.knobs.names.clear()
    told = asyncio.Event()
    names = ProducerNames(parse_topic("flights"), client._network, told.set, patience_s=0.05)
    names.want([first])
    assert names.missing
    await asyncio.wait_for(told.wait(), DEADLINE_S)
    assert (names.missing, names.name(number)) == (False, None)
    names.want([first, second])
    assert names.missing, "the other name was never asked for"
    cluster.knobs.names.set()
    await until(lambda: names.name(other) == "other", DEADLINE_S)
    assert (names.missing, names.name(number)) == (False, "slow")


async def test_messages_wait_for_the_names_of_their_producers(
    client: oncelog.AsyncClient, cluster: FakeCluster
) -> None:
    await stored_by(client, cluster, "importer")
    cluster.knobs.names.clear()
    async with await consume(client) as consumer:
        receiving = asyncio.ensure_future(consumer.receive(timeout=DEADLINE_S))
        await until(lambda: consumer._drivers[0].names.missing, DEADLINE_S)
        assert len(await consumer.receive_batch(max_wait=0)) == 0
        cluster.knobs.names.set()
        assert (await receiving).producer_name == "importer"
