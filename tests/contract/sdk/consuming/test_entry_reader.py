"""The reader of whole entries, for gateways: over real gRPC, against the fake cluster."""

import asyncio

import pytest

import oncelog
from oncelog.client.gateways import EntryReader, EntryStart, StartEdge, StartTime, WholeEntry, open_entry_reader
from oncelog.core.errors import (
    EntriesLost,
    InvalidArgument,
    LedgerUnavailable,
    ReaderClosed,
    TopicNotFound,
    UnreadableEntry,
)
from oncelog.core.ids import EntryId, LedgerId, Position
from tests.cluster.until import until
from tests.contract.sdk.fakes.fake_cluster import FakeCluster
from tests.contract.sdk.fakes.fake_topic import LEDGER

pytest_plugins = ["tests.contract.sdk.fakes.client_fixtures"]
pytestmark = [pytest.mark.asyncio, pytest.mark.usefixtures("both_ways")]
DEADLINE_S = 30.0
#: Entry 0 is the grant of the producer; 1 to 5 have two messages each.
ENTRIES = 5


def at(entry_id: int, ledger_id: int = LEDGER) -> Position:
    return Position(LedgerId(ledger_id), EntryId(entry_id))


async def filled(client: oncelog.AsyncClient) -> oncelog.AsyncProducer:
    """Five entries of two messages."""
    producer = await client.create_producer("flights", producer_name="importer")
    for number in range(ENTRIES):
        await producer.send_many([b"a%d" % number, b"b%d" % number])
    return producer


async def opened(client: oncelog.AsyncClient, start: EntryStart, *, create: bool = True) -> EntryReader:
    return await open_entry_reader(
        client, "flights", start, create=create, window_bytes=1_000_000, timeout=DEADLINE_S
    )  # fmt: skip


async def taken(reader: EntryReader, count: int) -> list[WholeEntry]:
    found: list[WholeEntry] = []
    async with asyncio.timeout(DEADLINE_S):
        while len(found) < count:
            entry = reader.take()
            if entry is None:
                await reader.arrival()
            else:
                found.append(entry)
    return found


def places(entries: list[WholeEntry]) -> list[int]:
    return [each.stored.entry.entry_id for each in entries]


@pytest.mark.parametrize(
    ("start", "first", "before"),
    [
        (StartEdge.EARLIEST, 1, None),
        (StartEdge.LATEST, 6, at(5)),
        (at(3), 3, at(2)),
        (at(0), 1, at(-1)),
        (at(6), 6, at(5)),
        (StartTime(0), 1, at(0)),
        (StartTime(2**62), 6, at(5)),
    ],
)
async def test_start_is_an_entry_and_what_is_before_it_is_known(
    client: oncelog.AsyncClient, start: EntryStart, first: int, before: Position | None
) -> None:
    """Before the first entry is taken, so that "is there a message?" has an answer. Later ones change nothing."""
    producer = await filled(client)
    reader = await opened(client, start)
    assert reader.before == before
    await producer.send(b"later")
    entries = await taken(reader, 7 - first)
    assert places(entries) == list(range(first, 7))
    assert reader.before == before
    assert {each.producer_name for each in entries} == {"importer"}
    assert reader.take() is None
    reader.close()


async def test_time_in_the_middle(client: oncelog.AsyncClient, cluster: FakeCluster) -> None:
    """The place before it is that of its first entry."""
    await filled(client)
    topic = cluster.topic("flights")
    reader = await opened(client, StartTime(topic.entries[3][0].append_time_ms))
    assert reader.before == at(2)
    assert places(await taken(reader, 3)) == [3, 4, 5]


async def test_entry_is_whole_and_not_decoded(client: oncelog.AsyncClient) -> None:
    """Header, batch and body as they are stored."""
    await filled(client)
    [entry] = await taken(await opened(client, at(2)), 1)
    header, batch, body = entry.stored
    assert (header.position, header.count, header.base_index) == (at(2), 2, 2)
    assert (batch.first, batch.last, batch.bytes_total) == (2, 3, len(body))
    assert bytes(body).endswith(b"a1b1")


async def test_last_entry_is_that_of_the_last_message(client: oncelog.AsyncClient) -> None:
    """Not the one of a grant behind it; the reader itself does not move."""
    producer = await filled(client)
    reader = await opened(client, StartEdge.EARLIEST)
    await client.create_producer("flights", producer_name="another")
    for _ in range(2):
        last = await reader.last_entry()
        assert last is not None
        assert (last.stored.entry.position, last.producer_name) == (at(5), "importer")
    await producer.send(b"later")
    last = await reader.last_entry()
    assert last is not None
    assert last.stored.entry.position == at(7)
    assert places(await taken(reader, 6)) == [1, 2, 3, 4, 5, 7]


async def test_empty_topic_has_no_last_entry(client: oncelog.AsyncClient) -> None:
    """And a reader at its end begins with the first message."""
    await client.create_producer("flights")
    for start in (StartEdge.LATEST, StartEdge.EARLIEST, StartTime(2**62)):
        reader = await opened(client, start)
        assert (reader.before, await reader.last_entry()) == (None, None)
        reader.close()


async def test_missing_topic_is_created_or_not(client: oncelog.AsyncClient) -> None:
    """As the caller says."""
    with pytest.raises(TopicNotFound):
        await opened(client, StartEdge.EARLIEST, create=False)
    (await opened(client, StartEdge.EARLIEST)).close()
    (await opened(client, StartEdge.EARLIEST, create=False)).close()


async def test_partitioned_topic_is_refused(client: oncelog.AsyncClient, cluster: FakeCluster) -> None:
    """A gateway's client reads each partition."""
    cluster.partitioned["public/default/flights"] = 3
    with pytest.raises(InvalidArgument, match="partition"):
        await opened(client, StartEdge.EARLIEST)


async def test_id_of_a_former_topic_begins_at_the_first_message(client: oncelog.AsyncClient) -> None:
    """Ledger ids ascend in the whole cluster, so all is behind it. An id behind all that is here is lost."""
    await filled(client)
    reader = await opened(client, at(7, LEDGER - 1))
    assert places(await taken(reader, 5)) == [1, 2, 3, 4, 5]
    assert reader.before == at(6, LEDGER - 1)
    with pytest.raises(EntriesLost):
        await opened(client, at(0, LEDGER + 1))


async def test_place_that_cannot_be_read_fails_at_once(client: oncelog.AsyncClient, cluster: FakeCluster) -> None:
    """Where a reader begins. Farther behind, it fails when it gets there, and all before it is given."""
    await filled(client)
    topic = cluster.topic("flights")
    topic.unreadable.add(3)
    with pytest.raises(UnreadableEntry):
        await opened(client, at(3))
    reader = await opened(client, at(1))
    assert places(await taken(reader, 2)) == [1, 2]
    with pytest.raises(UnreadableEntry):
        await taken(reader, 1)
    assert isinstance(reader.failure, UnreadableEntry)


async def test_storage_that_is_away_is_told_and_waited_for(client: oncelog.AsyncClient, cluster: FakeCluster) -> None:
    """The reader goes on when it is back."""
    await filled(client)
    topic = cluster.topic("flights")
    topic.away.add(3)
    reader = await opened(client, at(1))
    assert places(await taken(reader, 2)) == [1, 2]
    with pytest.raises(LedgerUnavailable):
        await taken(reader, 1)
    topic.away.clear()
    assert reader.failure is None
    async with asyncio.timeout(DEADLINE_S):
        while (entry := reader.take()) is None:
            try:
                await reader.arrival()
            except LedgerUnavailable:
                continue
    assert places([entry]) == [3]


async def test_reader_survives_another_owner(client: oncelog.AsyncClient, cluster: FakeCluster) -> None:
    """Each entry once."""
    producer = await filled(client)
    reader = await opened(client, StartEdge.EARLIEST)
    assert places(await taken(reader, 3)) == [1, 2, 3]
    await cluster.take_over()
    await producer.send(b"later")
    assert places(await taken(reader, 3)) == [4, 5, 6]


async def test_closed_reader_says_so(client: oncelog.AsyncClient) -> None:
    """Also to a call that waits."""
    reader = await opened(client, StartEdge.EARLIEST)
    waiting = asyncio.ensure_future(reader.arrival())
    await until(lambda: not waiting.done(), DEADLINE_S)
    reader.close()
    with pytest.raises(ReaderClosed):
        await asyncio.wait_for(waiting, DEADLINE_S)
