"""A managed ledger: a list of ledgers under one record in ZooKeeper, at most the last of them open.

A topic has three: its log, its ack log and its dedup cursor. What they fold, and when they write, is theirs.

    IDLE --open--> OPENING (until the next ledger is ready) -> LINKING (into the list, by compare-and-set) -> OPEN
    OPEN --roll--> OPEN (until the next ledger is ready) -> ROLLING
    OPEN --finish--> ROLLING (sealed; the last answers come in) -> CLOSING -> IDLE
    OPEN | ROLLING --ack quorum out of reach--> CLOSING (failed) -> IDLE
    any --an answer other than OK where another owner may be the cause--> LOST

Rules
- The next ledger is listed, and written to, only after the last one is CLOSED by its own compare-and-set (pulsar#7490).
  It is prepared before that (`next_ledger`), so that a roll costs only the close and the link.
- Once LOST, nothing is acknowledged. The topic reads its record before it does anything else.
- The first entry of a ledger is its head, if its user wants one. It is written in front of the first entry of its user,
  in the same frame. So a ledger without an entry of its user stays empty, and a takeover of idle topics writes nothing.
  The head counts for no limit of the rule.
- What one event appends is sent as one frame (`flush`). What a ledger that closes has not sent is never sent.
- The open ledger rolls at a limit of its rule (`RollRule`). It also rolls when a live node has waited long enough for
  the place of a member that is absent or gets nothing new: in an idle topic nothing else would roll the ledger, and
  repair touches no open ledger (hazard repair-of-an-open-ledger). It waits because a node that has just gone may be
  listed for a while yet, and one that is back may go again: rolling for either would make producers wait for nothing.
- No roll begins while records cannot be written: its close would wait for them, and nothing could be appended.
- A managed ledger performs no I/O. It emits effects, and calls its user for what concerns the record.
Source: Pulsar's managed ledger, without its cursors.
"""

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import Protocol

from oncelog.core.chain.next_ledger import LedgerIdClaimed, LedgerPurpose, NextEffect, NextLedger
from oncelog.core.errors import InvariantViolated
from oncelog.core.formats.batch import Buffer
from oncelog.core.formats.entry import EntryHeader, EntryKind
from oncelog.core.formats.head import LedgerHead, encode_head
from oncelog.core.ids import EntryId, Incarnation, LedgerId
from oncelog.core.ledger.member_selection import StorageNodesUpdated
from oncelog.core.ledger.member_status import AppendStatus
from oncelog.core.ledger.metadata import LedgerKey, LedgerMetadata
from oncelog.core.ledger.writer import Add, LedgerWriter, WriterState
from oncelog.core.records.records import RecordWritten, WriteRecord
from oncelog.core.records.status import WriteStatus

#: The version of a record that was just created.
CREATED_VERSION = 0


# --- events -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class EntriesAnswered:
    """The response of one member for entries of one ledger. OK means durable there."""

    ledger_id: LedgerId
    member: Incarnation
    entry_ids: list[EntryId]
    status: AppendStatus


@dataclass(frozen=True, slots=True)
class MemberLost:
    """The stream to a member broke, or its queue is full: the member gets no more entries of this ledger."""

    ledger_id: LedgerId
    member: Incarnation


# --- effects ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class SendAdds:
    """Send the same entries in one frame to each of `members`."""

    purpose: LedgerPurpose
    ledger_id: LedgerId
    members: tuple[Incarnation, ...]
    adds: tuple[Add, ...]


@dataclass(frozen=True, slots=True)
class AckQuorumLost:
    """For logs and counters: the ack quorum of this ledger is out of reach, so it is closed."""

    purpose: LedgerPurpose
    ledger_id: LedgerId


LedgerEvent = LedgerIdClaimed | EntriesAnswered | MemberLost | RecordWritten[LedgerKey, LedgerMetadata]
LedgerEffect = NextEffect | SendAdds | AckQuorumLost


class LedgerStep(Protocol):
    """The event being handled: its time, and where its effects go. The topic's Step is one."""

    @property
    def now_ms(self) -> int: ...

    @property
    def emit(self) -> Callable[[LedgerEffect], None]: ...


class LedgerUser(Protocol):
    """The part of the topic that a managed ledger works for."""

    def link_ledger(self, ledger_id: LedgerId) -> None:
        """The ledger exists: write it into the record, then call `linked`."""

    def head(self, metadata: LedgerMetadata) -> LedgerHead | None:
        """The head of the open ledger, whose first entry comes next. None: it gets none."""

    def confirmed(self, ledger_id: LedgerId, last_add_confirmed: EntryId) -> None:
        """last_add_confirmed moved."""

    def ledger_closed(self, *, failed: bool) -> None:
        """The ledger is CLOSED. failed: entries above its end were dropped."""

    def ledger_lost(self) -> None:
        """Another owner may have this managed ledger."""


class ManagedLedgerState(Enum):
    IDLE = "idle"
    OPENING = "opening"
    LINKING = "linking"
    OPEN = "open"
    ROLLING = "rolling"
    CLOSING = "closing"
    LOST = "lost"


_HEADS = {
    LedgerPurpose.LOG: EntryKind.HEAD_LOG,
    LedgerPurpose.DEDUP: EntryKind.HEAD_SNAPSHOTS,
    LedgerPurpose.ACKS: EntryKind.HEAD_ACKS,
}
#: Answers to an add that only another owner explains. ERASED: a copy is erased only once the ledger is CLOSED.
_ANOTHER_OWNER = (AppendStatus.FENCED, AppendStatus.NOT_WRITABLE, AppendStatus.CONFLICTING, AppendStatus.ERASED)


class ManagedLedger:
    """Opens, writes and closes the ledgers of one list, one after the other."""

    def __init__(self, next_ledger: NextLedger, user: LedgerUser, step: LedgerStep) -> None:
        """next_ledger: its preparation may have begun."""
        self.settings = next_ledger.settings
        self.next = next_ledger
        self.state = ManagedLedgerState.IDLE
        #: the writer of the open ledger, kept until the next ledger opens
        self.writer: LedgerWriter | None = None
        self._user = user
        self._step, self._emit = step, step.emit
        self._linking: LedgerMetadata | None = None
        #: the record that closes the ledger of the writer, once it is being written
        self._closing: LedgerMetadata | None = None
        self._failed = False
        #: what was appended and not sent yet
        self._appended: list[Add] = []
        #: no entry was appended to the open ledger
        self._at_start = True
        #: how many heads the open ledger has, 0 or 1, and their bytes
        self._heads = self._head_bytes = 0
        self._opened_ms = step.now_ms
        #: since when the open ledger lacks a member that a live node could replace; None: it does not
        self.replaceable_since_ms: int | None = None
        #: roll as soon as the next ledger is ready
        self.rolling = False
        #: the open ledger is the last one
        self._finishing = False

    @property
    def open(self) -> bool:
        return self.state is ManagedLedgerState.OPEN

    @property
    def at_rest(self) -> bool:
        """Whether nothing is under way, and time alone brings nothing soon."""
        return self.state in (ManagedLedgerState.IDLE, ManagedLedgerState.OPEN) and self.replaceable_since_ms is None

    @property
    def lacks_member(self) -> bool:
        """Whether a live node has waited long enough for the place of a member of the open ledger."""
        since_ms = self.replaceable_since_ms
        return since_ms is not None and self._step.now_ms - since_ms >= self.settings.rule.replace_after_ms

    # --- opening -----------------------------------------------------------------------------------------------------

    def open_next(self) -> None:
        """Begin to open the next ledger. The one before it must be CLOSED."""
        if self.state is not ManagedLedgerState.IDLE:
            raise InvariantViolated(f"cannot open a ledger: the managed ledger is {self.state.value}")
        self.state = ManagedLedgerState.OPENING
        self.next.prepare()
        self._go_on()

    def id_claimed(self, event: LedgerIdClaimed) -> None:
        self.next.id_claimed(event)
        self._next_changed()

    def record_written(self, event: RecordWritten[LedgerKey, LedgerMetadata]) -> None:
        """Take the answer to a write of a ledger's record, of this managed ledger or of another one."""
        if self.state is ManagedLedgerState.CLOSING and event.value == self._closing:
            self._close_answered(event.status)
        else:
            self.next.record_written(event)
            self._next_changed()

    def _next_changed(self) -> None:
        if self._finishing:
            self.next.drop()
        else:
            self._go_on()

    def _go_on(self) -> None:
        """Continue what waits for the next ledger, once that is ready."""
        if not self.next.ready:
            return
        if self.state is ManagedLedgerState.OPENING:
            self.state = ManagedLedgerState.LINKING
            self._linking = self.next.take()
            self._user.link_ledger(self._linking.ledger_id)
        elif self.rolling and self.state is ManagedLedgerState.OPEN:
            self._seal()

    def linked(self) -> None:
        """The record names the new ledger: open it for entries, unless too many of its members have left meanwhile."""
        if self.state is not ManagedLedgerState.LINKING or self._linking is None:
            raise InvariantViolated(f"a ledger was linked, but the managed ledger is {self.state.value}")
        self.state = ManagedLedgerState.OPEN
        self._failed = False
        self._at_start, self._heads, self._head_bytes = True, 0, 0
        self._opened_ms, self.replaceable_since_ms = self._step.now_ms, None
        self.writer = LedgerWriter(
            self._linking, owner_epoch=self.settings.owner_epoch, checksum=self.settings.checksum
        )
        for member in self._linking.members:
            if member not in self.next.nodes.live:
                self.writer.member_lost(member)
        self._look_for_members()
        if not self.writer.reachable:
            self.fail()

    # --- writing -----------------------------------------------------------------------------------------------------

    def append(
        self, kind: EntryKind, body: Buffer, *, base_index: int = 0, skip_first: int = 0, count: int = 0
    ) -> EntryHeader:
        """Append an entry. `flush` sends it."""
        if self.writer is None or self.state is not ManagedLedgerState.OPEN:
            raise InvariantViolated(f"cannot append: the managed ledger is {self.state.value}")
        if self._at_start:
            self._begin(self.writer, base_index)
        add = self.writer.append(
            kind, body, base_index=base_index, skip_first=skip_first, count=count, now_ms=self._step.now_ms
        )
        self._appended.append(add)
        return add.header

    def _begin(self, writer: LedgerWriter, base_index: int) -> None:
        """Append the head, if there is to be one."""
        self._at_start = False
        head = self._user.head(writer.metadata)
        if head is not None:
            body, kind = encode_head(head), _HEADS[self.settings.purpose]
            self._heads, self._head_bytes = 1, len(body)
            add = writer.append(kind, body, base_index=base_index, skip_first=0, count=0, now_ms=self._step.now_ms)
            self._appended.append(add)

    def flush(self) -> None:
        """Send what was appended, as one frame."""
        if self._appended:
            writer, appended = self.writer, tuple(self._appended)
            assert writer is not None
            self._appended.clear()
            self._emit(SendAdds(self.settings.purpose, writer.ledger_id, tuple(writer.present), appended))

    def entries_answered(self, event: EntriesAnswered) -> None:
        """Take a member's answer; the answers of an earlier ledger are late."""
        writer = self.writer
        if writer is None or event.ledger_id != writer.ledger_id:
            return
        if event.status is AppendStatus.OK:
            if writer.added(event.member, event.entry_ids):
                self._user.confirmed(event.ledger_id, writer.last_add_confirmed)
                if self.state is ManagedLedgerState.ROLLING:
                    self._close_when_drained()
        elif event.status in _ANOTHER_OWNER:
            if self.state in (ManagedLedgerState.OPEN, ManagedLedgerState.ROLLING):
                self.lose()
        else:
            self._member_lost(event.member)

    def member_lost(self, event: MemberLost) -> None:
        if self.writer is not None and event.ledger_id == self.writer.ledger_id:
            self._member_lost(event.member)

    def update_nodes(self, nodes: StorageNodesUpdated) -> None:
        """A newer view of the storage nodes."""
        self.next.update_nodes(nodes)
        if self.writer is not None:
            for member in [m for m in self.writer.present if m in nodes.retired]:
                self._member_lost(member)
        self._look_for_members()

    def tick(self, *, add_timeout_ms: int) -> None:
        """Time has passed. A member that leaves an entry unanswered for so long gets no more entries of this ledger."""
        now_ms = self._step.now_ms
        self._opened_ms = min(self._opened_ms, now_ms)  # a clock that went back delays nothing
        if self.replaceable_since_ms is not None:
            self.replaceable_since_ms = min(self.replaceable_since_ms, now_ms)
        if self.writer is not None:
            for member in self.writer.laggards(now_ms=now_ms, timeout_ms=add_timeout_ms):
                self._member_lost(member)
        self._look_for_members()

    def _look_for_members(self) -> None:
        """Note since when a member of the open ledger is absent, or to get nothing new, and a live node could take its
        place."""
        writer, nodes = self.writer, self.next.nodes
        if writer is None:
            return
        lacking = any(m not in writer.present or m in nodes.read_only for m in writer.metadata.members)
        if not lacking or all(node in writer.present for node in nodes.live):
            self.replaceable_since_ms = None
        elif self.replaceable_since_ms is None:
            self.replaceable_since_ms = self._step.now_ms

    def _member_lost(self, member: Incarnation) -> None:
        if self.writer is None or self.state not in (ManagedLedgerState.OPEN, ManagedLedgerState.ROLLING):
            return
        if not self.writer.member_lost(member):
            self.fail()

    def fail(self) -> None:
        """Close at last_add_confirmed, because the ack quorum is out of reach."""
        assert self.writer is not None
        self._failed = not self.writer.idle
        self._emit(AckQuorumLost(self.settings.purpose, self.writer.ledger_id))
        self._close()

    # --- closing -----------------------------------------------------------------------------------------------------

    def roll(self) -> None:
        """Planned: once the next ledger is ready, stop admitting entries, wait for the last response, and close.

        Does nothing unless OPEN.
        """
        if not self.open or self._finishing:
            return
        self.rolling = True
        self.next.prepare()
        self._go_on()

    def roll_if_due(self, *, held: bool = False) -> None:
        """Begin a roll if the open ledger is at a limit of its rule. held: its user needs it still; it rolls all the
        same if it lacks a member."""
        if self.rolls_soon and not self.rolling and (not held or self.lacks_member):
            self.roll()

    @property
    def rolls_soon(self) -> bool:
        """Whether the open ledger is at a limit of its rule, or its roll has begun."""
        writer = self.writer
        if self.rolling:
            return True
        if writer is None or not self.open or not self.next.nodes.store_reachable:
            return False
        age_ms = self._step.now_ms - self._opened_ms
        entries, length = writer.next_entry - self._heads, writer.length - self._head_bytes
        return self.settings.rule.due(entries, length, age_ms) or self.lacks_member

    def finish(self) -> None:
        """Planned: close, and open no further ledger. Does nothing unless OPEN."""
        if not self.open:
            return
        self._finishing = True
        self.next.drop()
        self._seal()

    def _seal(self) -> None:
        assert self.writer is not None
        self.state = ManagedLedgerState.ROLLING
        self.writer.seal()
        self._close_when_drained()

    def _close_when_drained(self) -> None:
        if self.state is ManagedLedgerState.ROLLING and self.writer is not None and self.writer.idle:
            self._close()

    def _close(self) -> None:
        assert self.writer is not None
        self.state = ManagedLedgerState.CLOSING
        self.rolling = False
        self._appended.clear()
        self._closing = self.writer.close()
        self._emit(WriteRecord(LedgerKey(self.writer.ledger_id), self._closing, CREATED_VERSION))

    def _close_answered(self, status: WriteStatus) -> None:
        assert self.writer is not None
        if status is not WriteStatus.OK:
            self.lose()
            return
        self.writer.closed()
        self.state = ManagedLedgerState.IDLE
        self._user.ledger_closed(failed=self._failed)

    def lose(self) -> None:
        """Stop acknowledging at once; the topic reads its record."""
        if self.state is ManagedLedgerState.LOST:
            return
        self.state = ManagedLedgerState.LOST
        self._appended.clear()
        if self.writer is not None:
            self.writer.lose()
        self._user.ledger_lost()

    def check_invariants(self) -> None:
        if self.writer is not None:
            self.writer.check_invariants()
            if self.state is ManagedLedgerState.OPEN and self.writer.state is not WriterState.OPEN:
                raise InvariantViolated("the managed ledger is open, but its writer is not")
