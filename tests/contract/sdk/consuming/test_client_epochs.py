"""An epoch that one part of a client learns applies to the whole client: stale answers are refused (hazard
deposed-owner-refuses)."""

import asyncio

import pytest

import oncelog
from oncelog.client.network.epochs import OwnerEpochs
from oncelog.core.errors import NotOwner
from oncelog.core.ids import OwnerEpoch, TopicId
from tests.cluster.until import until
from tests.contract.sdk.fakes.fake_cluster import FakeCluster

pytest_plugins = ["tests.contract.sdk.fakes.client_fixtures"]
DEADLINE_S = 30.0
TOPIC, OTHER = TopicId("a" * 32), TopicId("b" * 32)


def test_lower_epoch_is_refused_only_for_its_topic() -> None:
    """A topic created again has another id and starts at epoch 1."""
    epochs = OwnerEpochs()
    epochs.believe(TOPIC, OwnerEpoch(3))
    epochs.believe(TOPIC, OwnerEpoch(3))
    epochs.believe(OTHER, OwnerEpoch(1))
    with pytest.raises(NotOwner):
        epochs.believe(TOPIC, OwnerEpoch(2))
    assert (epochs.highest(TOPIC), epochs.highest(OTHER)) == (3, 1)


def test_subscriber_receives_only_newer_epochs_until_it_ends() -> None:
    """Each epoch once, no older one, and none after the end."""
    epochs = OwnerEpochs()
    told: list[int] = []
    with epochs.followed(TOPIC, told.append):
        for epoch in (2, 2, 1, 5):
            epochs.learn(TOPIC, OwnerEpoch(epoch))
        epochs.learn(OTHER, OwnerEpoch(9))
    epochs.learn(TOPIC, OwnerEpoch(6))
    assert told == [2, 5]


@pytest.mark.asyncio
async def test_tail_reader_leaves_a_deposed_owner_after_a_lookup_finds_the_new_one(
    cluster: FakeCluster, client: oncelog.AsyncClient
) -> None:
    """The deposed owner still runs but sends nothing, so the reader would wait forever."""
    producer = await client.create_producer("flights", producer_name="importer")
    await producer.send(b"before")
    reader = await client.create_reader("flights")
    assert (await reader.read_next(timeout=DEADLINE_S)).value == b"before"
    await until(lambda: reader._parts[0].stream.at_end, DEADLINE_S)
    deposed = await cluster.depose()
    try:
        waiting = asyncio.ensure_future(reader.read_next(timeout=DEADLINE_S))
        await client.create_reader("flights")  # looks the topic up; every producer goes by the cached route
        other = await client.create_producer("flights", producer_name="another")
        await other.send(b"after")
        assert (await waiting).value == b"after"
    finally:
        await deposed.kill()


@pytest.mark.asyncio
async def test_cached_route_of_a_lower_epoch_is_not_used(cluster: FakeCluster, client: oncelog.AsyncClient) -> None:
    """A reader's lookup found the new owner: the next request goes there, not to the cached owner."""
    producer = await client.create_producer("flights", producer_name="importer")
    first = await producer.send(b"1")
    assert await client.last_message_id("flights") == first.message_id
    deposed = await cluster.depose()
    try:
        topic = cluster.topic("flights")
        client._network.epochs.learn(topic.topic_id, OwnerEpoch(2))
        other = await client.create_producer("flights", producer_name="another")
        second = await other.send(b"2")
        assert await client.last_message_id("flights") == second.message_id
    finally:
        await deposed.kill()


@pytest.mark.asyncio
async def test_answer_of_a_lower_epoch_is_rejected(cluster: FakeCluster, client: oncelog.AsyncClient) -> None:
    """The epoch became known before the answer arrived; the request is repeated at the new owner."""
    producer = await client.create_producer("flights", producer_name="importer")
    await producer.send(b"1")
    deposed = await cluster.depose()
    try:
        topic_id, network = cluster.topic("flights").topic_id, client._network
        asked: list[int] = []

        def learn() -> None:
            asked.append(network.epochs.highest(topic_id))
            network.epochs.learn(topic_id, OwnerEpoch(2))

        cluster.knobs.before_last_message = learn
        assert await client.last_message_id("flights") is not None
        assert asked == [1, 2]
    finally:
        await deposed.kill()


@pytest.mark.asyncio
async def test_producer_leaves_an_owner_that_a_reader_found_deposed(
    cluster: FakeCluster, client: oncelog.AsyncClient
) -> None:
    """The former owner's answer about a duplicate would be stale, so the current owner is asked."""
    producer = await client.create_producer("flights", producer_name="importer")
    await producer.send(b"a", sequence_id=1)
    topic_id, deposed = cluster.topic("flights").topic_id, await cluster.depose()
    try:
        await client.create_reader("flights")
        await until(lambda: client._network.epochs.highest(topic_id) == 2, DEADLINE_S)
        assert (await producer.send(b"a", sequence_id=1)).duplicate
        assert cluster.owner is not None
        assert (deposed.judged, cluster.owner.judged) == (1, 1)
    finally:
        await deposed.kill()


@pytest.mark.asyncio
async def test_answer_of_a_deposed_owner_is_requested_again(cluster: FakeCluster, client: oncelog.AsyncClient) -> None:
    """The next owner becomes known while the former one handles the batch."""
    producer = await client.create_producer("flights", producer_name="importer")
    cluster.knobs.gate.clear()
    seen = len(cluster.seen.frames)
    sent = producer.send_nowait(b"a", sequence_id=1)
    await until(lambda: len(cluster.seen.frames) > seen, DEADLINE_S)
    topic_id, deposed = cluster.topic("flights").topic_id, await cluster.depose()
    try:
        await client.create_reader("flights")
        await until(lambda: client._network.epochs.highest(topic_id) == 2, DEADLINE_S)
        cluster.knobs.gate.set()
        result = await sent
        assert (result.duplicate, result.resent) == (True, True)  # this fake's owners share one log
        assert cluster.owner is not None
        assert (deposed.judged, cluster.owner.judged) == (1, 1)
    finally:
        await deposed.kill()
