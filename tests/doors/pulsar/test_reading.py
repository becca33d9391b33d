"""Readers over real sockets, in front of a log in memory."""

import asyncio
from typing import Any, cast

import pytest

from oncelog.core.errors import CorruptEntry, LedgerUnavailable, PermissionDenied, TopicNotFound
from oncelog_doors.core.pulsar.message_ids import FromEnd, FromEntry, FromFirst, FromTime
from oncelog_doors.core.shared.pace import BURST
from oncelog_doors.pulsar.connection import Connection
from oncelog_doors.pulsar.consumers import CONSUMERS_MAX
from tests.cluster.until import until
from tests.core.builders import at
from tests.doors.core.pulsar.stored_batches import APPENDED_MS, columns, stored
from tests.doors.pulsar.bytes_of_clients import ACK, CONNECT, REDELIVER, SUBSCRIBE, body, command, frame
from tests.doors.pulsar.raw_client import door_world, raw_client
from tests.doors.pulsar.reader_client import (
    CLOSE_CONSUMER,
    EARLIEST,
    LAST_ID,
    LATEST,
    SEEK,
    STATS,
    UNSUBSCRIBE,
    filled,
    flow,
    id_of,
    log_of,
    nothing_comes,
    opened,
    places,
    subscribe,
    the_connection,
    three,
)
from tests.doors.raw_connection import DEADLINE_S, WALL_MS

# --- delivering -------------------------------------------------------------------------------------------------------


@pytest.mark.asyncio
async def test_reader_gets_entries_in_order_and_what_comes_later() -> None:
    """Each as one MESSAGE, with its place."""
    async with door_world() as world, raw_client(world.port) as client:
        log_of(world).append(*three())
        success = await opened(client)
        assert (success.request_id, success.DESCRIPTOR.name) == (50, "Success")
        client.write(flow(1000))
        assert await places(client, 3) == [(5, 0), (5, 1), (5, 2)]
        await nothing_comes(client)
        log_of(world).append(stored(columns([b"f"]), entry_id=0, ledger_id=6))
        got = await client.read()
        assert got.entry is not None
        assert got.entry.endswith(b"f")
        assert got.broker_entry is None
        assert not got.command.message.message_id.HasField("batch_index")


@pytest.mark.asyncio
async def test_messages_and_bytes_to_clients_are_counted() -> None:
    """Each message of a batch, and the bytes of entries as the client gets them."""
    async with door_world() as world, raw_client(world.port) as client:
        log_of(world).append(*three())
        await opened(client)
        client.write(flow(1000))
        got = [(await client.read()).entry or b"" for _ in range(3)]
        counts = world.home.counts
        assert (counts.messages_out, counts.bytes_out) == (5, sum(map(len, got)))
        assert (counts.undeliverable, world.home.consumer_count) == (0, 1)


@pytest.mark.asyncio
async def test_index_and_append_time_are_told_if_the_client_asks() -> None:
    """The index is that of the last message of an entry: clients count back."""
    async with door_world() as world, raw_client(world.port) as client:
        log_of(world).append(*three())
        await client.answer(frame(command(CONNECT, (1, b"Pulsar-CPP-v4.2.0"), (4, 20), (10, body((2, 1))))))
        await client.answer(subscribe())
        client.write(flow(1000))
        answer = [(await client.read()).broker_entry for _ in range(3)]
        assert [each and (each.index, each.append_time) for each in answer] == [
            (10, APPENDED_MS),
            (13, APPENDED_MS + 1),
            (14, APPENDED_MS + 2),
        ]


@pytest.mark.asyncio
@pytest.mark.hazard("entry-above-the-permits")
async def test_permits_are_summed_and_an_entry_goes_whole() -> None:
    """With one permit the batch of three; the next entry when the client has given as many."""
    async with door_world() as world, raw_client(world.port) as client:
        log_of(world).append(*three())
        await opened(client)
        await nothing_comes(client)
        client.write(flow(1))
        assert await places(client, 1) == [(5, 0)]
        await nothing_comes(client)
        client.write(flow(1))
        assert await places(client, 1) == [(5, 1)]
        client.write(flow(2))
        await nothing_comes(client)
        client.write(flow(1))
        assert await places(client, 1) == [(5, 2)]


@pytest.mark.asyncio
async def test_large_entries_are_made_beside_the_loop() -> None:
    """In their order."""
    async with door_world() as world, raw_client(world.port) as client:
        log_of(world).append(
            stored(columns([b"x" * 300_000, b"y" * 300_000]), entry_id=0), stored(columns([b"z"]), entry_id=1)
        )
        await opened(client)
        client.write(flow(10))
        assert await places(client, 2) == [(5, 0), (5, 1)]


@pytest.mark.asyncio
async def test_delivery_stops_when_the_client_reads_nothing_and_it_is_closed_after_a_minute() -> None:
    """About a mebibyte waits for it, whatever it has permits for."""
    async with door_world() as world, raw_client(world.port) as client:
        filled(log_of(world), 1000)
        await opened(client)
        connection = the_connection(world)
        client.write(flow(100_000))
        await until(lambda: not connection.reads_along, DEADLINE_S)
        [reader] = log_of(world).readers
        sent = reader.at
        assert sent < 900
        assert connection.unsent_bytes < 1_200_000
        world.timers.advance(59_999)
        assert reader.at == sent
        world.timers.advance(1)
        await until(lambda: not world.home.connections, DEADLINE_S)
        await until(lambda: reader.closed, DEADLINE_S)
        client.abort()


class SlowSocket:
    """A transport of which a test says how much waits for the client."""

    def __init__(self) -> None:
        self.waiting = 2_000_000
        self.aborted = False

    def get_write_buffer_size(self) -> int:
        return self.waiting

    def abort(self) -> None:
        self.aborted = True

    def __getattr__(self, name: str) -> Any:
        return lambda *_args, **_more: None


@pytest.mark.asyncio
async def test_client_that_reads_slowly_stays() -> None:
    """As long as it reads something within each minute."""
    async with door_world() as world:
        connection, socket = Connection(world.home), SlowSocket()
        connection.connection_made(cast("asyncio.Transport", socket))
        try:
            connection.data_received(frame(command(CONNECT, (1, b"Pulsar-CPP-v4.2.0"), (4, 20))))
            connection.pause_writing()
            for _ in range(5):
                socket.waiting -= 1
                world.timers.advance(60_000)
                assert not socket.aborted
            world.timers.advance(60_000)
            assert socket.aborted
        finally:
            connection.connection_lost(None)


# --- starts -----------------------------------------------------------------------------------------------------------


@pytest.mark.asyncio
@pytest.mark.hazard("reader-start")
async def test_start_is_where_the_client_says() -> None:
    """An entry is named with its batch index or without: it comes whole, and the client drops what it does not want."""
    async with door_world() as world, raw_client(world.port) as client:
        log_of(world).append(*three())
        await client.connect()
        cases = [
            (EARLIEST, (), FromFirst()),
            (LATEST, (), FromEnd()),
            (None, (), FromEnd()),
            (LATEST, ((13, 1),), FromFirst()),
            (id_of(5, 1), (), FromEntry(at(1, 5))),
            (id_of(5, 1, 2), (), FromEntry(at(1, 5))),
            (id_of(5, 2**64 - 1), (), FromEntry(at(0, 5))),
            (EARLIEST, ((16, 3600),), FromTime(WALL_MS + 1000 - 3_600_000)),
        ]
        for start, more, expected in cases:
            assert (await client.answer(subscribe(start, *more))).request_id == 50
            assert log_of(world).starts[-1] == expected
        await client.answer(subscribe(id_of(5, 1, 1)))
        client.write(flow(1000))
        assert await places(client, 2) == [(5, 1), (5, 2)]


@pytest.mark.asyncio
async def test_shared_subscriptions_that_are_not_durable_are_refused() -> None:
    """The connection goes on."""
    async with door_world() as world, raw_client(world.port) as client:
        await client.connect()
        for kind in (1, 2, 3):
            refused = await client.answer(subscribe(EARLIEST, (3, kind)))
            assert (refused.request_id, refused.error) == (50, 22)
            assert "reader" in refused.message
        assert (await client.answer(subscribe())).request_id == 50


@pytest.mark.asyncio
async def test_topic_may_be_missing() -> None:
    """The client says whether it may be created, and a name may be none."""
    async with door_world() as world, raw_client(world.port) as client:
        await client.connect()
        assert (await client.answer(subscribe(EARLIEST, (15, 0)))).error == 11
        bad = frame(command(SUBSCRIBE, (1, b"a/b"), (2, b"s"), (3, 0), (4, 1), (5, 9), (8, 0)))
        assert (await client.answer(bad)).error == 17
        assert (await client.answer(subscribe())).request_id == 50


# --- what holds nothing -----------------------------------------------------------------------------------------------


@pytest.mark.asyncio
async def test_acknowledgements_are_answered_and_change_nothing() -> None:
    """Only where an answer is wanted; there is nothing to send again."""
    async with door_world() as world, raw_client(world.port) as client:
        log_of(world).append(*three())
        await opened(client)
        client.write(flow(1))
        await places(client, 1)
        ack = ((1, 1), (2, 1), (3, id_of(5, 0)))
        client.write(frame(command(ACK, *ack)))
        client.write(frame(command(REDELIVER, (1, 1), (2, id_of(5, 0)))) + frame(command(REDELIVER, (1, 1))))
        await nothing_comes(client)
        answer = await client.answer(frame(command(ACK, *ack, (8, 33))))
        assert (answer.consumer_id, answer.request_id, answer.HasField("error")) == (1, 33, False)


@pytest.mark.asyncio
async def test_statistics_of_a_reader() -> None:
    """What the door knows without a request."""
    async with door_world() as world, raw_client(world.port) as client:
        log_of(world).append(*three())
        await opened(client, EARLIEST, (6, b"mine"))
        client.write(flow(2))
        await places(client, 2)
        answer = await client.answer(frame(command(STATS, (1, 71), (4, 1))))
        assert (answer.request_id, answer.consumer_name, answer.type) == (71, "mine", "Exclusive")
        assert (answer.messages_out, answer.permits) == (4, 0)
        assert answer.bytes_out > 80


@pytest.mark.asyncio
async def test_requests_for_a_consumer_that_is_not_open_are_refused() -> None:
    """With the code of a consumer that is not found; what needs no answer gets none."""
    async with door_world() as world, raw_client(world.port) as client:
        await client.connect()
        client.write(flow(1, 9) + frame(command(ACK, (1, 9), (2, 0), (3, id_of(1, 1)))))
        for kind, fields in ((LAST_ID, ((1, 9), (2, 5))), (SEEK, ((1, 9), (2, 5), (4, 1))), (STATS, ((1, 5), (4, 9)))):
            refused = await client.answer(frame(command(kind, *fields)))
            assert (refused.request_id, refused.error) == (5, 13)


@pytest.mark.asyncio
async def test_subscriptions_wait_for_their_turn_and_are_forgotten_with_their_consumer() -> None:
    """As openings of producers: one that its client has closed is not opened any more."""
    async with door_world() as world, raw_client(world.port) as client:
        await client.connect()
        client.write(b"".join(subscribe(consumer_id=number) for number in range(BURST + 2)))
        for _ in range(BURST):
            assert (await client.read()).name == "success"
        assert (await client.answer(frame(command(CLOSE_CONSUMER, (1, BURST), (2, 9))))).request_id == 9
        world.timers.advance(1000)
        assert (await client.read()).name == "success"
        assert len(log_of(world).readers) == BURST + 1


# --- ends -------------------------------------------------------------------------------------------------------------


@pytest.mark.asyncio
@pytest.mark.parametrize("kind", [CLOSE_CONSUMER, UNSUBSCRIBE])
async def test_closed_reader_gets_nothing_more(kind: int) -> None:
    """And its reader of the log is closed."""
    async with door_world() as world, raw_client(world.port) as client:
        await opened(client)
        client.write(flow(100))
        assert (await client.answer(frame(command(kind, (1, 1), (2, 8))))).request_id == 8
        log_of(world).append(*three())
        await nothing_comes(client)
        assert log_of(world).readers[0].closed


@pytest.mark.asyncio
async def test_reader_is_closed_with_its_connection() -> None:
    """Also one that waits for its topic: that one is never opened."""
    async with door_world() as world, raw_client(world.port) as client:
        await opened(client)
        world.cluster.owner_answers.clear()
        client.write(subscribe(consumer_id=2))
        await nothing_comes(client)
        client.abort()
        await until(lambda: log_of(world).readers[0].closed, DEADLINE_S)
        await until(lambda: not world.home.connections, DEADLINE_S)
        world.cluster.owner_answers.set()
        await world.home.tasks.close()
        assert len(log_of(world).readers) == 1


@pytest.mark.asyncio
async def test_consumer_that_subscribes_again_has_one_reader() -> None:
    """The former one ends, and its permits with it."""
    async with door_world() as world, raw_client(world.port) as client:
        await opened(client)
        client.write(flow(100))
        await client.answer(subscribe())
        log_of(world).append(*three())
        await nothing_comes(client)
        assert [reader.closed for reader in log_of(world).readers] == [True, False]


@pytest.mark.asyncio
async def test_place_that_cannot_be_read_refuses_the_subscription() -> None:
    """So the client tells its application why, and tries again ever more slowly."""
    async with door_world() as world, raw_client(world.port) as client:
        log = log_of(world)
        log.append(*three())
        log.fails_at[at(1, 5)] = CorruptEntry("entry 5:1 is damaged")
        await client.connect()
        refused = await client.answer(subscribe(id_of(5, 1)))
        assert (refused.request_id, refused.error) == (50, 22)
        assert "5:1" in refused.message
        assert log.readers[0].closed
        assert world.home.counts.undeliverable == 1


@pytest.mark.asyncio
@pytest.mark.parametrize(
    "error", [CorruptEntry("damaged"), TopicNotFound("deleted"), PermissionDenied("the right is gone")]
)
async def test_reader_that_cannot_go_on_closes_its_consumer(error: Exception) -> None:
    """After all that could be read. The client comes back, and then learns the reason."""
    async with door_world() as world, raw_client(world.port) as client:
        log_of(world).append(*three())
        await opened(client)
        client.write(flow(100))
        await places(client, 3)
        log_of(world).readers[0].fail(error)  # type: ignore[arg-type]  # the cases above
        closed = (await client.read()).command.close_consumer
        assert closed.consumer_id == 1
        await nothing_comes(client)


@pytest.mark.asyncio
async def test_reader_waits_for_storage_that_is_away() -> None:
    """The consumer stays open."""
    async with door_world() as world, raw_client(world.port) as client:
        await opened(client)
        client.write(flow(100))
        [reader] = log_of(world).readers
        reader.fail(LedgerUnavailable("no storage node has the next entries"))
        await until(lambda: reader.raised, DEADLINE_S)
        log_of(world).append(*three())
        assert len(await places(client, 3)) == 3


@pytest.mark.asyncio
async def test_consumers_of_a_connection_are_bounded() -> None:
    """The one beyond the limit is refused, and those that are open go on."""
    async with door_world() as world, raw_client(world.port) as client:
        await client.connect()
        for number in range(CONSUMERS_MAX):
            assert (await client.answer(subscribe(consumer_id=number))).request_id == 50
            world.timers.advance(5)
        refused = await client.answer(subscribe(consumer_id=CONSUMERS_MAX))
        assert refused.error == 22
        assert str(CONSUMERS_MAX) in refused.message
        await client.answer(frame(command(CLOSE_CONSUMER, (1, 0), (2, 8))))
        assert (await client.answer(subscribe(consumer_id=CONSUMERS_MAX))).request_id == 50
