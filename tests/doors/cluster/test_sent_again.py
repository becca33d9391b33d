"""What a client sends again in other batches or other bytes, in front of a cluster of real processes."""

from collections.abc import AsyncIterator, Sequence

import pytest
import pytest_asyncio
from crc32c import crc32c

from tests.contract.process.security_world import token
from tests.core.pulsar_entries import ZSTD, Sent, batched, numbered, plain, summed
from tests.doors.cluster.door_program import DoorProgram, connect
from tests.doors.pulsar.bytes_of_clients import SEND, command, frame
from tests.doors.pulsar.raw_client import RawClient, raw_client


@pytest_asyncio.fixture
async def client(door: DoorProgram, request: pytest.FixtureRequest) -> AsyncIterator[RawClient]:
    """With an open producer of a topic of its own."""
    async with raw_client(door.port()) as own:
        await connect(own, token("importer"))
        await own.open_producer(topic=topic_of(request))
        yield own


def topic_of(request: pytest.FixtureRequest) -> bytes:
    return f"persistent://public/default/{abs(hash(request.node.name))}".encode()


def sent(messages: Sequence[Sent], *, codec: int = 0) -> bytes:
    """The SEND of a batch; of one message, as no batch."""
    if len(messages) == 1:
        made = plain(messages[0], producer="importer", codec=codec)
    else:
        made = batched(messages, producer="importer", codec=codec)
    first, last = messages[0].sequence_id, messages[-1].sequence_id
    numbers = ((1, 1), (2, first), (3, len(messages)), (6, last))
    return frame(command(SEND, *numbers), summed(made, crc32c))


async def place(client: RawClient, messages: Sequence[Sent], *, codec: int = 0) -> tuple[int, int] | None:
    """Of the receipt; None: it names none."""
    found = (await client.answer(sent(messages, codec=codec))).message_id
    return None if found.ledger_id == 2**64 - 1 else (found.ledger_id, found.entry_id)


def changed(messages: list[Sent], index: int) -> list[Sent]:
    return [Sent(one.sequence_id, b"changed") if i == index else one for i, one in enumerate(messages)]


@pytest.mark.asyncio
@pytest.mark.hazard("other-order-of-properties")
async def test_same_batch_in_other_bytes_has_the_place_of_the_first_one(client: RawClient) -> None:
    first = await place(client, [Sent(n, b"v%d" % n, properties={"a": "1", "b": "2"}) for n in range(1, 9)])
    assert first is not None
    again = [Sent(n, b"v%d" % n, properties={"b": "2", "a": "1"}) for n in range(1, 9)]
    assert await place(client, again, codec=ZSTD) == first


@pytest.mark.asyncio
async def test_same_messages_in_other_batches_are_received_without_a_place(client: RawClient) -> None:
    """Also if the batch has new ones behind them."""
    messages = numbered(range(1, 60))
    for start in range(0, 40, 10):
        assert await place(client, messages[start : start + 10]) is not None
    for cut in (messages[5:15], messages[3:4], messages[0:40], messages[35:59]):
        assert await place(client, cut) is None
    assert (await place(client, numbered([60]))) is not None


@pytest.mark.asyncio
@pytest.mark.hazard("generator-goes-back")
@pytest.mark.parametrize("again", [(5, 15, 7), (3, 4, 0), (0, 40, 39), (35, 59, 2), (10, 20, 3)])
async def test_another_message_under_an_id_is_refused(client: RawClient, again: tuple[int, int, int]) -> None:
    """A receipt would lose it. In other batches, in the same one, and with new messages behind it."""
    messages = numbered(range(1, 60))
    for start in range(0, 40, 10):
        await place(client, messages[start : start + 10])
    start, end, index = again
    client.write(sent(changed(messages[start:end], index)))
    assert (await client.read()).name == "close_producer"
