"""The dedup cursor at work: its ledgers, its record, and one snapshot of the topic's state after the other.

`DedupCursor` says when and what; the managed ledger writes; this machine passes their news between them and links new
cursor ledgers into the record. What concerns the topic goes up: ledgers that left the list, a suspicion, the end.

    take_if_due -> (a ledger is opened and linked, when none is open) -> the base or a delta -> SnapshotTaken
    finish      -> one more snapshot where something changed -> the ledger is closed -> SnapshotsFinished

A cursor ledger that fails is closed and costs only its unfinished snapshot; the topic serves on meanwhile.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from oncelog.core.dedup.cursor import CursorState, DedupCursor, SnapshotTaken
from oncelog.core.dedup.state import DedupState
from oncelog.core.formats.batch import Checksum
from oncelog.core.formats.topic_record import CursorRecord
from oncelog.core.ids import LedgerId
from oncelog.core.ledger.managed_ledger import (
    AckQuorumLost,
    Confirmed,
    LedgerClosed,
    LedgerEffect,
    LedgerEvent,
    LedgerNotification,
    Linking,
    ManagedLedgerLost,
)
from oncelog.core.ledger.members import StorageNodesUpdated
from oncelog.core.ledger.next_ledger import LedgerPurpose
from oncelog.core.store_status import WriteStatus
from oncelog.core.topic.takeover_events import CursorRecordWritten, WriteCursorRecord


@dataclass(frozen=True, slots=True)
class CursorLedgersGone:
    """News: the cursor's record names these ledgers no more."""

    ledger_ids: tuple[LedgerId, ...]


@dataclass(frozen=True, slots=True)
class SnapshotsFinished:
    """News: nothing more will be written, and the cursor's ledger is closed."""


SnapshotsOut = (
    LedgerEffect
    | WriteCursorRecord
    | SnapshotTaken
    | AckQuorumLost
    | ManagedLedgerLost
    | CursorLedgersGone
    | SnapshotsFinished
)
_News = Sequence[LedgerEffect | LedgerNotification | SnapshotTaken]
_Out = list[SnapshotsOut]


class Snapshots:
    """The snapshots of one topic's state, for one stretch between a takeover and its end."""

    def __init__(self, cursor: DedupCursor, state: DedupState, checksum: Checksum, *, record_version: int) -> None:
        self.cursor = cursor
        self.state = state
        self.checksum = checksum
        self._record_version = record_version
        #: the record being written, None when no write is in flight
        self._writing: CursorRecord | None = None
        self._finishing = False

    def take_if_due(self, now_ms: int) -> _Out:
        if (
            self._finishing
            or not self.cursor.ledgers.next.nodes.store_reachable
            or not self.cursor.due(self.state, now_ms)
        ):
            return []
        return self._pass_on(self.cursor.begin(self.state, self.checksum, now_ms), now_ms)

    def finish(self, now_ms: int) -> _Out:
        """The topic is about to close and still serves: SnapshotsFinished follows. One under way is the last."""
        self._finishing = True
        cursor = self.cursor
        if not cursor.ready:
            return []
        if cursor.behind(self.state):
            return self._pass_on(cursor.begin(self.state, self.checksum, now_ms), now_ms)
        return self._end(now_ms)

    def _end(self, now_ms: int) -> _Out:
        ledgers = self.cursor.ledgers
        return self._pass_on(ledgers.finish(), now_ms) if ledgers.open else [SnapshotsFinished()]

    def handle(self, event: LedgerEvent, now_ms: int) -> _Out:
        """Take a completion of the cursor's managed ledger."""
        return self._pass_on(self.cursor.ledgers.handle(event), now_ms)

    def update_nodes(self, nodes: StorageNodesUpdated, now_ms: int) -> _Out:
        return self._pass_on(self.cursor.ledgers.update_nodes(nodes), now_ms)

    def record_written(self, event: CursorRecordWritten, now_ms: int) -> _Out:
        """Take the answer to the link of a cursor ledger."""
        if self._writing is None:
            return []
        if event.status is not WriteStatus.OK:
            return [
                ManagedLedgerLost(
                    LedgerPurpose.DEDUP, "the dedup cursor's record was written by another, or the reply was lost"
                )
            ]
        if event.version != self._record_version + 1:
            return []  # the answer to a write of an earlier stretch: each write adds one to the version
        record, self._writing, self._record_version = self._writing, None, event.version
        gone = self.cursor.linked(record)
        out: _Out = [CursorLedgersGone(tuple(gone))] if gone else []
        out += self._pass_on(self.cursor.ledgers.linked(), now_ms)
        if self.cursor.ledgers.open:
            out += self._pass_on(self.cursor.opened(self.state, self.checksum, now_ms), now_ms)
        return out

    def _pass_on(self, news: _News, now_ms: int) -> _Out:
        out: _Out = []
        for item in news:
            match item:
                case Linking():
                    self._writing = self.cursor.record_with(item.ledger_id)
                    out.append(WriteCursorRecord(self._writing, self._record_version))
                case Confirmed():
                    out += self._pass_on(self.cursor.confirmed(item.last_add_confirmed, now_ms), now_ms)
                case SnapshotTaken():
                    out.append(item)
                    out += self._end(now_ms) if self._finishing else []
                case LedgerClosed():
                    out += self._closed(item, now_ms)
                case _:
                    out.append(item)
        return out

    def _closed(self, item: LedgerClosed, now_ms: int) -> _Out:
        if item.failed:
            self.cursor.interrupted(now_ms)
        if self._finishing and (item.failed or self.cursor.state is CursorState.IDLE):
            return [SnapshotsFinished()]  # after a failure the next owner only replays more
        if self.cursor.state is CursorState.OPENING:
            return self._pass_on(self.cursor.ledgers.open_next(), now_ms)
        return []
