"""A ledger without a record counts as deleted only if ZooKeeper proves it (hazard missing-record-is-no-deletion)."""

import pytest

from oncelog.core.chain.next_ledger import LedgerPurpose
from oncelog.core.formats.entry import EntryKind, peek_header
from oncelog.core.ids import LedgerId
from oncelog.core.node.node_ledger import LedgerOrigin, was_deleted
from tests.core.ledger.recovery_world import TOPIC, entry

FLOOR = LedgerId(5)


@pytest.mark.hazard("missing-record-is-no-deletion")
def test_ledger_below_the_floor_was_trimmed() -> None:
    """The floor is written in the compare-and-set that trims, and only rises."""
    assert was_deleted(LedgerId(4), deleted_below=FLOOR, topic_deleted=False)


@pytest.mark.hazard("missing-record-is-no-deletion")
def test_ledger_at_or_above_the_floor_was_not_deleted() -> None:
    """It is listed, or was never linked, or is newer than a restored backup."""
    for ledger_id in (5, 6, 7):
        assert not was_deleted(LedgerId(ledger_id), deleted_below=FLOOR, topic_deleted=False)


@pytest.mark.hazard("missing-record-is-no-deletion")
def test_missing_record_proves_nothing() -> None:
    """A lost topic record must not delete the topic."""
    assert not was_deleted(LedgerId(4), deleted_below=LedgerId(0), topic_deleted=False)


def test_tombstone_of_the_topic_proves_the_deletion_of_all_its_ledgers() -> None:
    assert was_deleted(LedgerId(9), deleted_below=LedgerId(0), topic_deleted=True)


def test_origin_distinguishes_snapshots_from_the_log() -> None:
    """Each ledger is compared only with the floor of its own chain: that of the other one proves nothing."""
    header = peek_header(entry(0))
    assert LedgerOrigin.of(header) == LedgerOrigin(TOPIC, LedgerPurpose.LOG)
    for kind in (EntryKind.SNAPSHOT_CHUNK, EntryKind.SNAPSHOT_MANIFEST, EntryKind.HEAD_SNAPSHOTS):
        assert LedgerOrigin.of(header._replace(kind=kind)) == LedgerOrigin(TOPIC, LedgerPurpose.DEDUP)
    assert LedgerOrigin.of(header._replace(kind=EntryKind.HEAD_ACKS)) == LedgerOrigin(TOPIC, LedgerPurpose.ACKS)
    for kind in (EntryKind.PRODUCER_OPENED, EntryKind.HEAD_LOG):
        assert LedgerOrigin.of(header._replace(kind=kind)) == LedgerOrigin(TOPIC, LedgerPurpose.LOG)
