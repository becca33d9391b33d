"""The claim of the dedup cursor: written once for an epoch, by compare-and-set, never mistaken for another write."""

from dataclasses import replace

import pytest

from oncelog.core.chain.next_ledger import LedgerPurpose, ManagedLedgerSettings, NextLedger
from oncelog.core.chain.replay import EntriesRead, ReadEntries, TakeoverFailed
from oncelog.core.formats.batch import Buffer, checksum_of
from oncelog.core.formats.entry import EntryHeader, EntryKind, body_of, encode_header
from oncelog.core.formats.topic_record import CursorLink, CursorRecord, LedgerLink, TopicRecord
from oncelog.core.ids import EntryId, LedgerId, OwnerEpoch, Position
from oncelog.core.ledger.member_selection import StorageNodesUpdated
from oncelog.core.ledger.metadata import LedgerKey, LedgerMetadata
from oncelog.core.records.records import CursorKey, ReadRecord, RecordRead, RecordWritten, WriteRecord, kind_of
from oncelog.core.records.status import WriteStatus
from oncelog.core.snapshots.cursor_claim import CursorClaim
from oncelog.core.snapshots.taken_over import TakenOver
from oncelog.core.topic.takeover import Takeover, TakeoverState
from oncelog.core.topic_events.effects import (
    CursorRecoveryTimedOut,
    StartTopicTimer,
    Step,
    TakeoverPhase,
    TakeoverPhaseEnded,
    TopicEffect,
)
from oncelog.core.topic_events.events import CursorRecordEvent, TakeoverEvent, TopicTimerFired
from tests.core.builders import TOPIC, A, B, C, LogOf, batch, checksum, grant

EPOCH = OwnerEpoch(5)
CURSOR = CursorKey(TOPIC)
TIMER = StartTopicTimer("cursor 0", 3_000)
LOADED = TakeoverPhaseEnded(TakeoverPhase.LOAD_SNAPSHOT)


class RecordedTakeover:
    """A takeover, and what each event leads to: its effects, and then how it ends."""

    def __init__(self, record: TopicRecord) -> None:
        self._step = Step()
        self._ends: list[TakenOver | TakeoverFailed] = []
        of_log = ManagedLedgerSettings(LedgerPurpose.LOG, TOPIC, EPOCH, 3, 2, checksum)
        nodes = StorageNodesUpdated(())
        next_ledger = NextLedger(of_log, last_ledger=LedgerId(-1), nodes=nodes, emit=self._step.emit)
        self.core = Takeover(self._step, record, next_ledger, checksum=checksum, done=self._ends.append)

    @property
    def cursor(self) -> CursorClaim:
        return self.core.cursor

    @property
    def state(self) -> TakeoverState:
        return self.core.state

    def _take(self) -> list[TopicEffect | TakenOver | TakeoverFailed]:
        taken = [*self._step.take(), *self._ends]
        self._ends.clear()
        return taken

    def start(self) -> list[TopicEffect | TakenOver | TakeoverFailed]:
        self.core.start()
        return self._take()

    def at(self, now_ms: int) -> None:
        self._step.now_ms = now_ms

    def handle(self, event: TakeoverEvent | CursorRecordEvent) -> list[TopicEffect | TakenOver | TakeoverFailed]:
        self.core.handlers.get(kind_of(event), self.core.handle)(event)
        return self._take()


def claiming() -> RecordedTakeover:
    takeover = RecordedTakeover(TopicRecord(TOPIC, "t", C, EPOCH))
    assert takeover.start() == [TakeoverPhaseEnded(TakeoverPhase.RECOVER), ReadRecord(CURSOR)]
    return takeover


def written(status: WriteStatus, version: int) -> CursorRecordEvent:
    return RecordWritten(CURSOR, CursorRecord(EPOCH), status, version)


def cursor_of(takeover: RecordedTakeover) -> tuple[CursorRecord, int]:
    return takeover.cursor.record, takeover.cursor.version


LINKS = (CursorLink(LedgerId(3), Position(LedgerId(1), EntryId(4))),)


@pytest.mark.hazard("missing-record-is-no-deletion")
def test_claim_keeps_the_ledgers_and_the_floor() -> None:
    """Only the epoch changes. A floor that fell would leave copies of deleted ledgers for ever."""
    takeover = claiming()
    claimed = CursorRecord(EPOCH, LINKS, LedgerId(3))
    old = CursorRecord(OwnerEpoch(4), LINKS, LedgerId(3))
    assert takeover.handle(RecordRead(CURSOR, old, 7)) == [WriteRecord(CURSOR, claimed, 7)]
    assert takeover.handle(written(WriteStatus.OK, 8)) == [ReadRecord(LedgerKey(LedgerId(3))), TIMER]
    assert cursor_of(takeover) == (claimed, 8)


@pytest.mark.parametrize("status", [WriteStatus.CONFLICT, WriteStatus.UNKNOWN])
def test_claim_that_failed_is_read_again(status: WriteStatus) -> None:
    """A conflict may hide a write of this owner whose reply was lost; an unknown write may be applied or not."""
    takeover = claiming()
    takeover.handle(RecordRead(CURSOR, None, -1))
    assert takeover.handle(written(status, 0)) == [ReadRecord(CURSOR)]
    applied = CursorRecord(EPOCH)
    assert takeover.handle(RecordRead(CURSOR, applied, 0))[0] == LOADED
    assert cursor_of(takeover) == (applied, 0)


@pytest.mark.hazard("snapshot-before-fence")
def test_claim_stops_at_a_higher_epoch() -> None:
    """Another owner came later: this one must read its record."""
    (out,) = claiming().handle(RecordRead(CURSOR, CursorRecord(OwnerEpoch(6)), 9))
    assert isinstance(out, TakeoverFailed)


def test_late_answer_of_an_earlier_write_is_not_taken_for_the_claim() -> None:
    """A link from before the takeover, answered now, would be mistaken for the claim, and the list would be lost."""
    takeover = claiming()
    assert takeover.handle(written(WriteStatus.OK, 4)) == []
    assert takeover.state is TakeoverState.CLAIM


def test_takeover_stops_waiting_for_the_cursor_after_a_timeout() -> None:
    """The members of its ledger may stay away; an older snapshot, or none, costs a longer replay and nothing else."""
    takeover = claiming()
    assert TIMER in takeover.handle(RecordRead(CURSOR, CursorRecord(EPOCH, LINKS), 7))
    assert takeover.state is TakeoverState.CURSOR
    assert takeover.handle(TopicTimerFired(TIMER.key))[:2] == [
        CursorRecoveryTimedOut(LedgerId(3)),
        LOADED,
    ]
    assert takeover.core.snapshot.loaded is None
    assert takeover.handle(TopicTimerFired(TIMER.key)) == []


def test_timer_of_the_cursor_starts_with_its_recovery() -> None:
    """A slow claim must not use up the time, and a timer that fires before the log is fenced has no effect."""
    takeover = recovering()
    assert takeover.handle(TopicTimerFired(TIMER.key)) == []
    takeover.handle(RecordRead(CURSOR, OLD, 7))
    assert TIMER not in takeover.handle(RecordRead(LedgerKey(LOG), CLOSED_LOG, 9))
    assert takeover.handle(TopicTimerFired(TIMER.key)) == []
    assert takeover.state is TakeoverState.CLAIM
    assert takeover.handle(written(WriteStatus.OK, 8))[-1] == TIMER


def test_timer_of_an_earlier_takeover_is_ignored() -> None:
    takeover = claiming()
    takeover.handle(RecordRead(CURSOR, CursorRecord(EPOCH, LINKS), 7))
    assert takeover.handle(TopicTimerFired("cursor 7")) == []
    assert takeover.state is TakeoverState.CURSOR


# --- read during recovery ---------------------------------------------------------------------------------------------

LOG, OLD = LedgerId(2), CursorRecord(OwnerEpoch(4), LINKS)
CLOSED_LOG = LedgerMetadata(LOG, TOPIC, (A, B, C), 2).closed(end=EntryId(6), length=70)
OF_CURSOR = LedgerMetadata(LedgerId(3), TOPIC, (A, B, C), 2)


def recovering() -> RecordedTakeover:
    """The log's last ledger is being recovered."""
    record = TopicRecord(TOPIC, "t", C, EPOCH, (LedgerLink(LOG, 0),))
    takeover = RecordedTakeover(record)
    assert takeover.start() == [ReadRecord(LedgerKey(LOG)), ReadRecord(CURSOR)]
    return takeover


@pytest.mark.hazard("snapshot-before-fence")
def test_cursor_is_not_written_before_the_log_is_fenced() -> None:
    """Its records are read meanwhile. Once the log is fenced, neither the claim nor the recovery needs another read."""
    takeover = recovering()
    assert takeover.handle(RecordRead(CURSOR, OLD, 7)) == [ReadRecord(LedgerKey(LedgerId(3)))]
    assert takeover.handle(RecordRead(LedgerKey(LedgerId(3)), OF_CURSOR, 4)) == []
    claim = WriteRecord(CURSOR, CursorRecord(EPOCH, LINKS), 7)
    assert takeover.handle(RecordRead(LedgerKey(LOG), CLOSED_LOG, 9)) == [
        TakeoverPhaseEnded(TakeoverPhase.RECOVER, 7),
        claim,
    ]
    marked = WriteRecord(LedgerKey(LedgerId(3)), OF_CURSOR.in_recovery(), 4)
    assert takeover.handle(written(WriteStatus.OK, 8)) == [marked, TIMER]


def test_answers_may_come_in_any_order() -> None:
    """The log's recovery before the cursor's record; or the ledger's record after the claim, requested only once."""
    takeover = recovering()
    assert takeover.handle(RecordRead(LedgerKey(LOG), CLOSED_LOG, 9)) == [TakeoverPhaseEnded(TakeoverPhase.RECOVER, 7)]
    assert takeover.handle(RecordRead(CURSOR, OLD, 7)) == [WriteRecord(CURSOR, CursorRecord(EPOCH, LINKS), 7)]
    assert takeover.handle(written(WriteStatus.OK, 8)) == [ReadRecord(LedgerKey(LedgerId(3))), TIMER]
    takeover = recovering()
    takeover.handle(RecordRead(CURSOR, OLD, 7))
    takeover.handle(RecordRead(LedgerKey(LOG), CLOSED_LOG, 9))
    assert takeover.handle(written(WriteStatus.OK, 8)) == [TIMER]
    marked = WriteRecord(LedgerKey(LedgerId(3)), OF_CURSOR.in_recovery(), 4)
    assert takeover.handle(RecordRead(LedgerKey(LedgerId(3)), OF_CURSOR, 4)) == [marked]


@pytest.mark.hazard("snapshot-before-fence")
def test_cursor_that_changed_during_recovery_is_read_again() -> None:
    """The old owner linked a ledger after the read: the newest one is recovered, not the one that was read ahead."""
    takeover = recovering()
    takeover.handle(RecordRead(CURSOR, OLD, 7))
    takeover.handle(RecordRead(LedgerKey(LedgerId(3)), OF_CURSOR, 4))
    takeover.handle(RecordRead(LedgerKey(LOG), CLOSED_LOG, 9))
    assert takeover.handle(written(WriteStatus.CONFLICT, -1)) == [ReadRecord(CURSOR)]
    links = (*LINKS, CursorLink(LedgerId(8), None))
    newer = CursorRecord(OwnerEpoch(4), links)
    assert takeover.handle(RecordRead(CURSOR, newer, 8)) == [WriteRecord(CURSOR, CursorRecord(EPOCH, links), 8)]
    assert takeover.handle(written(WriteStatus.OK, 9)) == [ReadRecord(LedgerKey(LedgerId(8))), TIMER]


def test_answers_of_earlier_attempts_change_nothing() -> None:
    """An attempt that failed may have asked, too: another ledger's record is not the cursor's, and a claim is final."""
    takeover = recovering()
    takeover.handle(RecordRead(CURSOR, OLD, 7))
    takeover.handle(RecordRead(LedgerKey(LedgerId(3)), OF_CURSOR, 4))
    takeover.handle(RecordRead(LedgerKey(LedgerId(9)), replace(OF_CURSOR, ledger_id=LedgerId(9)), 2))
    takeover.handle(RecordRead(LedgerKey(LOG), CLOSED_LOG, 9))
    marked = WriteRecord(LedgerKey(LedgerId(3)), OF_CURSOR.in_recovery(), 4)
    assert takeover.handle(written(WriteStatus.OK, 8)) == [marked, TIMER]
    assert takeover.handle(RecordRead(CURSOR, OLD, 7)) == []
    assert cursor_of(takeover) == (CursorRecord(EPOCH, LINKS), 8)


def test_the_recovered_ledger_of_the_log_is_not_read_again() -> None:
    """Its record, closed by the recovery, is at hand."""
    takeover = recovering()
    takeover.handle(RecordRead(LedgerKey(LOG), CLOSED_LOG, 9))
    takeover.handle(RecordRead(CURSOR, None, -1))
    out = takeover.handle(written(WriteStatus.OK, 0))
    assert out == [
        LOADED,
        ReadEntries(CLOSED_LOG, EntryId(0), EntryId(6), headers_only=True),
    ]


@pytest.mark.hazard("fixed-limit-on-a-slow-machine")
@pytest.mark.parametrize(("recovered_ms", "waits_ms"), [(100, 3_000), (5_000, 10_000), (3_600_000, 30_000)])
def test_cursor_is_waited_for_as_long_as_the_log_has_shown(recovered_ms: int, waits_ms: int) -> None:
    """Twice what the recovery of the log took: on a slow machine the replay without a snapshot takes longer still."""
    takeover = recovering()
    takeover.at(recovered_ms)
    takeover.handle(RecordRead(LedgerKey(LOG), CLOSED_LOG, 9))
    assert replace(TIMER, after_ms=waits_ms) in takeover.handle(RecordRead(CURSOR, CursorRecord(EPOCH, LINKS), 7))


def test_higher_epoch_read_during_recovery_fails_the_takeover_after_it() -> None:
    takeover = recovering()
    takeover.handle(RecordRead(CURSOR, CursorRecord(OwnerEpoch(6)), 7))
    assert takeover.state is TakeoverState.LOG
    assert isinstance(takeover.handle(RecordRead(LedgerKey(LOG), CLOSED_LOG, 9))[-1], TakeoverFailed)


def test_late_record_of_a_skipped_ledger_is_ignored() -> None:
    """Its answer, and then that of the ledger before it: each is taken for what it is."""
    links = (CursorLink(LedgerId(1), None), *LINKS)
    takeover = recovering()
    takeover.handle(RecordRead(LedgerKey(LOG), CLOSED_LOG, 9))
    takeover.handle(RecordRead(CURSOR, CursorRecord(EPOCH, links), 7))
    timed_out = CursorRecoveryTimedOut(LedgerId(3))
    assert takeover.handle(TopicTimerFired(TIMER.key)) == [timed_out, ReadRecord(LedgerKey(LedgerId(1)))]
    assert takeover.handle(RecordRead(LedgerKey(LedgerId(3)), OF_CURSOR, 4)) == []
    older = replace(OF_CURSOR, ledger_id=LedgerId(1)).closed(end=EntryId(2), length=9)
    assert takeover.handle(RecordRead(LedgerKey(LedgerId(1)), older, 5)) == [
        ReadEntries(older, EntryId(0), EntryId(2), headers_only=False)
    ]


@pytest.mark.hazard("format-of-a-later-version")
def test_an_entry_of_a_later_format_stops_the_takeover_and_is_named() -> None:
    """An older owner must not serve what it cannot read, nor call it damaged."""
    takeover = recovering()
    takeover.handle(RecordRead(LedgerKey(LOG), CLOSED_LOG, 9))
    takeover.handle(RecordRead(CURSOR, None, -1))
    takeover.handle(written(WriteStatus.OK, 0))
    log = LogOf(entries_per_ledger=1000)
    log.granted(grant())
    body = bytearray(batch([0]))
    body[3] = 6
    body[4:8] = checksum_of(body, checksum).to_bytes(4, "little")
    log.add(EntryKind.MESSAGES, bytes(body), count=1)
    entries: list[tuple[EntryId, Buffer]] = [(header.entry_id, resealed(header, data)) for header, data in log.entries]
    failed = takeover.handle(EntriesRead(LOG, entries))[-1]
    assert isinstance(failed, TakeoverFailed)
    assert (failed.code, failed.entry_id) == ("unknown_format", EntryId(1))
    assert "payload format 6 of a batch is not known to this version: upgrade" in failed.reason


def resealed(header: EntryHeader, data: bytes) -> bytes:
    """The entry in the ledger of these tests."""
    header = header._replace(ledger_id=LOG)
    return encode_header(header, body_of(data), checksum) + bytes(body_of(data))
