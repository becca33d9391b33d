"""Where a reader of a topic begins and how far it may go, over logs of several ledgers."""

import pytest

from oncelog.core.errors import LogHole
from oncelog.core.ids import BEFORE_ALL, Position
from oncelog.core.topic.topic import Phase
from oncelog.rpc.codecs.reader_codec import StartAt, StartEdge, StartIndex, StartMessage, StartTime
from tests.contract.owner.reading.shown_log import NODE, ShownLog, at


def log_of_two() -> ShownLog:
    """1:0 1:1 1:2 closed, 4:0 4:1 open; a grant at 1:0; two messages an entry; a second between two entries."""
    log = ShownLog()
    log.open_ledger(1)
    for number, count in enumerate((0, 2, 2)):
        log.add(count, time_ms=1000 * number)
    log.open_ledger(4)
    for number in (3, 4):
        log.add(2, time_ms=1000 * number)
    return log


async def walk(log: ShownLog, start: StartAt) -> list[tuple[int, int, int]]:
    """(ledger, first, last) of each range that a reader would get."""
    view = log.view
    following, _ = await view.start_of(start)
    ranges: list[tuple[int, int, int]] = []
    while True:
        following, entries = await view.next_range(following)
        if entries is None:
            return ranges
        ranges.append((entries.metadata.ledger_id, entries.first, entries.last))
        following = at(entries.metadata.ledger_id, entries.last + 1)


@pytest.mark.asyncio
@pytest.mark.parametrize(
    ("start", "ranges"),
    [
        (StartEdge.EARLIEST, [(1, 0, 2), (4, 0, 1)]),
        (StartEdge.LATEST, []),
        (StartMessage(at(1, 2), 0, inclusive=True), [(1, 2, 2), (4, 0, 1)]),
        (StartMessage(at(1, 3), 0, inclusive=True), [(4, 0, 1)]),
        (StartMessage(at(2, 0), 0, inclusive=True), [(4, 0, 1)]),
        (StartTime(0), [(1, 0, 2), (4, 0, 1)]),
        (StartTime(1000), [(1, 1, 2), (4, 0, 1)]),
        (StartTime(1001), [(1, 2, 2), (4, 0, 1)]),
        (StartTime(2001), [(4, 0, 1)]),
        (StartTime(4000), [(4, 1, 1)]),
        (StartTime(4001), []),
        (StartIndex(0), [(1, 1, 2), (4, 0, 1)]),
        (StartIndex(3), [(1, 2, 2), (4, 0, 1)]),
        (StartIndex(4), [(4, 0, 1)]),
        (StartIndex(7), [(4, 1, 1)]),
        (StartIndex(8), []),
        (StartIndex(2**64 - 1), []),
    ],
)
async def test_reading_starts_at_the_requested_position(start: StartAt, ranges: list[tuple[int, int, int]]) -> None:
    """It continues over the ends of ledgers, up to the last confirmed entry."""
    assert await walk(log_of_two(), start) == ranges


@pytest.mark.asyncio
@pytest.mark.parametrize(("inclusive", "first"), [(True, 1), (False, 2)])
async def test_start_at_a_message_id_inside_an_entry(inclusive: bool, first: int) -> None:
    """Both messages of an entry have the same position; the batch index distinguishes them."""
    assert await log_of_two().view.start_of(StartMessage(at(1, 1), 1, inclusive)) == (at(1, 1), first)


@pytest.mark.asyncio
@pytest.mark.parametrize(("number", "position", "first"), [(3, at(1, 2), 1), (4, at(4, 0), 2), (5, at(4, 0), 3)])
async def test_start_at_an_index_inside_an_entry(number: int, position: Position, first: int) -> None:
    """Messages that an entry repeats have no index and are skipped."""
    log = ShownLog()
    log.open_ledger(1)
    log.add(0, 2, 2)
    log.open_ledger(4)
    log.add(2, skip_first=2)
    assert await log.view.start_of(StartIndex(number)) == (position, first)


@pytest.mark.asyncio
async def test_start_at_a_trimmed_index_continues_with_the_next_kept_message() -> None:
    """Also if its ledger is trimmed during the search."""
    log = log_of_two()
    log.trim(1)
    assert await walk(log, StartIndex(1)) == [(4, 0, 1)]
    other = log_of_two()
    other.trimmed_on_read = 1
    assert await walk(other, StartIndex(1)) == [(4, 0, 1)]


@pytest.mark.asyncio
@pytest.mark.parametrize("start", [StartEdge.LATEST, StartTime(9_000), StartIndex(8), StartIndex(9)])
async def test_messages_after_a_start_at_the_end_are_read(start: StartAt) -> None:
    """Also if the next message is the first of another ledger."""
    log = log_of_two()
    following, _ = await log.view.start_of(start)
    log.open_ledger(5)
    log.add(1, time_ms=10_000)
    _, entries = await log.view.next_range(following)
    assert entries is not None
    assert (entries.metadata.ledger_id, entries.first) == (5, 0)


@pytest.mark.asyncio
async def test_unconfirmed_entries_are_not_read() -> None:
    """The open ledger ends at last_add_confirmed, whatever storage nodes hold."""
    log = log_of_two()
    log.progress.moved(at(4, 0))
    assert await walk(log, StartEdge.EARLIEST) == [(1, 0, 2), (4, 0, 0)]
    log.progress.moved(at(1, 2))
    assert await walk(log, StartEdge.EARLIEST) == [(1, 0, 2)]


@pytest.mark.asyncio
async def test_start_by_time_or_index_needs_few_reads() -> None:
    """A binary search: a ledger has tens of thousands of entries."""
    log = ShownLog()
    log.open_ledger(1)
    for number in range(1000):
        log.add(1, time_ms=number)
    for start in (StartTime(777), StartIndex(777)):
        log.reads.clear()
        following, _ = await log.view.start_of(start)
        assert following == at(1, 777)
        assert len(log.reads) <= 12
    assert all(read.headers_only for read in log.reads)


@pytest.mark.asyncio
async def test_ledger_trimmed_during_a_read_is_skipped() -> None:
    """A ledger leaves the list before its record is deleted, so a missing record means that the list must be read
    again."""
    log = log_of_two()
    log.trimmed_on_read = 1
    following, entries = await log.view.next_range(at(1, 0))
    assert entries is not None
    assert following == at(4, 0)


@pytest.mark.asyncio
async def test_listed_ledger_without_a_record_is_a_hole() -> None:
    """Acknowledged messages must not be skipped silently."""
    log = log_of_two()
    del log.records[log.core.ownership.record.ledgers[0].ledger_id]
    with pytest.raises(LogHole):
        await walk(log, StartEdge.EARLIEST)


@pytest.mark.asyncio
async def test_last_message_is_found_before_control_entries_and_empty_ledgers() -> None:
    """Grants may follow it, and a new ledger has no entry."""
    log = log_of_two()
    log.add(0, 0)
    log.open_ledger(5)
    log.add(0)
    log.open_ledger(6)
    found = await log.view.last_message()
    assert found is not None
    position, header = found
    assert (position, header.count) == (at(4, 1), 2)


@pytest.mark.asyncio
async def test_log_without_messages_has_no_last_message() -> None:
    """Producers were opened on the topic, and nothing was published."""
    log = ShownLog()
    assert await log.view.last_message() is None
    log.open_ledger(1)
    assert log.progress.confirmed == BEFORE_ALL
    assert await log.view.last_message() is None
    log.add(0, 0)
    assert await log.view.last_message() is None


@pytest.mark.asyncio
async def test_only_records_of_closed_ledgers_are_cached() -> None:
    """CLOSED is final. A reader at the end must notice when the open ledger is closed."""
    log = log_of_two()
    view = log.view
    assert (await view.next_range(at(4, 2)))[1] is None
    log.open_ledger(5)
    end: Position = log.add(1)
    following, entries = await view.next_range(at(4, 2))
    assert (following, entries is not None) == (end, True)
    log.records.clear()
    _, entries = await view.next_range(at(4, 0))
    assert entries is not None
    assert entries.metadata.members == (NODE,)


@pytest.mark.asyncio
async def test_view_does_not_depend_on_the_phase_of_the_topic() -> None:
    """The read stream ends a reader, not the view."""
    log = log_of_two()
    log.end(Phase.DEPOSED)
    assert await walk(log, StartEdge.EARLIEST) == [(1, 0, 2), (4, 0, 1)]
