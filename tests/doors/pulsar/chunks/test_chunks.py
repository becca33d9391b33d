"""Messages in chunks over real sockets, in front of a cluster in memory: when SENDs are answered, and what is sent."""

import pytest

from oncelog.core.errors import CorruptEntry
from oncelog_doors.core.pulsar.consuming.acknowledgements import UNREADABLE_DELAY_MS
from oncelog_doors.core.pulsar.message_ids import chunk_place
from oncelog_doors.core.pulsar.verdicts import Accepted, Rejected
from oncelog_doors.pulsar.producer_slot import WITHHELD_BYTES
from tests.cluster.until import until
from tests.core.builders import at
from tests.doors.core.pulsar.stored_batches import columns, in_chunks, stored
from tests.doors.pulsar.bytes_of_clients import CLOSE_PRODUCER, SEND, body, command, entry, frame
from tests.doors.pulsar.consumer_client import (
    EXCLUSIVE,
    SHARED,
    ack,
    billing,
    counts,
    id_of,
    log_of,
    messages,
    place,
    redeliver,
    the_consumer,
)
from tests.doors.pulsar.consumer_client import opened as consuming
from tests.doors.pulsar.entries_at_clients import read
from tests.doors.pulsar.fake_cluster import FakeProducer
from tests.doors.pulsar.raw_client import DoorWorld, RawClient, door_world, raw_client, send
from tests.doors.pulsar.reader_client import ORDERS, SEEK, flow, nothing_comes, opened, seek
from tests.doors.raw_connection import DEADLINE_S

JAVA, GO = b"Pulsar-Java-v4.0.7", b"Pulsar Go v0.19.0"
CHUNKS = [b"a" * 100_000, b"b" * 100_000, b"c" * 7]
NOT_ALLOWED = 22


def chunk(sequence_id: int, value: bytes = b"v" * 10_000) -> bytes:
    return send(sequence_id, value, (7, 1))


def producer_of(world: DoorWorld) -> FakeProducer:
    return world.cluster.opened[0]


async def producing(world: DoorWorld, client: RawClient, version: bytes = JAVA) -> FakeProducer:
    await client.connect(version)
    await client.open_producer()
    return producer_of(world)


def appended(world: DoorWorld) -> None:
    """A message, one in chunks, and a message."""
    log = log_of(world)
    log.chunks.of[at(3, 5)] = list(CHUNKS)
    log.append(
        stored(columns([b"before"]), entry_id=0, base_index=10),
        stored(in_chunks(CHUNKS), entry_id=3, base_index=11),
        stored(columns([b"behind"]), entry_id=4, base_index=12),
    )


# --- sending ----------------------------------------------------------------------------------------------------------


@pytest.mark.asyncio
@pytest.mark.hazard("chunks-without-their-first")
async def test_receipts_are_withheld_until_the_message_is_decided() -> None:
    """What is behind them waits, too. Of a stored chunk the door keeps nothing, and counts a little."""
    async with door_world() as world, raw_client(world.port) as client:
        opened = await producing(world, client)
        client.write(chunk(1) + chunk(1) + chunk(1) + send(2))
        await until(lambda: len(opened.chunks) == 3 and opened.chunks_ended == 0, DEADLINE_S)
        await nothing_comes(client)
        assert world.home.budget.total == 3 * WITHHELD_BYTES
        opened.decide_chunks(Accepted(at(9, 1)))
        receipts = [(await client.read()).command.send_receipt for _ in range(4)]
        assert [each.sequence_id for each in receipts] == [1, 1, 1, 2]
        assert [each.message_id.entry_id for each in receipts[:3]] == [9, 9, 9]
        assert world.home.budget.total == 0


@pytest.mark.asyncio
async def test_java_is_told_of_each_chunk_of_a_refused_message() -> None:
    """Each is one of its pending sends."""
    async with door_world() as world, raw_client(world.port) as client:
        opened = await producing(world, client)
        client.write(chunk(1) + chunk(1))
        await until(lambda: len(opened.chunks) == 2, DEADLINE_S)
        opened.decide_chunks(Rejected("no"))
        errors = [(await client.read()).command.send_error for _ in range(2)]
        assert [(each.sequence_id, each.error) for each in errors] == [(1, NOT_ALLOWED)] * 2


@pytest.mark.asyncio
async def test_damaged_chunk_gives_its_message_up() -> None:
    """The chunks before it get receipts, else nothing behind them would ever be answered."""
    async with door_world() as world, raw_client(world.port) as client:
        opened = await producing(world, client)
        metadata = body((1, b"importer"), (2, 1), (3, 1))
        damaged = bytearray(entry(metadata, b"v"))
        damaged[-1] ^= 1
        client.write(chunk(1) + frame(command(SEND, (1, 1), (2, 1), (7, 1)), bytes(damaged)))
        assert (await client.read()).name == "send_receipt"
        assert (await client.read()).name == "send_error"
        assert opened.chunks_ended == 1


@pytest.mark.asyncio
async def test_client_that_closes_its_producer_gives_its_message_up() -> None:
    async with door_world() as world, raw_client(world.port) as client:
        opened = await producing(world, client)
        client.write(chunk(1))
        await until(lambda: len(opened.chunks) == 1, DEADLINE_S)
        client.write(frame(command(CLOSE_PRODUCER, (1, 1), (2, 9))))
        assert (await client.read()).name == "send_receipt"
        assert (await client.read()).name == "success"


@pytest.mark.asyncio
async def test_session_that_ends_between_chunks_closes_the_producer() -> None:
    """Nothing is due: its client opens it again, and sends all that has no receipt."""
    async with door_world() as world, raw_client(world.port) as client:
        opened = await producing(world, client)
        client.write(chunk(1))
        await until(lambda: len(opened.chunks) == 1, DEADLINE_S)
        opened.finish(CorruptEntry("any"))
        assert (await client.read()).name == "close_producer"
        opened.decide_chunks(None)
        assert (await client.open_producer((8, 1), (11, opened.token))).name == "importer"
        assert world.home.budget.total == 0


# --- delivering -------------------------------------------------------------------------------------------------------


@pytest.mark.asyncio
async def test_reader_gets_chunk_by_chunk() -> None:
    """Under the id of the message, and before it under an id of none."""
    async with door_world() as world, raw_client(world.port) as client:
        appended(world)
        await opened(client)
        client.write(flow(100))
        got = [await client.read() for _ in range(5)]
        values = [read(each.entry or b"")[1][0].value for each in got]
        assert values == [b"before", *CHUNKS, b"behind"]
        early = chunk_place(at(3, 5))
        found = [place(each.command.message) for each in got]
        assert found == [(5, 0), tuple(early), tuple(early), (5, 3), (5, 4)]


@pytest.mark.asyncio
@pytest.mark.hazard("entry-above-the-permits")
async def test_each_chunk_costs_a_permit() -> None:
    """As clients count: for each chunk that is not the last one they give the permit back at once."""
    async with door_world() as world, raw_client(world.port) as client:
        appended(world)
        await opened(client)
        for _ in range(5):
            client.write(flow(1))
            assert (await client.read()).name == "message"
            await nothing_comes(client)


@pytest.mark.asyncio
async def test_consumer_gets_what_it_has_permits_for() -> None:
    """Its permits for chunks are no permits for messages."""
    async with door_world() as world, raw_client(world.port) as client:
        appended(world)
        await consuming(client)
        client.write(flow(4))
        await messages(client, 4)
        client.write(flow(2))
        await nothing_comes_but(client, [(4, 0)])
        assert the_consumer(world).total == 4


async def nothing_comes_but(client: RawClient, expected: list[tuple[int, int]]) -> None:
    assert await counts(client, len(expected)) == expected
    await nothing_comes(client)


@pytest.mark.asyncio
@pytest.mark.hazard("chunk-acknowledged-for-its-message")
async def test_message_is_acknowledged_by_its_last_chunk_alone() -> None:
    """Ids of the others change nothing, and are no error."""
    async with door_world() as world, raw_client(world.port) as client:
        appended(world)
        await consuming(client, SHARED)
        client.write(flow(100))
        await messages(client, 5)
        early = id_of(*chunk_place(at(3, 5)))
        answer = await client.answer(ack(early, request_id=70))
        assert not answer.HasField("error")
        assert billing(world).acked == set()
        answer = await client.answer(ack(early, id_of(5, 3), request_id=71))
        assert not answer.HasField("error")
        assert billing(world).acked == {11}
        assert world.home.counts.acks_ignored == 0


@pytest.mark.asyncio
async def test_acknowledgement_before_the_last_chunk_is_ignored() -> None:
    """The client cannot have the message."""
    async with door_world() as world, raw_client(world.port) as client:
        appended(world)
        await consuming(client, SHARED)
        client.write(flow(2))
        await messages(client, 2)
        answer = await client.answer(ack(id_of(5, 3), request_id=70))
        assert answer.HasField("error")
        assert billing(world).acked == set()
        client.write(flow(1) + flow(1))
        await messages(client, 2)
        assert not (await client.answer(ack(id_of(5, 3), request_id=71))).HasField("error")
        assert billing(world).acked == {11}


@pytest.mark.asyncio
@pytest.mark.hazard("chunks-begin-again")
async def test_message_that_is_given_back_comes_again_whole() -> None:
    """With another uuid, and with its redelivery count on each chunk."""
    async with door_world() as world, raw_client(world.port) as client:
        appended(world)
        await consuming(client, SHARED)
        client.write(flow(100))
        first = [await client.read() for _ in range(5)]
        client.write(redeliver(id_of(*chunk_place(at(3, 5)))))
        await nothing_comes(client)
        client.write(redeliver(id_of(*chunk_place(at(3, 5))), id_of(5, 3)))
        again = [await client.read() for _ in range(3)]
        assert [each.command.message.redelivery_count for each in again] == [1, 1, 1]
        assert [read(each.entry or b"")[1][0].value for each in again] == CHUNKS
        assert b"tag-1" in (first[1].entry or b"")
        assert b"tag-2" in (again[0].entry or b"")


@pytest.mark.asyncio
async def test_chunk_that_cannot_be_read_leaves_the_message_in_the_backlog() -> None:
    """It comes again after a minute; what is behind it comes now."""
    async with door_world() as world, raw_client(world.port) as client:
        appended(world)
        log_of(world).chunks.of[at(3, 5)][1] = CorruptEntry("damaged")
        await consuming(client, SHARED)
        client.write(flow(100))
        assert [place(each)[1] for each in await messages(client, 3)] == [0, chunk_place(at(3, 5)).entry_id, 4]
        assert billing(world).delays_ms == [UNREADABLE_DELAY_MS]
        assert world.home.counts.undeliverable == 1


@pytest.mark.asyncio
async def test_reader_stops_at_a_chunk_that_cannot_be_read() -> None:
    """Nothing is left out in silence."""
    async with door_world() as world, raw_client(world.port) as client:
        appended(world)
        log_of(world).chunks.of[at(3, 5)][2] = CorruptEntry("damaged")
        await opened(client)
        client.write(flow(100))
        assert [(await client.read()).name for _ in range(4)] == ["message"] * 3 + ["close_consumer"]


@pytest.mark.asyncio
async def test_seek_while_a_message_is_sent_stops_it() -> None:
    """CLOSE_CONSUMER, then SUCCESS; no chunk behind it."""
    async with door_world() as world, raw_client(world.port) as client:
        appended(world)
        await consuming(client, EXCLUSIVE)
        client.write(flow(2))
        await messages(client, 2)
        client.write(seek((3, id_of(5, 0))))
        assert [(await client.read()).name for _ in range(2)] == ["close_consumer", "success"]
        client.write(flow(10))
        await nothing_comes(client)


@pytest.mark.asyncio
@pytest.mark.parametrize(("version", "refused"), [(JAVA, False), (GO, True), (b"unknown", True)])
async def test_clients_that_compare_ids_seek_to_no_chunk(version: bytes, refused: bool) -> None:
    """Go's would drop and acknowledge all that has a lower id."""
    async with door_world() as world, raw_client(world.port) as client:
        appended(world)
        await client.connect(version)
        await client.answer(frame(subscribe_of_reader()))
        client.write(frame(command(SEEK, (1, 1), (2, 60), (3, id_of(*chunk_place(at(3, 5)))))))
        assert (await client.read()).name == ("error" if refused else "close_consumer")


def subscribe_of_reader() -> bytes:
    return command(4, (1, b"persistent://" + ORDERS.encode()), (2, b"reader-1"), (3, 0), (4, 1), (5, 50), (8, 0))
