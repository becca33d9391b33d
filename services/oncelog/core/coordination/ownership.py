"""One owner's hold on the topic record: what it read, what it writes, and when it stops for good.

    UNREAD --record names me--> OWNED --a write not plainly OK, or anything suspicious--> SUSPECT
    SUSPECT --names me, same epoch--> OWNED
    UNREAD | OWNED | SUSPECT --names another, or another epoch--> DEPOSED, for good
    UNREAD --names me, at an epoch that I gave up--> DEPOSED: I am placed anew at a higher one, or another is
    UNREAD | OWNED | SUSPECT --there is no record any more--> DELETED, for good

Rules: one read and one write are in flight at most, so that no answer can be taken for another's; what was read before
the suspicion, or before the answer to a write, is read again. Every write is a compare-and-set on the version read when
the record named this owner, or on the one its own last write returned; after a conflict or a lost reply the record is
read again and nothing is written before that, and then the takeover starts again at B. Proof of ownership before a
refusal is a read that shows my epoch.
"""

from dataclasses import dataclass, replace
from enum import Enum

from oncelog.core.errors import NotOwner, TopicNotFound
from oncelog.core.formats.topic_record import LedgerLink, TopicRecord
from oncelog.core.ids import Incarnation, LedgerId, OwnerEpoch, TopicId
from oncelog.core.store_status import WriteStatus

# --- events -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class TopicRecordRead:
    """The topic record after a sync; None: there is none."""

    record: TopicRecord | None
    version: int


@dataclass(frozen=True, slots=True)
class TopicRecordWritten:
    status: WriteStatus
    version: int


# --- effects ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ReadTopicRecord:
    """Synced, retried until answered."""

    topic_id: TopicId


@dataclass(frozen=True, slots=True)
class WriteTopicRecord:
    """Attempted once, by compare-and-set from `version`."""

    record: TopicRecord
    version: int


# --- news for the topic -----------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Owned:
    """The record names this owner: begin at B. Also after a suspicion that proved false."""


@dataclass(frozen=True, slots=True)
class OwnershipConfirmed:
    """A read asked for by `confirm` shows my epoch."""


@dataclass(frozen=True, slots=True)
class Linked:
    ledger_id: LedgerId


@dataclass(frozen=True, slots=True)
class Trimmed:
    """These ledgers left the list; they may be deleted now, not before."""

    ledger_ids: tuple[LedgerId, ...]


@dataclass(frozen=True, slots=True)
class Deposed:
    reason: str


OwnershipEffect = ReadTopicRecord | WriteTopicRecord
OwnershipNews = Owned | OwnershipConfirmed | Linked | Trimmed | Deposed
_Out = list[OwnershipEffect | OwnershipNews]


class OwnershipState(Enum):
    UNREAD = "unread"
    OWNED = "owned"
    SUSPECT = "suspect"
    DEPOSED = "deposed"
    DELETED = "deleted"


#: The ends: nothing is read or written any more.
_LOST = (OwnershipState.DEPOSED, OwnershipState.DELETED)


class Ownership:
    """The record of one topic as its owner holds it, for one owner_epoch."""

    def __init__(self, topic_id: TopicId, me: Incarnation) -> None:
        self.topic_id = topic_id
        self.me = me
        self.state = OwnershipState.UNREAD
        self.record = TopicRecord(topic_id, "")
        self.version = -1
        self._reading = False
        #: something happened since the read in flight began: its answer is not news enough
        self._read_again = False
        #: the record being written, None when no write is in flight
        self._writing: TopicRecord | None = None
        #: what is written next: a link goes before a trim
        self._link: LedgerLink | None = None
        self._trim_count = 0

    @property
    def epoch(self) -> OwnerEpoch:
        return self.record.owner_epoch

    def gave_up(self, owner_epoch: OwnerEpoch) -> None:
        """Before the record is read: this owner has closed the topic at this epoch a moment ago.

        Whoever asked it to is about to place the topic at a higher epoch. An assignment that was sent before, or by
        somebody who still sees the old record, would make this owner serve a topic that is another's by then.
        """
        self.record = replace(self.record, owner_epoch=owner_epoch)

    def read(self) -> _Out:
        """Read the record, once at a time."""
        if self._reading or self.state in _LOST:
            return []
        self._reading = True
        return [ReadTopicRecord(self.topic_id)]

    def suspect(self) -> _Out:
        """Something says that another may own the topic: nothing is written until the record was read."""
        if self.state is OwnershipState.OWNED:
            self.state = OwnershipState.SUSPECT
            self._link, self._trim_count = None, 0
            self._read_again = self._reading
        return self.read()

    def link(self, link: LedgerLink) -> _Out:
        self._link = link
        return self._write_next()

    def trim(self, count: int) -> _Out:
        """Take the first `count` ledgers off the list."""
        self._trim_count = count
        return self._write_next()

    def _write_next(self) -> _Out:
        if self._writing is not None or self.state is not OwnershipState.OWNED:
            return []
        if self._link is not None:
            self._writing = self.record.with_ledger(self._link)
        elif self._trim_count:
            self._writing = self.record.without_first(self._trim_count)
        else:
            return []
        return [WriteTopicRecord(self._writing, self.version)]

    def record_read(self, event: TopicRecordRead) -> _Out:
        """Decide from what the record says."""
        self._reading = False
        if self.state in _LOST:
            return []
        record = event.record
        if record is None:
            return self._depose("it was deleted", OwnershipState.DELETED)
        if record.owner != self.me or (self.state is not OwnershipState.UNREAD and record.owner_epoch != self.epoch):
            return self._depose(f"owner_epoch {record.owner_epoch} belongs to {record.owner}")
        if self.state is OwnershipState.UNREAD and record.owner_epoch <= self.epoch:
            return self._depose(f"owner_epoch {record.owner_epoch} was given up here")
        if self.state is OwnershipState.OWNED:
            return [OwnershipConfirmed()]
        if self._writing is not None:
            return []  # its answer begins another read: only then is it certain what the record will say
        if self._read_again:
            self._read_again = False
            return self.read()
        self.state = OwnershipState.OWNED
        self.record, self.version = record, event.version
        self._link, self._trim_count = None, 0
        return [Owned()]

    def record_written(self, event: TopicRecordWritten) -> _Out:
        """Take the answer to the one write in flight."""
        written, self._writing = self._writing, None
        if written is None or self.state in _LOST:
            return []
        if self.state is OwnershipState.SUSPECT:
            self._read_again = self._reading
            return self.read()
        if event.status is not WriteStatus.OK:
            return self.suspect()
        before, self.record, self.version = self.record, written, event.version
        # The wishes may have changed since the write began: what it did is in the record that was written.
        trimmed = len(before.ledgers) - len(written.ledgers)
        news: _Out
        if trimmed < 0:
            news, self._link = [Linked(written.ledgers[-1].ledger_id)], None
        else:
            news = [Trimmed(tuple(link.ledger_id for link in before.ledgers[:trimmed]))]
            self._trim_count -= trimmed
        return news + self._write_next()

    def lost(self, reason: str) -> NotOwner | TopicNotFound:
        """What whoever used the topic here is told: to look it up again, or that there is nothing to be found."""
        if self.state is OwnershipState.DELETED:
            return TopicNotFound(f"topic {self.record.name or self.topic_id} was deleted", topic_id=self.topic_id)
        return NotOwner(f"this process does not own the topic any more: {reason}")

    def _depose(self, reason: str, state: OwnershipState = OwnershipState.DEPOSED) -> _Out:
        self.state = state
        return [Deposed(reason)]
