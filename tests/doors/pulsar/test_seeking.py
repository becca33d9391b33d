"""Seeks of readers, and the last id of their topic, over real sockets."""

import pytest

from oncelog.core.errors import LedgerUnavailable
from oncelog_doors.core.pulsar.message_ids import FromEnd, FromEntry, FromFirst, FromTime
from tests.core.builders import at
from tests.doors.core.pulsar.stored_batches import APPENDED_MS, columns, stored
from tests.doors.pulsar.bytes_of_clients import command, frame
from tests.doors.pulsar.raw_client import door_world, raw_client
from tests.doors.pulsar.reader_client import (
    CLOSE_CONSUMER,
    EARLIEST,
    LAST_ID,
    LATEST,
    flow,
    id_of,
    log_of,
    nothing_comes,
    opened,
    places,
    seek,
    subscribe,
    three,
)

# --- seeking ----------------------------------------------------------------------------------------------------------


@pytest.mark.asyncio
@pytest.mark.hazard("seek-behind-old-messages")
@pytest.mark.parametrize(
    ("place", "start", "rest"),
    [
        ((3, id_of(5, 1)), FromEntry(at(1, 5)), [(5, 1), (5, 2)]),
        ((3, EARLIEST), FromFirst(), [(5, 0), (5, 1), (5, 2)]),
        ((3, LATEST), FromEnd(), []),
        ((4, APPENDED_MS + 2), FromTime(APPENDED_MS + 2), [(5, 2)]),
        ((4, 0), FromTime(0), [(5, 0), (5, 1), (5, 2)]),
        ((4, 2**64 - 60), FromTime(0), [(5, 0), (5, 1), (5, 2)]),  # -60
    ],
)
async def test_seek_closes_the_consumer_first(
    place: tuple[int, int | bytes], start: object, rest: list[tuple[int, int]]
) -> None:
    """Then nothing old comes, and the permits of before are gone. The client comes back with another start."""
    async with door_world() as world, raw_client(world.port) as client:
        log_of(world).append(*three())
        await opened(client)
        client.write(flow(1))
        assert await places(client, 1) == [(5, 0)]
        client.write(flow(100) + seek(place) + flow(100))
        names: list[str] = []
        while not names or names[-1] != "success":
            names.append((await client.read()).name)
        assert names[-2:] == ["close_consumer", "success"]
        assert names.count("close_consumer") == 1
        await nothing_comes(client)
        assert (await client.answer(subscribe(EARLIEST))).request_id == 50
        assert log_of(world).starts[-1] == start
        await nothing_comes(client)
        client.write(flow(100))
        assert await places(client, len(rest)) == rest
        await nothing_comes(client)


@pytest.mark.asyncio
@pytest.mark.hazard("seek-behind-old-messages")
async def test_sought_place_is_kept_until_the_consumer_is_back() -> None:
    """SUBSCRIBE fails, or is given up, and comes again. Then the place is used up; others never get it."""
    async with door_world() as world, raw_client(world.port) as client:
        log = log_of(world)
        log.append(*three())
        await opened(client)
        client.write(seek((3, id_of(5, 2))))
        assert [(await client.read()).name for _ in range(2)] == ["close_consumer", "success"]
        await client.answer(subscribe(EARLIEST, consumer_id=2))
        log.fails_at[at(2, 5)] = LedgerUnavailable("not now")
        assert (await client.answer(subscribe())).error == 2
        assert (await client.answer(frame(command(CLOSE_CONSUMER, (1, 1), (2, 7))))).request_id == 7
        del log.fails_at[at(2, 5)]
        await client.answer(subscribe())
        await client.answer(subscribe())
        sought = FromEntry(at(2, 5))
        assert log.starts == [FromFirst(), FromFirst(), sought, sought, FromFirst()]


@pytest.mark.asyncio
async def test_seek_without_a_place_is_refused() -> None:
    """The reader goes on."""
    async with door_world() as world, raw_client(world.port) as client:
        log_of(world).append(*three())
        await opened(client)
        assert (await client.answer(seek())).error == 22
        client.write(flow(9))
        assert len(await places(client, 3)) == 3


# --- the last id ------------------------------------------------------------------------------------------------------


@pytest.mark.asyncio
@pytest.mark.hazard("last-id-of-no-message")
async def test_last_id_is_that_of_the_last_message() -> None:
    """Of a single one without a batch index, of a batch its last; and where the reader has begun."""
    ask = frame(command(LAST_ID, (1, 1), (2, 70)))
    nowhere = 2**64 - 1
    async with door_world() as world, raw_client(world.port) as client:
        await opened(client, LATEST)
        answer = await client.answer(ask)
        assert (answer.request_id, answer.message_id.ledger_id, answer.message_id.entry_id) == (70, nowhere, nowhere)
        log_of(world).append(*three()[:1])
        answer = await client.answer(ask)
        assert (answer.message_id.ledger_id, answer.message_id.entry_id) == (5, 0)
        assert not answer.message_id.HasField("batch_index")
        assert (answer.mark_delete.ledger_id, answer.mark_delete.entry_id) == (nowhere, nowhere)
        log_of(world).append(three()[1])
        last = (await client.answer(ask)).message_id
        assert (last.entry_id, last.batch_index) == (1, 2)
        log_of(world).append(stored(columns([b"x", b"y", b"z"]), entry_id=4, skip_first=2))
        last = (await client.answer(ask)).message_id
        assert (last.entry_id, last.batch_index) == (4, 0)


@pytest.mark.asyncio
@pytest.mark.parametrize(
    ("start", "mark"), [(LATEST, (5, 2)), (id_of(5, 1), (5, 0)), (id_of(5, 0), (5, 2**64 - 1)), (EARLIEST, None)]
)
async def test_mark_is_where_the_reader_began(start: bytes, mark: tuple[int, int] | None) -> None:
    """It does not move with what is sent: a client that has messages in its queue asks whether there are any."""
    async with door_world() as world, raw_client(world.port) as client:
        log_of(world).append(*three())
        await opened(client, start)
        client.write(flow(1000))
        log_of(world).append(stored(columns([b"f"]), entry_id=3))
        while (await client.read()).command.message.message_id.entry_id != 3:
            pass
        answer = (await client.answer(frame(command(LAST_ID, (1, 1), (2, 70))))).mark_delete
        assert (answer.ledger_id, answer.entry_id) == (mark or (2**64 - 1, 2**64 - 1))


@pytest.mark.asyncio
async def test_last_id_that_is_not_known_is_an_error() -> None:
    """Which the client asks again for; and so are too many questions at once."""
    async with door_world() as world, raw_client(world.port) as client:
        log = log_of(world)
        await opened(client)
        log.answers_last.clear()
        client.write(frame(command(LAST_ID, (1, 1), (2, 70))) * 101)
        assert (await client.read()).command.error.error == 2
        log.readers[0].error = LedgerUnavailable("not now")
        log.answers_last.set()
        assert [(await client.read()).command.error.error for _ in range(100)] == [2] * 100
