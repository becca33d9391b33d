"""A storage node: which adds it accepts, and when it answers them."""

import pytest

from oncelog.core.chain.next_ledger import LedgerPurpose
from oncelog.core.formats.entry import peek_header
from oncelog.core.ids import EntryId, TopicId
from oncelog.core.ledger.member_status import AppendStatus, ReadStatus
from oncelog.core.ledger.metadata import LedgerMetadata
from oncelog.core.node.answers import AnswerFence, AnswerRead, FenceReceived, ReadReceived
from oncelog.core.node.node import AppendReceived, ReadOnlyChanged, StorageNode
from oncelog.core.node.node_ledger import LedgerOrigin, RecordKind
from oncelog.core.node.review import CheckLedger, LedgerChecked
from tests.core.ledger.recovery_world import LEDGER, OPEN, TOPIC, A, B, C, entry
from tests.core.node.storage_disk import E0, E1, E2, NONE, OTHER, Disk, answer, append, writable

# --- adds -------------------------------------------------------------------------------------------------------------


def test_add_is_answered_only_when_synced() -> None:
    """An acknowledgement depends on the disk, not on the page cache."""
    disk = writable()
    assert disk.handle(append(2, E1)) == []
    assert disk.handle(append(3, E2)) == []
    assert disk.sync(1) == [answer(2, AppendStatus.OK, 1)]
    assert disk.sync() == [answer(3, AppendStatus.OK, 2)]


def test_frame_of_many_ledgers_is_answered_by_ledger() -> None:
    """A frame holds entries of many topics. The answer is per ledger, with all of its entries."""
    disk = writable()
    other = entry(0, ledger_id=OTHER)
    assert disk.handle(append(2, E1, other, E2)) == [CheckLedger(OTHER, 2)]
    assert disk.sync() == [answer(2, AppendStatus.OK, 1, 2)]
    disk.handle(LedgerChecked(OTHER, 2, LedgerMetadata(OTHER, TOPIC, (C, A), 1)))
    assert disk.sync() == [answer(2, AppendStatus.OK, 0, ledger_id=OTHER)]


def test_entries_arrive_out_of_order_and_with_gaps() -> None:
    """Frames of two streams, retries and recoveries arrive in any order."""
    disk = writable()
    disk.handle(append(2, entry(7), entry(5)))
    assert disk.sync() == [answer(2, AppendStatus.OK, 7, 5)]


@pytest.mark.hazard("repeated-add-not-synced")
def test_repeated_add_waits_for_the_first_copy() -> None:
    """An entry that is only in the page cache must not be acknowledged (hazard repeated-add-not-synced)."""
    disk = writable()
    assert disk.handle(append(2, E1)) == []
    assert disk.handle(append(3, E1)) == []
    assert len(disk.unsynced) == 1
    assert disk.sync() == [answer(2, AppendStatus.OK, 1), answer(3, AppendStatus.OK, 1)]
    assert disk.handle(append(4, E1)) == [answer(4, AppendStatus.OK, 1)]
    assert disk.unsynced == []


def test_different_bytes_under_the_same_id_are_refused() -> None:
    """Impossible in a correct run: refuse the entry, keep the first copy, and make it visible."""
    disk = writable()
    forged = entry(1, body=b"9876543210")
    disk.handle(append(2, E1))
    assert disk.handle(append(3, forged)) == [answer(3, AppendStatus.CONFLICTING, 1)]
    disk.sync()
    assert disk.handle(append(4, forged)) == [answer(4, AppendStatus.CONFLICTING, 1)]
    assert disk.handle(append(5, forged, recovery=True)) == [answer(5, AppendStatus.CONFLICTING, 1)]
    assert disk.index.entries[LEDGER][EntryId(1)] == E1


@pytest.mark.hazard("ledger-id-given-twice")
def test_ledger_holds_the_entries_of_one_topic() -> None:
    """A ledger id that was given twice: every kind of add of the second topic is refused, also after a restart."""
    disk = writable()
    disk.handle(append(2, E1))
    disk.sync()
    foreign = entry(2, topic_id=TopicId("f0" * 16))
    assert disk.handle(append(3, foreign)) == [answer(3, AppendStatus.CONFLICTING, 2)]
    assert disk.handle(append(4, foreign, recovery=True)) == [answer(4, AppendStatus.CONFLICTING, 2)]
    disk.start()
    assert disk.handle(append(5, foreign)) == [answer(5, AppendStatus.CONFLICTING, 2)]
    assert disk.handle(append(6, entry(2))) == []


def test_damaged_copy_is_replaced_by_a_repeated_add() -> None:
    """Bytes that cannot be read cannot be compared, and good bytes are better than none."""
    disk = writable()
    disk.index.damaged[LEDGER, EntryId(0)] = None
    assert disk.handle(append(2, E0, recovery=True)) == []
    assert disk.sync() == [answer(2, AppendStatus.OK, 0)]


@pytest.mark.parametrize("data", [E1[:-1], E1 + b"x", E1[:-1] + b"?", E1[:20] + b"?" + E1[21:]])
def test_bytes_without_their_checksum_are_refused(data: bytes) -> None:
    """The other entries of the frame are stored; the damaged one is not."""
    disk = writable()
    event = AppendReceived(2, A, [(peek_header(E1), data), (peek_header(E2), E2)])
    assert disk.handle(event) == [answer(2, AppendStatus.CORRUPT, 1)]
    assert disk.sync() == [answer(2, AppendStatus.OK, 2)]
    assert not disk.index.contains(LEDGER, EntryId(1))


@pytest.mark.hazard("former-incarnation")
def test_another_incarnation_is_refused() -> None:
    """A wiped node at the same address must not answer for its former incarnation (hazard former-incarnation)."""
    disk = writable()
    wrong = ReadStatus.WRONG_INCARNATION
    assert disk.handle(append(2, E1, target=B)) == [answer(2, AppendStatus.WRONG_INCARNATION, 1)]
    assert disk.handle(append(3, E1, target=B, recovery=True)) == [answer(3, AppendStatus.WRONG_INCARNATION, 1)]
    assert disk.handle(FenceReceived(4, B, LEDGER)) == [AnswerFence(4, LEDGER, NONE, NONE, wrong)]
    fencing = ReadReceived(5, B, LEDGER, EntryId(0), 3, fence=True)
    assert disk.handle(fencing) == [AnswerRead(5, LEDGER, (), (), NONE, NONE, wrong)]
    assert disk.unsynced == []


def test_nearly_full_disk_accepts_only_recovery_adds() -> None:
    """Ledgers must be closable on a full disk; otherwise nothing can move away from it."""
    disk = writable()
    disk.handle(ReadOnlyChanged(read_only=True))
    assert disk.handle(append(2, E1)) == [answer(2, AppendStatus.READ_ONLY, 1)]
    disk.handle(append(3, E1, recovery=True))
    assert disk.sync() == [answer(3, AppendStatus.OK, 1)]
    disk.handle(ReadOnlyChanged(read_only=False))
    disk.handle(append(4, E2))
    assert disk.sync() == [answer(4, AppendStatus.OK, 2)]


# --- the check --------------------------------------------------------------------------------------------------------


def test_first_adds_are_queued_in_order_until_the_check() -> None:
    """There is one check, whatever arrives meanwhile. Then everything is stored in the order of arrival."""
    disk = Disk()
    assert disk.handle(append(1, E1)) == [CheckLedger(LEDGER, 1)]
    assert disk.handle(append(2, E0, E1)) == []
    assert disk.unsynced == []
    disk.handle(LedgerChecked(LEDGER, 1, OPEN))
    assert [(record.kind, record.entry_id) for record in disk.unsynced] == [(RecordKind.ADD, 1), (RecordKind.ADD, 0)]
    assert disk.sync() == [answer(1, AppendStatus.OK, 1), answer(2, AppendStatus.OK, 0, 1)]


@pytest.mark.hazard("former-incarnation")
@pytest.mark.parametrize(
    "metadata", [None, OPEN.in_recovery(), OPEN.closed(end=NONE, length=0), LedgerMetadata(LEDGER, TOPIC, (B, C), 1)]
)
def test_ledger_that_is_not_open_here_is_not_created(metadata: LedgerMetadata | None) -> None:
    """A paused owner resumes after its ledger was closed, trimmed and deleted (hazard former-incarnation)."""
    disk = Disk()
    disk.handle(append(1, E0))
    disk.handle(append(2, E1))
    refused = [answer(1, AppendStatus.NOT_WRITABLE, 0), answer(2, AppendStatus.NOT_WRITABLE, 1)]
    assert disk.handle(LedgerChecked(LEDGER, 1, metadata)) == refused
    assert disk.unsynced == []
    assert disk.handle(append(3, E0)) == [CheckLedger(LEDGER, 2)]


def test_late_check_does_not_open_a_ledger() -> None:
    """A response read before the ledger was closed belongs to another check."""
    disk = Disk()
    disk.handle(append(1, E0))
    disk.handle(LedgerChecked(LEDGER, 1, None))
    disk.handle(append(2, E0))
    assert disk.handle(LedgerChecked(LEDGER, 1, OPEN)) == []
    assert disk.handle(LedgerChecked(LEDGER, 2, None)) == [answer(2, AppendStatus.NOT_WRITABLE, 0)]


def test_fence_during_the_check_takes_precedence() -> None:
    """The check may have read the record before the recovering process marked it."""
    disk = Disk()
    disk.handle(append(1, E0))
    disk.handle(FenceReceived(2, A, LEDGER))
    assert disk.handle(LedgerChecked(LEDGER, 1, OPEN)) == [answer(1, AppendStatus.FENCED, 0)]
    assert disk.sync() == [AnswerFence(2, LEDGER, NONE, NONE, ReadStatus.OK)]


def test_queue_for_the_check_is_bounded() -> None:
    """Many ledgers whose records cannot be read must not exhaust the memory."""

    class Narrow(StorageNode):
        queued_bytes_max = len(E0) + len(E1)

    disk = Disk(Narrow)
    disk.handle(append(1, E0))
    disk.handle(append(2, E1))
    assert disk.handle(append(3, E2)) == [answer(3, AppendStatus.TOO_MANY_REQUESTS, 2)]
    disk.handle(LedgerChecked(LEDGER, 1, OPEN))
    assert disk.sync() == [answer(1, AppendStatus.OK, 0), answer(2, AppendStatus.OK, 1)]


def test_recovery_add_does_not_make_a_ledger_writable() -> None:
    """A node with only recovery adds never stored an entry of the writer, so the check is still needed."""
    disk = Disk()
    disk.handle(append(1, E0, recovery=True))
    assert disk.sync() == [answer(1, AppendStatus.OK, 0)]
    assert disk.handle(append(2, E1)) == [CheckLedger(LEDGER, 1, LedgerOrigin(TOPIC, LedgerPurpose.LOG))]
    disk.start()
    assert disk.handle(append(3, E1)) == [CheckLedger(LEDGER, 1, LedgerOrigin(TOPIC, LedgerPurpose.LOG))]


def test_stored_ledger_needs_no_check_after_a_restart() -> None:
    """A node that restarts serves its ledgers without ZooKeeper."""
    disk = writable()
    disk.start()
    assert disk.handle(append(2, E1)) == []
    assert disk.sync() == [answer(2, AppendStatus.OK, 1)]
