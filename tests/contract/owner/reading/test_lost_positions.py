"""Positions of a part of the log that was lost: they are told, and never taken for the beginning or for the future."""

from dataclasses import replace
from typing import cast

import pytest

from oncelog.core.access import Caller
from oncelog.core.errors import EntriesLost, NotOwner, UnreadableEntry
from oncelog.core.ids import EntryId, LedgerId, Position
from oncelog.rpc.codecs.reader_codec import StartAt, StartEdge, StartIndex, StartMessage, StartTime
from oncelog.topic_owner.shell.topic_registry import TopicRegistry
from oncelog.topic_owner.streams.chunk_service import ChunkService
from oncelog.wire import owner_pb2 as pb
from tests.contract.owner.reading.shown_log import TOPIC, TOPIC_ID, ShownLog, at, read_serving, reading
from tests.contract.owner.reading.test_topic_owner_log_view import log_of_two, walk

pytestmark = [pytest.mark.asyncio, pytest.mark.hazard("position-of-a-lost-part")]
SUPERUSER = Caller(role="admin", superuser=True)


def place(ledger_id: int, entry_id: int, *, behind: bool = False) -> StartMessage:
    return StartMessage(at(ledger_id, entry_id), 0, inclusive=not behind)


def following(error: EntriesLost) -> Position:
    ledger_id, entry_id = error.details["next_ledger_id"], error.details["next_entry_id"]
    assert isinstance(ledger_id, int)
    assert isinstance(entry_id, int)
    assert f"The log goes on at {ledger_id}:{entry_id}" in error.message
    return Position(LedgerId(ledger_id), EntryId(entry_id))


@pytest.mark.parametrize(
    ("start", "goes_on"),
    [
        (place(2, 7), at(4, 0)),
        (place(2, 0, behind=True), at(4, 0)),
        (place(9, 3), at(4, 2)),
        (place(9, 0, behind=True), at(4, 2)),
        (place(1, 4), at(4, 0)),
        (place(1, 3, behind=True), at(4, 0)),
    ],
)
async def test_position_that_no_list_has_is_lost_and_names_the_next_one(start: StartMessage, goes_on: Position) -> None:
    """Between two ledgers, above all of them, and behind the end of a closed one; for readers, consumers and seeks."""
    log = log_of_two()
    with pytest.raises(EntriesLost) as raised:
        await log.view.start_of(start)
    assert following(raised.value) == goes_on
    with pytest.raises(EntriesLost):
        await log.view.index_of(start)
    if goes_on == at(4, 0):
        assert await walk(log, place(*goes_on)) == [(4, 0, 1)]
    else:
        log.add(1)
        assert await walk(log, place(*goes_on)) == [(4, 2, 2)]


async def test_front_of_the_log_that_was_lost_is_no_trim() -> None:
    """The floor says what was trimmed. A log whose first ledgers are lost begins above it."""
    log = log_of_two()
    log.trim(1)
    assert await walk(log, place(1, 1)) == [(4, 0, 1)]
    log = log_of_two()
    record = log.core.ownership.record
    log.core.ownership.record = replace(record, ledgers=record.ledgers[1:], deleted_below=LedgerId(1))
    with pytest.raises(EntriesLost) as raised:
        await log.view.start_of(place(1, 1))
    assert following(raised.value) == at(4, 0)
    assert await walk(log, place(0, 5)) == [(4, 0, 1)]


@pytest.mark.parametrize("trimmed", [False, True])
async def test_log_begins_at_its_first_ledger_although_the_front_of_it_is_lost(trimmed: bool) -> None:
    """A subscription is created there, and its consumers are told what they miss, or skip it."""
    log = log_of_two()
    log.unreadable = {at(1, 0), at(1, 1), at(4, 0)}
    if trimmed:
        log.trim(1)
    assert await log.view.index_of(StartEdge.EARLIEST) == (4 if trimmed else 0)


async def test_log_that_has_lost_all_ledgers_is_no_empty_log() -> None:
    log = ShownLog()
    with pytest.raises(EntriesLost) as raised:
        await log.view.start_of(place(7, 1))
    start = place(*following(raised.value))
    assert await walk(log, start) == []
    log.open_ledger(8)
    log.add(1, 1)
    assert await walk(log, start) == [(8, 0, 1)]


async def test_empty_ledger_that_left_the_list_is_no_loss() -> None:
    """A reader may wait at its beginning: it was linked, closed without an entry, and replaced in one write."""
    log = log_of_two()
    log.open_ledger(5)
    view = log.view
    start, _ = await view.start_of(place(5, 0))
    waiting, entries = await view.next_range(at(4, 2))
    assert (start, waiting, entries) == (at(5, 0), at(5, 0), None)
    log.open_ledger(6, instead=5)
    assert (await view.next_range(waiting))[1] is None
    log.add(1)
    assert await walk(log, place(5, 0)) == [(6, 0, 0)]
    with pytest.raises(EntriesLost):
        await view.start_of(place(5, 0, behind=True))


@pytest.mark.hazard("tail-in-front-of-a-reader")
async def test_lost_position_in_front_of_an_empty_ledger_goes_on_behind_the_last_entry() -> None:
    """A restore leaves the empty ledger out, and may bring back entries of the one before it."""
    log = log_of_two()
    log.open_ledger(6)
    with pytest.raises(EntriesLost) as raised:
        await log.view.start_of(place(5, 7))
    start = place(*following(raised.value))
    assert (await log.view.start_of(place(5, 0)))[0] == start.position == at(4, 2)
    log.add(1)
    assert await walk(log, start) == [(6, 0, 0)]
    restored = log_of_two()
    restored.add(1)
    assert await walk(restored, start) == [(4, 2, 2)]


async def test_beginning_of_a_ledger_above_all_others_is_the_end_of_the_log() -> None:
    """It may be linked already, or be lost: nothing of it is known. A wait for its id could be for ever."""
    log = log_of_two()
    assert await log.view.start_of(place(9, 0)) == (at(4, 2), 0)
    log.add(1)
    assert await walk(log, place(9, 0)) == []


async def test_ledger_of_a_newer_owner_is_not_taken_for_a_lost_one() -> None:
    """Only the current owner knows all ledgers: a reader is sent to it."""
    log = log_of_two()
    async with read_serving(log) as channel:
        lost = await anext(aiter(await reading(channel, place(9, 3))))
        assert isinstance(lost.error, EntriesLost)
        assert following(lost.error) == at(4, 2)
        log.newer_recorded = True
        frame = await anext(aiter(await reading(channel, place(9, 3), epoch_seen=log.owner_epoch + 1)))
        assert isinstance(frame.error, NotOwner)


async def chunk(log: ShownLog, ledger_id: int, entry_id: int) -> pb.ReadChunkAnswer:
    request = pb.ReadChunkRequest(topic=TOPIC, topic_id=TOPIC_ID, ledger_id=ledger_id, entry_id=entry_id)
    return await ChunkService(cast("TopicRegistry", log)).read(request, SUPERUSER)


async def test_chunk_of_a_lost_ledger_is_lost_only_if_the_owner_is_current() -> None:
    """A chunk needs no proof as long as the owner has it. That it is lost does."""
    log = log_of_two()
    for lost in ((2, 0), (9, 3)):
        with pytest.raises(EntriesLost) as raised:
            await chunk(log, *lost)
        assert following(raised.value).ledger_id == 4
    log.trim(1)
    log.deposed = True
    assert (await chunk(log, 1, 1)).trimmed
    with pytest.raises(NotOwner):
        await chunk(log, 9, 3)


@pytest.mark.parametrize(
    ("unreadable", "starts"),
    [
        ([at(1, 2)], {500: at(1, 1), 1500: at(1, 2), 3500: at(4, 1)}),
        ([at(4, 1)], {2500: at(4, 0), 3500: at(4, 1), 9000: at(4, 1)}),
        ([at(4, 0), at(4, 1)], {1500: at(1, 2), 2500: at(4, 0), 9000: at(4, 0)}),
        ([at(1, 0), at(1, 1), at(1, 2)], {100: at(1, 0), 3500: at(4, 1)}),
    ],
)
async def test_time_is_found_although_the_end_of_a_ledger_is_lost(
    unreadable: list[Position], starts: dict[int, Position]
) -> None:
    """The search looks at the last entry of each ledger. Lost entries in front of the first one that is young enough
    may be young enough, too: the reader begins there, and is told."""
    log = log_of_two()
    log.unreadable = set(unreadable)
    assert {time_ms: (await log.view.start_of(StartTime(time_ms)))[0] for time_ms in starts} == starts


@pytest.mark.parametrize(
    ("start", "index"),
    [
        (StartTime(1500), 2),
        (StartIndex(3), 3),
        (place(1, 2), 2),
        (StartTime(2500), 2),
        (place(4, 0, behind=True), 4),
        (StartIndex(4), 4),
    ],
)
async def test_subscription_begins_at_lost_entries(start: StartAt, index: int) -> None:
    """Its consumers are told which messages they miss, or skip them. It could not be created at all, nor sought."""
    log = log_of_two()
    log.unreadable = {at(1, 2), at(4, 0)}
    assert await log.view.index_of(start) == index


async def test_reader_that_begins_at_a_lost_entry_is_told_where_the_log_goes_on() -> None:
    """At a time or an index, too, it knows what it would skip."""
    log = log_of_two()
    log.unreadable = {at(1, 2)}
    async with read_serving(log) as channel:
        for start in (StartTime(1500), place(1, 2)):
            frame = await anext(aiter(await reading(channel, start)))
            assert isinstance(frame.error, UnreadableEntry)
            details = frame.error.details
            assert (details["next_ledger_id"], details["next_entry_id"]) == (1, 3)
