"""What an owner does with a topic from D on: opens the log (E), takes batches, rolls, snapshots, and closes cleanly.

Three machines work here: the log (`log`, on its managed ledger), the sessions, and the snapshots, on a managed ledger
of their own. This one passes their news between them. What concerns the topic record goes up: a ledger to link, a
suspicion, the end.

The log's managed ledger is OPEN while batches are taken. It closes for a roll (planned: no session ends) or because
its ack quorum is out of reach (failed: the state returns to the fold and every session ends). Either way the next
ledger is opened then, unless it is the end.

    drain -> a last snapshot, while batches are taken as ever -> the log's ledger is closed -> TopicClosed

Producers wait for the close alone. What comes after the snapshot is replayed by the next owner.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import cast

from oncelog.core.dedup.cursor import DedupCursor, SnapshotSettings, SnapshotTaken
from oncelog.core.dedup.table import DedupTable
from oncelog.core.errors import NotOwner, OncelogError, SessionEnded
from oncelog.core.formats.batch import BatchHeader, Buffer, Checksum
from oncelog.core.formats.opening import ProducerOpening
from oncelog.core.formats.topic_record import LedgerLink, TopicRecord
from oncelog.core.ids import LedgerId, Position, ProducerId, SessionNumber
from oncelog.core.ledger.managed_ledger import (
    AckQuorumLost,
    Confirmed,
    EntriesAnswered,
    LedgerClosed,
    LedgerEffect,
    LedgerEvent,
    LedgerNotification,
    Linking,
    ManagedLedger,
    ManagedLedgerLost,
    MemberLost,
)
from oncelog.core.ledger.members import StorageNodesUpdated
from oncelog.core.ledger.next_ledger import DeleteLedgers, LedgerPurpose, NextLedger
from oncelog.core.topic.log import ReceivedBatch, TopicLog
from oncelog.core.topic.openings import OpeningEffect, Openings
from oncelog.core.topic.sessions import Park, Sessions
from oncelog.core.topic.snapshots import CursorLedgersGone, Snapshots, SnapshotsFinished, SnapshotsOut
from oncelog.core.topic.takeover import CURSOR_TIMEOUT_MS
from oncelog.core.topic.takeover_events import CursorRecordWritten, StartTimer, TakenOver, WriteCursorRecord


@dataclass(frozen=True, slots=True)
class TopicSettings:
    """How one topic is kept. Bytes, counts and milliseconds; a ledger rolls at the first of its three limits."""

    write_quorum: int = 3
    ack_quorum: int = 2
    ledger_bytes_max: int = 1 << 30
    ledger_entries_max: int = 50_000
    ledger_age_max_ms: int = 600_000
    #: a member that leaves the oldest entry unanswered for so long is absent for the rest of the ledger
    add_timeout_ms: int = 5_000
    #: how long a live node waits for an absent member's place before the ledger rolls onto the fuller set
    rejoin_after_ms: int = 500
    tick_ms: int = 250
    retry_ms: int = 1_000
    #: How long an opening that fences nobody leaves a name to its holder after a takeover. A holder notices a silent
    #: owner within 5 s (keepalive), asks again 5 s after a request that got no answer, and pauses for 1 s at most.
    return_grace_ms: int = 12_000
    #: how long a takeover waits for the recovery of the cursor's last ledger
    cursor_timeout_ms: int = CURSOR_TIMEOUT_MS
    snapshot: SnapshotSettings = field(default_factory=SnapshotSettings)


# --- news and effects -------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class LinkWanted:
    """News: the log's next ledger exists; write it into the topic record."""

    link: LedgerLink


@dataclass(frozen=True, slots=True)
class Suspicion:
    """News: another owner may have the topic."""

    reason: str


@dataclass(frozen=True, slots=True)
class LastAddConfirmed:
    """Effect: readers may go up to `position`."""

    position: Position


@dataclass(frozen=True, slots=True)
class LedgerFailed:
    """Effect, for counters and logs: the ack quorum of this ledger is out of reach."""

    ledger_id: LedgerId


@dataclass(frozen=True, slots=True)
class TopicClosed:
    """Effect: this owner is done with the topic at its own wish; what was drained in peace needs no recovery."""


ServingOut = (
    OpeningEffect | LedgerEffect | WriteCursorRecord | SnapshotTaken | LinkWanted | Suspicion | LastAddConfirmed
    | LedgerFailed | TopicClosed | StartTimer
)  # fmt: skip
_Out = list[ServingOut]


class Serving:
    """One owner's log, sessions and dedup cursor, for one stretch between a takeover and its end."""

    def __init__(
        self,
        record: TopicRecord,
        taken: TakenOver,
        settings: TopicSettings,
        checksum: Checksum,
        *,
        next_ledger: NextLedger,
        first_session: SessionNumber,
        dedup_enabled: bool,
        now_ms: int,
    ) -> None:
        """next_ledger: the log's, begun during the takeover."""
        last_cursor = taken.cursor.ledgers[-1].ledger_id if taken.cursor.ledgers else LedgerId(-1)
        of_cursor = replace(next_ledger.settings, purpose=LedgerPurpose.DEDUP)
        cursors = ManagedLedger(NextLedger(of_cursor, last_ledger=last_cursor, nodes=next_ledger.nodes))
        self.settings = settings
        self.log = TopicLog(ManagedLedger(next_ledger), DedupTable(taken.state, dedup_enabled=dedup_enabled))
        self.sessions = Sessions(self.log, first_session=first_session)
        self.openings = Openings(record.topic_id, record.owner_epoch, self.sessions)
        self.cursor = DedupCursor(cursors, taken.cursor, settings.snapshot, loaded=taken.loaded, now_ms=now_ms)
        self.cursor.entries_since = taken.replayed_entries
        self.snapshots = Snapshots(self.cursor, taken.state, checksum, record_version=taken.cursor_version)
        self._opened_ms = now_ms
        #: since when the open ledger's next one could have members that this one lacks
        self._fuller_since_ms: int | None = None
        self.draining = False
        #: drained so far that nothing but the log's ledger is left to close
        self._log_is_last = False

    # --- the topic calls ----------------------------------------------------------------------------------------------

    def start(self, now_ms: int) -> _Out:
        """Mark E begins."""
        return self._news(self.log.ledgers.open_next(), now_ms)

    def linked(self, now_ms: int) -> _Out:
        """The topic record names the log's new ledger: serve."""
        out = self._news(self.log.ledgers.linked(), now_ms)
        self._opened_ms, self._fuller_since_ms = now_ms, None
        if self._log_is_last:
            return out + self._news(self.log.ledgers.finish(), now_ms)
        key = self.openings.returning.serves(now_ms)
        if key is not None:
            out.append(StartTimer(key, self.settings.return_grace_ms))
        unblocked = [*self.openings.retry(now_ms), *self.sessions.retry(Park.ROLL, now_ms)]
        return out + self._after(unblocked, now_ms)

    def receive(self, session: SessionNumber, batches: list[ReceivedBatch], now_ms: int) -> _Out:
        return self._after(self.sessions.receive(session, batches, now_ms), now_ms)

    def opening(self, event: ProducerOpening, now_ms: int) -> _Out:
        return self._after(self.openings.open(event, now_ms), now_ms)

    def abandoned(self, call: int) -> _Out:
        self.openings.abandoned(call)
        return []

    def allocated(self, ask: int, pid: ProducerId, now_ms: int) -> _Out:
        return self._after(self.openings.allocated(ask, pid, now_ms), now_ms)

    def ownership_confirmed(self, now_ms: int) -> _Out:
        return self._after(self.openings.ownership_confirmed(now_ms), now_ms)

    def learned(self, position: Position, header: BatchHeader | None, deltas: Buffer, now_ms: int) -> _Out:
        if header is None:
            return self._after(self.sessions.unlearnable(position, now_ms), now_ms)
        return self._after(self.sessions.learned(position, header, deltas, now_ms), now_ms)

    def drain(self, now_ms: int) -> _Out:
        """Close cleanly; TopicClosed follows."""
        if self.draining:
            return []
        self.draining = True
        return self._news(self.snapshots.finish(now_ms), now_ms)

    def end(self, error: OncelogError) -> _Out:
        """The topic is not served here any more: nothing in flight is decided, every session ends."""
        given_up = self.log.rollback()
        return [
            *self.openings.given_up(given_up, error),
            *self.sessions.end_all(error),
            *self.openings.refuse_all(error),
            *self.log.ledgers.next.drop(),
            *self.cursor.ledgers.next.drop(),
        ]

    def update_nodes(self, nodes: StorageNodesUpdated, now_ms: int) -> _Out:
        """A newer view of the storage nodes, for both managed ledgers."""
        out = self._news(self.log.ledgers.update_nodes(nodes), now_ms) + self._news(
            self.snapshots.update_nodes(nodes, now_ms), now_ms
        )
        self._look_for_members(now_ms)
        return out

    def ledger_event(self, event: LedgerEvent, now_ms: int) -> _Out:
        """Give a completion to the managed ledger it belongs to."""
        if isinstance(event, EntriesAnswered | MemberLost):
            writer = self.cursor.ledgers.writer
            dedup = writer is not None and event.ledger_id == writer.ledger_id
        else:
            dedup = event.purpose is LedgerPurpose.DEDUP
        return self._news(self.snapshots.handle(event, now_ms) if dedup else self.log.ledgers.handle(event), now_ms)

    def cursor_written(self, event: CursorRecordWritten, now_ms: int) -> _Out:
        """The answer to the link of a cursor ledger."""
        return self._news(self.snapshots.record_written(event, now_ms), now_ms)

    # --- time ---------------------------------------------------------------------------------------------------------

    def tick(self, now_ms: int) -> _Out:
        """Stalled members, rolls by age, snapshots by time."""
        out: _Out = []
        for ledgers in (self.log.ledgers, self.cursor.ledgers):
            writer = ledgers.writer
            if writer is None:
                continue
            for member in writer.laggards(before_ms=now_ms - self.settings.add_timeout_ms):
                out += self.ledger_event(MemberLost(writer.ledger_id, member), now_ms)
        if self._roll_due(now_ms):
            out += self._news(self.log.ledgers.roll(), now_ms)
        return out + self._news(self.snapshots.take_if_due(now_ms), now_ms)

    def return_over(self, key: str, now_ms: int) -> _Out:
        """The time is over in which the holders of names could come back."""
        if not self.openings.returning.over(key):
            return []
        return self._after(self.openings.retry(now_ms), now_ms)

    def _roll_due(self, now_ms: int) -> bool:
        writer = self.log.ledgers.writer
        if writer is None or not self.log.open or self.draining or not self.log.ledgers.next.nodes.store_reachable:
            return False
        s, age = self.settings, now_ms - self._opened_ms
        if writer.length >= s.ledger_bytes_max or writer.next_entry >= s.ledger_entries_max:
            return True
        if writer.next_entry and age >= s.ledger_age_max_ms:
            return True
        self._look_for_members(now_ms)
        return self._fuller_since_ms is not None and now_ms - self._fuller_since_ms >= s.rejoin_after_ms

    def _look_for_members(self, now_ms: int) -> None:
        """Note since when a member is absent, or to get nothing new, and a live node could take its place.

        A node that has just gone may be listed for a while yet, and one that is back may go again: rolling for either
        makes producers wait for nothing.
        """
        writer = self.log.ledgers.writer
        nodes = self.log.ledgers.next.nodes
        if writer is None:
            return
        lacking = any(m not in writer.present or m in nodes.read_only for m in writer.metadata.members)
        if not lacking or all(node in writer.present for node in nodes.live):
            self._fuller_since_ms = None
        elif self._fuller_since_ms is None:
            self._fuller_since_ms = now_ms

    # --- news between the machines ------------------------------------------------------------------------------------

    def _after(self, effects: Sequence[OpeningEffect], now_ms: int) -> _Out:
        """What every step that may append or answer ends with. Answers come before the end of their session."""
        out: _Out = [*self.log.flush(), *self.sessions.take_answers(), *effects]
        if self._roll_due(now_ms):
            out += self._news(self.log.ledgers.roll(), now_ms)
        return out

    def _news(self, news: Sequence[LedgerEffect | LedgerNotification | SnapshotsOut], now_ms: int) -> _Out:
        out: _Out = []
        for item in news:
            match item:
                case Linking():
                    out.append(LinkWanted(LedgerLink(item.ledger_id, self.log.next_index)))
                case Confirmed():
                    entries = self.log.confirmed(item.last_add_confirmed)
                    self.cursor.entries_since += len(entries)
                    out.append(LastAddConfirmed(Position(item.ledger_id, item.last_add_confirmed)))
                    self.sessions.settle(entries)
                    out += self._after(self.openings.settle(entries, now_ms), now_ms)
                    out += self._news(self.snapshots.take_if_due(now_ms), now_ms)
                case AckQuorumLost():
                    out.append(LedgerFailed(item.ledger_id))
                case LedgerClosed():
                    out += self._log_closed(item, now_ms)
                case ManagedLedgerLost():
                    out.append(Suspicion(item.reason))
                case CursorLedgersGone():
                    out.append(DeleteLedgers(item.ledger_ids))
                case SnapshotsFinished():
                    self._log_is_last = True
                    out += self._news(self.log.ledgers.finish(), now_ms)
                case _:
                    out.append(cast("ServingOut", item))
        return out

    def _log_closed(self, item: LedgerClosed, now_ms: int) -> _Out:
        out: _Out = []
        if item.failed:
            given_up = self.log.rollback()
            error = SessionEnded("a write failed: open again and resend what is pending")
            self.openings.returning.ended(self.sessions.producer_ids)
            out += [*self.openings.given_up(given_up, error), *self.sessions.end_all(error)]
        if not self._log_is_last:
            return out + self._news(self.log.ledgers.open_next(), now_ms)
        return [*out, *self.end(NotOwner("the topic is being moved: look it up again")), TopicClosed()]

    def check_invariants(self) -> None:
        self.log.check_invariants()
        self.cursor.ledgers.check_invariants()
        self.log.table.state.check_invariants()
