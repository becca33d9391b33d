"""Splits a topic's log into ranges, one for each task. Pure."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from oncelog.core.ids import EntryId, LedgerId, Position, TopicId
from oncelog.verify.range_join import LedgerFact
from oncelog.verify.remembered import RememberedBatch
from oncelog_spark.cluster import Members
from oncelog_spark.options import ConnectionOptions


class AuditedLedger(NamedTuple):
    """A ledger as the cluster lists it. last: the last entry to read, -1: none. whole: it is closed, and ends there.

    length: bytes of its bodies. quorum: number of copies that each entry must have. Both are 0 unless it is whole.
    """

    ledger_id: LedgerId
    first_index: int
    last: EntryId
    whole: bool
    length: int
    members: Members
    quorum: int = 0


class LedgerSlice(NamedTuple):
    """Entries first to last of one ledger. quorum: of the ledger."""

    ledger_id: LedgerId
    members: Members
    first: EntryId
    last: EntryId
    quorum: int = 0


@dataclass(frozen=True, slots=True)
class AuditRange:
    """The entries that one task reads, in order.

    remembered: the batches that the snapshot remembers in this range. all_copies: read and compare every member's copy
    of each entry; otherwise only check that each member holds the beginning of each ledger.
    """

    connection: ConnectionOptions
    topic: str
    topic_id: TopicId
    slices: tuple[LedgerSlice, ...]
    remembered: tuple[RememberedBatch, ...] = ()
    all_copies: bool = False

    @property
    def end(self) -> Position:
        """Of its last entry."""
        return Position(self.slices[-1].ledger_id, self.slices[-1].last)


def cut(
    ledgers: Sequence[AuditedLedger], *, entries_max: int, behind: Position | None
) -> list[tuple[LedgerSlice, ...]]:
    """Ranges of at most entries_max entries. behind: one range ends with exactly this entry, if it exists."""
    ranges: list[tuple[LedgerSlice, ...]] = []
    waiting: list[LedgerSlice] = []
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


def _pieces(ledgers: Iterable[AuditedLedger], behind: Position | None) -> Iterable[LedgerSlice]:
    for ledger in ledgers:
        last = ledger.last
        if behind is not None and behind.ledger_id == ledger.ledger_id and behind.entry_id < last:
            yield LedgerSlice(ledger.ledger_id, ledger.members, EntryId(0), behind.entry_id, ledger.quorum)
            yield LedgerSlice(ledger.ledger_id, ledger.members, EntryId(behind.entry_id + 1), last, ledger.quorum)
        elif last >= 0:
            yield LedgerSlice(ledger.ledger_id, ledger.members, EntryId(0), last, ledger.quorum)


def remembered_in(slices: Iterable[LedgerSlice], remembered: Iterable[RememberedBatch]) -> tuple[RememberedBatch, ...]:
    """Those with a position in one of the slices."""
    pieces = {piece.ledger_id: piece for piece in slices}
    return tuple(
        one
        for one in remembered
        if (piece := pieces.get(one.position.ledger_id)) and piece.first <= one.position.entry_id <= piece.last
    )


def facts_of(ledgers: Iterable[AuditedLedger]) -> list[LedgerFact]:
    return [LedgerFact(one.ledger_id, one.first_index, one.last, one.whole, one.length) for one in ledgers]
