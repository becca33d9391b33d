"""Readers of a client of Pulsar in front of a cluster of real processes."""

from pathlib import Path
from random import Random

import httpx
import pytest

import oncelog
from tests.cluster.cluster_fixture import Cluster
from tests.cluster.kills import just_seen, kill
from tests.doors.cluster.conftest import NewDoor
from tests.doors.cluster.door_client import (
    EARLIEST,
    LATEST,
    NO_BATCH_INDEX,
    NOT_ALLOWED,
    NOT_FOUND,
    UNAUTHORIZED,
    Place,
    batch,
    connected,
    published,
    received,
    received_entry,
    received_until,
    sdk,
    topic,
)
from tests.doors.cluster.door_program import DoorProgram
from tests.doors.pulsar.bytes_of_clients import SUBSCRIBE, command, frame
from tests.doors.pulsar.entries_at_clients import Got

SEEK, LAST_ID = 28, 29


def subscribe(name: str, start: bytes, *more: tuple[int, int | bytes]) -> bytes:
    return frame(
        command(SUBSCRIBE, (1, topic(name)), (2, b"reader"), (3, 0), (4, 1), (5, 50), (8, 0), (9, start), *more)
    )


@pytest.mark.asyncio
async def test_reader_gets_messages_of_the_sdk_and_of_clients_of_pulsar(
    cluster: Cluster, door: DoorProgram, files: Path
) -> None:
    """In the order of the log, each as its producer sent it; a known prefix of a batch is not among them."""
    async with sdk(cluster, files) as client:
        producer = await client.create_producer("read", producer_name="native")
        await producer.send(b"one", sequence_id=7, key=b"\xff", properties={"a": "b"}, event_time_ms=99)
        await producer.send_many([b"two", b"three"], sequence_ids=[8, 10], keys=[b"k", None])
    await published(door, "read", [(1, 2), (1, 2, 3)])
    async with connected(door, "billing") as reader:
        assert (await reader.answer(subscribe("read", EARLIEST))).request_id == 50
        found = [each for _, each in await received(reader, 6)]
    assert found == [
        Got(7, b"one", b"/w==", key_in_base64=True, event_time=99, properties={"a": "b"}),
        Got(8, b"two", b"k"),
        Got(10, b"three"),
        Got(1, b"pulsar 1"),
        Got(2, b"pulsar 2"),
        Got(3, b"pulsar 3"),
    ]


@pytest.mark.asyncio
@pytest.mark.hazard("reader-start", "place-of-another-batch")
async def test_reader_that_starts_at_any_id_that_a_send_has_returned_skips_nothing(door: DoorProgram) -> None:
    """The client counts the messages of a batch from the place in its receipt. A receipt without a place means the
    first message."""
    batches = [(0, 1, 2), (3, 4), (3, 4), (4, 5, 6), (7,)]
    receipts = await published(door, "starts", batches)
    for ids, receipt in zip(batches, receipts, strict=True):
        for index, number in enumerate(ids):
            start = Place(receipt.ledger_id, receipt.entry_id, index)
            async with connected(door, "billing") as reader:
                await reader.answer(subscribe("starts", start.body()))
                got = await received_until(reader, 7)
            wanted = [each.sequence_id for place, each in got if place > start or receipt.ledger_id >= 2**63]
            assert wanted == list(range(0 if receipt.ledger_id >= 2**63 else number + 1, 8)), (number, receipt)


@pytest.mark.asyncio
@pytest.mark.hazard("last-id-of-no-message")
async def test_last_id_is_that_of_the_last_message(cluster: Cluster, door: DoorProgram, files: Path) -> None:
    """Grants stand behind it in the log, and a batch is cut: a reader that reads up to it has all, and waits for no
    other."""
    ask = frame(command(LAST_ID, (1, 1), (2, 70)))
    await published(door, "ends", [(1, 2), (1, 2, 3)])
    async with sdk(cluster, files) as client, connected(door, "billing") as reader:
        await client.create_producer("ends", producer_name="silent")
        await reader.answer(subscribe("ends", LATEST))
        answer = await reader.answer(ask)
        last = Place(answer.message_id.ledger_id, answer.message_id.entry_id, answer.message_id.batch_index)
        assert (answer.mark_delete.ledger_id, answer.mark_delete.entry_id) == last[:2]
        await reader.answer(subscribe("ends", EARLIEST))
        assert (await received(reader, 3))[-1][0] == last
        await (await client.create_producer("ends")).send(b"alone")
        [(place, got)] = await received_entry(reader)
        assert got.value == b"alone"
        answer = (await reader.answer(ask)).message_id
        assert (answer.ledger_id, answer.entry_id, answer.batch_index) == (*place[:2], NO_BATCH_INDEX)


@pytest.mark.asyncio
async def test_empty_topic_has_no_last_id(door: DoorProgram) -> None:
    """A reader at its end gets the first message."""
    async with connected(door, "importer") as client:
        await client.open_producer(topic=topic("empty"))
        async with connected(door, "billing") as reader:
            await reader.answer(subscribe("empty", LATEST))
            answer = (await reader.answer(frame(command(LAST_ID, (1, 1), (2, 70))))).message_id
            assert (answer.ledger_id, answer.entry_id) == (2**64 - 1, 2**64 - 1)
            await client.answer(batch([1]))
            assert [each.sequence_id for _, each in await received(reader, 1)] == [1]


@pytest.mark.asyncio
@pytest.mark.hazard("seek-behind-old-messages")
async def test_seek_by_id_and_by_time(cluster: Cluster, door: DoorProgram, files: Path) -> None:
    """The client comes back to the place, on whatever it names as its start."""
    await published(door, "sought", [(1,), (2, 3), (4,)])
    async with sdk(cluster, files) as client:
        times_ms = await append_times(client, "sought", 4)
    async with connected(door, "billing") as reader:
        await reader.answer(subscribe("sought", EARLIEST))
        first = (await received(reader, 4))[1][0]
        for place, expected in (((3, first.body()), [2, 3, 4]), ((4, times_ms[3]), [4])):
            reader.write(frame(command(SEEK, (1, 1), (2, 60), place)))
            assert [(await reader.read()).name for _ in range(2)] == ["close_consumer", "success"]
            await reader.answer(subscribe("sought", EARLIEST))
            got = [each.sequence_id for _, each in await received_until(reader, 4)]
            assert got[-len(expected) :] == expected
            if place[0] == 3:
                assert got == expected


async def append_times(client: oncelog.AsyncClient, name: str, count: int) -> list[int]:
    """Of the first messages."""
    found: list[int] = []
    async with await client.create_reader(name, start=oncelog.EARLIEST) as reader:
        while len(found) < count:
            batch = await reader.read_batch()
            found += [batch.append_time_ms] * len(batch)
    return found


@pytest.mark.asyncio
async def test_rights_are_those_of_the_role(cluster: Cluster, door: DoorProgram) -> None:
    """The right to consume reads, and does not create; a role without it learns nothing."""
    await published(door, "read-rights", [(1,)])
    async with connected(door, "importer") as reader:
        assert (await reader.answer(subscribe("read-rights", EARLIEST))).error == UNAUTHORIZED
    async with connected(door, "billing") as reader:
        assert (await reader.answer(subscribe("missing", EARLIEST))).error == NOT_FOUND
        assert (await reader.answer(subscribe("read-rights", EARLIEST))).request_id == 50
    async with connected(door, "root") as reader:
        assert (await reader.answer(subscribe("made-by-root", EARLIEST))).request_id == 50


@pytest.mark.asyncio
async def test_reader_goes_on_at_another_door(new_door: NewDoor) -> None:
    """From the last message that it has; the door keeps nothing."""
    with new_door() as one, new_door() as other:
        await published(one, "read-on", [(1,), (2, 3), (4,)])
        async with connected(one, "billing") as reader:
            await reader.answer(subscribe("read-on", EARLIEST))
            last = (await received_until(reader, 4))[1]
            assert last[1].sequence_id == 2
            await kill(one.process, once=just_seen)
            await reader.names_until_closed()
        async with connected(other, "billing") as reader:
            await reader.answer(subscribe("read-on", last[0].body()))
            got = [each.sequence_id for place, each in await received_until(reader, 4) if place > last[0]]
            assert got == [3, 4]


@pytest.mark.asyncio
async def test_reader_of_a_deleted_topic_is_closed(cluster: Cluster, door: DoorProgram) -> None:
    """When it comes back, it learns why."""
    await published(door, "deleted", [(1,)])
    async with connected(door, "billing") as reader:
        await reader.answer(subscribe("deleted", EARLIEST))
        await received(reader, 1)
        path = "/admin/v2/persistent/public/default/deleted"
        answer: httpx.Response = await cluster.request("DELETE", path)
        answer.raise_for_status()
        assert (await reader.read()).name == "close_consumer"
        assert (await reader.answer(subscribe("deleted", EARLIEST, (15, 0)))).error == NOT_FOUND


@pytest.mark.asyncio
async def test_message_that_is_too_large_stops_the_reader(cluster: Cluster, door: DoorProgram, files: Path) -> None:
    """It is never left out: the client gets its place and its size, there and at each further attempt."""
    async with sdk(cluster, files) as client, connected(door, "billing") as reader:
        producer = await client.create_producer("large")
        await producer.send(b"small")
        at = (await producer.send(Random(1).randbytes(5_240_000))).message_id
        assert at is not None
        await producer.send(b"behind")
        await reader.answer(subscribe("large", EARLIEST))
        [(place, got)] = await received(reader, 1)
        assert got.value == b"small"
        assert (await reader.read()).name == "close_consumer"
        for _ in range(2):
            refused = await reader.answer(subscribe("large", Place(at.ledger_id, at.entry_id).body()))
            assert refused.error == NOT_ALLOWED
            assert "at most 5238784 are delivered" in refused.message
        await reader.answer(subscribe("large", Place(at.ledger_id, at.entry_id + 1).body()))
        assert [each.value for _, each in await received(reader, 1)] == [b"behind"]
        assert place[:2] < (at.ledger_id, at.entry_id)
