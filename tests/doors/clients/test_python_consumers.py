"""Consumers of Pulsar's Python client, which is its C++ library, in front of a cluster of real processes.

It blocks, and most of what it does takes place in its own threads: so these tests are not asynchronous, except those
that kill something.
"""

import asyncio
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import count
from typing import Any, TypeVar

import pulsar
import pytest
from pulsar import ConsumerType

import oncelog
from oncelog.runtime.orphan_guard import guarded
from tests.cluster.cluster_fixture import Cluster
from tests.cluster.commands import environment
from tests.cluster.kills import idle, kill_sync
from tests.cluster.until import until_sync
from tests.doors.clients import hold_messages
from tests.doors.clients.door_clusters import LASTING_MS, cluster_with_door

TIMEOUT_S = 60
DEADLINE_MS = TIMEOUT_S * 1000
#: How long a consumer is watched that is to get nothing.
QUIET_MS = 300
NACK_MS = 100
T = TypeVar("T")
_numbers = count()


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    directory = tmp_path_factory.mktemp("consumers")
    with cluster_with_door(directory, "pulsar", storage_nodes=1, session_timeout_ms=LASTING_MS) as own:
        yield own


class World:
    """One topic, its producer, and any number of clients."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.topic = f"persistent://public/default/consumed-{next(_numbers)}"
        self._clients: list[Any] = []
        self._producer: Any = None

    def client(self) -> Any:
        logger = pulsar.ConsoleLogger(pulsar.LoggerLevel.Error)
        self._clients.append(pulsar.Client(self.url, logger=logger, operation_timeout_seconds=TIMEOUT_S))
        return self._clients[-1]

    def subscribe(self, kind: Any = ConsumerType.Exclusive, *, client: Any = None, **options: Any) -> Any:
        """From the first message."""
        options = {"initial_position": pulsar.InitialPosition.Earliest} | options
        own = client or self.client()
        return own.subscribe(options.pop("topic", self.topic), options.pop("name", "billing"), kind, **options)

    def publish(self, values: list[bytes], *, batch: bool = False, keys: int = 0) -> None:
        """batch: as one batch. keys: so many different ones."""
        if self._producer is None:
            self._producer = {
                each: self.client().create_producer(
                    self.topic, batching_enabled=each, batching_max_publish_delay_ms=60_000
                )
                for each in (False, True)
            }
        own = self._producer[batch]
        for number, value in enumerate(values):
            own.send_async(value, None, partition_key=f"key-{number % keys}" if keys else None)
        own.flush()

    def close(self) -> None:
        for each in self._clients:
            each.close()


@pytest.fixture
def world(cluster: Cluster) -> Iterator[World]:
    own = World(cluster.status()["pulsar_url"])
    yield own
    own.close()


def numbered(first: int, end: int) -> list[bytes]:
    return [b"%d" % number for number in range(first, end)]


def received(consumer: Any, how_many: int) -> list[Any]:
    return [consumer.receive(DEADLINE_MS) for _ in range(how_many)]


def values(messages: list[Any]) -> list[bytes]:
    return [each.data() for each in messages]


def gets_nothing(*consumers: Any) -> None:
    for consumer in consumers:
        with pytest.raises(pulsar.Timeout):
            consumer.receive(QUIET_MS)


def settled(cluster: Cluster, topic: str, name: str = "billing") -> Callable[[], bool]:
    """Whether all messages of the subscription are acknowledged."""
    words = ["admin", "subscriptions", "stats", topic.removeprefix("persistent://"), name, "-o", "json"]
    return lambda: b'"msg_backlog": 0' in cluster.run(*words).stdout


# --- the types --------------------------------------------------------------------------------------------------------


def test_exclusive_consumer_goes_on_behind_what_it_has_acknowledged(world: World) -> None:
    world.publish(numbered(0, 10))
    first = world.subscribe()
    messages = received(first, 10)
    assert values(messages) == numbered(0, 10)
    for each in messages[:4]:
        first.acknowledge(each)
    first.acknowledge(messages[6])
    first.close()
    second = world.subscribe()
    again = received(second, 5)
    assert values(again) == numbered(4, 6) + numbered(7, 10)
    second.acknowledge_cumulative(again[-1])
    second.close()
    third = world.subscribe()
    gets_nothing(third)
    world.publish([b"new"])
    assert values(received(third, 1)) == [b"new"]


def test_second_exclusive_consumer_is_refused_while_the_first_one_lives(world: World) -> None:
    """And one of another type."""
    first = world.subscribe()
    for kind in (ConsumerType.Exclusive, ConsumerType.Shared):
        with pytest.raises(pulsar.ConsumerBusy):
            world.subscribe(kind)
    first.close()
    world.subscribe(ConsumerType.Shared)


def test_shared_consumers_divide_the_messages(world: World) -> None:
    """What one of them holds when it is closed, or when its client ends without a word, comes to the other one."""
    one = world.subscribe(ConsumerType.Shared, receiver_queue_size=10)
    client = world.client()
    two = world.subscribe(ConsumerType.Shared, client=client, receiver_queue_size=10)
    world.publish(numbered(0, 20))
    of_one, of_two = received(one, 10), received(two, 10)
    assert sorted([*values(of_one), *values(of_two)]) == sorted(numbered(0, 20))
    for each in of_one[:5]:
        one.acknowledge(each)
    for each in of_two[:5]:
        two.acknowledge(each)
    two.close()
    rest = received(one, 5)
    assert sorted(values(rest)) == sorted(values(of_two[5:]))


def test_failover_consumer_takes_over(world: World) -> None:
    """Only the active one gets messages; then the next one gets what was not acknowledged, in order."""
    world.publish(numbered(0, 10))
    first = world.subscribe(ConsumerType.Failover, consumer_name="a")
    second = world.subscribe(ConsumerType.Failover, consumer_name="b")
    messages = received(first, 10)
    gets_nothing(second)
    for each in messages[:4]:
        first.acknowledge(each)
    first.close()
    again = received(second, 6)
    assert values(again) == numbered(4, 10)
    second.acknowledge_cumulative(again[-1])
    world.publish([b"new"])
    assert values(received(second, 1)) == [b"new"]


@pytest.mark.parametrize("batch", [False, True])
def test_keys_stay_with_their_consumers(world: World, batch: bool) -> None:
    """In order, also if the messages of a batch have different keys. Each part is acknowledged by its own consumer."""
    consumers = [world.subscribe(ConsumerType.KeyShared) for _ in range(2)]
    world.publish(numbered(0, 40), batch=batch, keys=8)
    owner_of: dict[str, int] = {}
    last: dict[str, int] = {}
    seen = 0
    for number, consumer in enumerate(consumers):
        while True:
            try:
                message = consumer.receive(1_000 if seen else DEADLINE_MS)
            except pulsar.Timeout:
                break
            seen += 1
            key, value = message.partition_key(), int(message.data())
            assert owner_of.setdefault(key, number) == number
            assert last.get(key, -1) < value
            last[key] = value
            consumer.acknowledge(message)
    assert seen == 40
    assert set(owner_of.values()) == {0, 1}
    for consumer in consumers:
        consumer.close()
    gets_nothing(world.subscribe(ConsumerType.KeyShared))


# --- acknowledging ----------------------------------------------------------------------------------------------------


def test_batch_is_acknowledged_message_by_message(world: World) -> None:
    """By a client that sends the numbers of the messages: only the others come again."""
    world.publish(numbered(0, 10), batch=True)
    first = world.subscribe(ConsumerType.Shared, batch_index_ack_enabled=True)
    messages = received(first, 10)
    for each in messages[::2]:
        first.acknowledge(each)
    first.close()
    second = world.subscribe(ConsumerType.Shared, batch_index_ack_enabled=True)
    again = received(second, 5)
    assert values(again) == numbered(0, 10)[1::2]
    for each in again:
        second.acknowledge(each)
    second.close()
    gets_nothing(world.subscribe(ConsumerType.Shared))


def test_negative_acknowledgements_count(world: World) -> None:
    """Each delivery has a higher number; the others stay with the consumer."""
    world.publish(numbered(0, 3))
    consumer = world.subscribe(ConsumerType.Shared, negative_ack_redelivery_delay_ms=NACK_MS)
    bad, *others = received(consumer, 3)
    for each in others:
        consumer.acknowledge(each)
    for deliveries in range(1, 4):
        consumer.negative_acknowledge(bad)
        [bad] = received(consumer, 1)
        assert (bad.data(), bad.redelivery_count()) == (b"0", deliveries)
    consumer.acknowledge(bad)
    gets_nothing(consumer)


def test_messages_come_again_when_their_time_is_out(world: World) -> None:
    """The client measures it: its shortest time is 10 s."""
    world.publish(numbered(0, 2))
    consumer = world.subscribe(ConsumerType.Shared, unacked_messages_timeout_ms=10_000)
    consumer.acknowledge(received(consumer, 2)[0])
    [again] = received(consumer, 1)
    assert (again.data(), again.redelivery_count()) == (b"1", 1)
    consumer.acknowledge(again)


def test_everything_comes_again_in_order(world: World) -> None:
    world.publish(numbered(0, 10))
    consumer = world.subscribe()
    for each in received(consumer, 10)[:3]:
        consumer.acknowledge(each)
    consumer.redeliver_unacknowledged_messages()
    assert values(received(consumer, 7)) == numbered(3, 10)


def test_dead_letters_of_the_client(world: World) -> None:
    """It publishes what it has given up, to a topic whose subscription it has made before."""
    world.publish(numbered(0, 3))
    letters = f"{world.topic}-letters"
    policy = pulsar.ConsumerDeadLetterPolicy(2, letters, "audit")
    consumer = world.subscribe(ConsumerType.Shared, negative_ack_redelivery_delay_ms=NACK_MS, dead_letter_policy=policy)
    seen = 0
    dead = world.subscribe(topic=letters, name="audit")
    while True:
        try:
            message = consumer.receive(5 * QUIET_MS)
        except pulsar.Timeout:
            break
        if message.data() == b"1":
            seen += 1
            consumer.negative_acknowledge(message)
        else:
            consumer.acknowledge(message)
    assert seen == 3
    assert values(received(dead, 1)) == [b"1"]


# --- the subscription -------------------------------------------------------------------------------------------------


def test_seek_while_messages_are_held(world: World) -> None:
    """By id and by time. Nothing of before comes behind it."""
    world.publish(numbered(0, 10))
    consumer = world.subscribe()
    messages = received(consumer, 10)
    for each in messages[:8]:
        consumer.acknowledge(each)
    consumer.seek(messages[4].message_id())
    assert values(received(consumer, 5)) == numbered(5, 10)
    consumer.seek(pulsar.MessageId.earliest)
    assert values(received(consumer, 10)) == numbered(0, 10)
    consumer.seek(messages[0].publish_timestamp() - 60_000)
    assert values(received(consumer, 10)) == numbered(0, 10)
    consumer.seek(pulsar.MessageId.latest)
    gets_nothing(consumer)
    world.publish([b"new"])
    assert values(received(consumer, 1)) == [b"new"]


def test_unsubscribed_subscription_begins_anew(world: World) -> None:
    world.publish(numbered(0, 3))
    consumer = world.subscribe()
    consumer.acknowledge_cumulative(received(consumer, 3)[-1])
    consumer.unsubscribe()
    assert values(received(world.subscribe(), 3)) == numbered(0, 3)


def test_last_id_is_that_of_the_last_message(world: World) -> None:
    world.publish(numbered(0, 3))
    consumer = world.subscribe()
    last = consumer.get_last_message_id()
    assert str(received(consumer, 3)[-1].message_id()) == str(last)


def test_messages_of_the_sdk_are_consumed_and_acknowledged(cluster: Cluster, world: World) -> None:
    """In batches."""
    topic = world.topic.removeprefix("persistent://")

    async def publish() -> None:
        async with oncelog.connect(cluster.url) as client:
            producer = await client.create_producer(topic, producer_name="sdk")
            await producer.send_many(numbered(0, 100))

    asyncio.run(publish())
    consumer = world.subscribe()
    for each in received(consumer, 100):
        consumer.acknowledge(each)
    until_sync(settled(cluster, world.topic), TIMEOUT_S, every_s=0.1)


# --- what dies --------------------------------------------------------------------------------------------------------


@contextmanager
def killed(cluster: Cluster, name: str) -> Iterator[None]:
    """In front of the block; behind it the process serves again."""
    asyncio.run(cluster.kill(name, once=idle))
    yield
    asyncio.run(cluster.healed())


@pytest.mark.parametrize("kind", [ConsumerType.Exclusive, ConsumerType.Shared], ids=["exclusive", "shared"])
def test_door_is_killed_while_a_consumer_holds_messages(cluster: Cluster, world: World, kind: Any) -> None:
    """Nothing is lost, and what was acknowledged does not come again."""
    world.publish(numbered(0, 20))
    consumer = world.subscribe(kind)
    messages = received(consumer, 20)
    for each in messages[:10]:
        consumer.acknowledge(each)
    backlog = f"{world.topic.removeprefix('persistent://')}"
    until_sync(lambda: b'"msg_backlog": 10' in stats(cluster, backlog), TIMEOUT_S, every_s=0.1)
    with killed(cluster, "door-1"):
        again = received(consumer, 10)
        assert sorted(map(int, values(again))) == [*range(10, 20)]
        for each in again:
            consumer.acknowledge(each)
        until_sync(settled(cluster, world.topic), TIMEOUT_S, every_s=0.1)


def stats(cluster: Cluster, topic: str) -> bytes:
    return cluster.run("admin", "subscriptions", "stats", topic, "billing", "-o", "json").stdout


def test_owner_is_killed_while_a_consumer_holds_messages(cluster: Cluster, world: World) -> None:
    """The consumer keeps what it holds, and acknowledges it at the next owner."""
    world.publish(numbered(0, 20))
    consumer = world.subscribe(ConsumerType.Shared)
    messages = received(consumer, 20)
    owner = asyncio.run(cluster.owner_of(world.topic))
    with killed(cluster, owner):
        for each in messages:
            consumer.acknowledge(each)
        until_sync(settled(cluster, world.topic), TIMEOUT_S, every_s=0.1)
        world.publish([b"new"])
        assert values(received(consumer, 1)) == [b"new"]


def test_client_that_is_killed_loses_nothing(world: World) -> None:
    """What it holds comes to the other consumer at once. Its oldest message may have ended it: that one counts as
    delivered, and comes a moment later."""
    world.publish(numbered(0, 20))
    words = guarded([sys.executable, hold_messages.__file__, world.url, world.topic, "20"])
    with subprocess.Popen(words, env=environment(), stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert [process.stdout.readline().strip() for _ in range(20)] == numbered(0, 20)
        other = world.subscribe(ConsumerType.Shared)
        gets_nothing(other)
        kill_sync(process, once=idle)
        messages = received(other, 20)
    counts = {int(each.data()): each.redelivery_count() for each in messages}
    assert counts == {number: number == 0 for number in range(20)}
