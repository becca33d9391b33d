"""A managed ledger: a list of ledgers under one record in ZooKeeper, at most the last of them open.

A topic's log is one, its dedup cursor is another.

    IDLE --open--> OPENING (until the next ledger is ready) -> LINKING (into the list, by compare-and-set) -> OPEN
    OPEN --roll--> OPEN (until the next ledger is ready) -> ROLLING
    OPEN --finish--> ROLLING (sealed; the last answers come in) -> CLOSING -> IDLE
    OPEN | ROLLING --ack quorum out of reach--> CLOSING (failed) -> IDLE
    any --an answer other than OK where another owner may be the cause--> LOST

Rules
- The next ledger is listed, and written to, only after the last one is CLOSED by its own compare-and-set (pulsar#7490).
  It is prepared before that (`next_ledger`), so that a roll costs only the close and the link.
- Once LOST, nothing is acknowledged. The topic reads its record before it does anything else.
- A managed ledger performs no I/O. Its effects go up to `topic`, which owns both records.
Source: Pulsar's managed ledger, without its cursors.
"""

from dataclasses import dataclass
from enum import Enum

from oncelog.core.errors import InvariantViolated
from oncelog.core.formats.batch import Buffer
from oncelog.core.formats.entry import EntryKind
from oncelog.core.ids import EntryId, Incarnation, LedgerId
from oncelog.core.ledger.member_status import AppendStatus
from oncelog.core.ledger.members import StorageNodesUpdated
from oncelog.core.ledger.metadata import LedgerMetadata
from oncelog.core.ledger.next_ledger import LedgerCreated, LedgerIdClaimed, LedgerPurpose, NextEffect, NextLedger
from oncelog.core.ledger.writer import Add, LedgerWriter, WriterState
from oncelog.core.store_status import WriteStatus

#: The version of a record that was just created.
CREATED_VERSION = 0


# --- events -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class LedgerCloseAnswered:
    """The response to CloseLedger."""

    purpose: LedgerPurpose
    ledger_id: LedgerId
    status: WriteStatus


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
class CloseLedger:
    """Compare-and-set of the writer's own ledger, from `version`."""

    purpose: LedgerPurpose
    metadata: LedgerMetadata
    version: int


@dataclass(frozen=True, slots=True)
class SendAdds:
    """Send the same entries in one frame to each of `members`."""

    ledger_id: LedgerId
    members: tuple[Incarnation, ...]
    adds: tuple[Add, ...]


# --- notifications to the topic ---------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Linking:
    """The ledger exists: write it into the record, then call `linked`."""

    purpose: LedgerPurpose
    ledger_id: LedgerId


@dataclass(frozen=True, slots=True)
class Confirmed:
    """last_add_confirmed moved."""

    purpose: LedgerPurpose
    ledger_id: LedgerId
    last_add_confirmed: EntryId


@dataclass(frozen=True, slots=True)
class LedgerClosed:
    """The ledger is CLOSED at `end`. failed: entries above `end` were given up; otherwise there were none."""

    purpose: LedgerPurpose
    ledger_id: LedgerId
    end: EntryId
    failed: bool


@dataclass(frozen=True, slots=True)
class AckQuorumLost:
    """The ack quorum is out of reach: nothing more is acknowledged, and LedgerClosed follows."""

    purpose: LedgerPurpose
    ledger_id: LedgerId


@dataclass(frozen=True, slots=True)
class ManagedLedgerLost:
    """Another process may own the topic by now."""

    purpose: LedgerPurpose
    reason: str


LedgerEvent = LedgerIdClaimed | LedgerCreated | LedgerCloseAnswered | EntriesAnswered | MemberLost
LedgerEffect = NextEffect | CloseLedger | SendAdds
LedgerNotification = Linking | Confirmed | LedgerClosed | AckQuorumLost | ManagedLedgerLost


class ManagedLedgerState(Enum):
    IDLE = "idle"
    OPENING = "opening"
    LINKING = "linking"
    OPEN = "open"
    ROLLING = "rolling"
    CLOSING = "closing"
    LOST = "lost"


class ManagedLedger:
    """Opens, writes and closes the ledgers of one list, one after the other."""

    def __init__(self, next_ledger: NextLedger) -> None:
        """next_ledger: its preparation may have begun."""
        self.settings = next_ledger.settings
        self.next = next_ledger
        self.state = ManagedLedgerState.IDLE
        #: the writer of the open ledger, kept until the next ledger opens
        self.writer: LedgerWriter | None = None
        self._linking: LedgerMetadata | None = None
        self._failed = False
        #: roll as soon as the next ledger is ready
        self._rolling = False
        #: the open ledger is the last one
        self._finishing = False

    @property
    def open(self) -> bool:
        return self.state is ManagedLedgerState.OPEN

    def open_next(self) -> list[LedgerEffect | LedgerNotification]:
        """Begin to open the next ledger. The one before it must be CLOSED."""
        if self.state is not ManagedLedgerState.IDLE:
            raise InvariantViolated(f"cannot open a ledger: the managed ledger is {self.state.value}")
        self.state = ManagedLedgerState.OPENING
        return [*self.next.prepare(), *self._go_on()]

    def update_nodes(self, nodes: StorageNodesUpdated) -> list[LedgerEffect | LedgerNotification]:
        """Take a new list of the storage nodes."""
        out: list[LedgerEffect | LedgerNotification] = [*self.next.update_nodes(nodes)]
        if self.state in (ManagedLedgerState.OPEN, ManagedLedgerState.ROLLING) and self.writer:
            for member in [m for m in self.writer.present if m in nodes.superseded]:
                out += self._member_lost(member)
        return out

    def handle(self, event: LedgerEvent) -> list[LedgerEffect | LedgerNotification]:
        """Take one completion. A late one is recognised by its ledger id and ignored."""
        match event:
            case LedgerIdClaimed() | LedgerCreated():
                out: list[LedgerEffect | LedgerNotification] = [*self.next.handle(event)]
                return [*out, *self.next.drop()] if self._finishing else [*out, *self._go_on()]
            case EntriesAnswered():
                return self._entries_answered(event)
            case MemberLost():
                current = self.writer is not None and event.ledger_id == self.writer.ledger_id
                return self._member_lost(event.member) if current else []
            case LedgerCloseAnswered():
                return self._close_answered(event)

    # --- opening -----------------------------------------------------------------------------------------------------

    def _go_on(self) -> list[LedgerEffect | LedgerNotification]:
        """Continue whatever waits for the next ledger, once that is ready."""
        if not self.next.ready:
            return []
        if self.state is ManagedLedgerState.OPENING:
            self.state = ManagedLedgerState.LINKING
            self._linking = self.next.take()
            return [Linking(self.settings.purpose, self._linking.ledger_id)]
        return self._seal() if self._rolling and self.open else []

    def linked(self) -> list[LedgerEffect | LedgerNotification]:
        """The record names the new ledger: open it for entries, unless too many of its members have left meanwhile."""
        if self.state is not ManagedLedgerState.LINKING or self._linking is None:
            raise InvariantViolated(f"a ledger was linked, but the managed ledger is {self.state.value}")
        self.state = ManagedLedgerState.OPEN
        self._failed = False
        self.writer = LedgerWriter(
            self._linking, owner_epoch=self.settings.owner_epoch, checksum=self.settings.checksum
        )
        for member in self._linking.members:
            if member not in self.next.nodes.live:
                self.writer.member_lost(member)
        return [] if self.writer.reachable else self.fail()

    # --- writing -----------------------------------------------------------------------------------------------------

    def append(
        self, kind: EntryKind, body: Buffer, *, base_index: int, skip_first: int, count: int, now_ms: int
    ) -> Add:
        if self.writer is None or self.state is not ManagedLedgerState.OPEN:
            raise InvariantViolated(f"cannot append: the managed ledger is {self.state.value}")
        return self.writer.append(kind, body, base_index=base_index, skip_first=skip_first, count=count, now_ms=now_ms)

    def send(self, adds: list[Add]) -> SendAdds:
        """One effect for all entries that one event appended."""
        assert self.writer is not None
        return SendAdds(self.writer.ledger_id, tuple(self.writer.present), tuple(adds))

    def _entries_answered(self, event: EntriesAnswered) -> list[LedgerEffect | LedgerNotification]:
        writer = self.writer
        if writer is None or event.ledger_id != writer.ledger_id:
            return []
        if event.status is AppendStatus.OK:
            if not writer.added(event.member, event.entry_ids):
                return []
            news: list[LedgerEffect | LedgerNotification] = [
                Confirmed(self.settings.purpose, writer.ledger_id, writer.last_add_confirmed)
            ]
            return news + self._close_when_drained()
        if event.status in (AppendStatus.FENCED, AppendStatus.NOT_WRITABLE, AppendStatus.CONFLICTING):
            if self.state in (ManagedLedgerState.OPEN, ManagedLedgerState.ROLLING):
                return self.lose(
                    f"storage node {event.member} answered {event.status.name} for ledger {event.ledger_id}"
                )
            return []
        return self._member_lost(event.member)

    def _member_lost(self, member: Incarnation) -> list[LedgerEffect | LedgerNotification]:
        if self.writer is None or self.state not in (ManagedLedgerState.OPEN, ManagedLedgerState.ROLLING):
            return []
        if self.writer.member_lost(member):
            return []
        return self.fail()

    def fail(self) -> list[LedgerEffect | LedgerNotification]:
        """Close at last_add_confirmed, because the ack quorum is out of reach."""
        assert self.writer is not None
        self._failed = not self.writer.idle
        return [AckQuorumLost(self.settings.purpose, self.writer.ledger_id), self._close()]

    # --- closing -----------------------------------------------------------------------------------------------------

    def roll(self) -> list[LedgerEffect | LedgerNotification]:
        """Planned: once the next ledger is ready, stop admitting entries, wait for the last response, and close.

        Does nothing unless OPEN.
        """
        if not self.open or self._finishing:
            return []
        self._rolling = True
        return [*self.next.prepare(), *self._go_on()]

    def finish(self) -> list[LedgerEffect | LedgerNotification]:
        """Planned: close, and open no further ledger. Does nothing unless OPEN."""
        if not self.open:
            return []
        self._finishing = True
        return [*self.next.drop(), *self._seal()]

    def _seal(self) -> list[LedgerEffect | LedgerNotification]:
        assert self.writer is not None
        self.state = ManagedLedgerState.ROLLING
        self.writer.seal()
        return self._close_when_drained()

    def _close_when_drained(self) -> list[LedgerEffect | LedgerNotification]:
        if self.state is ManagedLedgerState.ROLLING and self.writer is not None and self.writer.idle:
            return [self._close()]
        return []

    def _close(self) -> CloseLedger:
        assert self.writer is not None
        self.state = ManagedLedgerState.CLOSING
        self._rolling = False
        return CloseLedger(self.settings.purpose, self.writer.close(), CREATED_VERSION)

    def _close_answered(self, event: LedgerCloseAnswered) -> list[LedgerEffect | LedgerNotification]:
        writer = self.writer
        if self.state is not ManagedLedgerState.CLOSING or writer is None or event.ledger_id != writer.ledger_id:
            return []
        if event.status is not WriteStatus.OK:
            return self.lose(f"closing ledger {event.ledger_id} returned {event.status.name}")
        writer.closed()
        self.state = ManagedLedgerState.IDLE
        return [LedgerClosed(self.settings.purpose, writer.ledger_id, writer.last_add_confirmed, self._failed)]

    def lose(self, reason: str) -> list[LedgerEffect | LedgerNotification]:
        """Stop acknowledging at once. The topic then reads its record."""
        if self.state is ManagedLedgerState.LOST:
            return []
        self.state = ManagedLedgerState.LOST
        if self.writer is not None:
            self.writer.lose()
        return [ManagedLedgerLost(self.settings.purpose, reason)]

    def check_invariants(self) -> None:
        if self.writer is not None:
            self.writer.check_invariants()
            if self.state is ManagedLedgerState.OPEN and self.writer.state is not WriterState.OPEN:
                raise InvariantViolated("the managed ledger is open, but its writer is not")
