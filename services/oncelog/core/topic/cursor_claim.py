"""The dedup cursor's record at a takeover: read ahead, and claimed once the log is fenced.

    READING --answer--> READ --B is passed--> CLAIMING --OK--> CLAIMED
    CLAIMING --CONFLICT | UNKNOWN--> READING, and on from there
    READ, and it is this owner_epoch's already--> CLAIMED        --a higher one's--> refused

Rules: nothing is written, fenced or decided before B. What was read beside B may be out of date by then, and does no
harm: the claim is a compare-and-set on that very version, and where the record is this owner_epoch's already nobody
else writes it. A ledger's record that says OPEN or IN_RECOVERY begins a recovery, whose next write names that version;
CLOSED is for ever; and that there is none was read after a sync, behind the link that names it.
"""

from dataclasses import dataclass
from enum import Enum

from oncelog.core.dedup.cursor import LoadedSnapshot
from oncelog.core.formats.topic_record import CursorRecord
from oncelog.core.ids import LedgerId, OwnerEpoch
from oncelog.core.ledger.recovery import LedgerRead, ReadLedger
from oncelog.core.store_status import WriteStatus
from oncelog.core.topic.takeover_events import (
    CursorRecordRead,
    CursorRecordWritten,
    ReadCursorRecord,
    TakeoverFailed,
    WriteCursorRecord,
)


@dataclass(frozen=True, slots=True)
class Claimed:
    """News: the record is this owner_epoch's."""


_Out = list[ReadCursorRecord | WriteCursorRecord | ReadLedger | Claimed | TakeoverFailed]


class ClaimStep(Enum):
    READING = "reading"
    READ = "read"
    CLAIMING = "claiming"
    CLAIMED = "claimed"


class CursorClaim:
    """The cursor of one takeover. record, version: as read or written last."""

    def __init__(self, owner_epoch: OwnerEpoch) -> None:
        self.step = ClaimStep.READING
        self.record = CursorRecord(owner_epoch)
        self.version = -1
        #: the snapshot that the takeover began from
        self.loaded: LoadedSnapshot | None = None
        self._owner_epoch = owner_epoch
        self._log_fenced = False
        #: the cursor's last ledger, asked for beside B, and the answer
        self._asked: LedgerId | None = None
        self.last: LedgerRead | None = None

    def read(self) -> _Out:
        """Read the record. What was read before is out of date."""
        self.step = ClaimStep.READING
        return [ReadCursorRecord()]

    def log_fenced(self) -> _Out:
        """B is passed: claim what was read, or what will be."""
        self._log_fenced = True
        return self._claim() if self.step is ClaimStep.READ else []

    def record_read(self, event: CursorRecordRead) -> _Out:
        if self.step is not ClaimStep.READING:
            return []
        self.step = ClaimStep.READ
        self.record = event.record if event.record is not None else CursorRecord(OwnerEpoch(0))
        self.version = event.version if event.record is not None else -1
        if self._log_fenced:
            return self._claim()
        if not self.record.ledgers:
            return []
        self._asked = self.record.ledgers[-1].ledger_id
        return [ReadLedger(self._asked)]

    def _claim(self) -> _Out:
        mine = self._owner_epoch
        if self.record.owner_epoch > mine:
            reason = f"the dedup cursor belongs to owner_epoch {self.record.owner_epoch}, above {mine}"
            return [TakeoverFailed(reason)]
        if self.record.owner_epoch == mine:
            self.step = ClaimStep.CLAIMED
            return [Claimed()]
        self.record = CursorRecord(mine, self.record.ledgers)
        self.step = ClaimStep.CLAIMING
        return [WriteCursorRecord(self.record, self.version)]

    def record_written(self, event: CursorRecordWritten) -> _Out:
        """Late answers to writes of an earlier stretch of serving are no claim."""
        if self.step is not ClaimStep.CLAIMING:
            return []
        if event.status is not WriteStatus.OK:
            return self.read()
        self.step = ClaimStep.CLAIMED
        self.version = event.version
        return [Claimed()]

    def asked(self, ledger_id: LedgerId) -> bool:
        """Whether this ledger's record was asked for beside B: its answer is `last`, or under way."""
        return self._asked == ledger_id

    def ledger_read(self, event: LedgerRead) -> None:
        if self.asked(event.ledger_id):
            self.last = event
