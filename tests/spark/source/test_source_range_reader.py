"""Reading a range over real gRPC: from storage nodes, from an owner, through takeovers, and where messages are gone."""

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager

import pytest

import oncelog
from oncelog.core.errors import (
    DeadlineExceeded,
    NotFound,
    OncelogError,
    PermissionDenied,
    Unauthenticated,
    UnreadableEntry,
)
from oncelog.core.ids import EntryId, Incarnation
from oncelog.core.ledger.member_status import ReadStatus
from oncelog.rpc.codecs.reader_codec import StartIndex
from oncelog.rpc.codecs.storage_codec import DESCRIBE, READ, ReadFrame, ReadRequest
from oncelog.rpc.server import Server
from oncelog.wire.storage_pb2 import DescribeAnswer, DescribeRequest
from oncelog_spark.cluster import ClusterConnection
from oncelog_spark.options import ConnectionOptions
from oncelog_spark.source.offsets import ClosedLedger, Span, TaskRange
from oncelog_spark.source.range_reader import RangeReader
from tests.contract.sdk.fakes.fake_cluster import FakeCluster
from tests.contract.sdk.fakes.fake_topic import LEDGER, FakeTopic

pytestmark = pytest.mark.asyncio

FLIGHTS = "public/default/flights"
NODE = Incarnation("a" * 32)


class FakeStorage:
    """A storage node that holds the topic's entries, as far as it may be asked."""

    def __init__(self, topic: FakeTopic) -> None:
        self._topic = topic
        self.reads: list[ReadRequest] = []
        self.refusal: OncelogError | None = None
        #: it lacks the entries from here on
        self.lacks_from = 2**31
        self.erased = False
        self.address = ""

    async def describe(self, _request: DescribeRequest) -> DescribeAnswer:
        if self.refusal is not None:
            raise self.refusal
        return DescribeAnswer()

    async def read(self, request: ReadRequest) -> AsyncIterator[ReadFrame]:
        self.reads.append(request)
        if self.erased:
            yield ReadFrame(ReadStatus.ERASED, [], [], ())
            return
        wanted = range(request.first_entry, request.first_entry + request.entries_max)
        held = [EntryId(n) for n in wanted if n < min(self.lacks_from, len(self._topic.entries))]
        entries = [self._topic.entries[entry_id][1] for entry_id in held]
        yield ReadFrame(ReadStatus.OK, held, [EntryId(n) for n in wanted if n not in held], (), entries=entries)

    def ledger(self, end: int) -> ClosedLedger:
        return ClosedLedger(LEDGER, 0, end, EntryId(len(self._topic.entries) - 1), ((NODE, self.address),))


@asynccontextmanager
async def a_log(counts: list[int]) -> AsyncIterator[tuple[FakeCluster, FakeStorage]]:
    """A topic whose entries hold so many messages of importers 0 and 1 in turns, "0", "1", "2" …"""
    async with FakeCluster.running() as cluster, asyncio.timeout(120):
        async with await oncelog.connect(cluster.url, operation_timeout=60) as client:
            producers = [await client.create_producer("flights", producer_name=f"importer-{n}") for n in range(2)]
            number = 0
            for turn, count in enumerate(counts):
                values = [b"%d" % value for value in range(number, number + count)]
                await producers[turn % 2].send_many(values)
                number += count
        storage = FakeStorage(cluster.topic("flights"))
        server = Server()
        server.read(READ, storage.read)
        server.unary(DESCRIBE, storage.describe)
        storage.address = f"127.0.0.1:{await server.start()}"
        cluster.knobs.members = ((NODE, storage.address),)
        try:
            yield cluster, storage
        finally:
            await server.stop(grace_ms=0)


async def read(
    cluster: FakeCluster,
    first: int,
    end: int,
    *closed: ClosedLedger,
    fail_on_data_loss: bool = True,
    patience_ms: int = 20_000,
    skip_corrupt: bool = False,
) -> list[tuple[int, str | None]]:
    """(number, producer) of the messages that were found."""
    span = Span(FLIGHTS, cluster.topic("flights").topic_id, first, end)
    found: list[tuple[int, str | None]] = []
    async with ClusterConnection(ConnectionOptions(cluster.url), patience_ms=patience_ms) as connection:
        reader = RangeReader(
            connection, TaskRange(span, closed), fail_on_data_loss=fail_on_data_loss, skip_corrupt=skip_corrupt
        )
        async with aclosing(reader.entries()) as entries:
            async for (entry, _, _), name in entries:
                numbers = range(max(first, entry.base_index), min(end, entry.next_index))
                assert numbers, "an entry was given that holds nothing of the range"
                found += [(number, name) for number in numbers]
    return found


def expected(first: int, end: int, size: int) -> list[tuple[int, str | None]]:
    return [(n, f"importer-{n // size % 2}") for n in range(first, end)]


@pytest.mark.parametrize(("first", "end"), [(0, 20), (3, 17), (7, 8), (19, 20)])
@pytest.mark.parametrize("direct", [True, False])
async def test_a_range_is_read_from_storage_nodes_or_the_owner(first: int, end: int, direct: bool) -> None:
    """The same messages with the same producer names, and each from one of them only."""
    async with a_log([5, 5, 5, 5]) as (cluster, storage):
        cluster.seen.starts.clear()
        closed = [storage.ledger(20)] if direct else []
        assert await read(cluster, first, end, *closed) == expected(first, end, 5)
        assert cluster.seen.starts == ([] if direct else [StartIndex(first)])
        assert bool(storage.reads) is direct


async def test_the_open_tail_is_read_from_the_owner() -> None:
    """From exactly the end of the closed ledger on."""
    async with a_log([5, 5]) as (cluster, storage):
        closed = storage.ledger(10)
        async with await oncelog.connect(cluster.url, operation_timeout=60) as client:
            await (await client.create_producer("flights", producer_name="late")).send_many([b"x", b"y"])
        cluster.seen.starts.clear()
        assert await read(cluster, 2, 12, closed) == [*expected(2, 10, 5), (10, "late"), (11, "late")]
        assert cluster.seen.starts == [StartIndex(10)]


async def test_an_entry_inside_a_ledger_is_found_in_few_reads() -> None:
    """A task may begin anywhere in a ledger of tens of thousands of entries."""
    async with a_log([1] * 100) as (cluster, storage):
        assert await read(cluster, 77, 78, storage.ledger(100)) == expected(77, 78, 1)
        heads = [one for one in storage.reads if one.headers_only]
        assert 0 < len(heads) <= 8
        assert len(storage.reads) == len(heads) + 1


async def test_a_ledger_from_its_beginning_needs_no_search() -> None:
    """The common case, and each read of the search waits for the one before."""
    async with a_log([1] * 100) as (cluster, storage):
        assert await read(cluster, 0, 100, storage.ledger(100)) == expected(0, 100, 1)
        assert [one.headers_only for one in storage.reads] == [False]


@pytest.mark.parametrize("refusal", [PermissionDenied("no superuser"), Unauthenticated("no token")])
async def test_a_caller_without_access_to_storage_nodes_reads_from_the_owner(
    refusal: OncelogError, caplog: pytest.LogCaptureFixture
) -> None:
    """Only the owner knows the right to read a topic; that reading is slower is logged."""
    async with a_log([5, 5]) as (cluster, storage):
        storage.refusal = refusal
        with caplog.at_level(logging.WARNING):
            assert await read(cluster, 0, 10, storage.ledger(10)) == expected(0, 10, 5)
        assert storage.reads == []
        assert "read from the topic owner" in caplog.text


@pytest.mark.hazard("answer-of-a-former-member")
@pytest.mark.parametrize("answer", ["erased", "missing", "away"])
async def test_members_that_repair_has_replaced_are_not_believed(answer: str) -> None:
    """The plan of an export or a query may be older than a swap. The present member is read, not the owner."""
    async with a_log([5, 5, 5]) as (cluster, storage):
        former = FakeStorage(cluster.topic("flights"))
        former.lacks_from, former.erased = 3, answer == "erased"
        server = Server()
        server.read(READ, former.read)
        server.unary(DESCRIBE, former.describe)
        former.address = "" if answer == "away" else f"127.0.0.1:{await server.start()}"
        closed = storage.ledger(15)._replace(members=((Incarnation("b" * 32), former.address),))
        cluster.seen.starts.clear()
        try:
            for first, end in ((0, 15), (7, 13)):
                assert await read(cluster, first, end, closed) == expected(first, end, 5)
        finally:
            await server.stop(grace_ms=0)
        assert cluster.seen.starts == []


async def test_the_owner_is_read_while_storage_nodes_are_away(caplog: pytest.LogCaptureFixture) -> None:
    """They are down, or unreachable from an executor: the metadata service has no other address for them."""
    async with a_log([5, 5]) as (cluster, storage):
        away = (NODE, "127.0.0.1:1")
        cluster.knobs.members = (away,)
        with caplog.at_level(logging.WARNING, logger="oncelog_spark.source.range_reader"):
            assert await read(cluster, 0, 10, storage.ledger(10)._replace(members=(away,))) == expected(0, 10, 5)
        assert "read from the topic owner" in caplog.text


async def test_entries_that_storage_nodes_lack_are_read_from_the_owner() -> None:
    """From where they stopped: nothing twice, nothing missing."""
    async with a_log([5, 5, 5]) as (cluster, storage):
        storage.lacks_from = 3  # grants are entries, too
        cluster.seen.starts.clear()
        assert await read(cluster, 0, 15, storage.ledger(15)) == expected(0, 15, 5)
        assert cluster.seen.starts == [StartIndex(5)]


async def test_reading_continues_through_a_takeover() -> None:
    """From the message after the last that arrived."""
    async with a_log([5, 5]) as (cluster, _):
        await cluster.kill_owner()
        reading = asyncio.ensure_future(read(cluster, 0, 10))
        await cluster.take_over()
        assert await reading == expected(0, 10, 5)


async def test_an_owner_with_fewer_messages_is_asked_again_until_the_deadline() -> None:
    """A deposed owner has an older end: the range is not shortened, the task fails, and Spark retries it."""
    async with a_log([5]) as (cluster, _):
        with pytest.raises(DeadlineExceeded, match="message 5"):
            await read(cluster, 0, 9, patience_ms=200)


@pytest.mark.parametrize("first", [0, 3, 5])
async def test_messages_trimmed_meanwhile_are_never_skipped_silently(
    first: int, caplog: pytest.LogCaptureFixture
) -> None:
    """Between planning and reading; if allowed, the loss is logged."""
    async with a_log([5, 5, 5]) as (cluster, _):
        del cluster.topic("flights").entries[:4]  # two grants, and the messages 0 to 9
        with pytest.raises(NotFound, match=rf"messages {first} to 9 .*failOnDataLoss"):
            await read(cluster, first, 15)
        with caplog.at_level(logging.WARNING):
            assert await read(cluster, first, 15, fail_on_data_loss=False) == expected(10, 15, 5)
        assert f"messages {first} to 9" in caplog.text
        assert await read(cluster, 0, 10, fail_on_data_loss=False) == []


async def test_only_messages_before_a_closed_ledger_are_read_from_the_owner() -> None:
    """From the ledger's first message on, storage nodes are used again."""
    async with a_log([5, 5, 5]) as (cluster, storage):
        later = storage.ledger(15)._replace(first=5)
        assert await read(cluster, 0, 15, later) == expected(0, 15, 5)
        assert storage.reads


async def test_a_topic_created_anew_is_another_one() -> None:
    """Its messages have the same numbers, but are not those that were planned."""
    async with a_log([5]) as (cluster, _):
        span = Span(FLIGHTS, cluster.topic("flights").topic_id, 0, 5)
        del cluster.topics[FLIGHTS]
        async with await oncelog.connect(cluster.url, operation_timeout=60) as client:
            await (await client.create_producer("flights")).send_many([b"x"] * 5)
        async with ClusterConnection(ConnectionOptions(cluster.url)) as connection:
            with pytest.raises(NotFound, match="deleted"):
                await anext(RangeReader(connection, TaskRange(span), fail_on_data_loss=True).entries())
            with pytest.raises(StopAsyncIteration):
                await anext(RangeReader(connection, TaskRange(span), fail_on_data_loss=False).entries())


@pytest.mark.parametrize(
    ("first", "at", "kept"), [(0, 4, (0, 10, 15, 20)), (0, 5, (0, 15)), (7, 3, (10, 20)), (10, 3, (10, 20))]
)
async def test_an_entry_whose_copies_are_all_damaged_is_skipped(first: int, at: int, kept: tuple[int, ...]) -> None:
    """Entries 0 and 1 are grants, then come 0-4, 5-9, 10-14 and 15-19. Also the last one; later messages keep their
    numbers, and nothing counts as trimmed."""
    async with a_log([5, 5, 5, 5]) as (cluster, _):
        topic = cluster.topic("flights")
        topic.unreadable = {at}
        found = await read(cluster, first, 20, skip_corrupt=True)
        ranges = [expected(low, high, 5) for low, high in zip(kept[::2], kept[1::2], strict=True)]
        assert found == [each for part in ranges for each in part]
        with pytest.raises(UnreadableEntry, match="onCorrupt=skip"):
            await read(cluster, 0, 20)


async def test_an_unreadable_entry_met_by_the_search_is_not_taken_for_the_wanted_one() -> None:
    """The owner searches a number by halves; an entry that it meets there may be far behind the wanted one."""
    async with a_log([5, 5, 5, 5]) as (cluster, _):
        topic = cluster.topic("flights")
        topic.unreadable = {4}
        topic.search_meets = 4
        assert await read(cluster, 7, 20, skip_corrupt=True) == [*expected(7, 10, 5), *expected(15, 20, 5)]
