"""How consumers with subscriptions are opened, and their statistics, over real sockets, in front of a log in memory."""

import pytest

from oncelog.core.errors import ServiceUnavailable
from oncelog_doors.core.pulsar.message_ids import FromEnd, FromFirst, FromTime
from oncelog_doors.core.pulsar.subscribing import Subscription
from tests.cluster.until import until
from tests.doors.pulsar.bytes_of_clients import SUBSCRIBE, body, command, frame
from tests.doors.pulsar.consumer_client import (
    EXCLUSIVE,
    FAILOVER,
    KEY_SHARED,
    SHARED,
    ack,
    billing,
    id_of,
    messages,
    opened,
    place,
    subscribe,
    the_consumer,
    three_delivered,
)
from tests.doors.pulsar.raw_client import door_world, producer, raw_client
from tests.doors.pulsar.reader_client import CLOSE_CONSUMER, STATS, flow, log_of, nothing_comes, three
from tests.doors.raw_connection import DEADLINE_S, WALL_MS

NOT_NOW, BUSY, NOT_FOUND, NOT_ALLOWED = 2, 5, 11, 22
PING_ANSWER_MS = 5_000


@pytest.mark.asyncio
@pytest.mark.parametrize(
    ("kind", "name"), [(EXCLUSIVE, "exclusive"), (SHARED, "shared"), (FAILOVER, "failover"), (KEY_SHARED, "key_shared")]
)
async def test_subscription_is_what_the_client_says(kind: int, name: str) -> None:
    """Its type, where it begins, its properties, and the priority of the consumer; messages come with permits."""
    async with door_world() as world, raw_client(world.port) as client:
        log_of(world).append(*three())
        properties = (18, body((1, b"team"), (2, b"payments")))
        assert (await opened(client, kind, (7, 3), properties)).request_id == 50
        assert the_consumer(world).wanted == Subscription(name, FromFirst(), 3, {"team": "payments"})  # type: ignore[arg-type]
        if kind == FAILOVER:
            assert (await client.read()).command.active_consumer_change.is_active
        await nothing_comes(client)
        client.write(flow(1000))
        assert [place(each) for each in await messages(client, 3)] == [(5, 0), (5, 1), (5, 2)]


@pytest.mark.asyncio
async def test_subscription_begins_where_the_client_says() -> None:
    """Only if it is made: behind the last message without a word, and some time ago."""
    async with door_world() as world, raw_client(world.port) as client:
        await client.connect()
        log_of(world).append(*three())
        for number, (more, begins) in enumerate(
            [
                (((13, 0),), FromEnd()),
                (((13, 1),), FromFirst()),
                (((13, 0), (16, 3600)), FromTime(WALL_MS + 1000 - 3_600_000)),
            ]
        ):
            name = b"s%d" % number
            await client.answer(subscribe(EXCLUSIVE, *more, consumer_id=number, subscription=name))
            assert log_of(world).subscriptions[name.decode()].starts == [begins]


@pytest.mark.asyncio
async def test_what_is_not_offered_is_refused() -> None:
    """Hash ranges that consumers choose, unknown types, names that are none; and a topic that is not to be made."""
    async with door_world() as world, raw_client(world.port) as client:
        await client.connect()
        sticky = (17, body((1, 1), (3, body((1, 0), (2, 100)))))
        for kind, more in ((KEY_SHARED, (sticky,)), (9, ())):
            assert (await client.answer(subscribe(kind, *more))).error == NOT_ALLOWED
        assert (await client.answer(subscribe(EXCLUSIVE, (15, 0)))).error == NOT_FOUND
        bad = frame(command(SUBSCRIBE, (1, b"a/b"), (2, b"s"), (3, 0), (4, 1), (5, 9)))
        assert (await client.answer(bad)).error == 17
        assert (await client.answer(subscribe(KEY_SHARED, (17, body((1, 0)))))).request_id == 50


@pytest.mark.asyncio
async def test_names_of_consumers_may_be_the_same() -> None:
    """In the log each has its own, which begins with the name that the client gives."""
    async with door_world() as world, raw_client(world.port) as client:
        await opened(client, SHARED, (6, b"worker one/a"))
        await client.answer(subscribe(SHARED, (6, b"worker one/a"), consumer_id=2))
        await client.answer(subscribe(SHARED, consumer_id=3))
        first, second, third = (each.name for each in billing(world).opened)
        assert first.rpartition(":")[0] == second.rpartition(":")[0] == "worker-one-a"
        assert third.startswith("consumer:")
        assert first != second


@pytest.mark.asyncio
async def test_subscription_that_has_other_consumers_is_busy() -> None:
    """An exclusive one, and one of another type."""
    async with door_world() as world, raw_client(world.port) as client, raw_client(world.port) as other:
        await opened(client)
        assert (await opened(other)).error == BUSY
        assert (await other.answer(subscribe(SHARED))).error == BUSY
        await client.answer(frame(command(CLOSE_CONSUMER, (1, 1), (2, 8))))
        assert (await other.answer(subscribe(SHARED))).request_id == 50


@pytest.mark.asyncio
@pytest.mark.hazard("half-open-holder")
async def test_holder_of_an_exclusive_subscription_is_asked_whether_it_lives() -> None:
    """A client that answers keeps it; one that does not loses its connection, and with it the subscription."""
    async with door_world() as world, raw_client(world.port) as client, raw_client(world.port) as other:
        await opened(client)
        [holder] = billing(world).opened
        assert (await opened(other)).error == BUSY
        assert (await client.read()).name == "ping"
        await nothing_comes(client)
        assert holder.said_alive == 1
        assert (await other.answer(subscribe())).error == BUSY
        world.timers.advance(PING_ANSWER_MS)
        await until(lambda: not billing(world).consumers, DEADLINE_S)
        assert (await other.answer(subscribe())).request_id == 50


@pytest.mark.asyncio
async def test_client_that_subscribes_again_waits_for_its_former_consumer() -> None:
    """Else its own former one would keep an exclusive subscription from it."""
    async with door_world() as world, raw_client(world.port) as client:
        await opened(client)
        the_consumer(world).closes.clear()
        client.write(subscribe())
        await nothing_comes(client)
        the_consumer(world).closes.set()
        assert (await client.read()).name == "success"
        assert len(billing(world).consumers) == 1


@pytest.mark.asyncio
async def test_consumer_that_waits_for_its_topic_is_withdrawn_with_its_connection() -> None:
    """It is never opened."""
    async with door_world() as world, raw_client(world.port) as client:
        await client.connect()
        world.cluster.owner_answers.clear()
        client.write(subscribe())
        await nothing_comes(client)
        client.abort()
        await until(lambda: not world.home.connections, DEADLINE_S)
        world.cluster.owner_answers.set()
        await world.home.tasks.close()
        assert log_of(world).subscriptions == {}


@pytest.mark.asyncio
async def test_initial_subscription_of_a_producer_is_there_before_it() -> None:
    """For dead letters: a client makes their topic with its first one. A producer that comes back makes nothing."""
    async with door_world() as world, raw_client(world.port) as client:
        await client.connect()
        success = await client.answer(producer((13, b"letters"), (8, 0)))
        assert success.name == "importer"
        assert list(log_of(world).subscriptions) == ["letters"]
        log_of(world).subscriptions.clear()
        await client.answer(producer((13, b"letters"), (8, 1), (11, success.topic_epoch)))
        assert log_of(world).subscriptions == {}


@pytest.mark.asyncio
async def test_consumer_of_gos_client_learns_with_its_first_permits_whether_it_is_active() -> None:
    """What comes directly behind the answer to SUBSCRIBE is dropped by that library."""
    async with door_world() as world, raw_client(world.port) as client:
        await client.connect(b"Pulsar Go v0.19.0")
        await client.answer(subscribe(FAILOVER))
        await nothing_comes(client)
        client.write(flow(1))
        assert (await client.read()).command.active_consumer_change.is_active
        client.write(flow(1))
        await nothing_comes(client)


@pytest.mark.asyncio
async def test_failover_consumer_learns_whether_it_is_active() -> None:
    """At its opening, and when that changes; nothing comes to the others."""
    async with door_world() as world, raw_client(world.port) as client, raw_client(world.port) as other:
        log_of(world).append(*three())
        await opened(client, FAILOVER)
        assert (await client.read()).command.active_consumer_change.is_active
        await opened(other, FAILOVER)
        assert (await other.read()).command.active_consumer_change.is_active is False
        other.write(flow(100))
        await nothing_comes(other)
        client.abort()
        answer = await other.read()
        assert answer.command.active_consumer_change.is_active
        assert [place(each) for each in await messages(other, 3)] == [(5, 0), (5, 1), (5, 2)]


# --- statistics -------------------------------------------------------------------------------------------------------


@pytest.mark.asyncio
async def test_statistics_of_a_consumer() -> None:
    """What the door knows without a request, with the name that the client has given."""
    async with door_world() as world, raw_client(world.port) as client:
        await three_delivered(world, client, SHARED, (6, b"mine"))
        client.write(ack(id_of(5, 0)))
        answer = await client.answer(frame(command(STATS, (1, 71), (4, 1))))
        assert (answer.request_id, answer.consumer_name, answer.type) == (71, "mine", "Shared")
        assert (answer.messages_out, answer.permits, answer.unacked, answer.blocked) == (5, 995, 4, False)


@pytest.mark.asyncio
async def test_consumer_is_blocked_while_the_owner_withholds_messages() -> None:
    """PIP-299. If that is not known, there are no statistics."""
    async with door_world() as world, raw_client(world.port) as client:
        await three_delivered(world, client, SHARED)
        billing(world).paused = True
        assert (await client.answer(frame(command(STATS, (1, 71), (4, 1))))).blocked
        billing(world).fails = ServiceUnavailable("no service answers")
        answer = await client.answer(frame(command(STATS, (1, 72), (4, 1))))
        assert (answer.request_id, answer.error, answer.messages_out) == (72, NOT_NOW, 0)
