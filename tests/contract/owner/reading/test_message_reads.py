"""What subscriptions get of a log with entries that no storage node can give any more."""

from types import SimpleNamespace
from typing import Any, cast

import pytest

from oncelog.core.delivery.events import ReadMessages
from oncelog.core.errors import EntriesLost, UnreadableEntry
from oncelog.core.ids import EntryId, LedgerId, Position, SubscriptionNumber
from oncelog.core.ledger.metadata import EntryRange
from oncelog.rpc.codecs.reader_codec import StartIndex, StartTime
from oncelog.topic_owner.shell.message_reads import MessageReads
from tests.contract.owner.reading.shown_log import ShownLog, at

pytestmark = pytest.mark.asyncio


class Reads:
    """1:0 holds no message, 1:1 to 1:3 have 0-1, 2-3 and 4, 1:4 holds none, 1:5 has 5-7; 4:0 has 8-9."""

    def __init__(self, *unreadable: Position) -> None:
        self.log = log = ShownLog()
        log.open_ledger(1)
        for number, count in enumerate((0, 2, 2, 1, 0, 3)):
            log.add(count, time_ms=number)
        log.open_ledger(4)
        log.add(2, time_ms=6)
        log.unreadable |= set(unreadable)
        table = SimpleNamespace(state=SimpleNamespace(next_index=10))
        log.core.serving = cast(
            "Any", SimpleNamespace(log=SimpleNamespace(ledgers=SimpleNamespace(writer=None), table=table))
        )
        self.reads = MessageReads(log.log)

    async def at(self, index: int) -> list[int]:
        """The first indexes of the entries that a read gives."""
        read = await self.reads.read(ReadMessages(SubscriptionNumber(0), index, bytes_max=10_000))
        return [entry.base_index for entry in read.entries]

    async def refused(self, index: int) -> tuple[int, int]:
        """The messages that the error names."""
        with pytest.raises((UnreadableEntry, EntriesLost)) as raised:
            await self.at(index)
        details = raised.value.details
        first, count = details["first_index"], details["count"]
        assert isinstance(first, int)
        assert isinstance(count, int)
        assert f"{first} to {first + count - 1}:" in raised.value.message or f"message {first}:" in raised.value.message
        return first, count


async def test_messages_before_an_unreadable_entry_are_read_first() -> None:
    """Then the error says which messages are affected, and a read behind them goes on."""
    reads = Reads(at(1, 2), at(1, 3))
    assert await reads.at(0) == [0]
    assert await reads.refused(2) == (2, 3)
    assert await reads.refused(3) == (3, 2)
    assert await reads.at(5) == [5, 8]


async def test_unreadable_entry_without_messages_is_passed() -> None:
    reads = Reads(at(1, 0), at(1, 4))
    assert await reads.at(0) == [0, 2, 4]
    assert await reads.at(5) == [5, 8], "it goes on at 1:4"


async def test_unreadable_end_of_the_log_is_named() -> None:
    """There is no later entry that says how many messages it has; the topic's next index does."""
    reads = Reads(at(1, 5), at(4, 0))
    assert await reads.at(2) == [2, 4]
    assert await reads.refused(5) == (5, 5)


async def test_lost_entries_are_named_alike() -> None:
    reads = Reads(at(1, 1), at(1, 2), at(1, 3))
    records = reads.log.records
    records[LedgerId(1)] = records[LedgerId(1)].mark_lost([EntryRange(EntryId(1), EntryId(3))])
    assert await reads.refused(0) == (0, 5)
    assert await reads.at(6) == [5, 8]


async def test_search_passes_unreadable_entries() -> None:
    """They must not stop one who wants other messages: by index, and by time, which may be theirs."""
    reads = Reads(at(1, 2), at(1, 3))
    for index, entries in ((0, [0]), (1, [0]), (6, [5, 8]), (9, [8])):
        assert await reads.at(index) == entries
    for time_ms, position in ((0, at(1, 0)), (1, at(1, 1)), (2, at(1, 2)), (4, at(1, 2)), (5, at(1, 5)), (6, at(4, 0))):
        assert (await reads.log.view.start_of(StartTime(time_ms)))[0] == position
    past = Reads(at(1, 3), at(1, 4))
    assert await past.log.view.start_of(StartIndex(5)) == (at(1, 5), 0)
