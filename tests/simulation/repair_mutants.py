"""Planted bugs of repair: each takes one rule from the cores of repair or of a storage node."""

from typing import Any

from oncelog.core.repair.copies import RangeCopies
from oncelog.core.repair.events import ReadRecord, RepairResult, WriteRecord
from oncelog.core.repair.ledger_repair import LedgerRepair
from oncelog.core.storage.review import LedgerReviews
from oncelog.core.store_status import WriteStatus

_take_record = LedgerReviews.take_record
_lacking = RangeCopies.lacking
_record_read, _record_written = LedgerRepair._record_read, LedgerRepair._record_written


def _always_needless(*_: Any) -> bool:
    return True


def _named_by_members_only(reviews: LedgerReviews, event: Any) -> Any:
    """Overlooks that the node is joining, and erases without `whole`."""
    ledger = _take_record(reviews, event)
    if ledger is not None and event.metadata is not None:
        ledger.named = reviews._incarnation in event.metadata.members
    return ledger


def _of_one_source(copies: RangeCopies, node: Any, ids: Any) -> Any:
    """Copies what the first node has, and takes the rest for not stored."""
    first = next((held for held in copies.sound.values() if held), {})
    return _lacking(copies, node, [entry_id for entry_id in ids if entry_id in first])


def _whole_at_once(repair: LedgerRepair) -> None:
    """Takes a ledger for whole although some members have not read their copies."""
    whole = repair._current().drop_joining().mark_whole()
    repair._write(whole, lambda: repair._finish(RepairResult.WHOLE))


def _write_again(repair: LedgerRepair, event: Any) -> None:
    """After a conflict the same record is written again, over the newer one."""
    if event.status is WriteStatus.OK or repair._writing is None:
        _record_written(repair, event)
    else:
        repair._looks += 1
        repair._effects.append(ReadRecord(repair.job.ledger_id))


def _read_for_the_version(repair: LedgerRepair, event: Any) -> None:
    if repair._writing is None or event.record is None or repair._looks > repair.looks_max:
        repair._writing = None
        _record_read(repair, event)
    else:
        repair._version = event.version
        repair._effects.append(WriteRecord(repair._writing[0], event.version))


#: (name, hazard, first seed, swaps)
REPAIR_MUTANTS: tuple[tuple[str, int, int, tuple[tuple[Any, str, Any], ...]], ...] = (
    (
        "a joining copy is erased", 54, 54,
        ((LedgerReviews, "take_record", _named_by_members_only), (LedgerReviews, "_may_go", _always_needless)),
    ),
    ("whole without every member", 55, 9, ((LedgerRepair, "_end", _whole_at_once),)),
    ("copies of one source only", 56, 19, ((RangeCopies, "lacking", _of_one_source),)),
    (
        "swap written again after a conflict", 59, 29,
        ((LedgerRepair, "_record_written", _write_again), (LedgerRepair, "_record_read", _read_for_the_version)),
    ),
)  # fmt: skip
