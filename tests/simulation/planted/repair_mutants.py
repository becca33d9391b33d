"""Planted bugs of repair: each takes one rule from the cores of repair or of a storage node."""

from dataclasses import replace
from typing import Any

from oncelog.core.ids import LedgerId
from oncelog.core.ledger.metadata import LedgerKey
from oncelog.core.ledger.storage_nodes import StorageNodes
from oncelog.core.node.answers import StorageAnswers
from oncelog.core.node.node import StorageNode
from oncelog.core.node.review import LedgerReviews
from oncelog.core.records.records import ReadRecord, WriteRecord
from oncelog.core.records.status import WriteStatus
from oncelog.core.repair import unlisted
from oncelog.core.repair.copies import RangeCopies
from oncelog.core.repair.events import RepairResult
from oncelog.core.repair.ledger_repair import LedgerRepair
from oncelog.core.repair.lost_proof import LostProof
from oncelog.core.repair.repair_queue import RepairQueue

_can_go = unlisted.can_go
_take_record = LedgerReviews.take_record
_lacking = RangeCopies.lacking
_pause_ms = RepairQueue._pause_ms
_read, _start = StorageAnswers._read, LostProof.start
_record_read, _record_written = LedgerRepair._record_read, LedgerRepair._record_written


def _always_needless(*_: Any) -> bool:
    return True


def _never(*_: Any) -> bool:
    return False


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
    whole = repair._current().drop_joining().mark_verified()
    repair._write(whole, lambda: repair._finish(RepairResult.WHOLE))


def _write_again(repair: LedgerRepair, event: Any) -> None:
    """After a conflict the same record is written again, over the newer one."""
    if event.status is WriteStatus.OK or repair._writing is None:
        _record_written(repair, event)
    else:
        repair._looks += 1
        repair._effects.append(ReadRecord(LedgerKey(repair.job.ledger_id)))


def _read_for_the_version(repair: LedgerRepair, event: Any) -> None:
    if repair._writing is None or event.record is None or repair._looks > repair.looks_max:
        repair._writing = None
        _record_read(repair, event)
    else:
        repair._version = event.version
        repair._effects.append(WriteRecord(LedgerKey(repair.job.ledger_id), repair._writing[0], event.version))


def _ten_minutes(*_: Any) -> int:
    return 600_000


def _ten_minutes_when_stuck(queue: RepairQueue, result: RepairResult, attempts: int) -> int:
    return 600_000 if result is RepairResult.STUCK else _pause_ms(queue, result, attempts)


def _none(*_: Any) -> dict[LedgerId, None]:
    return {}


def _absent(nodes: StorageNodes, node: Any) -> bool:
    """Replaces an absent member without a delay."""
    return nodes[node].absent_since_ms is not None


def _missing_in_limbo(answers: StorageAnswers, event: Any, ledger: Any) -> Any:
    """An entry that a hole may have taken is called missing."""
    answer = _read(answers, event, ledger)
    gone = tuple(entry_id for entry_id in answer.unreadable if entry_id not in ledger.damaged)
    kept = tuple(entry_id for entry_id in answer.unreadable if entry_id in ledger.damaged)
    return replace(answer, missing=(*answer.missing, *gone), unreadable=kept)


def _never_found(proof: LostProof) -> None:
    """What the record calls lost stays lost."""
    if proof.ranges == proof._record.lost:
        proof.ended = True
    else:
        _start(proof)


def _nobody_asked(repair: LedgerRepair, *_: Any) -> None:
    repair._owner_asked = True
    repair._pass_ended()


def _registered_and_silent(proof: LostProof, node: Any) -> bool:
    """An absent node counts as a node without the entry."""
    return node in proof._nodes.registered and node not in proof._copies.answered


def _owner_has_changed(record: Any, chains: Any) -> bool:
    """Takes the epoch of the topic's record for that of the cursor."""
    epoch = max((chain.owner_epoch for chain in chains), default=0)
    return _can_go(record, [replace(chain, owner_epoch=epoch) for chain in chains])


def _last_is_higher(record: Any, chain: Any) -> bool:
    """Believes no epoch."""
    return bool(chain.ledgers) and chain.ledgers[-1] > record.ledger_id


#: (name, hazard, first seed, swaps)
REPAIR_MUTANTS: tuple[tuple[str, str, int, tuple[tuple[Any, str, Any], ...]], ...] = (
    (
        "a joining copy is erased", "copy-erased-before-joining", 489,
        ((LedgerReviews, "take_record", _named_by_members_only), (LedgerReviews, "_may_go", _always_needless)),
    ),
    ("whole without every member", "replaced-member-erased-early", 9, ((LedgerRepair, "_end", _whole_at_once),)),
    ("copies of one source only", "copy-of-one-source", 14, ((RangeCopies, "lacking", _of_one_source),)),
    (
        "stuck repair sleeps although its source is back", "lost-too-early", 159,
        ((RepairQueue, "_pause_ms", _ten_minutes_when_stuck), (RepairQueue, "_waiting_for", _none)),
    ),
    ("repair that fails sleeps for ten minutes", "flapping-node", 299, ((RepairQueue, "_pause_ms", _ten_minutes),)),
    (
        "swap written again after a conflict", "late-repairer", 164,
        ((LedgerRepair, "_record_written", _write_again), (LedgerRepair, "_record_read", _read_for_the_version)),
    ),
    ("an absent member replaced at once", "flapping-node", 64, ((StorageNodes, "long_absent", _absent),)),
    ("a member replaced after its return", "flapping-node", 244, ((LedgerRepair, "_has_returned", _never),)),
    ("owners not asked to roll", "repair-of-an-open-ledger", 34, ((RepairQueue, "_rolls", lambda _: ()),)),
    ("differing copies ignored", "differing-copies", 14, ((RangeCopies, "differing", lambda _: None),)),
    (
        "an erased copy called missing", "answer-of-a-former-member", 44,
        ((StorageAnswers, "is_erased", lambda _, ledger: ledger.erasing),),
    ),
    ("ordinary adds in limbo", "damaged-fence", 49, ((StorageNode, "_in_limbo", _never),)),
    ("missing in limbo", "damaged-fence", 24, ((StorageAnswers, "_read", _missing_in_limbo),)),
    ("lost entries never asked for again", "lost-too-early", 129, ((LostProof, "start", _never_found),)),
    ("lost while the owner has it in memory", "lost-too-early", 854, ((LedgerRepair, "_ask_owner", _nobody_asked),)),
    (
        "unlisted record removed before the cursor is claimed", "prepared-ledger-is-left", 6,
        ((unlisted, "can_go", _owner_has_changed),),
    ),
    (
        "unlisted record left for ever", "prepared-ledger-is-left", 0,
        ((unlisted, "_out_of_reach", _last_is_higher),),
    ),
    ("lost while a holder is absent", "lost-too-early", 54, ((LostProof, "_may_hold", _registered_and_silent),)),
)  # fmt: skip
