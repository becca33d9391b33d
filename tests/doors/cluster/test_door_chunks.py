"""Messages in chunks, byte by byte, in front of a cluster of real processes."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from random import Random
from typing import Any

import pytest
import pytest_asyncio

import oncelog
from tests.cluster.cluster_fixture import Cluster
from tests.contract.process.security_world import token
from tests.doors.cluster.door_client import EARLIEST, Place, connected, received, sdk
from tests.doors.cluster.door_program import DoorProgram
from tests.doors.cluster.test_door_reading import subscribe
from tests.doors.pulsar.bytes_of_clients import CLOSE_PRODUCER, SEND, body, command, entry, field, frame
from tests.doors.pulsar.raw_client import RawClient, raw_client
from tests.doors.pulsar.reader_client import nothing_comes

VALUE = Random(1).randbytes(3_000_000)
NOWHERE = 2**64 - 1
NOT_ALLOWED = 22
JAVA = b"Pulsar-Java-v4.0.7"


def name_of(request: pytest.FixtureRequest) -> str:
    return str(abs(hash(request.node.name)))


@pytest.fixture
def topic(request: pytest.FixtureRequest) -> str:
    return name_of(request)


@pytest_asyncio.fixture
async def client(door: DoorProgram, topic: str) -> AsyncIterator[RawClient]:
    """A client of Java, which gets a receipt for each SEND, with an open producer of a topic of its own."""
    async with raw_client(door.port()) as own:
        await own.connect(JAVA, (5, b"token"), (3, token("importer").encode()))
        await own.open_producer(topic=full(topic))
        yield own


def full(topic: str) -> bytes:
    return f"persistent://public/default/{topic}".encode()


def chunks(
    sequence_id: int, value: bytes = VALUE, *, sizes: int = 1_000_000, total: int | None = None, key: bytes = b"k",
    uuid: bytes = b"u",
) -> list[bytes]:  # fmt: skip
    """The SENDs of a message. sizes: of a chunk."""
    cut = [value[start : start + sizes] for start in range(0, len(value), sizes)]
    front = body((1, b"importer"), (2, sequence_id), (3, 5000), (6, key))
    made = []
    for number, data in enumerate(cut):
        of_chunk = field(26, uuid) + body((27, len(cut)), (28, len(value) if total is None else total), (29, number))
        sent = command(SEND, (1, 1), (2, sequence_id), (3, 1), (7, 1))
        made.append(frame(sent, entry(front + of_chunk, data)))
    return made


def small(sequence_id: int, value: bytes = b"small") -> bytes:
    sent = command(SEND, (1, 1), (2, sequence_id), (3, 1))
    return frame(sent, entry(body((1, b"importer"), (2, sequence_id), (3, 5000)), value))


async def answers(client: RawClient, count: int) -> list[Any]:
    """The place of each receipt, NOWHERE for one without, or the sentence of an error."""
    found: list[Any] = []
    for _ in range(count):
        got = await client.read()
        if got.name == "send_error":
            assert got.command.send_error.error == NOT_ALLOWED
            found.append(got.command.send_error.message)
        else:
            at = got.command.send_receipt.message_id
            found.append(NOWHERE if at.ledger_id == NOWHERE else (at.ledger_id, at.entry_id))
    return found


async def published(client: RawClient, sends: Sequence[bytes]) -> list[Any]:
    client.write(b"".join(sends))
    return await answers(client, len(sends))


async def stored(cluster: Cluster, files: Path, topic: str) -> list[bytes]:
    async with sdk(cluster, files) as own:
        reader = await own.create_reader(f"public/default/{topic}", start=oncelog.EARLIEST)
        end = await own.create_producer(f"public/default/{topic}", producer_name="end")
        last = await end.send(b"")
        found = []
        async for message in reader:
            if message.producer_name != "end":
                found.append(message.value)
            elif message.message_id == last.message_id:
                break
        return found


@pytest.mark.asyncio
async def test_all_receipts_have_the_place_of_the_message(
    cluster: Cluster, door: DoorProgram, files: Path, client: RawClient, topic: str
) -> None:
    """And a reader that starts there begins with it."""
    places = await published(client, [*chunks(7), small(8)])
    assert places[0] == places[1] == places[2]
    assert places[2] < places[3]
    async with connected(door, "billing") as reader:
        await reader.answer(subscribe(topic, Place(*places[0]).body()))
        got = [each.value for _, each in await received(reader, 4)]
        assert b"".join(got[:3]) == VALUE  # type: ignore[arg-type]
        assert got[3] == b"small"
    assert await stored(cluster, files, topic) == [VALUE, b"small"]


@pytest.mark.asyncio
@pytest.mark.parametrize("sizes", [1_000_000, 700_000, 1_500_001])
async def test_repeated_message_has_the_place_of_the_first_one(
    cluster: Cluster, files: Path, client: RawClient, topic: str, sizes: int
) -> None:
    """Whatever the sizes of its chunks are."""
    first = (await published(client, chunks(7)))[0]
    again = chunks(7, sizes=sizes, uuid=b"v")
    assert await published(client, again) == [first] * len(again)
    assert await stored(cluster, files, topic) == [VALUE]


@pytest.mark.asyncio
@pytest.mark.hazard("generator-goes-back")
@pytest.mark.parametrize(
    "other",
    [
        chunks(7, VALUE[:-1] + bytes([VALUE[-1] ^ 1])),
        chunks(7, bytes([VALUE[0] ^ 1]) + VALUE[1:]),
        chunks(7, VALUE + b"more", sizes=600_001),
        chunks(7, VALUE[:2_000_000]),
        chunks(7, key=b"other"),
        [small(7)],
    ],
    ids=["last-byte", "first-byte", "longer", "prefix", "key", "one-message"],
)
async def test_another_message_under_the_id_of_one_in_chunks_is_refused(
    cluster: Cluster, files: Path, client: RawClient, topic: str, other: list[bytes]
) -> None:
    await published(client, chunks(7))
    for said in await published(client, other):
        assert "another message is stored under one of them" in said
    assert await published(client, [small(8)]) != [NOWHERE]
    assert await stored(cluster, files, topic) == [VALUE, b"small"]


@pytest.mark.asyncio
async def test_message_that_was_stored_at_once_may_come_again_in_chunks(
    cluster: Cluster, files: Path, client: RawClient, topic: str
) -> None:
    """As after a change of the largest size; and the other way round."""
    whole = small(7, VALUE[:2_000_000])
    first = await published(client, [whole])
    again = chunks(7, VALUE[:2_000_000], key=b"")
    said = await published(client, again)
    assert said == first * 2 or "another message" in str(said), "a key that is empty is a key"
    no_key = [each.replace(field(6, b""), b"") for each in again]
    assert no_key != again
    in_chunks = chunks(8, VALUE[:1_500_000], sizes=1_000_000)
    place = (await published(client, in_chunks))[0]
    keyed = entry(body((1, b"importer"), (2, 8), (3, 5000), (6, b"k")), VALUE[:1_500_000])
    assert await published(client, [frame(command(SEND, (1, 1), (2, 8), (3, 1)), keyed)]) == [place]
    assert await stored(cluster, files, topic) == [VALUE[:2_000_000], VALUE[:1_500_000]]


@pytest.mark.asyncio
async def test_stale_message_is_refused(client: RawClient) -> None:
    await published(client, [small(9)])
    for said in await published(client, chunks(7)):
        assert "never stored" in said


@pytest.mark.asyncio
async def test_two_messages_at_once_are_refused_and_what_is_behind_them_is_stored(
    cluster: Cluster, files: Path, client: RawClient, topic: str
) -> None:
    """No client does that. Nothing is mixed, and nothing is stored of either."""
    one, two = chunks(7, uuid=b"one"), chunks(8, uuid=b"two")
    said = await published(client, [one[0], two[0], one[1], two[1], one[2], two[2], small(9)])
    refused = [each for each in said if isinstance(each, str)]
    assert len(refused) == 4
    assert all("without the chunks before it" in each for each in refused)
    assert await stored(cluster, files, topic) == [b"small"]


@pytest.mark.asyncio
@pytest.mark.parametrize("left", [[1, 2], [0, 2], [0, 1]], ids=["first", "middle", "last"])
async def test_message_that_lacks_a_chunk_is_not_stored(
    cluster: Cluster, files: Path, client: RawClient, topic: str, left: list[int]
) -> None:
    """It is sent again under its id as a whole, and then stored once."""
    sends = chunks(7)
    said = await published(client, [*(sends[number] for number in left), small(8)])
    assert said[-1] not in (NOWHERE, None)
    assert await stored(cluster, files, topic) == [b"small"]
    assert any("never stored" in str(each) for each in await published(client, sends))
    again = await published(client, chunks(9))
    assert len(set(again)) == 1
    assert (await stored(cluster, files, topic))[-1] == VALUE


@pytest.mark.asyncio
@pytest.mark.parametrize("total", [2_999_999, 3_000_001])
async def test_message_of_another_size_than_declared_is_not_stored(
    cluster: Cluster, files: Path, client: RawClient, topic: str, total: int
) -> None:
    said = await published(client, [*chunks(7, total=total), small(8)])
    assert "total_chunk_msg_size" in said[2]
    assert await stored(cluster, files, topic) == [b"small"]


@pytest.mark.asyncio
@pytest.mark.hazard("chunks-without-their-first")
async def test_client_that_waits_for_receipts_gets_them_and_goes_on(
    cluster: Cluster, files: Path, client: RawClient, topic: str
) -> None:
    """Its queue holds fewer messages than there are chunks. The last receipt still means the message."""
    sends = chunks(7)
    early = await published(client, sends[:1])
    early += await published(client, sends[1:2])
    [place] = await published(client, sends[2:])
    assert early[0] < early[1] < place
    assert await stored(cluster, files, topic) == [VALUE]


@pytest.mark.asyncio
@pytest.mark.hazard("chunks-without-their-first")
async def test_session_that_ends_between_chunks_makes_the_client_send_all_again(
    cluster: Cluster, door: DoorProgram, files: Path, client: RawClient, topic: str
) -> None:
    """The owner dies. No chunk has a receipt, and a client that comes back finds nothing stored."""
    sends = chunks(7)
    client.write(sends[0] + sends[1])
    await nothing_comes(client)
    owner = await cluster.owner_of(f"public/default/{topic}")

    async def two_are_stored() -> bool:
        """Chunks that the owner has not answered are sent to the next one, and the producer goes on."""
        ledger = (await cluster.stats(f"public/default/{topic}", "internalStats")).get("open_ledger", {})
        return bool(ledger and ledger["bytes"] > 2_000_000 and ledger["last_add_confirmed"] == ledger["entries"] - 1)

    await cluster.kill(owner, once=two_are_stored)
    assert (await client.read()).name == "close_producer"
    opened = await client.open_producer((8, 1), topic=full(topic))
    assert opened.last_sequence_id == -1
    again = await published(client, [*sends, small(8)])
    assert again[0] == again[1] == again[2] < again[3]
    assert await stored(cluster, files, topic) == [VALUE, b"small"]


@pytest.mark.asyncio
async def test_closing_while_the_last_chunk_is_on_its_way_waits_for_the_message(
    cluster: Cluster, files: Path, client: RawClient, topic: str
) -> None:
    client.write(b"".join(chunks(7)) + frame(command(CLOSE_PRODUCER, (1, 1), (2, 9))))
    places = await answers(client, 3)
    assert len(set(places)) == 1
    assert (await client.read()).name == "success"
    assert await stored(cluster, files, topic) == [VALUE]


@pytest.mark.asyncio
async def test_two_producers_of_one_connection_send_chunks_at_once(
    cluster: Cluster, files: Path, client: RawClient, topic: str
) -> None:
    """Uploads are those of producers."""
    await client.open_producer(producer_id=2, name=b"other", topic=full(topic))
    one = chunks(7)
    two = [_of_second(each) for each in chunks(7, VALUE[::-1])]
    client.write(b"".join(each for pair in zip(one, two, strict=True) for each in pair))
    places = await answers(client, 6)
    assert len(set(places)) == 2
    assert sorted(await stored(cluster, files, topic)) == sorted([VALUE, VALUE[::-1]])


def _of_second(sent: bytes) -> bytes:
    """The same SEND of producer 2, whose name is `other`."""
    at = sent.index(b"\x0e\x01")
    metadata_bytes = int.from_bytes(sent[at + 6 : at + 10], "big")
    metadata, data = sent[at + 10 : at + 10 + metadata_bytes], sent[at + 10 + metadata_bytes :]
    named = metadata.replace(field(1, b"importer"), field(1, b"other"))
    return frame(command(SEND, (1, 2), (2, 7), (3, 1), (7, 1)), entry(named, data))


@pytest.mark.asyncio
async def test_messages_of_the_sdk_in_chunks_reach_readers(
    cluster: Cluster, door: DoorProgram, files: Path, topic: str
) -> None:
    async with sdk(cluster, files) as own:
        producer = await own.create_producer(f"public/default/{topic}", chunking=True)
        value = VALUE * 2
        await producer.send(value, key=b"k", properties={"a": "b"})
        await producer.send(b"behind")
    async with connected(door, "billing") as reader:
        await reader.answer(subscribe(topic, EARLIEST))
        parts = -(-len(value) // (1024 * 1024))
        got = await asyncio.wait_for(received(reader, parts + 1), 60)
        assert b"".join(each.value or b"" for _, each in got[:-1]) == value
        assert {(each.key, each.properties["a"]) for _, each in got[:-1]} == {(b"k", "b")}
        assert got[-1][1].value == b"behind"


@pytest.mark.asyncio
async def test_client_with_a_small_queue_goes_on_after_refusals(
    cluster: Cluster, files: Path, client: RawClient, topic: str
) -> None:
    """It sends a chunk when it has an answer to the one before."""
    await published(client, [*chunks(7), small(9)])
    other = [(await published(client, [each]))[0] for each in chunks(7, VALUE[:-1] + bytes([VALUE[-1] ^ 1]))]
    assert other[:2] == [NOWHERE, NOWHERE]
    assert "another message is stored" in other[2]
    for each in chunks(5):
        [said] = await published(client, [each])
        assert "never stored" in said
    [place] = await published(client, [small(10)])
    assert place != NOWHERE
    assert await stored(cluster, files, topic) == [VALUE, b"small", b"small"]
