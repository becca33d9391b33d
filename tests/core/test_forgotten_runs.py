"""Runs that are forgotten: what lies below them is answered as not verified, and nothing above them changes."""

from oncelog.core.dedup.recent_batches import Run
from oncelog.core.dedup.state import ProducerState
from oncelog.core.dedup.table import locate
from oncelog.core.formats.entry import SequenceMode
from oncelog.core.formats.outcome import PartKind
from oncelog.core.ids import EntryId, Generation, LedgerId, Position, ProducerId, SequenceId


def at(entry_id: int) -> Position:
    return Position(LedgerId(1), EntryId(entry_id))


def run(first: int, last: int, entry_id: int, *, deltas: bytes | None) -> Run:
    count = 2 if deltas is None else last - first + 1
    return Run(SequenceId(first), SequenceId(last), count, at(entry_id), 0, deltas)


def test_ids_of_a_trimmed_entry_are_below_the_mark() -> None:
    """Found by the simulation: a run restored from a snapshot without its ids pointed into a trimmed ledger, and the
    producer that sent them again waited for ever."""
    producer = ProducerState("p", ProducerId(1), Generation(1), SequenceMode.MONOTONIC)
    for each in (run(0, 3, 0, deltas=b""), run(5, 9, 1, deltas=None), run(10, 11, 2, deltas=b"")):
        producer.remember(each)
    producer.forget_until(at(1))
    assert (producer.runs_floor, [r.first for r in producer.runs], producer.persisted) == (9, [10], 11)
    parts = locate(range(7, 12), producer.runs, floor=producer.runs_floor, mode=producer.mode)
    assert isinstance(parts, tuple)
    assert [(p.kind, p.count) for p in parts] == [(PartKind.BELOW_MARK, 3), (PartKind.DUPLICATE, 2)]
