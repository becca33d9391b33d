"""The dedup cursor's record at a takeover: read early, and claimed once the log is fenced.

    READING --response--> READ --the log is fenced--> CLAIMING --OK--> CLAIMED
    CLAIMING --CONFLICT | UNKNOWN--> READING, and on from there
    READ, and the record has this owner_epoch already--> CLAIMED        --a higher one--> refused

Rules: nothing is written, fenced or decided before the log is fenced. A record that was read earlier may be out of date
by then, which is harmless: the claim is a compare-and-set on that very version, and a record with this owner_epoch is
written by no other owner. A ledger's record that is OPEN or IN_RECOVERY begins a recovery, whose next write names that
version; CLOSED is final; and a missing record was read after a sync, behind the link that names it.
"""

from dataclasses import replace
from enum import Enum

from oncelog.core.chain.replay import TakeoverFailed
from oncelog.core.formats.topic_record import CursorRecord
from oncelog.core.ids import LedgerId, OwnerEpoch, TopicId
from oncelog.core.ledger.metadata import LedgerKey, LedgerMetadata
from oncelog.core.records.records import ABSENT_VERSION, CursorKey, ReadRecord, RecordRead, RecordWritten, WriteRecord
from oncelog.core.records.status import WriteStatus
from oncelog.core.topic_events.effects import (
    Step,
)


class ClaimStep(Enum):
    READING = "reading"
    READ = "read"
    CLAIMING = "claiming"
    CLAIMED = "claimed"


class CursorClaim:
    """The cursor of one takeover. record, version: as read or written last."""

    def __init__(self, step: Step, topic_id: TopicId, owner_epoch: OwnerEpoch) -> None:
        self._step = step
        self._key = CursorKey(topic_id)
        self.step = ClaimStep.READING
        self.record = CursorRecord(owner_epoch)
        self.version = ABSENT_VERSION
        self._owner_epoch = owner_epoch
        self._log_fenced = False
        #: the cursor's last ledger, whose record was requested early, and the response
        self._requested: LedgerId | None = None
        self.last: RecordRead[LedgerKey, LedgerMetadata] | None = None

    def read(self) -> None:
        """Read the record. What was read before is out of date."""
        self.step = ClaimStep.READING
        self._step.emit(ReadRecord(self._key))

    def log_fenced(self) -> TakeoverFailed | None:
        """Claim the record that was read, or that will be read."""
        self._log_fenced = True
        return self._claim() if self.step is ClaimStep.READ else None

    def record_read(self, event: RecordRead[CursorKey, CursorRecord]) -> TakeoverFailed | None:
        if self.step is not ClaimStep.READING:
            return None
        self.step = ClaimStep.READ
        self.record = event.value if event.value is not None else CursorRecord(OwnerEpoch(0))
        self.version = event.version
        if self._log_fenced:
            return self._claim()
        if self.record.ledgers:
            self._requested = self.record.ledgers[-1].ledger_id
            self._step.emit(ReadRecord(LedgerKey(self._requested)))
        return None

    def _claim(self) -> TakeoverFailed | None:
        mine = self._owner_epoch
        if self.record.owner_epoch > mine:
            return TakeoverFailed(f"the dedup cursor belongs to owner_epoch {self.record.owner_epoch}, above {mine}")
        if self.record.owner_epoch == mine:
            self.step = ClaimStep.CLAIMED
        else:
            self.record = replace(self.record, owner_epoch=mine)
            self.step = ClaimStep.CLAIMING
            self._step.emit(WriteRecord(self._key, self.record, self.version))
        return None

    def record_written(self, event: RecordWritten[CursorKey, CursorRecord]) -> None:
        """Answers to writes from before this takeover are late, and no claim."""
        if self.step is not ClaimStep.CLAIMING:
            return
        if event.status is not WriteStatus.OK:
            self.read()
        else:
            self.step = ClaimStep.CLAIMED
            self.version = event.version

    def requested(self, ledger_id: LedgerId) -> bool:
        """Whether this ledger's record was requested early: the response is `last`, or under way."""
        return self._requested == ledger_id

    def ledger_read(self, event: RecordRead[LedgerKey, LedgerMetadata]) -> None:
        if self.requested(event.key.ledger_id):
            self.last = event
