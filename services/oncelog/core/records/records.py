"""Reading a record of ZooKeeper and writing it by compare-and-set, as effects and events of any core.

    ReadRecord --> RecordRead         WriteRecord --> RecordWritten

Rules
- A read shows every write that was answered before, to any process. The shell repeats it until it is answered.
- A write names the version that it replaces, and the shell sends it once. Without a definite answer it is UNKNOWN.
- After CONFLICT or UNKNOWN a core reads again and decides from the record, never from the failure itself.
- An answer repeats the key and the value of its write. Several parts of a core may write the same record, and one part
  again after it began anew; each recognises the answer to its own write by comparing.
"""

from dataclasses import dataclass
from typing import Generic, TypeVar

from oncelog.core.formats.ledger_page import ListPage
from oncelog.core.formats.topic_record import CursorRecord, TopicRecord
from oncelog.core.ids import LedgerId, TopicId
from oncelog.core.records.status import WriteStatus

#: The version of a record that does not exist: a write from this version creates it.
ABSENT_VERSION = -1

V_co = TypeVar("V_co", covariant=True)
K_co = TypeVar("K_co", bound="RecordKey[object]", covariant=True)


class RecordKey(Generic[V_co]):
    """Names a record. V_co: the type of its value. Each kind of record has a subclass, which is a value."""

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class TopicKey(RecordKey[TopicRecord]):
    """The topic record."""

    topic_id: TopicId


@dataclass(frozen=True, slots=True)
class CursorKey(RecordKey[CursorRecord]):
    """The record of the topic's dedup cursor."""

    topic_id: TopicId


@dataclass(frozen=True, slots=True)
class PageKey(RecordKey[ListPage]):
    """A page of the topic's list of ledgers. It is created with a write of the topic record, and never written."""

    topic_id: TopicId
    name: LedgerId


# --- effects ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ReadRecord(Generic[K_co]):
    """Read the record after a sync, until there is an answer."""

    key: K_co


@dataclass(frozen=True, slots=True)
class WriteRecord(Generic[K_co, V_co]):
    """Compare-and-set from `version`, attempted once; ABSENT_VERSION creates. page: only with a topic record; it is
    created in the same transaction."""

    key: K_co
    value: V_co
    version: int
    page: ListPage | None = None

    def answered(self, status: WriteStatus, version: int = ABSENT_VERSION) -> "RecordWritten[K_co, V_co]":
        return RecordWritten(self.key, self.value, status, version)


# --- events -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class RecordRead(Generic[K_co, V_co]):
    """The answer to ReadRecord. value None: there is no such record; version is then ABSENT_VERSION."""

    key: K_co
    value: V_co | None
    version: int


@dataclass(frozen=True, slots=True)
class RecordWritten(Generic[K_co, V_co]):
    """The answer to WriteRecord of this value. version: of the record now, valid if OK."""

    key: K_co
    value: V_co
    status: WriteStatus
    version: int


#: See `kind_of`.
Kind = type | tuple[type, type]
_OF_RECORDS = (ReadRecord, WriteRecord, RecordRead, RecordWritten)


def kind_of(what: object) -> Kind:
    """What a table of handlers is searched for: the type of an event or effect; of a record's, also that of its key."""
    return (type(what), type(what.key)) if isinstance(what, _OF_RECORDS) else type(what)
