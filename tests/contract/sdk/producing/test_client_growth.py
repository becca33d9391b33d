"""A topic gets more partitions while producers, readers and consumers use it."""

import asyncio

import pytest

import oncelog
from oncelog.core.sdk.producer.routing import partition_of
from tests.cluster.until import until
from tests.contract.sdk.fakes.fake_cluster import FakeCluster

pytest_plugins = ["tests.contract.sdk.fakes.client_fixtures"]
pytestmark = pytest.mark.asyncio
DEADLINE_S = 30.0
TOPIC = "public/default/orders"


@pytest.fixture(autouse=True)
def partitioned(cluster: FakeCluster, client: oncelog.AsyncClient) -> None:
    cluster.partitioned[TOPIC] = 2
    client._network.partitions_pause_s = 0.05


def stored(cluster: FakeCluster, partitions: int) -> list[list[bytes]]:
    """The values of each partition."""
    names = [f"{TOPIC}-partition-{number}" for number in range(partitions)]
    return [cluster.topics[name].values() if name in cluster.topics else [] for name in names]


@pytest.mark.hazard("resent-to-another-partition")
async def test_existing_name_keeps_its_partitions(cluster: FakeCluster, client: oncelog.AsyncClient) -> None:
    """Messages with sequence ids that are sent again after the topic has grown are duplicates, by id and by key, and
    new ones follow them into the same partitions."""
    values = [b"%d" % number for number in range(20)]
    keys = [f"customer {number % 7}" if number % 2 else None for number in range(20)]
    former = await client.create_producer("orders", producer_name="importer")
    await former.send_many(values[:10], sequence_ids=range(10), keys=keys[:10])
    await former.close()
    cluster.grow("orders", 5)
    cluster.grow("orders", 6)
    again = await client.create_producer("orders", producer_name="importer")
    result = await again.send_many(values, sequence_ids=range(20), keys=keys)
    assert result.duplicate_ranges == [range(10)]
    expected: list[list[bytes]] = [[] for _ in range(6)]
    for number, (key, value) in enumerate(zip(keys, values, strict=True)):
        expected[number % 2 if key is None else partition_of(key.encode(), 2)].append(value)
    assert stored(cluster, 6) == expected
    assert again.resume_sequence_id == min(again.last_sequence_ids[:2]) > 10


@pytest.mark.hazard("resent-to-another-partition")
async def test_new_name_uses_the_partitions_of_its_time(cluster: FakeCluster, client: oncelog.AsyncClient) -> None:
    """A name that was first opened between two growths keeps the number of that time."""
    cluster.grow("orders", 3)
    producer = await client.create_producer("orders", producer_name="importer")
    await producer.send_many([b"a", b"b", b"c"], sequence_ids=[0, 1, 2])
    await producer.close()
    cluster.grow("orders", 4)
    again = await client.create_producer("orders", producer_name="importer")
    result = await again.send_many([b"a", b"b", b"c", b"d"], sequence_ids=[0, 1, 2, 3])
    assert result.duplicate_ranges == [range(3)]
    assert stored(cluster, 4) == [[b"a", b"d"], [b"b"], [b"c"], []]


async def test_open_producer_uses_new_partitions_for_messages_without_ids(
    cluster: FakeCluster, client: oncelog.AsyncClient
) -> None:
    """Such messages have no replay that must find them."""
    producer = await client.create_producer("orders")
    await producer.send(b"before")
    cluster.grow("orders", 4)
    async with asyncio.timeout(DEADLINE_S):
        while not all(stored(cluster, 4)):
            await producer.send(b"x")
    await producer.close()


async def test_name_that_is_newer_than_the_look_up(cluster: FakeCluster, client: oncelog.AsyncClient) -> None:
    """The grant shows more growths than the client has looked up: it looks up again."""
    first = await client.create_producer("orders-partition-0", producer_name="importer")
    instance = first._parts[0].core.opening.instance
    assert instance is not None
    cluster.topic("orders-partition-0").table.state.producers[instance.producer_id].growths = 1
    await first.close()
    asked: list[int] = []

    def looked_up(topic: str) -> None:
        if topic == TOPIC:
            asked.append(cluster.partitioned[topic])
            if len(asked) == 2:
                cluster.grow("orders", 4)

    cluster.knobs.looked_up = looked_up
    producer = await client.create_producer("orders", producer_name="importer")
    assert asked == [2, 2, 4]
    await producer.send(b"3", sequence_id=3)
    assert stored(cluster, 4)[3] == [b"3"]


@pytest.mark.parametrize("start", [oncelog.EARLIEST, oncelog.LATEST])
async def test_open_reader_reads_new_partitions_from_their_first_message(
    cluster: FakeCluster, client: oncelog.AsyncClient, start: oncelog.MessageId
) -> None:
    """Also one that began with the latest message: it was open before the first message of a new partition."""
    for number, values in enumerate(([], [b"old"])):
        await (await client.create_producer(f"orders-partition-{number}")).send_many(values)
    reader = await client.create_reader("orders", start=start)
    cluster.grow("orders", 3)
    await (await client.create_producer("orders-partition-2")).send(b"new")
    expected = {b"old", b"new"} if start == oncelog.EARLIEST else {b"new"}
    assert {bytes((await reader.read_next(timeout=DEADLINE_S)).value) for _ in expected} == expected
    assert not await reader.has_message_available()
    await reader.seek(oncelog.EARLIEST)
    assert {bytes((await reader.read_next(timeout=DEADLINE_S)).value) for _ in range(2)} == {b"old", b"new"}


async def test_reader_asks_for_new_partitions_before_it_says_that_it_is_at_the_end(
    cluster: FakeCluster, client: oncelog.AsyncClient
) -> None:
    """A program that reads until the end must not stop before the messages of a new partition."""
    client._network.partitions_pause_s = 3600
    reader = await client.create_reader("orders")
    cluster.grow("orders", 3)
    await (await client.create_producer("orders-partition-2")).send(b"new")
    assert await reader.has_message_available()
    assert (await reader.read_next(timeout=DEADLINE_S)).value == b"new"


async def test_open_consumer_consumes_new_partitions_from_their_first_message(
    cluster: FakeCluster, client: oncelog.AsyncClient
) -> None:
    """It creates the subscription there if it is missing, and a seek includes the new partitions."""
    async with await client.subscribe("orders", subscription="billing") as consumer:
        cluster.grow("orders", 3)
        await (await client.create_producer("orders-partition-2")).send(b"new")
        message = await consumer.receive(timeout=DEADLINE_S)
        assert (message.value, message.partition) == (b"new", 2)
        await consumer.ack(message)
        cluster.grow("orders", 4)
        await (await client.create_producer("orders-partition-3")).send(b"newer")
        await consumer.seek(oncelog.EARLIEST)
        values = {bytes((await consumer.receive(timeout=DEADLINE_S)).value) for _ in range(2)}
        assert values == {b"new", b"newer"}


async def test_topic_that_was_deleted_ends_no_watch_with_a_bug(
    cluster: FakeCluster, client: oncelog.AsyncClient
) -> None:
    """The look-up of new partitions fails; the producers of the partitions have their own errors."""
    producer = await client.create_producer("orders")
    del cluster.partitioned[TOPIC]
    cluster.knobs.may_create = False
    assert producer._watch is not None
    watch = producer._watch._task
    assert watch is not None
    # The second look-up shows that the watch went on after the refusal of the first one.
    await until(lambda: cluster.seen.refused_look_ups >= 2, DEADLINE_S, waiting_for="a look-up after a refused one")
    assert not watch.done()
    await producer.close()
