"""Planted bugs about a storage node's past: each takes one rule from the starts of a node, its reviews and
answers, or the check of an entry's topic."""

from dataclasses import replace
from typing import Any

from oncelog.core.formats import entry
from oncelog.core.ids import EntryId, Incarnation, LedgerId
from oncelog.core.ledger.recovery import LedgerRecovery, MemberFenced
from oncelog.core.node import starts
from oncelog.core.node.answers import ReadReceived, StorageAnswers
from oncelog.core.node.node_ledger import StorageLedger
from oncelog.core.node.review import LedgerReviews
from oncelog.core.repair.ledger_repair import LedgerRepair
from tests.core.node.stored_records import Index
from tests.core.node.test_limbo import test_an_entry_above_the_end_makes_up_for_none_that_is_missing
from tests.simulation.watches.watching import Watch

_member_fenced = LedgerRecovery._member_fenced
_verified = LedgerReviews.verified
_read = StorageAnswers._read


def _never(*_: Any) -> bool:
    return False


def _always(*_: Any) -> bool:
    return True


def _nothing(*_: Any) -> str:
    return ""


def _only_missing(reviews: LedgerReviews, event: Any, records: Any) -> Any:
    """What a whole ledger lacks here is missing, and no damage."""
    ledger = reviews._ledgers.get(event.ledger_id)
    if ledger is not None:
        ledger.attested = False
    return _verified(reviews, event, records)


def _counting_all(index: Index, ledger_id: LedgerId, _end: EntryId) -> int:
    """An entry above the end of the ledger counts for one that is missing."""
    return len(index.entries.get(ledger_id, ()))


def _not_again(answers: StorageAnswers, event: ReadReceived, ledger: StorageLedger) -> Any:
    """A recovery is not given what was damaged once, although it may be readable again."""
    return _read(answers, replace(event, fence=False), ledger)


def _believing(recovery: LedgerRecovery, event: MemberFenced) -> Any:
    """Whatever the member holds is taken for the topic's."""
    return _member_fenced(recovery, replace(event, topic_id=None))


def _waiting(repair: LedgerRepair, _record: Any, _copying: Any, joining: Incarnation) -> None:
    """However the node refused the copies, the repair waits for it."""
    repair._finish(repair._failure(joining), (joining,))


#: (name, hazard, first seed, swaps)
PAST_MUTANTS: tuple[tuple[Any, ...], ...] = (
    (
        "a start of the past like any other", "directory-went-back", 74,
        ((starts, "why_past", _nothing), (starts, "lost_end", _nothing)),
    ),
    ("only the ids of starts compared", "directory-went-back", 174, ((starts, "lost_end", _nothing),)),
    (
        "a copy of a directory serves, too", "copied-directory", 94,
        ((starts, "served_elsewhere", _never), (starts, "is_superseded", _never)),
    ),
    (
        "missing of a whole ledger is no damage", "verified-copy-is-missing", 69,
        ((LedgerReviews, "verified", _only_missing),),
    ),
    (
        "entries above the end counted", "verified-copy-is-missing", None,
        ((Index, "count_up_to", _counting_all),), None,
        test_an_entry_above_the_end_makes_up_for_none_that_is_missing,
    ),
    ("damaged once, damaged for ever", "lost-too-early", 5400829, ((StorageAnswers, "_read", _not_again),)),
    ("a node that is newer than ZooKeeper registers", "ledger-id-given-twice", 84, ((starts, "is_newer", _never),)),
    (
        # In earlier seeds the topic only stops; in this one it gets the entries of the other topic.
        "topic of entries unchecked", "ledger-id-given-twice", 1684,
        (
            (starts, "is_newer", _never), (Watch, "_registered", _never),
            (entry, "require_topic", _never), (StorageLedger, "is_of", _always),
        ),
    ),
    (
        "last_add_confirmed of another topic believed", "ledger-id-given-twice", 5870459,
        ((LedgerRecovery, "_member_fenced", _believing),),
    ),
    (
        "a joining node that holds another ledger is waited for", "ledger-id-given-twice", 914899,
        ((LedgerRepair, "_joining_not_filled", _waiting),),
    ),
    ("copies of another topic are not needed", "ledger-id-given-twice", 84, ((StorageLedger, "is_of", _always),)),
)  # fmt: skip
