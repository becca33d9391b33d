"""Planted bugs of what a restore reads: each takes one rule from the heads of ledgers."""

from typing import Any
from weakref import WeakKeyDictionary

from oncelog.core.chain.managed_ledger import ManagedLedger
from oncelog.core.formats.head import LedgerHead
from oncelog.core.ids import EntryId, Position
from oncelog.core.ledger.metadata import LedgerMetadata
from oncelog.core.ledger.writer import LedgerWriter
from oncelog.core.topic.serving import Serving

_begin, _linked = ManagedLedger._begin, ManagedLedger.linked

#: {a topic that is served: where its log's fold stood at first}
_first: WeakKeyDictionary[Serving, Position] = WeakKeyDictionary()
#: {a managed ledger: the last entry that it has appended to its former ledger}
_appended: WeakKeyDictionary[ManagedLedger, Position] = WeakKeyDictionary()


def _as_of_the_takeover(serving: Serving, metadata: LedgerMetadata) -> LedgerHead | None:
    """The position of the fold is noted once, when the topic is taken over."""
    record = serving._ownership.record
    former = _first.setdefault(serving, serving.log.table.state.position)
    return serving._ownership.head(metadata, record.deleted_below, former)


def _once(ledgers: ManagedLedger, writer: LedgerWriter, base_index: int) -> None:
    """A head is written to the first ledger of an owner only."""
    if ledgers not in _appended:
        _begin(ledgers, writer, base_index)
    _appended[ledgers] = Position(writer.ledger_id, writer.next_entry)


def _appended_counts(serving: Serving, metadata: LedgerMetadata) -> LedgerHead | None:
    """What was appended to the former ledger belongs to it, although its write failed."""
    ledgers, state = serving.log.ledgers, serving.log.table.state.position
    former = max(state, _appended.get(ledgers, state))
    return serving._ownership.head(metadata, serving._ownership.record.deleted_below, former)


def _remember_the_end(ledgers: ManagedLedger) -> None:
    writer = ledgers.writer
    if writer is not None and writer.next_entry:
        _appended[ledgers] = Position(writer.ledger_id, EntryId(writer.next_entry - 1))
    _linked(ledgers)


#: (name, hazard, first seed, swaps)
RESTORE_MUTANTS: tuple[tuple[str, str, int, tuple[tuple[Any, str, Any], ...]], ...] = (
    ("head names the fold of the takeover", "", 5_000_000, ((Serving, "head", _as_of_the_takeover),)),
    ("head in the first ledger of an owner only", "", 5_000_000, ((ManagedLedger, "_begin", _once),)),
    (
        "head counts what a failed write has appended", "refused-then-stored", 5_000_001,
        ((Serving, "head", _appended_counts), (ManagedLedger, "linked", _remember_the_end)),
    ),
)  # fmt: skip
