"""Consumers with subscriptions while the owner moves, takes back or adds messages, over real sockets."""

import pytest

from oncelog.core.acks.changes import IndexRange
from oncelog_doors.core.pulsar.acknowledgements import LATER_DELAY_MS
from oncelog_doors.core.pulsar.outstanding import UNACKNOWLEDGED_MAX
from tests.cluster.until import until
from tests.doors.core.pulsar.stored_batches import columns, stored
from tests.doors.pulsar.bytes_of_clients import command, frame
from tests.doors.pulsar.consumer_client import (
    EARLIEST,
    FAILOVER,
    SHARED,
    ack,
    billing,
    counts,
    id_of,
    log_of,
    messages,
    opened,
    redeliver,
    the_consumer,
)
from tests.doors.pulsar.raw_client import DEADLINE_S, DoorWorld, RawClient, door_world, raw_client
from tests.doors.pulsar.reader_client import CLOSE_CONSUMER, STATS, flow, nothing_comes, seek, three

NOT_FOUND = 13


async def with_a_part_that_waits(world: DoorWorld, client: RawClient) -> None:
    """The client has two messages of an entry of three; the third one has come back, and its permits are used."""
    log_of(world).append(three()[1])
    await opened(client, SHARED)
    billing(world).acked = {12}
    client.write(flow(3))
    await messages(client, 1)
    billing(world).acked.clear()
    billing(world).changed()
    await until(lambda: the_consumer(world).given == 3, DEADLINE_S)
    await nothing_comes(client)


@pytest.mark.asyncio
@pytest.mark.hazard("two-parts-under-one-id")
async def test_other_part_of_an_entry_waits_for_the_acknowledgement_of_the_first() -> None:
    """Both have one id."""
    async with door_world() as world, raw_client(world.port) as client:
        await with_a_part_that_waits(world, client)
        client.write(ack(id_of(5, 1)))
        assert await counts(client, 1) == [(1, 0)]
        client.write(ack(id_of(5, 1)))
        await until(lambda: billing(world).acked == {11, 12, 13}, DEADLINE_S)


@pytest.mark.asyncio
async def test_part_that_waits_comes_behind_one_that_is_given_back() -> None:
    """Else both would be sent under one id."""
    async with door_world() as world, raw_client(world.port) as client:
        await with_a_part_that_waits(world, client)
        client.write(redeliver(id_of(5, 1)))
        await until(lambda: len(billing(world).delays_ms) == 2, DEADLINE_S)
        assert billing(world).delays_ms == [0, LATER_DELAY_MS]


@pytest.mark.asyncio
async def test_permits_of_messages_that_are_not_sent_are_for_others() -> None:
    """The owner has counted them, and has taken them back."""
    async with door_world() as world, raw_client(world.port) as client:
        await with_a_part_that_waits(world, client)
        log_of(world).append(three()[2])
        await nothing_comes(client)
        billing(world).acked.add(12)
        billing(world).recall(the_consumer(world), IndexRange(12, 12))
        assert await counts(client, 1) == [(2, 0)]


@pytest.mark.asyncio
async def test_what_a_consumer_held_is_void_when_another_one_is_active() -> None:
    """That one gets it; the client learns the change, and its acknowledgements name nothing."""
    async with door_world() as world, raw_client(world.port) as client:
        log_of(world).append(*three())
        await opened(client, FAILOVER)
        await client.read()
        client.write(flow(1))
        await messages(client, 1)
        the_consumer(world).callbacks.active(False)
        assert (await client.read()).command.active_consumer_change.is_active is False
        assert (await client.answer(ack(id_of(5, 0), request_id=70))).error == NOT_FOUND


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


@pytest.mark.asyncio
async def test_consumer_that_holds_too_much_gets_nothing_more() -> None:
    """Whatever it has permits for; nothing more is kept for it in the door. It goes on when it has acknowledged."""
    async with door_world() as world, raw_client(world.port) as client:
        log_of(world).append(
            stored(columns([b""] * UNACKNOWLEDGED_MAX), entry_id=0, base_index=0),
            stored(columns([b"a"]), entry_id=1, base_index=UNACKNOWLEDGED_MAX),
        )
        await opened(client, SHARED)
        client.write(flow(100_000))
        await messages(client, 1)
        told = await client.answer(frame(command(STATS, (1, 71), (4, 1))))
        assert (told.unacked, told.blocked) == (UNACKNOWLEDGED_MAX, True)
        assert the_consumer(world).given == UNACKNOWLEDGED_MAX
        client.write(ack(id_of(5, 0)))
        assert await counts(client, 1) == [(1, 0)]
