"""A topic deleted while a client uses it: open producers and readers end; a new topic of the name is independent."""

import pytest

import oncelog
from oncelog.core.errors import TopicNotFound
from oncelog.core.ids import OwnerEpoch
from tests.contract.sdk.fakes.fake_cluster import FakeCluster

pytest_plugins = ["tests.contract.sdk.fakes.client_fixtures"]
pytestmark = pytest.mark.asyncio

FLIGHTS = "public/default/flights"


def delete(cluster: FakeCluster) -> None:
    del cluster.by_id[cluster.topics.pop(FLIGHTS).topic_id]


@pytest.mark.hazard("recreated-topic")
async def test_producer_does_not_create_its_deleted_topic_again(
    cluster: FakeCluster, client: oncelog.AsyncClient
) -> None:
    """The producer would continue with its next id in an empty log, as if no message were lost."""
    producer = await client.create_producer("flights", producer_name="importer")
    await producer.send(b"one")
    delete(cluster)
    await cluster.take_over()
    with pytest.raises(TopicNotFound):
        await producer.send(b"two")
    assert isinstance(producer.failure, TopicNotFound)
    assert cluster.topics == {}


async def test_producer_does_not_continue_in_a_topic_created_again(
    cluster: FakeCluster, client: oncelog.AsyncClient
) -> None:
    """Another client created the topic again: it has the same name but another log."""
    producer = await client.create_producer("flights", producer_name="importer")
    await producer.send(b"one")
    delete(cluster)
    await client.create_producer("flights", producer_name="another")
    await cluster.take_over()
    with pytest.raises(TopicNotFound, match="created again"):
        await producer.send(b"two")
    assert [header.count for header, _ in cluster.topic("flights").entries] == [0], "the grant of the other one alone"


async def test_recreated_topic_is_opened_at_a_lower_epoch(cluster: FakeCluster, client: oncelog.AsyncClient) -> None:
    """Epochs restart with a new topic, while the client still caches the old owner and its higher epoch."""
    for _ in range(3):
        await cluster.take_over()
    await (await client.create_producer("flights", producer_name="importer")).send(b"one")
    delete(cluster)
    assert cluster.owner is not None
    cluster.owner.epoch = OwnerEpoch(1)
    again = await client.create_producer("flights", producer_name="importer")
    assert again.last_sequence_id == -1
    assert (await again.send(b"new")).sequence_id == 0
