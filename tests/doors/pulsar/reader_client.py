"""A reader of a client of Pulsar in a test: what it sends, and what it gets."""

from random import Random
from typing import Any

from oncelog_doors.pulsar.connection import Connection
from tests.doors.core.pulsar.stored_batches import columns, stored
from tests.doors.pulsar.bytes_of_clients import FLOW, PING, SUBSCRIBE, body, command, frame
from tests.doors.pulsar.fake_log import FakeLog
from tests.doors.pulsar.raw_client import TOPIC, DoorWorld, RawClient

UNSUBSCRIBE, CLOSE_CONSUMER, STATS, SEEK, LAST_ID = 12, 16, 25, 28, 29
ORDERS = "public/default/orders"
EARLIEST = body((1, 2**64 - 1), (2, 2**64 - 1))
LATEST = body((1, 2**63 - 1), (2, 2**63 - 1))
PING_FRAME = frame(command(PING))


def subscribe(start: bytes | None = EARLIEST, *more: tuple[int, int | bytes], consumer_id: int = 1) -> bytes:
    """A reader. start: the body of an id. more: other fields of SUBSCRIBE."""
    begin = () if start is None else ((9, start),)
    return frame(
        command(SUBSCRIBE, (1, TOPIC), (2, b"reader-1"), (3, 0), (4, consumer_id), (5, 50), (8, 0), *begin, *more)
    )


def id_of(ledger_id: int, entry_id: int, batch_index: int | None = None) -> bytes:
    index = () if batch_index is None else ((4, batch_index),)
    return body((1, ledger_id), (2, entry_id), *index)


def flow(permits: int, consumer_id: int = 1) -> bytes:
    return frame(command(FLOW, (1, consumer_id), (2, permits)))


def seek(*fields: tuple[int, int | bytes]) -> bytes:
    return frame(command(SEEK, (1, 1), (2, 60), *fields))


def three() -> list[Any]:
    """A single message, a batch of three, and a single message."""
    return [
        stored(columns([b"a"]), entry_id=0, base_index=10),
        stored(columns([b"b", b"c", b"d"]), entry_id=1, base_index=11),
        stored(columns([b"e"]), entry_id=2, base_index=14),
    ]


async def opened(client: RawClient, start: bytes | None = EARLIEST, *more: tuple[int, int | bytes]) -> Any:
    """Of a reader without permits."""
    await client.connect()
    return await client.answer(subscribe(start, *more))


async def places(client: RawClient, count: int) -> list[tuple[int, int]]:
    """Of the next messages."""
    found = []
    for _ in range(count):
        got = await client.read()
        assert got.name == "message", got.name
        assert got.command.message.consumer_id == 1
        found.append((got.command.message.message_id.ledger_id, got.command.message.message_id.entry_id))
    return found


async def nothing_comes(client: RawClient) -> None:
    """The next command is the answer to a PING."""
    client.write(PING_FRAME)
    assert (await client.read()).name == "pong"


def the_connection(world: DoorWorld) -> Connection:
    [connection] = world.home.connections.values()
    assert isinstance(connection, Connection)
    return connection


def log_of(world: DoorWorld) -> FakeLog:
    return world.cluster.log(ORDERS)


def filled(log: FakeLog, count: int) -> None:
    value = Random(1).randbytes(60_000)
    log.append(*(stored(columns([value]), entry_id=number, base_index=number) for number in range(count)))
