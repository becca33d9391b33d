"""What an owner does with a topic once its state is there: opens the log, takes batches, rolls, snapshots, and closes.

Six parts work here, and each emits its effects itself: the log with its managed ledger, the sessions with the
requests to open one, the subscriptions with their consumers, the ack log and the dedup cursor, these two with a
managed ledger each, and the space, which trims.

The log's managed ledger is OPEN while batches are taken. It closes for a roll (planned: no session ends) or because its
ack quorum is out of reach (failed: the state returns to the fold and every session ends). Either way the next ledger is
opened then, unless the topic closes.

    drain -> nothing more is delivered, and a last snapshot, while batches are still taken
          -> the ack log's last entry is answered, its ledger closed
          -> the log's ledger is closed -> `drained` is called

Producers wait only for that last close. The next owner replays what comes after the snapshot.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import get_args

from oncelog.core.acks.ack_log import AckLog
from oncelog.core.chain.managed_ledger import EntriesAnswered, ManagedLedger, MemberLost
from oncelog.core.chain.next_ledger import DeleteLedgers, LedgerIdClaimed, LedgerPurpose, NextLedger
from oncelog.core.chain.ownership import Ownership
from oncelog.core.chain.roll_rule import RollRule
from oncelog.core.delivery.events import ConsumerEvent
from oncelog.core.delivery.subscriptions import Subscriptions
from oncelog.core.errors import NotOwner, OncelogError, SessionEnded, TopicLoading
from oncelog.core.formats.batch import Checksum
from oncelog.core.formats.head import LedgerHead
from oncelog.core.formats.opening import ProducerOpening
from oncelog.core.formats.topic_record import LedgerLink
from oncelog.core.ids import BEFORE_ALL, ConsumerNumber, EntryId, LedgerId, Position, SessionNumber
from oncelog.core.ledger.member_selection import StorageNodesUpdated
from oncelog.core.ledger.metadata import LedgerKey, LedgerMetadata
from oncelog.core.names import parse_topic
from oncelog.core.policies.ack_state_limit import TOPIC_STATE_BYTES_MAX
from oncelog.core.policies.topic_policies import TopicPolicies
from oncelog.core.publishing.dedup_table import DedupTable
from oncelog.core.publishing.log import TopicLog
from oncelog.core.publishing.openings import Openings
from oncelog.core.publishing.producer_removal import ProducerRemovals
from oncelog.core.publishing.sessions import BlockedOn, Sessions
from oncelog.core.records.records import CursorKey, PageKey, RecordRead, RecordWritten
from oncelog.core.retention.paging import PageSettings
from oncelog.core.retention.topic_retention import TopicRetention
from oncelog.core.snapshots.snapshot_writer import CursorState, SnapshotSettings, SnapshotWriter
from oncelog.core.snapshots.taken_over import TakenOver
from oncelog.core.topic.takeover import CURSOR_TIMEOUT_MS, CURSOR_TIMEOUT_MS_MAX, Handlers
from oncelog.core.topic_events.effects import LastAddConfirmed, StartTopicTimer, Step
from oncelog.core.topic_events.events import (
    BatchesReceived,
    ClockChecked,
    EntryIdsRead,
    LedgerEndsRead,
    NameHeld,
    OpeningAbandoned,
    ProducerIdAllocated,
    ProducerIdRefused,
    ProducerRemovalRequested,
    SessionClosed,
    SnapshotRequested,
    StoredTimesRead,
    TrimBelowRequested,
    TrimRequested,
    TruncateRequested,
)

#: A ledger of the cursor or of the ack log that lacks a member waits longer than the log's, by this factor: no
#: producer waits for its copies, and the next snapshot with a base replaces the cursor's anyway.
CURSOR_PATIENCE = 20
#: When a ledger of the ack log rolls.
ACK_RULE = RollRule(ledger_bytes_max=1 << 28, ledger_entries_max=50_000, ledger_age_max_ms=3_600_000)
#: How much older a small ledger of the log gets: by the defaults, one day.
SMALL_PATIENCE = 144


@dataclass(frozen=True, slots=True)
class TopicSettings:
    """How one topic is kept. Bytes, counts and milliseconds; a ledger rolls at the first of its three limits."""

    write_quorum: int = 3
    ack_quorum: int = 2
    ledger_bytes_max: int = 1 << 30
    ledger_entries_max: int = 50_000
    #: of a ledger that is not small; a small one gets SMALL_PATIENCE times as old
    ledger_age_max_ms: int = 600_000
    #: a member that leaves the oldest entry unanswered for so long is absent for the rest of the ledger
    add_timeout_ms: int = 5_000
    #: how long a live node waits for an absent member's place before the ledger rolls onto the fuller set
    rejoin_after_ms: int = 500
    tick_ms: int = 250
    #: while nothing depends on time, but for rolls, snapshots and policies, which look at ages of seconds to days
    idle_tick_ms: int = 5_000
    retry_ms: int = 1_000
    #: How long an opening that fences nobody leaves a name to its holder after a takeover. A holder notices a silent
    #: owner within 5 s (keepalive), asks again 5 s after a request that got no answer, and pauses for 1 s at most.
    return_grace_ms: int = 12_000
    #: how long a takeover waits for the recovery of the cursor's last ledger
    cursor_timeout_ms: int = CURSOR_TIMEOUT_MS
    cursor_timeout_ms_max: int = CURSOR_TIMEOUT_MS_MAX
    #: how long requests to open wait for a topic that does not serve; a takeover takes well under this
    openings_wait_max_ms: int = 3_000
    #: requests to open that are kept while the topic does not serve; further ones are refused
    early_openings_max: int = 10_000
    snapshot: SnapshotSettings = field(default_factory=SnapshotSettings)
    acks: RollRule = ACK_RULE
    pages: PageSettings = field(default_factory=PageSettings)
    ack_state_bytes_max: int = TOPIC_STATE_BYTES_MAX

    def rule_of(self, purpose: LedgerPurpose) -> RollRule:
        """When a ledger of this chain rolls."""
        patience_ms = CURSOR_PATIENCE * self.rejoin_after_ms
        match purpose:
            case LedgerPurpose.LOG:
                return RollRule(
                    self.ledger_bytes_max, self.ledger_entries_max, self.ledger_age_max_ms, SMALL_PATIENCE,
                    self.rejoin_after_ms,
                )  # fmt: skip
            case LedgerPurpose.ACKS:
                return replace(self.acks, replace_after_ms=patience_ms)
            case LedgerPurpose.DEDUP:
                return RollRule(replace_after_ms=patience_ms)


class Serving:
    """One owner's log, sessions, ack log and dedup cursor, between a takeover and its end."""

    def __init__(
        self,
        step: Step,
        ownership: Ownership,
        taken: TakenOver,
        settings: TopicSettings,
        checksum: Checksum,
        *,
        next_ledger: NextLedger,
        first_session: SessionNumber,
        first_consumer: ConsumerNumber,
        new_id: Callable[[], str],
        dedup_enabled: bool,
        policies: TopicPolicies,
        drained: Callable[[], None],
    ) -> None:
        """next_ledger: the log's, begun during the takeover. new_id: returns a subscription id that was never used.
        drained: called when the topic is closed on request."""
        self._step = step
        self._ownership = ownership
        self._drained = drained
        last_cursor = taken.cursor.ledgers[-1].ledger_id if taken.cursor.ledgers else LedgerId(-1)
        record = ownership.record
        last_acks = record.acks[-1] if record.acks else LedgerId(-1)

        def next_of(purpose: LedgerPurpose, last_ledger: LedgerId) -> NextLedger:
            of_purpose = replace(next_ledger.settings, purpose=purpose, rule=settings.rule_of(purpose))
            return NextLedger(of_purpose, last_ledger=last_ledger, nodes=next_ledger.nodes, emit=step.emit)

        self.settings = settings
        #: the last ledgers of former owners that have no entry
        self._empty = tuple(end.ledger_id for end in taken.ends if end.end < 0 and not end.given_up_by)
        #: ledgers of this owner that leave their lists without having been written to
        self._never_written: dict[LedgerId, None] = {}
        table = DedupTable(taken.state, dedup_enabled=dedup_enabled)
        self.log = TopicLog(ManagedLedger(next_ledger, self, step), table, taken.given_up)
        self.sessions = Sessions(step, self.log, checksum, record=lambda: ownership.record, first_session=first_session)
        self.openings = Openings(step, record.topic_id, record.owner_epoch, self.sessions, policies)
        self.removals = ProducerRemovals(step, self.openings)
        self.acks = AckLog(
            step, next_of(LedgerPurpose.ACKS, last_acks), taken.subscriptions,
            link=self._link_acks, suspect=ownership.suspect, finished=self._acks_finished,
            given_up=taken.acks_given_up, head=self._head_of_acks,
        )  # fmt: skip
        self.acks.bytes_since = taken.replayed_ack_bytes
        self.subscriptions = Subscriptions(
            step, taken.subscriptions, self.acks.append,
            first_index=record.first.base_index if record.first is not None else 0,
            next_index=taken.state.next_index, first_consumer=first_consumer, new_id=new_id,
            partition=parse_topic(record.name).partition or 0, has_room=lambda: self.acks.has_room,
        )  # fmt: skip
        self.acks.user = self.subscriptions
        self.cursor = SnapshotWriter(
            step, next_of(LedgerPurpose.DEDUP, last_cursor), taken, self.acks, settings.snapshot, checksum,
            suspect=ownership.suspect, finished=self._cursor_finished, head=self._head_of_snapshots,
        )  # fmt: skip
        self.space = TopicRetention(
            step, ownership, self.log, self.acks, self.subscriptions, self.cursor, policies, pages=settings.pages,
            ack_state_bytes_max=settings.ack_state_bytes_max, on_verdict=self.sessions.quota_checked,
        )  # fmt: skip
        self._chains = {
            chain.settings.purpose: chain for chain in (self.log.ledgers, self.acks.ledgers, self.cursor.ledgers)
        }
        self.draining = False
        #: drained so far that nothing but the log's ledger is left to close
        self._log_is_last = False
        #: where the fold of the log was when its invariants were checked
        self._checked: Position | None = None

    def handlers(self) -> Handlers:
        """Events of a topic whose state is here."""
        sessions, openings, space = self.sessions, self.openings, self.space
        return {
            BatchesReceived: sessions.receive,
            SessionClosed: sessions.close,
            EntryIdsRead: sessions.entry_ids_read,
            NameHeld: openings.name_held,
            ProducerOpening: openings.open,
            OpeningAbandoned: openings.abandoned,
            ProducerIdAllocated: openings.allocated,
            ProducerIdRefused: openings.refused,
            EntriesAnswered: self.entries_answered,
            MemberLost: self.member_lost,
            LedgerIdClaimed: self.ledger_id_claimed,
            (RecordWritten, LedgerKey): self.ledger_written,
            (RecordWritten, CursorKey): self.cursor.record_written,
            SnapshotRequested: self.cursor.request,
            ProducerRemovalRequested: self.removals.request,
            TrimRequested: space.trim,
            TruncateRequested: space.truncations.truncate,
            TrimBelowRequested: space.truncations.trim_below,
            LedgerEndsRead: space.ledger_ends_read,
            StoredTimesRead: space.stored_times_read,
            (RecordRead, PageKey): space.page_read,
            ClockChecked: space.clock_checked,
            **dict.fromkeys(get_args(ConsumerEvent), self.subscriptions.handle),
        }

    # --- of each step -------------------------------------------------------------------------------------------------

    def end_step(self) -> None:
        """Send what this step has appended, give the answers that became due, and begin a roll that is due."""
        self.openings.end_step()
        self.log.ledgers.flush()
        if self.sessions.due:
            self.sessions.flush()
        self.subscriptions.end_step()
        if self.acks.due:
            self.acks.flush()
        if self.log.ledgers.rolls_soon and not self.draining:
            self.log.ledgers.roll_if_due(held=self.sessions.uploads.hold_ledger)

    # --- open, close --------------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Open the log's next ledger. A record that has become too large for another one is made smaller before."""
        self.space.paging.tick()
        self.log.ledgers.open_next()

    def linked(self) -> None:
        """The topic record names the log's new ledger: serve."""
        self.log.ledgers.linked()
        self.space.opened(self._ownership.record.ledgers[-1].ledger_id)
        if self._log_is_last:
            self.log.ledgers.finish()
        elif not self.log.given_up:
            self._begin()
        elif self.log.ledgers.open:
            self.log.append_given_up()

    def _begin(self) -> None:
        """The log takes batches and grants. The ack log opens after that: no producer waits for it."""
        if self._ownership.record.acks or self.acks.given_up:
            self.acks.open()
        key = self.openings.returning.serves(self._step.now_ms)
        if key is not None:
            self._step.emit(StartTopicTimer(key, self.settings.return_grace_ms))
        self.openings.retry()
        self.removals.retry()
        self.sessions.retry(BlockedOn.ROLL)

    def drain(self) -> None:
        """Close cleanly."""
        if not self.draining:
            self.draining = True
            self.subscriptions.drain()
            self.cursor.finish()

    def _cursor_finished(self) -> None:
        self.acks.finish()

    def _acks_finished(self) -> None:
        self._log_is_last = True
        self.log.ledgers.finish()

    def end(self, error: OncelogError) -> None:
        """The topic is not served here any more: nothing in flight is decided, every session ends."""
        self.openings.ledger_failed(self.log.rollback(), error)
        self.sessions.end_all(error)
        self.openings.refuse_all(error)
        self.removals.failed(error)
        self.subscriptions.end(error)
        self.space.truncations.end(error)
        self.cursor.requests.end(error)
        for chain in self._chains.values():
            chain.next.drop()

    # --- the log's managed ledger (LedgerUser) ------------------------------------------------------------------------

    def link_ledger(self, ledger_id: LedgerId) -> None:
        """The log's next ledger exists: write it into the topic record."""
        last = [link.ledger_id for link in self._ownership.record.ledgers[-1:]]
        self._ownership.link(
            LedgerLink(ledger_id, self.log.next_index), instead=self._empty_one(last, self.log.ledgers)
        )

    def _link_acks(self, ledger_id: LedgerId) -> None:
        last = self._ownership.record.acks[-1:]
        instead = self._empty_one(last, self.acks.ledgers)
        self._ownership.link_acks(ledger_id, instead=instead)

    def head(self, metadata: LedgerMetadata) -> LedgerHead:
        """Of a ledger of the log. The fold stands where it stood when the ledger was linked: nothing was appended
        since."""
        return self._ownership.head(metadata, self._ownership.record.deleted_below, self.log.table.state.position)

    def _head_of_acks(self, metadata: LedgerMetadata) -> LedgerHead:
        return self._ownership.head(metadata, self._ownership.record.acks_deleted_below, self.acks.state.position)

    def _head_of_snapshots(self, metadata: LedgerMetadata) -> LedgerHead:
        """Each of these ledgers begins with a base, so it follows no other."""
        return self._ownership.head(metadata, self.cursor.record.deleted_below, BEFORE_ALL)

    def _empty_one(self, last: Sequence[LedgerId], ledgers: ManagedLedger) -> LedgerId | None:
        """The last ledger of a list, if it was closed without an entry: takeovers and failed writes leave such ones.

        One that an operator has given up stays, because the log does not say so yet.
        """
        writer = ledgers.writer
        for ledger_id in last:
            mine = writer is not None and writer.ledger_id == ledger_id and writer.last_add_confirmed < 0
            if mine and writer is not None and not writer.next_entry:
                self._never_written[ledger_id] = None
            return ledger_id if mine or ledger_id in self._empty else None
        return None

    def unlisted(self, ledger_id: LedgerId) -> None:
        """An empty ledger has left its list. Its record goes only if no storage node can have an entry of it: for an
        entry that was not confirmed, nothing but the floor would prove that it may be erased (hazard
        missing-record-is-no-deletion)."""
        self.space.ledgers.dropped(ledger_id)
        if ledger_id in self._never_written:
            del self._never_written[ledger_id]
            self._step.emit(DeleteLedgers((ledger_id,)))

    def confirmed(self, ledger_id: LedgerId, last_add_confirmed: EntryId) -> None:
        """Entries of the log are durable: fold them in, and answer what waited for them."""
        was_open = not self.log.given_up
        entries = self.log.confirmed(last_add_confirmed)
        self.cursor.folded(entries)
        if entries:
            self.space.ledgers.appended(ledger_id, entries)
        self._step.emit(LastAddConfirmed(Position(ledger_id, last_add_confirmed)))
        self.subscriptions.messages_end(self.log.table.state.next_index)
        self.sessions.settle(entries)
        self.openings.settle(entries)
        self.removals.settle(entries)
        if not was_open and not self.log.given_up:
            self._begin()
        self.cursor.take_if_due()

    def ledger_closed(self, *, failed: bool) -> None:
        """The log's ledger is CLOSED: open the next one, unless it was the last."""
        if failed:
            error = SessionEnded("a write failed: open again and resend what is pending")
            dropped = self.log.rollback()
            self.openings.returning.ended(self.sessions.producer_ids)
            self.openings.ledger_failed(dropped, error)
            self.removals.failed(TopicLoading("a write of the topic failed, and nothing was done: try again"))
            self.sessions.end_all(error)
        if self._log_is_last:
            self.end(NotOwner("the topic is being moved: look it up again"))
            self._drained()
        else:
            self.log.ledgers.open_next()

    def ledger_lost(self) -> None:
        self._ownership.suspect()

    # --- trimming -----------------------------------------------------------------------------------------------------

    def trimmed(self) -> None:
        """Ledgers left one of the topic's lists."""
        self.space.trimmed()
        self.sessions.trimmed()

    # --- events of all managed ledgers --------------------------------------------------------------------------------

    def _ledgers_of(self, ledger_id: LedgerId) -> ManagedLedger:
        """The managed ledger whose writer has this ledger; late answers go to the log's, which ignores them."""
        for chain in self._chains.values():
            writer = chain.writer
            if writer is not None and writer.ledger_id == ledger_id:
                return chain
        return self.log.ledgers

    def entries_answered(self, event: EntriesAnswered) -> None:
        self._ledgers_of(event.ledger_id).entries_answered(event)

    def member_lost(self, event: MemberLost) -> None:
        self._ledgers_of(event.ledger_id).member_lost(event)

    def ledger_id_claimed(self, event: LedgerIdClaimed) -> None:
        self._chains[event.purpose].id_claimed(event)

    def ledger_written(self, event: RecordWritten[LedgerKey, LedgerMetadata]) -> None:
        for chain in self._chains.values():
            chain.record_written(event)

    def update_nodes(self, nodes: StorageNodesUpdated) -> None:
        """A newer view of the storage nodes, for all managed ledgers."""
        for chain in self._chains.values():
            chain.update_nodes(nodes)

    def follow(self, policies: TopicPolicies) -> None:
        """The policies of the topic have changed."""
        self.space.follow(policies)
        self.openings.follow(policies)

    # --- time ---------------------------------------------------------------------------------------------------------

    def tick(self) -> None:
        """Stalled members, rolls, snapshots by time."""
        for chain in self._chains.values():
            chain.tick(add_timeout_ms=self.settings.add_timeout_ms)
        self.cursor.roll_if_due()
        self.sessions.retry(BlockedOn.ROLL)
        self.openings.expiry.tick()
        self.subscriptions.tick()
        self.acks.tick()
        self._trim_acks()
        self._settle_given_up()
        self.space.tick()
        self.cursor.requests.tick()
        self.cursor.take_if_due()

    @property
    def idle(self) -> bool:
        """Whether a tick brings nothing soon, until something else happens."""
        if self.draining or self.log.in_flight or not self.acks.at_rest:
            return False
        if not all(chain.at_rest for chain in self._chains.values()):
            return False
        if self.cursor.requests:
            return False
        return self.cursor.state is CursorState.IDLE and self.subscriptions.activity.idle and self.space.idle

    def return_over(self, key: str) -> None:
        """The time is over in which the holders of names could come back."""
        if self.openings.returning.over(key):
            self.openings.retry()

    def _trim_acks(self) -> None:
        """Ledgers of the ack log that end before the oldest kept base leave the list, never the last one."""
        acks = self._ownership.record.acks
        bound = self.cursor.ack_trim_bound() if len(acks) > 1 else None
        if bound is not None:
            removed = sum(ledger_id < bound.ledger_id for ledger_id in acks[:-1])
            if removed:
                self._ownership.trim_acks(removed)

    def _settle_given_up(self) -> None:
        """Once both chains say what a restore has given up, and every snapshot is of later, a takeover reads no part of
        the chains in which something is missing. Then the record forgets it, so that takeovers notice a ledger that is
        missing from a list again."""
        record, base = self._ownership.record, self.cursor.first_base
        behind = record.given_up_behind
        if behind is None or base is None or self.log.given_up or self.acks.given_up:
            return
        # A snapshot may be of a ledger that the missing nodes had.
        listed = base.acks.ledger_id in record.acks and any(
            link.ledger_id == base.log.ledger_id for link in record.ledgers
        )
        if listed and base.log.ledger_id > behind.log and base.acks.ledger_id > behind.acks:
            self._ownership.said_given_up()

    def check_invariants(self) -> None:
        self.log.check_invariants()
        self.acks.check_invariants()
        self.subscriptions.check_invariants()
        self.cursor.ledgers.check_invariants()
        state = self.log.table.state
        if state.position != self._checked:  # it is large, and changes with its position
            self._checked = state.position
            state.check_invariants()
