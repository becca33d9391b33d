"""Forgotten batches: ids below them are answered as not verified, and nothing above them changes."""

from oncelog.core.formats.entry import SequenceMode
from oncelog.core.formats.outcome import ResultKind
from oncelog.core.ids import EntryId, Generation, LedgerId, Position, ProducerId, SequenceId
from oncelog.core.publishing.dedup_table import locate
from oncelog.core.publishing.producer_state import ProducerState
from oncelog.core.publishing.recent_batches import RecentBatch


def at(entry_id: int) -> Position:
    return Position(LedgerId(1), EntryId(entry_id))


def recent(first: int, last: int, entry_id: int, *, deltas: bytes | None) -> RecentBatch:
    count = 2 if deltas is None else last - first + 1
    return RecentBatch(SequenceId(first), SequenceId(last), count, at(entry_id), 0, deltas)


def test_ids_of_a_trimmed_entry_are_not_verified() -> None:
    """Found by the simulation: a batch restored from a snapshot without its ids pointed into a trimmed ledger, and the
    producer that sent them again waited for ever."""
    producer = ProducerState("p", ProducerId(1), Generation(1), SequenceMode.MONOTONIC)
    for each in (recent(0, 3, 0, deltas=b""), recent(5, 9, 1, deltas=None), recent(10, 11, 2, deltas=b"")):
        producer.remember(each)
    producer.forget_until(at(1))
    assert (producer.recent_floor, [r.first for r in producer.recent_batches], producer.persisted) == (9, [10], 11)
    parts = locate(range(7, 12), producer.recent_batches, floor=producer.recent_floor, mode=producer.mode)
    assert isinstance(parts, tuple)
    assert [(p.kind, p.count) for p in parts] == [(ResultKind.BELOW_MARK, 3), (ResultKind.DUPLICATE, 2)]
