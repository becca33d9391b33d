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
- Both chains of the topic, the log and the ack log, are in the one record. Of the writes that wait, a page goes
  first, because a record that is too large cannot be written with another ledger; then a link of the log, for which
  producers wait, a link of the ack log, a trim of the log, a trim of the ack log, and that nothing is
  given up any more.
- A page and its link are one write, which happens as a whole or not at all (`core.formats.ledger_page`).
- Before a request is refused, ownership is proved by a read that shows this owner's epoch.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from enum import Enum
from typing import NamedTuple

from oncelog.core.era import era_of
from oncelog.core.errors import NotOwner, TopicNotFound
from oncelog.core.formats.head import LedgerHead
from oncelog.core.formats.ledger_page import ListPage, PageLink
from oncelog.core.formats.topic_record import LedgerLink, TopicRecord
from oncelog.core.ids import BEFORE_ALL, Incarnation, LedgerId, OwnerEpoch, Position, TopicId
from oncelog.core.ledger.metadata import LedgerMetadata
from oncelog.core.records.records import ABSENT_VERSION, ReadRecord, RecordRead, RecordWritten, TopicKey, WriteRecord
from oncelog.core.records.status import WriteStatus

# --- notifications to the topic ---------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Owned:
    """The record names this owner: begin with recovery. Also after a doubt that was unfounded."""


@dataclass(frozen=True, slots=True)
class OwnershipConfirmed:
    """A read that was requested to prove ownership shows this owner's epoch."""


@dataclass(frozen=True, slots=True)
class Linked:
    """The record lists this ledger of the log. instead: the empty one before it, which is not listed any more."""

    ledger_id: LedgerId
    instead: LedgerId | None = None


@dataclass(frozen=True, slots=True)
class AcksLinked:
    """The same of the ack log."""

    ledger_id: LedgerId
    instead: LedgerId | None = None


@dataclass(frozen=True, slots=True)
class Paged:
    """The record links this page, which lists ledgers that the record listed before."""

    page: PageLink


@dataclass(frozen=True, slots=True)
class Trimmed:
    """These ledgers left the list of the log or of the ack log. They may be deleted now, not before. Pages that left
    it are below the floor, with their ledgers."""

    ledger_ids: tuple[LedgerId, ...]


@dataclass(frozen=True, slots=True)
class Deposed:
    reason: str


OwnershipEffect = ReadRecord[TopicKey] | WriteRecord[TopicKey, TopicRecord]
Emit = Callable[[OwnershipEffect], None]


class OwnershipState(Enum):
    UNREAD = "unread"
    OWNED = "owned"
    SUSPECT = "suspect"
    DEPOSED = "deposed"
    DELETED = "deleted"


#: The final states: nothing is read or written any more.
_LOST = (OwnershipState.DEPOSED, OwnershipState.DELETED)


class LogTrim(NamedTuple):
    """The ledgers of the log up to `last_gone` leave the list. page: what is left of the page in which that one is.
    paged: the ledgers of this page that leave."""

    last_gone: LedgerId
    page: PageLink | None = None
    paged: tuple[LedgerId, ...] = ()


@dataclass(slots=True)
class _PendingWrites:
    """What the next writes add to each list, and what they remove from its front. trim_acks: a number of ledgers."""

    page: ListPage | None = None
    link: LedgerLink | None = None
    link_instead: LedgerId | None = None
    link_acks: LedgerId | None = None
    acks_instead: LedgerId | None = None
    trim: LogTrim | None = None
    trim_acks: int = 0
    said_given_up: bool = False


class Ownership:
    """The record of one topic as its owner has it, for one owner_epoch."""

    def __init__(self, topic_id: TopicId, me: Incarnation, emit: Emit) -> None:
        self.topic_id = topic_id
        self.key = TopicKey(topic_id)
        self.me = me
        self._emit = emit
        self.state = OwnershipState.UNREAD
        self.record = TopicRecord(topic_id, "")
        self.version = ABSENT_VERSION
        self._reading = False
        #: something happened since the read in flight began, so its response is not new enough
        self._read_again = False
        #: the record that is being written; None when no write is in flight. The trim of the log that it holds
        self._writing: TopicRecord | None = None
        self._trimming: LogTrim | None = None
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
        self._emit(ReadRecord(self.key))
        return True

    def suspect(self) -> None:
        """Another process may own the topic: write nothing until the record was read."""
        if self.state is OwnershipState.OWNED:
            self.state = OwnershipState.SUSPECT
            self._next = _PendingWrites()
            self._read_again = self._reading
        self.read()

    def link(self, link: LedgerLink, *, instead: LedgerId | None = None) -> None:
        """Add a ledger to the log. instead: the last one, CLOSED without an entry, leaves the list."""
        self._next.link, self._next.link_instead = link, instead
        self._write_next()

    def link_acks(self, ledger_id: LedgerId, *, instead: LedgerId | None = None) -> None:
        """Add a ledger to the ack log. instead: as in `link`."""
        self._next.link_acks, self._next.acks_instead = ledger_id, instead
        self._write_next()

    def head(self, metadata: LedgerMetadata, floor: LedgerId, former: Position) -> LedgerHead:
        """The head of an open ledger of this owner. floor, former: of the ledger's chain, BEFORE_ALL for one without an
        entry before."""
        return LedgerHead(
            self.record.name, metadata.members, metadata.ack_quorum, era_of(self.epoch), self.me, floor,
            None if former == BEFORE_ALL else former,
        )  # fmt: skip

    def trim(self, trim: LogTrim) -> None:
        """Remove ledgers from the front of the list of the log."""
        self._next.trim = trim
        self._write_next()

    def move_to_page(self, page: ListPage) -> None:
        """Move the oldest ledgers that the record lists one by one to a page. No trim may wait."""
        self._next.page = page
        self._write_next()

    def trim_acks(self, count: int) -> None:
        """Remove the first `count` ledgers from the ack log."""
        self._next.trim_acks = count
        self._write_next()

    def said_given_up(self) -> None:
        """Both chains say what a restore has given up, and no replay needs to know it from the record."""
        self._next.said_given_up = True
        self._write_next()

    def _write_next(self) -> None:
        if self._writing is not None or self.state is not OwnershipState.OWNED:
            return
        following, self._trimming = self._next, None
        page = following.page
        if page is not None:
            self._writing = self.record.with_page(page.link)
        elif following.link is not None:
            self._writing = self.record.with_ledger(following.link, instead=following.link_instead)
        elif following.link_acks is not None:
            self._writing = self.record.with_ack_ledger(following.link_acks, instead=following.acks_instead)
        elif following.trim is not None:
            self._trimming = trim = following.trim
            self._writing = self.record.without(trim.last_gone, trim.page)
        elif following.trim_acks:
            self._writing = self.record.without_first_acks(following.trim_acks)
        elif following.said_given_up and self.record.given_up_behind is not None:
            self._writing = replace(self.record, given_up_behind=None)
        else:
            return
        self._emit(WriteRecord(self.key, self._writing, self.version, page))

    def record_read(self, event: RecordRead[TopicKey, TopicRecord]) -> Owned | OwnershipConfirmed | Deposed | None:
        """Decide from the record that was read."""
        self._reading = False
        if self.state in _LOST:
            return None
        record = event.value
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

    def record_written(
        self, event: RecordWritten[TopicKey, TopicRecord]
    ) -> Linked | AcksLinked | Paged | Trimmed | None:
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
        done = self._done(before, written)
        self._write_next()
        return done

    def _done(self, before: TopicRecord, written: TopicRecord) -> Linked | AcksLinked | Paged | Trimmed | None:
        """What a write did. `_next` may have changed since it began, so the records tell it."""
        following = self._next
        if written.given_up_behind != before.given_up_behind:
            return None
        if written.pages[-1:] != before.pages[-1:] and written.first == before.first:
            following.page = None
            return Paged(written.pages[-1])
        if written.ledgers[-1:] != before.ledgers[-1:]:
            following.link = None
            return Linked(written.ledgers[-1].ledger_id, following.link_instead)
        if written.acks[-1:] != before.acks[-1:]:
            following.link_acks = None
            return AcksLinked(written.acks[-1], following.acks_instead)
        trim = self._trimming
        if trim is not None:
            following.trim = None if following.trim == trim else following.trim
            gone = tuple(link.ledger_id for link in before.ledgers if link.ledger_id <= trim.last_gone)
            return Trimmed(trim.paged + gone)
        trimmed = len(before.acks) - len(written.acks)
        following.trim_acks -= trimmed
        return Trimmed(before.acks[:trimmed])

    def lost(self, reason: str) -> NotOwner | TopicNotFound:
        """The error for the users of the topic at this process: look the topic up again, or it does not exist."""
        if self.state is OwnershipState.DELETED:
            return TopicNotFound(f"topic {self.record.name or self.topic_id} was deleted", topic_id=self.topic_id)
        return NotOwner(f"this process no longer owns the topic: {reason}")

    def _depose(self, reason: str, state: OwnershipState = OwnershipState.DEPOSED) -> Deposed:
        self.state = state
        return Deposed(reason)
