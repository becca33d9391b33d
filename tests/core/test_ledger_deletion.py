"""A ledger without a record counts as deleted only if ZooKeeper proves it (hazard 67)."""

import pytest

from oncelog.core.formats.entry import EntryKind, peek_header
from oncelog.core.ids import LedgerId
from oncelog.core.ledger.next_ledger import LedgerPurpose
from oncelog.core.storage.ledger import LedgerOrigin, was_deleted
from tests.core.recovery_world import TOPIC, entry

LISTED = (LedgerId(5), LedgerId(7))


def test_ledger_below_the_list_was_trimmed() -> None:
    """Ids ascend in a list, and ledgers leave it only at the front."""
    assert was_deleted(LedgerId(4), listed=LISTED, topic_deleted=False)


def test_ledger_in_or_above_the_list_was_not_deleted() -> None:
    """Id 6 was never linked, or is in another list; 8 may be newer than a restored backup."""
    for ledger_id in (5, 6, 7, 8):
        assert not was_deleted(LedgerId(ledger_id), listed=LISTED, topic_deleted=False)


@pytest.mark.hazard(67)
def test_missing_or_empty_list_proves_nothing() -> None:
    """A lost topic record must not delete the topic."""
    assert not was_deleted(LedgerId(4), listed=(), topic_deleted=False)


def test_tombstone_of_the_topic_proves_the_deletion_of_all_its_ledgers() -> None:
    assert was_deleted(LedgerId(9), listed=(), topic_deleted=True)


def test_origin_distinguishes_snapshots_from_the_log() -> None:
    """Each ledger is compared only with its own list: the lowest id of one list proves nothing about the other."""
    header = peek_header(entry(0))
    assert LedgerOrigin.of(header) == LedgerOrigin(TOPIC, LedgerPurpose.LOG)
    for kind in (EntryKind.SNAPSHOT_CHUNK, EntryKind.SNAPSHOT_MANIFEST):
        assert LedgerOrigin.of(header._replace(kind=kind)) == LedgerOrigin(TOPIC, LedgerPurpose.DEDUP)
    assert LedgerOrigin.of(header._replace(kind=EntryKind.PRODUCER_OPENED)) == LedgerOrigin(TOPIC, LedgerPurpose.LOG)
