"""The ownership of one topic record: what its owner read, what it writes, and when it stops for ever.

    UNREAD --record names this owner--> OWNED --a write was not answered OK, or another doubt--> SUSPECT
    SUSPECT --record names this owner at the same epoch--> OWNED
    UNREAD | OWNED | SUSPECT --record names another owner, or another epoch--> DEPOSED
    UNREAD --record names this owner at an epoch that it gave up--> DEPOSED: the topic is about to be placed again
    UNREAD | OWNED | SUSPECT --there is no record--> DELETED

Rules
- At most one read and one write are in flight, so that no response can be mistaken for another. A record that was read
  before the doubt, or before the response to a write, is read again.
- Every write is a compare-and-set. It names the version that was read when the record named this owner, or the version
  that its own last write returned. After a conflict or a lost reply nothing is written until the record was read, and
  then the takeover starts again at its recovery.
- Both chains of the topic, the log and the ack chain, are in the one record. Of the writes that wait, a link of the log
  goes first, because producers wait for it; then a link of the ack chain, a trim of the log, a trim of the ack chain.
- Before a request is refused, ownership is proved by a read that shows this owner's epoch.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from enum import Enum

from oncelog.core.errors import NotOwner, TopicNotFound
from oncelog.core.formats.topic_record import LedgerLink, TopicRecord
from oncelog.core.ids import Incarnation, LedgerId, OwnerEpoch, TopicId
from oncelog.core.store_status import WriteStatus

# --- events -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class TopicRecordRead:
    """The topic record after a sync. None: there is no record."""

    record: TopicRecord | None
    version: int


@dataclass(frozen=True, slots=True)
class TopicRecordWritten:
    status: WriteStatus
    version: int


# --- effects ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ReadTopicRecord:
    """Read the record after a sync. The shell retries until it has an answer."""

    topic_id: TopicId


@dataclass(frozen=True, slots=True)
class WriteTopicRecord:
    """Compare-and-set of the record from `version`, attempted once."""

    record: TopicRecord
    version: int


# --- notifications to the topic ---------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Owned:
    """The record names this owner: begin with recovery. Also after a doubt that was unfounded."""


@dataclass(frozen=True, slots=True)
class OwnershipConfirmed:
    """A read that was requested to prove ownership shows this owner's epoch."""


@dataclass(frozen=True, slots=True)
class Linked:
    """The record lists this ledger of the log."""

    ledger_id: LedgerId


@dataclass(frozen=True, slots=True)
class AcksLinked:
    """The record lists this ledger of the ack chain."""

    ledger_id: LedgerId


@dataclass(frozen=True, slots=True)
class Trimmed:
    """These ledgers left the list of the log or of the ack chain. They may be deleted now, not before."""

    ledger_ids: tuple[LedgerId, ...]


@dataclass(frozen=True, slots=True)
class Deposed:
    reason: str


OwnershipEffect = ReadTopicRecord | WriteTopicRecord
Emit = Callable[[OwnershipEffect], None]


class OwnershipState(Enum):
    UNREAD = "unread"
    OWNED = "owned"
    SUSPECT = "suspect"
    DEPOSED = "deposed"
    DELETED = "deleted"


#: The final states: nothing is read or written any more.
_LOST = (OwnershipState.DEPOSED, OwnershipState.DELETED)


@dataclass(slots=True)
class _PendingWrites:
    """What the next writes add to each list, and how many ledgers they remove from its front."""

    link: LedgerLink | None = None
    link_acks: LedgerId | None = None
    trim: int = 0
    trim_acks: int = 0


class Ownership:
    """The record of one topic as its owner has it, for one owner_epoch."""

    def __init__(self, topic_id: TopicId, me: Incarnation, emit: Emit) -> None:
        self.topic_id = topic_id
        self.me = me
        self._emit = emit
        self.state = OwnershipState.UNREAD
        self.record = TopicRecord(topic_id, "")
        self.version = -1
        self._reading = False
        #: something happened since the read in flight began, so its response is not new enough
        self._read_again = False
        #: the record that is being written; None when no write is in flight
        self._writing: TopicRecord | None = None
        #: what is written next
        self._next = _PendingWrites()

    @property
    def epoch(self) -> OwnerEpoch:
        return self.record.owner_epoch

    def gave_up(self, owner_epoch: OwnerEpoch) -> None:
        """Before the record is read: this owner closed the topic at this epoch a moment ago.

        The process that requested the close is about to place the topic at a higher epoch. An assignment that was sent
        before, or by a process that still sees the old record, would make this owner serve a topic of another owner.
        """
        self.record = replace(self.record, owner_epoch=owner_epoch)

    def read(self) -> bool:
        """Read the record, once at a time. Returns whether a read begins."""
        if self._reading or self.state in _LOST:
            return False
        self._reading = True
        self._emit(ReadTopicRecord(self.topic_id))
        return True

    def suspect(self) -> None:
        """Another process may own the topic: write nothing until the record was read."""
        if self.state is OwnershipState.OWNED:
            self.state = OwnershipState.SUSPECT
            self._next = _PendingWrites()
            self._read_again = self._reading
        self.read()

    def link(self, link: LedgerLink) -> None:
        self._next.link = link
        self._write_next()

    def link_acks(self, ledger_id: LedgerId) -> None:
        """Add a ledger to the ack chain."""
        self._next.link_acks = ledger_id
        self._write_next()

    def trim(self, count: int) -> None:
        """Remove the first `count` ledgers from the list of the log."""
        self._next.trim = count
        self._write_next()

    def trim_acks(self, count: int) -> None:
        """Remove the first `count` ledgers from the ack chain."""
        self._next.trim_acks = count
        self._write_next()

    def _write_next(self) -> None:
        if self._writing is not None or self.state is not OwnershipState.OWNED:
            return
        following = self._next
        if following.link is not None:
            self._writing = self.record.with_ledger(following.link)
        elif following.link_acks is not None:
            self._writing = self.record.with_ack_ledger(following.link_acks)
        elif following.trim:
            self._writing = self.record.without_first(following.trim)
        elif following.trim_acks:
            self._writing = self.record.without_first_acks(following.trim_acks)
        else:
            return
        self._emit(WriteTopicRecord(self._writing, self.version))

    def record_read(self, event: TopicRecordRead) -> Owned | OwnershipConfirmed | Deposed | None:
        """Decide from the record that was read."""
        self._reading = False
        if self.state in _LOST:
            return None
        record = event.record
        if record is None:
            return self._depose("it was deleted", OwnershipState.DELETED)
        if record.owner != self.me or (self.state is not OwnershipState.UNREAD and record.owner_epoch != self.epoch):
            return self._depose(f"owner_epoch {record.owner_epoch} belongs to {record.owner}")
        if self.state is OwnershipState.UNREAD and record.owner_epoch <= self.epoch:
            return self._depose(f"owner_epoch {record.owner_epoch} was given up here")
        if self.state is OwnershipState.OWNED:
            return OwnershipConfirmed()
        if self._writing is not None:
            return None  # its answer begins another read: only then is it certain what the record will say
        if self._read_again:
            self._read_again = False
            self.read()
            return None
        self.state = OwnershipState.OWNED
        self.record, self.version = record, event.version
        self._next = _PendingWrites()
        return Owned()

    def record_written(self, event: TopicRecordWritten) -> Linked | AcksLinked | Trimmed | None:
        """Take the response to the write in flight."""
        written, self._writing = self._writing, None
        if written is None or self.state in _LOST:
            return None
        if self.state is OwnershipState.SUSPECT:
            self._read_again = self._reading
            self.read()
            return None
        if event.status is not WriteStatus.OK:
            self.suspect()
            return None
        before, self.record, self.version = self.record, written, event.version
        # `_next` may have changed since the write began. What it did is in the record that was written.
        done: Linked | AcksLinked | Trimmed
        trimmed, trimmed_acks = len(before.ledgers) - len(written.ledgers), len(before.acks) - len(written.acks)
        if trimmed < 0:
            done, self._next.link = Linked(written.ledgers[-1].ledger_id), None
        elif trimmed_acks < 0:
            done, self._next.link_acks = AcksLinked(written.acks[-1]), None
        elif trimmed:
            done = Trimmed(tuple(link.ledger_id for link in before.ledgers[:trimmed]))
            self._next.trim -= trimmed
        else:
            done = Trimmed(before.acks[:trimmed_acks])
            self._next.trim_acks -= trimmed_acks
        self._write_next()
        return done

    def lost(self, reason: str) -> NotOwner | TopicNotFound:
        """The error for the users of the topic at this process: look the topic up again, or it does not exist."""
        if self.state is OwnershipState.DELETED:
            return TopicNotFound(f"topic {self.record.name or self.topic_id} was deleted", topic_id=self.topic_id)
        return NotOwner(f"this process no longer owns the topic: {reason}")

    def _depose(self, reason: str, state: OwnershipState = OwnershipState.DEPOSED) -> Deposed:
        self.state = state
        return Deposed(reason)
