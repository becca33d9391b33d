"""Seeks, ends and the end of the topic, of consumers with subscriptions, over real sockets."""

import pytest

from oncelog.core.errors import LedgerUnavailable, PermissionDenied, ServiceUnavailable, SubscriptionGone
from oncelog_doors.core.pulsar.message_ids import FromEnd, FromEntry, FromFirst, FromTime
from tests.cluster.until import until
from tests.core.builders import at
from tests.doors.core.pulsar.stored_batches import APPENDED_MS
from tests.doors.pulsar.bytes_of_clients import command, frame
from tests.doors.pulsar.consumer_client import (
    EARLIEST,
    EXCLUSIVE,
    SHARED,
    ack,
    billing,
    counts,
    id_of,
    log_of,
    messages,
    opened,
    subscribe,
    the_consumer,
)
from tests.doors.pulsar.raw_client import RawClient, door_world, raw_client
from tests.doors.pulsar.reader_client import (
    CLOSE_CONSUMER,
    LAST_ID,
    LATEST,
    UNSUBSCRIBE,
    flow,
    nothing_comes,
    seek,
    three,
)
from tests.doors.raw_connection import DEADLINE_S

NOT_FOUND, NOT_ALLOWED, NOT_NOW = 13, 22, 2
CLOSE = frame(command(CLOSE_CONSUMER, (1, 1), (2, 8)))
DELETE = frame(command(UNSUBSCRIBE, (1, 1), (2, 9)))


async def names(client: RawClient, count: int) -> list[str]:
    return [(await client.read()).name for _ in range(count)]


# --- seeks ------------------------------------------------------------------------------------------------------------


@pytest.mark.asyncio
@pytest.mark.hazard("seek-behind-old-messages")
@pytest.mark.parametrize(
    ("to", "start", "rest"),
    [
        ((3, id_of(5, 1)), FromEntry(at(1, 5)), [1, 2]),
        ((3, EARLIEST), FromFirst(), [0, 1, 2]),
        ((3, LATEST), FromEnd(), []),
        ((4, APPENDED_MS + 2), FromTime(APPENDED_MS + 2), [2]),
    ],
)
async def test_seek_closes_the_consumer_first(to: tuple[int, int | bytes], start: object, rest: list[int]) -> None:
    """When it is durable. Then nothing old comes, and nothing new before the client subscribes again."""
    async with door_world() as world, raw_client(world.port) as client:
        log_of(world).append(*three())
        await opened(client)
        client.write(flow(1))
        assert await counts(client, 1) == [(0, 0)]
        client.write(seek(to) + flow(100))
        found: list[str] = []
        while not found or found[-1] != "success":
            found.append((await client.read()).name)
        assert found[-2:] == ["close_consumer", "success"]
        assert found.count("close_consumer") == 1
        assert billing(world).starts[-1] == start
        await nothing_comes(client)
        assert (await client.answer(subscribe())).request_id == 50
        client.write(flow(100))
        assert [entry for entry, _ in await counts(client, len(rest))] == rest
        await nothing_comes(client)


@pytest.mark.asyncio
async def test_seek_that_fails_leaves_the_consumer_open() -> None:
    """As far as it is known that it failed."""
    async with door_world() as world, raw_client(world.port) as client:
        log_of(world).append(*three())
        await opened(client)
        assert (await client.answer(seek())).error == NOT_ALLOWED
        billing(world).fails = LedgerUnavailable("not now")
        assert (await client.answer(seek((3, EARLIEST)))).error == NOT_NOW
        client.write(flow(100))
        assert len(await messages(client, 3)) == 3


@pytest.mark.asyncio
@pytest.mark.hazard("seek-behind-old-messages")
async def test_seek_of_another_closes_each_consumer_of_the_subscription() -> None:
    """Their clients show messages that are void."""
    async with door_world() as world, raw_client(world.port) as client, raw_client(world.port) as other:
        log_of(world).append(*three())
        await opened(client, SHARED)
        await opened(other, SHARED)
        client.write(flow(1))
        await messages(client, 1)
        other.write(seek((3, EARLIEST)))
        assert await names(other, 2) == ["close_consumer", "success"]
        assert await names(client, 1) == ["close_consumer"]
        await nothing_comes(client)
        await client.answer(subscribe(SHARED))
        client.write(flow(100))
        assert await counts(client, 3) == [(0, 1), (1, 0), (2, 0)]


# --- the last id ------------------------------------------------------------------------------------------------------


@pytest.mark.asyncio
async def test_last_id_is_that_of_the_topic() -> None:
    """Whatever was delivered; an error if it is not known."""
    ask = frame(command(LAST_ID, (1, 1), (2, 70)))
    async with door_world() as world, raw_client(world.port) as client:
        log_of(world).append(*three()[:2])
        await opened(client)
        answer = await client.answer(ask)
        assert (answer.message_id.ledger_id, answer.message_id.entry_id, answer.message_id.batch_index) == (5, 1, 2)
        billing(world).fails = LedgerUnavailable("not now")
        assert (await client.answer(ask)).error == NOT_NOW


# --- ends -------------------------------------------------------------------------------------------------------------


@pytest.mark.asyncio
async def test_closed_consumer_gives_back_what_it_holds() -> None:
    """To the other consumers, before its client has the answer. It gets nothing more."""
    async with door_world() as world, raw_client(world.port) as client, raw_client(world.port) as other:
        log_of(world).append(*three())
        await opened(client, SHARED)
        await opened(other, SHARED)
        client.write(flow(4))
        await messages(client, 2)
        client.write(ack(id_of(5, 0)))
        assert (await client.answer(CLOSE)).request_id == 8
        assert not billing(world).held
        other.write(flow(100))
        assert await counts(other, 2) == [(1, 1), (2, 0)]
        assert the_consumer(world).client_lost is None
        await nothing_comes(client)


@pytest.mark.asyncio
async def test_acknowledgements_are_done_before_a_consumer_is_closed() -> None:
    """Else what its client has just acknowledged would come again."""
    async with door_world() as world, raw_client(world.port) as client:
        log_of(world).append(*three())
        await opened(client)
        client.write(flow(100))
        await messages(client, 3)
        billing(world).acks_at_once = False
        client.write(ack(id_of(5, 0)) + CLOSE)
        await nothing_comes(client)
        assert billing(world).consumers
        billing(world).settle()
        assert (await client.read()).command.success.request_id == 8
        assert billing(world).acked == {10}


@pytest.mark.asyncio
async def test_messages_of_a_lost_connection_go_to_the_others() -> None:
    """At once; the log learns that the client has said nothing."""
    async with door_world() as world, raw_client(world.port) as client, raw_client(world.port) as other:
        log_of(world).append(*three())
        await opened(client, SHARED)
        await opened(other, SHARED)
        client.write(flow(100))
        await messages(client, 3)
        other.write(flow(100))
        await nothing_comes(other)
        client.abort()
        assert await counts(other, 3) == [(0, 1), (1, 1), (2, 1)]
        assert [each.client_lost for each in billing(world).opened] == [True, None]


@pytest.mark.asyncio
async def test_door_that_ends_a_connection_does_not_say_that_its_client_is_lost() -> None:
    """A restart of doors is no fault of a message."""
    async with door_world() as world, raw_client(world.port) as client:
        await opened(client)
        [connection] = world.home.connections.values()
        connection.fail("a test ends it")
        await until(lambda: not billing(world).consumers, DEADLINE_S)
        assert the_consumer(world).client_lost is False


@pytest.mark.asyncio
async def test_unsubscribing_deletes_the_subscription() -> None:
    """The client's consumer is closed by that."""
    async with door_world() as world, raw_client(world.port) as client:
        await opened(client)
        client.write(flow(10))
        await nothing_comes(client)
        assert (await client.answer(DELETE)).request_id == 9
        assert billing(world).deleted
        await nothing_comes(client)
        assert (await client.answer(DELETE)).error == NOT_FOUND


@pytest.mark.asyncio
async def test_subscription_with_other_consumers_is_not_deleted() -> None:
    """The consumer goes on."""
    async with door_world() as world, raw_client(world.port) as client, raw_client(world.port) as other:
        log_of(world).append(*three())
        await opened(client, SHARED)
        await opened(other, SHARED)
        assert (await client.answer(DELETE)).error == NOT_ALLOWED
        client.write(flow(100))
        assert len(await messages(client, 3)) == 3


@pytest.mark.asyncio
async def test_deletion_that_fails_closes_the_consumer() -> None:
    """Behind the error: its client comes back."""
    async with door_world() as world, raw_client(world.port) as client:
        await opened(client)
        billing(world).fails = ServiceUnavailable("not now")
        assert (await client.answer(DELETE)).error == NOT_NOW
        assert await names(client, 1) == ["close_consumer"]


@pytest.mark.asyncio
@pytest.mark.parametrize("error", [SubscriptionGone("deleted"), PermissionDenied("the right is gone")])
async def test_consumer_that_cannot_go_on_is_closed(error: Exception) -> None:
    """The client comes back, and then learns the reason."""
    async with door_world() as world, raw_client(world.port) as client:
        log_of(world).append(*three())
        await opened(client, EXCLUSIVE)
        client.write(flow(100))
        await messages(client, 3)
        the_consumer(world).fail(error)  # type: ignore[arg-type]  # the cases above
        assert (await client.read()).command.close_consumer.consumer_id == 1
        await nothing_comes(client)


@pytest.mark.asyncio
@pytest.mark.hazard("seek-behind-old-messages")
async def test_sought_consumer_is_gone_before_its_client_is_told() -> None:
    """The client may come back through another door, where an exclusive subscription would be busy."""
    async with door_world() as world, raw_client(world.port) as client:
        await opened(client)
        the_consumer(world).closes.clear()
        client.write(seek((3, EARLIEST)))
        await until(lambda: billing(world).seek_epoch, DEADLINE_S)
        await nothing_comes(client)
        the_consumer(world).closes.set()
        assert [(await client.read()).name for _ in range(2)] == ["close_consumer", "success"]


@pytest.mark.asyncio
async def test_consumer_that_its_client_has_closed_is_closed_also_if_the_connection_ends() -> None:
    """A client closes its consumers and its connection at once."""
    async with door_world() as world, raw_client(world.port) as client:
        await opened(client)
        consumer = the_consumer(world)
        consumer.closes.clear()
        client.write(frame(command(CLOSE_CONSUMER, (1, 1), (2, 8))))
        await nothing_comes(client)
        client.abort()
        await until(lambda: not world.home.connections, DEADLINE_S)
        consumer.closes.set()
        await until(lambda: not billing(world).consumers, DEADLINE_S)
        assert consumer.client_lost is False
