"""A topic deleted under a client: what is open on it ends, and what is opened anew knows nothing of the old."""

import pytest

import oncelog
from oncelog.core.errors import TopicNotFound
from oncelog.core.ids import OwnerEpoch
from tests.contract.fake_cluster import FakeCluster

pytest_plugins = ["tests.contract.client_fixtures"]
pytestmark = pytest.mark.asyncio

FLIGHTS = "public/default/flights"


def delete(cluster: FakeCluster) -> None:
    del cluster.by_id[cluster.topics.pop(FLIGHTS).topic_id]


@pytest.mark.hazard(3)
async def test_producer_does_not_create_its_deleted_topic_again(
    cluster: FakeCluster, client: oncelog.AsyncClient
) -> None:
    """It would go on with its next id in an empty log, as if nothing were lost."""
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
    """Made by somebody else meanwhile: the name is the same, the log is another."""
    producer = await client.create_producer("flights", producer_name="importer")
    await producer.send(b"one")
    delete(cluster)
    await client.create_producer("flights", producer_name="another")
    await cluster.take_over()
    with pytest.raises(TopicNotFound, match="created again"):
        await producer.send(b"two")
    assert [header.count for header, _ in cluster.topic("flights").entries] == [0], "the grant of the other one alone"


async def test_new_topic_is_opened_whatever_epochs_the_old_one_had(
    cluster: FakeCluster, client: oncelog.AsyncClient
) -> None:
    """Epochs begin again with the topic: the client remembers where the old one was, and its higher epoch."""
    for _ in range(3):
        await cluster.take_over()
    await (await client.create_producer("flights", producer_name="importer")).send(b"one")
    delete(cluster)
    assert cluster.owner is not None
    cluster.owner.epoch = OwnerEpoch(1)
    again = await client.create_producer("flights", producer_name="importer")
    assert again.last_sequence_id == -1
    assert (await again.send(b"new")).sequence_id == 0
