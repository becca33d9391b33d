"""A takeover up to the end of the log: the phases recover, load snapshot and replay.

Acquire is over: the record names this owner. Open (a new ledger) belongs to `serving`, as does every later roll.

    recover        LOG       the last ledgers of the log and of the ack chain are fenced, recovered and closed, side by
                             side (`ack_replay`); meanwhile the cursor's record is read, and the record of its last
                             ledger
    load snapshot  CLAIM     the cursor's record is written with this owner_epoch, so that no former owner can add a
                             ledger to it
                   CURSOR    the cursor's last ledger is fenced, recovered and closed; after a timeout (a timer), the
                             snapshots of the ledgers before it are used
                   SNAPSHOT  its entries are read; without a complete snapshot, those of the ledger before it, and so on
    replay         REPLAY    the log after the snapshot is folded, entry by entry, and beside it the ack chain
                   DONE | FAILED

Rules
- The phases keep this order. A snapshot that is read before both chains are fenced leaves a hole when the old owner
  trims in between. Only two records are read during recover; `cursor_claim` explains why they are no snapshot.
- Replay begins exactly after the snapshot, in the same ledger, or fails. An unreadable entry of the log fails the
  takeover, and the failure names it.
- A snapshot only saves time. If the cursor cannot be recovered or read, an older snapshot and a longer replay follow.
- Entries of the log that no live storage node has are requested again until a node gives them; `unavailable` names
  them meanwhile.
- A ledger that an operator has given up may end before the snapshot, which then is the better copy of the state. Lost
  entries of a closed ledger that an operator has given up are passed over. An entry behind such a ledger says so
  (GivenUp); a log without it gets it before anything else.
- After FAILED the topic reads its record again before it reports the failure.
"""

from collections.abc import Callable, Container
from enum import Enum

from oncelog.core.acks.ack_state import SubscriptionsState
from oncelog.core.errors import CorruptEntry, EntriesLost, InvalidBatch, LogHole, UnreadableEntry
from oncelog.core.formats.batch import Checksum
from oncelog.core.formats.entry import EntryKind, GivenUp, body_of, decode_entry, decode_given_up, peek_header
from oncelog.core.formats.topic_record import CursorRecord, LedgerLink, TopicRecord
from oncelog.core.ids import EntryId, Incarnation, LedgerId, Position
from oncelog.core.ledger.metadata import LedgerKey, LedgerMetadata, LedgerState
from oncelog.core.ledger.recovery import LedgerRecovered, LedgerRecovery, RecoveryEffect, RecoveryFailed, ledger_of
from oncelog.core.ledger.recovery_range import MemberAnswers
from oncelog.core.publishing.dedup_state import DedupState
from oncelog.core.publishing.producers import RECENT_BYTES_MAX
from oncelog.core.records.records import CursorKey, ReadRecord, RecordRead, RecordWritten
from oncelog.core.snapshots.ack_snapshot import restore_subscriptions
from oncelog.core.snapshots.cursor_claim import ClaimStep, CursorClaim
from oncelog.core.snapshots.dedup_format import SnapshotReader
from oncelog.core.snapshots.snapshot_writer import LoadedSnapshot, TakenOver
from oncelog.core.topic.ack_replay import AckReplay, AckReplayState
from oncelog.core.topic.replay_list import ReplayList, cannot_begin, fold_next
from oncelog.core.topic_events.effects import (
    CursorRecoveryTimedOut,
    ReadEntries,
    StartTopicTimer,
    Step,
    TakeoverFailed,
    TakeoverPhase,
    TakeoverPhaseEnded,
)
from oncelog.core.topic_events.events import (
    EntriesRead,
    EntriesUnavailable,
    EntryUnreadable,
    LedgerPageRead,
    TakeoverEvent,
    TopicTimerFired,
)

#: Prefix of the timer's keys; the rest distinguishes the takeovers of one topic.
CURSOR_TIMER = "cursor"
#: How long a takeover waits for the recovery of the cursor's last ledger: twice what that of the log took, within these
#: bounds. The members of that ledger may stay away, and a newer snapshot only shortens the replay.
CURSOR_TIMEOUT_MS, CURSOR_TIMEOUT_MS_MAX = 3_000, 30_000
#: How often a takeover reads the record of a ledger whose members do not answer.
LOOK_AGAIN_MS = 10_000


class TakeoverState(Enum):
    LOG = "recover"
    CLAIM = "load snapshot (claim)"
    CURSOR = "load snapshot (recovery)"
    SNAPSHOT = "load snapshot (read)"
    REPLAY = "replay"
    DONE = "done"
    FAILED = "failed"


class Takeover:
    """One attempt for one epoch. The next attempt starts with recover again."""

    def __init__(
        self,
        step: Step,
        record: TopicRecord,
        *,
        checksum: Checksum,
        done: Callable[[TakenOver | TakeoverFailed], None],
        recent_bytes_max: int = RECENT_BYTES_MAX,
        cursor_timeout_ms: int = CURSOR_TIMEOUT_MS,
        cursor_timeout_ms_max: int = CURSOR_TIMEOUT_MS_MAX,
        number: int = 0,
    ) -> None:
        """done: called once, at the end. number: differs between the takeovers of one topic in one process."""
        self._step, self._done = step, done
        self.record = record
        self._cursor_timer = StartTopicTimer(f"{CURSOR_TIMER} {number}", cursor_timeout_ms)
        self._began_ms, self._cursor_timeout_ms_max = step.now_ms, cursor_timeout_ms_max
        self.state = TakeoverState.LOG
        self.checksum = checksum
        self.cursor = CursorClaim(step, record.topic_id, record.owner_epoch)
        self.fold = DedupState(recent_bytes_max)
        self.acks = AckReplay(
            step, record, checksum, fenced=self._chain_fenced, replayed=self._chain_replayed, failed=self._fail
        )
        #: of the snapshot, until the replay of the ack chain goes on from there
        self.subscriptions = SubscriptionsState()
        self.replayed_entries = 0
        #: {ledger: what was given up of it}, unless an entry behind it says so
        self.given_up: dict[LedgerId, GivenUp] = {}
        #: when the members were last found silent
        self._looked_ms: int | None = None
        #: the entries that no live storage node has: of the log, or of a snapshot that was passed over
        self.unavailable: EntriesUnavailable | None = None
        #: entries of the log's last ledger, once that is CLOSED
        self._log_fenced_entries: int | None = None
        #: the log's last ledger, as it was recovered
        self._log_end: LedgerMetadata | None = None
        self._log_replayed = False
        self._replay_begun = False
        self._list = ReplayList(step, record)
        self._recovery: LedgerRecovery | None = None
        #: cursor ledgers still to be tried, the next one last
        self._ledgers: list[LedgerId] = []
        #: (ledger being read, its next and last entry, the snapshot reader when it is the cursor's)
        self._reading: tuple[LedgerMetadata, EntryId, SnapshotReader | None] | None = None

    def start(self) -> None:
        """Recover the last ledgers of both chains, and read the cursor's record meanwhile."""
        self.acks.start()
        if self.record.ledgers:
            self._recover(self.record.ledgers[-1].ledger_id)
        else:
            self._log_fenced(0)
        self.cursor.read()

    def _recover(self, ledger_id: LedgerId) -> None:
        recovery = self._recovery = LedgerRecovery(ledger_id, checksum=self.checksum)
        effects = recovery.start()
        if self.cursor.requested(ledger_id):
            effects = recovery.handle(self.cursor.last) if self.cursor.last is not None else []
        self._recovery_step(effects)

    def handle(self, event: TakeoverEvent) -> None:
        """Take one completion. Completions of another ledger or step are late and are ignored."""
        if self.state in (TakeoverState.DONE, TakeoverState.FAILED):
            return
        if isinstance(event, LedgerPageRead):
            self._page_read(event)
            return
        if not isinstance(event, TopicTimerFired) and self.acks.owns(ledger_of(event)):
            self.acks.handle(event)
            return
        match event:
            case TopicTimerFired():
                self._timer_fired(event.key)
            case EntriesRead():
                self._entries_read(event)
            case EntriesUnavailable():
                self._entries_unavailable(event)
            case EntryUnreadable():
                self._unreadable(event)
            case RecordRead() if self._recovery is None or self._recovery.ledger_id != event.key.ledger_id:
                self._ledger_read(event)
            case _:
                if self._recovery is not None:
                    self._recovery_step(self._recovery.handle(event))

    def _recovery_step(self, effects: list[RecoveryEffect]) -> None:
        for effect in effects:
            if isinstance(effect, LedgerRecovered):
                self._recovery = None
                self._recovered(effect.metadata)
            elif isinstance(effect, RecoveryFailed):
                self._recovery = None
                if self.state is TakeoverState.LOG:
                    self._log_lost(effect)
                else:
                    self._next_cursor_ledger()
            else:
                self._step.emit(effect)

    def _recovered(self, metadata: LedgerMetadata) -> None:
        if self.state is TakeoverState.LOG:
            self._log_end = metadata
            self._log_fenced(metadata.end + 1)
        else:
            self._read_snapshot(metadata)

    def _log_fenced(self, entries: int) -> None:
        self._log_fenced_entries = entries
        self._chain_fenced()

    def _chain_fenced(self) -> None:
        """Go on to the snapshot when both chains are fenced."""
        if self._log_fenced_entries is None or not self.acks.is_fenced:
            return
        took_ms = min(2 * (self._step.now_ms - self._began_ms), self._cursor_timeout_ms_max)
        self._cursor_timer = StartTopicTimer(self._cursor_timer.key, max(self._cursor_timer.after_ms, took_ms))
        self.state = TakeoverState.CLAIM
        self._step.emit(TakeoverPhaseEnded(TakeoverPhase.RECOVER, self._log_fenced_entries))
        self._claim_step(self.cursor.log_fenced())

    def _log_lost(self, failed: RecoveryFailed) -> None:
        code = LogHole.code if failed.entry_id is None else UnreadableEntry.code
        self._fail(TakeoverFailed(failed.reason, code, failed.ledger_id, failed.entry_id, failed.members))

    def _fail(self, failure: TakeoverFailed | str) -> None:
        self.state = TakeoverState.FAILED
        self._recovery = None
        self._done(TakeoverFailed(failure) if isinstance(failure, str) else failure)

    def tick(self) -> None:
        """Look at the records of the last ledgers again while their members do not answer: an operator may end the
        log's, and repair may replace members."""
        now_ms = self._step.now_ms
        if self.state is not TakeoverState.LOG:
            return
        if self._looked_ms is None:
            self._looked_ms = now_ms
        elif now_ms - self._looked_ms >= LOOK_AGAIN_MS:
            self._looked_ms = now_ms
            self.acks.look()
            if self._recovery is not None:
                self._recovery_step(self._recovery.look())

    def cannot_end(self, able: Container[Incarnation]) -> bool:
        """Whether too few members of the ledger being recovered can answer, of which only `able` ones do."""
        return self.acks.cannot_end(able) if self._recovery is None else self._recovery.cannot_end(able)

    def waits_for(self) -> tuple[LedgerId, EntryId | None, MemberAnswers] | None:
        """(ledger, entry if known, members that have not answered); None while no member is asked."""
        if self._recovery is not None:
            members = self._recovery.waits_for()
            return (self._recovery.ledger_id, None, members) if members else None
        if self._reading is None:
            return self.acks.waits_for()
        metadata, at, _ = self._reading
        return metadata.ledger_id, at, tuple((m, f"may be asked for entry {at}") for m in metadata.members)

    # --- load snapshot ------------------------------------------------------------------------------------------------

    def cursor_read(self, event: RecordRead[CursorKey, CursorRecord]) -> None:
        self._claim_step(self.cursor.record_read(event))

    def cursor_written(self, event: RecordWritten[CursorKey, CursorRecord]) -> None:
        self.cursor.record_written(event)
        self._claim_step(None)

    def _claim_step(self, failure: TakeoverFailed | None) -> None:
        if failure is not None:
            self._fail(failure)
        elif self.state is TakeoverState.CLAIM and self.cursor.step is ClaimStep.CLAIMED:
            self._claimed()

    def _claimed(self) -> None:
        self._ledgers = [link.ledger_id for link in self.cursor.record.ledgers]
        if not self._ledgers:
            self._replay()
            return
        self.state = TakeoverState.CURSOR
        self._recover(self._ledgers.pop())
        if self._recovery is not None:
            self._step.emit(self._cursor_timer)

    def _timer_fired(self, key: str) -> None:
        """Stop waiting for the cursor's last ledger. The timer of an earlier takeover is ignored."""
        if self.state is TakeoverState.CURSOR and self._recovery is not None and key == self._cursor_timer.key:
            self._step.emit(CursorRecoveryTimedOut(self._recovery.ledger_id))
            self._next_cursor_ledger()

    def _next_cursor_ledger(self) -> None:
        self._recovery = None
        self.state = TakeoverState.SNAPSHOT
        if self._ledgers:
            self._step.emit(ReadRecord(LedgerKey(self._ledgers[-1])))
        else:
            self._replay()

    def _read_snapshot(self, metadata: LedgerMetadata) -> None:
        self.state = TakeoverState.SNAPSHOT
        if metadata.end < 0:
            self._next_cursor_ledger()
            return
        self._reading = (metadata, EntryId(0), SnapshotReader(self.checksum, self.fold.producers.bytes_max))
        self._step.emit(ReadEntries(metadata, EntryId(0), metadata.end, headers_only=False))

    def _snapshot_entries(self, metadata: LedgerMetadata, reader: SnapshotReader, event: EntriesRead) -> None:
        try:
            for entry_id, data in event.entries:
                header = decode_entry(
                    data, ledger_id=metadata.ledger_id, entry_id=entry_id, checksum=self.checksum,
                    topic_id=metadata.topic_id,
                )  # fmt: skip
                reader.feed(entry_id, header.kind, body_of(data))
        except CorruptEntry:
            # The snapshots that are complete before it count; without one, an older base and a longer replay.
            self._snapshot_done(metadata, reader)
            return
        if event.entries[-1][0] < metadata.end:
            self._reading = (metadata, EntryId(event.entries[-1][0] + 1), reader)
        else:
            self._snapshot_done(metadata, reader)

    def _snapshot_done(self, metadata: LedgerMetadata, reader: SnapshotReader) -> None:
        self._reading = None
        if reader.state is None or reader.manifest is None or reader.base is None:
            self._next_cursor_ledger()
            return
        try:
            self.subscriptions = restore_subscriptions(reader.subscriptions, reader.manifest.acks)
        except CorruptEntry:
            self._next_cursor_ledger()
            return
        self.fold = reader.state
        self.cursor.loaded = LoadedSnapshot(
            reader.manifest.number, metadata.ledger_id, reader.base.position, reader.base.acks
        )
        self._replay()

    # --- replay -------------------------------------------------------------------------------------------------------

    def _replay(self) -> None:
        self.state = TakeoverState.REPLAY
        self._list.start(self.fold.position.ledger_id)
        self._begin_replay()

    def _page_read(self, event: LedgerPageRead) -> None:
        reason = self._list.page_read(event) if self.state is TakeoverState.REPLAY else None
        if reason is not None:
            self._fail(reason)
        elif self.state is TakeoverState.REPLAY and not self._replay_begun:
            self._begin_replay()
        elif self._reading is None:
            self._next_log_ledger()

    def _begin_replay(self) -> None:
        """Go on once the first ledger to replay is known."""
        if not self._list.ready:
            return
        self._replay_begun = True
        failure = cannot_begin(self.fold, self.record.deleted_below, self._list.next, self.unavailable)
        if failure is not None:
            self._fail(failure)
        else:
            self._step.emit(TakeoverPhaseEnded(TakeoverPhase.LOAD_SNAPSHOT, len(self.fold.producers)))
            self.acks.replay(self.subscriptions)
            if self.state is TakeoverState.REPLAY:
                self._next_log_ledger()

    def _next_log_ledger(self) -> None:
        following = self._list.next
        if not self._list.ready:
            return
        if following is None:
            self._log_replayed = True
            self._chain_replayed()
        elif self._log_end is not None and self._log_end.ledger_id == following.ledger_id:
            self._replay_ledger(self._log_end, following)
        else:
            self._step.emit(ReadRecord(LedgerKey(following.ledger_id)))

    def _chain_replayed(self) -> None:
        """End when both chains are folded."""
        if not self._log_replayed or self.acks.state is not AckReplayState.DONE:
            return
        self.state = TakeoverState.DONE
        self._step.emit(TakeoverPhaseEnded(TakeoverPhase.REPLAY, self.replayed_entries))
        cursor, acks = self.cursor, self.acks
        self._done(
            TakenOver(
                self.fold, cursor.record, cursor.version, cursor.loaded, self.replayed_entries,
                tuple(self.given_up.values()), acks.fold, acks.replayed_bytes,
                tuple(acks.given_up.values()), tuple(end for end in (self._log_end, acks.end) if end is not None),
            )
        )  # fmt: skip

    def _ledger_read(self, event: RecordRead[LedgerKey, LedgerMetadata]) -> None:
        """A record that no recovery requested."""
        if self.state in (TakeoverState.LOG, TakeoverState.CLAIM):
            self.cursor.ledger_read(event)
            return
        ledger_id, metadata, following = event.key.ledger_id, event.value, self._list.next
        if self._reading is not None:
            return
        if self.state is TakeoverState.SNAPSHOT and self._ledgers and ledger_id == self._ledgers[-1]:
            self._ledgers.pop()
            if metadata is None or metadata.state is not LedgerState.CLOSED:
                self._next_cursor_ledger()
            else:
                self._read_snapshot(metadata)
        elif self.state is TakeoverState.REPLAY and following is not None and ledger_id == following.ledger_id:
            if metadata is None:
                self._fail(f"ledger {ledger_id} is in the topic's list and has no record")
            else:
                self._replay_ledger(metadata, following)

    def _replay_ledger(self, metadata: LedgerMetadata, link: LedgerLink) -> None:
        if metadata.state is not LedgerState.CLOSED:
            self._fail(f"ledger {metadata.ledger_id} is {metadata.state.value} behind a recovered one")
            return
        position = self.fold.position
        first = EntryId(position.entry_id + 1 if position.ledger_id == metadata.ledger_id else 0)
        if first == 0 and not self.fold.begin_ledger(link.base_index):
            self._fail(f"ledger {link.ledger_id} begins at message {link.base_index}, the log before it ends elsewhere")
            return
        self._list.taken()
        if metadata.given_up_by:
            at_end = GivenUp(metadata.ledger_id, EntryId(metadata.end + 1), metadata.given_up_by)
            self.given_up.setdefault(metadata.ledger_id, at_end)
        if first > metadata.end + 1 and not metadata.given_up_by:
            self._fail(f"the snapshot ends at {position}, beyond the end {metadata.end} of that ledger")
        elif first > metadata.end:
            self._next_log_ledger()
        else:
            self._reading = (metadata, first, None)
            self._step.emit(ReadEntries(metadata, first, metadata.end, headers_only=True))

    def _entries_read(self, event: EntriesRead) -> None:
        if self._reading is None or event.ledger_id != self._reading[0].ledger_id or not event.entries:
            return
        metadata, following, reader = self._reading
        if event.entries[0][0] != following:
            return
        if reader is not None:
            self._snapshot_entries(metadata, reader, event)
            return
        self.unavailable = None
        for _, data in event.entries:
            try:
                fold_next(self.fold, Position(metadata.ledger_id, following), data)
                if peek_header(data).kind == EntryKind.GIVEN_UP:
                    self.given_up.pop(decode_given_up(body_of(data)).ledger_id, None)
            except (CorruptEntry, LogHole, InvalidBatch) as error:
                reason = f"entry {metadata.ledger_id}:{following} cannot be replayed: {error.message}"
                self._fail(TakeoverFailed(reason, error.code, metadata.ledger_id, following))
                return
            following = EntryId(following + 1)
        self.replayed_entries += len(event.entries)
        if following <= metadata.end:
            self._reading = (metadata, following, None)
        else:
            self._reading = None
            self._next_log_ledger()

    def _entries_unavailable(self, event: EntriesUnavailable) -> None:
        """Read them again. The shell has waited for them before this event, so this is no busy loop."""
        if self._reading is None or event.ledger_id != self._reading[0].ledger_id:
            return
        metadata, following, reader = self._reading
        self.unavailable = event
        if reader is not None:
            self._snapshot_done(metadata, reader)
        else:
            self._step.emit(ReadEntries(metadata, following, metadata.end, headers_only=True))

    def _unreadable(self, event: EntryUnreadable) -> None:
        if self._reading is None or event.ledger_id != self._reading[0].ledger_id:
            return
        metadata, following, reader = self._reading
        if reader is not None:
            self._snapshot_done(metadata, reader)
            return
        if event.code == EntriesLost.code and metadata.given_up_by and event.entry_id == following:
            self._pass_over(metadata, following, event.entry_id if event.last is None else event.last)
            return
        reason = f"entry {event.ledger_id}:{event.entry_id} cannot be read: {event.reason}"
        self._fail(TakeoverFailed(reason, event.code, event.ledger_id, event.entry_id, event.members))

    def _pass_over(self, metadata: LedgerMetadata, first: EntryId, last: EntryId) -> None:
        """Replay the log without these entries, which are lost and were given up."""
        self.unavailable = None
        known = self.given_up[metadata.ledger_id]
        self.given_up[metadata.ledger_id] = known._replace(first_entry=min(first, known.first_entry))
        last = min(last, metadata.end)
        self.fold.skip_given_up(Position(metadata.ledger_id, last))
        if last < metadata.end:
            following = EntryId(last + 1)
            self._reading = (metadata, following, None)
            self._step.emit(ReadEntries(metadata, following, metadata.end, headers_only=True))
        else:
            self._reading = None
            self._next_log_ledger()
