"""Checks that all readers saw the entries of the log, in order and without gaps."""

from collections.abc import Container

from oncelog.core.formats.batch import Buffer
from oncelog.core.formats.entry import EntryHeader, body_of, peek_header
from oncelog.core.formats.head import HEAD_KINDS
from oncelog.core.ids import NO_ENTRY, LedgerId, Position
from oncelog.verify.violation import Violation
from tests.oracles.fold import LogFold
from tests.oracles.history import History


def check_reads(
    history: History,
    fold: LogFold,
    *,
    trimmed: dict[LedgerId, None] | None = None,
    listed_again: dict[LedgerId, LedgerId] | None = None,
    left_out: Container[LedgerId] = (),
) -> None:
    """Raises Violation. trimmed: ledgers that a reader may have skipped. listed_again: {ledger that was trimmed, and is
    in the list since a restore: the first ledger of the restore's era}; before it a reader may have skipped the one.
    left_out: ledgers with nothing but a head that a restore has left out; a reader may have received the head."""
    again = listed_again or {}
    order = {position: i for i, position in enumerate(fold.entries)}
    latest: dict[str, int] = {}
    for read in history.reads:
        entry = fold.entries.get(read.position)
        if entry is None:
            if read.position.ledger_id in left_out and peek_header(read.data).kind in HEAD_KINDS:
                continue
            raise Violation("reads", f"{read.reader} received {read.position}, which is not in the log")
        if entry.data != read.data and _message(entry.data) != _message(read.data):
            raise Violation("positions are immutable", f"{read.reader} saw other bytes at {read.position}")
        before, now = latest.get(read.reader, -1), order[read.position]
        if now <= before:
            raise Violation("reads", f"{read.reader} received {read.position} after a later entry")
        between = [p for p in _between(fold, before, now) if p.ledger_id not in (trimmed or {})]
        skipped = [p for p in between if read.position.ledger_id >= again.get(p.ledger_id, LedgerId(0))]
        if skipped:
            raise Violation("reads", f"{read.reader} received {read.position} without {skipped[0]}")
        latest[read.reader] = now


def _message(data: Buffer) -> tuple[EntryHeader, bytes]:
    """What counts for readers. last_add_confirmed is for the recovery of an open ledger, and copies that
    differ in it alone are found by repair (hazard differing-copies)."""
    return peek_header(data)._replace(last_add_confirmed=NO_ENTRY), bytes(body_of(data))


def _between(fold: LogFold, before: int, now: int) -> list[Position]:
    return [] if now == before + 1 else list(fold.entries)[before + 1 : now]
