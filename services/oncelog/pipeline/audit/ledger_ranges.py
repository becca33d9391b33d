"""Cuts a topic's log into ranges, one for each task. Pure."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from oncelog.core.ids import EntryId, Incarnation, LedgerId, Position, TopicId
from oncelog.pipeline.connection import Connection

#: (incarnation, host:port or "" while it is not registered)
Members = tuple[tuple[Incarnation, str], ...]


class StoredLedger(NamedTuple):
    """A ledger as the cluster lists it. last: its last entry that is read, -1 none. whole: it is closed, with that end.

    length: bytes of its bodies, 0 unless it is whole.
    """

    ledger_id: LedgerId
    first_index: int
    last: EntryId
    whole: bool
    length: int
    members: Members


class Slice(NamedTuple):
    """Entries first to last of one ledger."""

    ledger_id: LedgerId
    members: Members
    first: EntryId
    last: EntryId


@dataclass(frozen=True, slots=True)
class AuditRange:
    """What one task reads, in order."""

    connection: Connection
    topic_id: TopicId
    slices: tuple[Slice, ...]


def cut(ledgers: Sequence[StoredLedger], *, entries_max: int, behind: Position | None) -> list[tuple[Slice, ...]]:
    """Ranges of at most entries_max entries. behind: one range ends with exactly this entry, if it is there."""
    ranges: list[tuple[Slice, ...]] = []
    waiting: list[Slice] = []
    room = entries_max
    for piece in _pieces(ledgers, behind):
        first = piece.first
        while first <= piece.last:
            last = EntryId(min(piece.last, first + room - 1))
            waiting.append(piece._replace(first=first, last=last))
            room -= last - first + 1
            first = EntryId(last + 1)
            if room == 0 or Position(piece.ledger_id, last) == behind:
                ranges.append(tuple(waiting))
                waiting, room = [], entries_max
    return [*ranges, tuple(waiting)] if waiting else ranges


def _pieces(ledgers: Iterable[StoredLedger], behind: Position | None) -> Iterable[Slice]:
    for ledger in ledgers:
        last = ledger.last
        if behind is not None and behind.ledger_id == ledger.ledger_id and behind.entry_id < last:
            yield Slice(ledger.ledger_id, ledger.members, EntryId(0), behind.entry_id)
            yield Slice(ledger.ledger_id, ledger.members, EntryId(behind.entry_id + 1), last)
        elif last >= 0:
            yield Slice(ledger.ledger_id, ledger.members, EntryId(0), last)


def range_behind(ranges: Sequence[tuple[Slice, ...]], position: Position) -> int | None:
    """The number of the range that ends with this entry; None: none does."""
    for number, slices in enumerate(ranges):
        if Position(slices[-1].ledger_id, slices[-1].last) == position:
            return number
    return None
