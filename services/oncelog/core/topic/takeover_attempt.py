"""One attempt to take a topic over: the takeover, and the log's next ledger beside it."""

from collections.abc import Callable
from typing import Any

from oncelog.core.chain.next_ledger import LedgerIdClaimed, LedgerPurpose, NextLedger
from oncelog.core.ledger.metadata import LedgerKey, LedgerMetadata
from oncelog.core.ledger.recovery import MemberErased, MemberFenced, RecoveryAdded, RecoveryReadAnswered
from oncelog.core.records.records import CursorKey, Kind, RecordRead, RecordWritten
from oncelog.core.topic.takeover import Takeover
from oncelog.core.topic_events.events import EntriesRead, EntriesUnavailable, EntryUnreadable, LedgerPageRead

#: {kind of an event (`kind_of`): what handles it}
Handlers = dict[Kind, Callable[[Any], None]]


class TakeoverAttempt:
    """A takeover, and the log's next ledger beside it: opening needs one, whatever the takeover finds."""

    def __init__(self, takeover: Takeover, next_ledger: NextLedger) -> None:
        self.takeover = takeover
        self.next_ledger = next_ledger
        self.handlers: Handlers = {
            LedgerIdClaimed: self._id_claimed,
            (RecordWritten, LedgerKey): self._ledger_written,
            (RecordRead, CursorKey): takeover.cursor_read,
            (RecordWritten, CursorKey): takeover.cursor_written,
        }
        of_ledgers: tuple[Kind, ...] = (
            EntriesRead, EntriesUnavailable, EntryUnreadable, LedgerPageRead, (RecordRead, LedgerKey),
            MemberErased, MemberFenced, RecoveryReadAnswered, RecoveryAdded,
        )  # fmt: skip
        self.handlers |= dict.fromkeys(of_ledgers, takeover.handle)

    def _id_claimed(self, event: LedgerIdClaimed) -> None:
        if event.purpose is LedgerPurpose.LOG:
            self.next_ledger.id_claimed(event)

    def _ledger_written(self, event: RecordWritten[LedgerKey, LedgerMetadata]) -> None:
        self.next_ledger.record_written(event)
        self.takeover.handle(event)
