"""A consumer with a subscription of a client of Pulsar in a test: what it sends, and what it gets."""

from typing import Any

from tests.doors.pulsar.bytes_of_clients import ACK, REDELIVER, SUBSCRIBE, command, frame
from tests.doors.pulsar.fake_subscriptions import FakeConsumer, FakeSubscription
from tests.doors.pulsar.raw_client import TOPIC, DoorWorld, RawClient
from tests.doors.pulsar.reader_client import EARLIEST, flow, id_of, log_of, three

EXCLUSIVE, SHARED, FAILOVER, KEY_SHARED = range(4)
INDIVIDUAL, CUMULATIVE = range(2)
BILLING = "billing"


def subscribe(
    kind: int = EXCLUSIVE, *more: tuple[int, int | bytes], consumer_id: int = 1, subscription: bytes = b"billing"
) -> bytes:
    """It begins with the first message. more: other fields of SUBSCRIBE."""
    return frame(
        command(
            SUBSCRIBE, (1, TOPIC), (2, subscription), (3, kind), (4, consumer_id), (5, 50), (13, 1), *more
        )
    )  # fmt: skip


async def opened(client: RawClient, kind: int = EXCLUSIVE, *more: tuple[int, int | bytes]) -> Any:
    """Of a consumer without permits."""
    await client.connect()
    return await client.answer(subscribe(kind, *more))


def ack(*ids: bytes, kind: int = INDIVIDUAL, request_id: int | None = None, consumer_id: int = 1) -> bytes:
    named = tuple((3, each) for each in ids)
    asks = () if request_id is None else ((8, request_id),)
    return frame(command(ACK, (1, consumer_id), (2, kind), *named, *asks))


def redeliver(*ids: bytes, epoch: int | None = None) -> bytes:
    named = tuple((2, each) for each in ids)
    counted = () if epoch is None else ((3, epoch),)
    return frame(command(REDELIVER, (1, 1), *named, *counted))


async def messages(client: RawClient, count: int) -> list[Any]:
    """The next ones."""
    found = []
    for _ in range(count):
        got = await client.read()
        assert got.name == "message", got.name
        found.append(got.command.message)
    return found


async def three_delivered(
    world: DoorWorld, client: RawClient, kind: int = EXCLUSIVE, *more: tuple[int, int | bytes]
) -> None:
    """Three entries, of which the first has one message."""
    log_of(world).append(*three())
    await opened(client, kind, *more)
    client.write(flow(1000))
    await messages(client, 3)


def place(message: Any) -> tuple[int, int]:
    return message.message_id.ledger_id, message.message_id.entry_id


async def counts(client: RawClient, count: int) -> list[tuple[int, int]]:
    """(number of the entry, redelivery count) of the next messages."""
    return [(each.message_id.entry_id, each.redelivery_count) for each in await messages(client, count)]


def billing(world: DoorWorld) -> FakeSubscription:
    return log_of(world).subscriptions[BILLING]


def the_consumer(world: DoorWorld) -> FakeConsumer:
    """The one that was opened last."""
    return billing(world).opened[-1]


__all__ = [
    "BILLING",
    "CUMULATIVE",
    "EARLIEST",
    "EXCLUSIVE",
    "FAILOVER",
    "INDIVIDUAL",
    "KEY_SHARED",
    "SHARED",
    "ack",
    "billing",
    "counts",
    "id_of",
    "log_of",
    "messages",
    "opened",
    "place",
    "redeliver",
    "subscribe",
    "the_consumer",
    "three_delivered",
]
