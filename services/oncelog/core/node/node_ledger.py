"""The state of one ledger on a storage node, apart from its bytes: the fence, the pending entries, the checks of an
add.

    entry not held                  -> write it to the journal; pending until its record is synced
    entry held, same payload        -> nothing to write; done when the first copy is synced (hazard
    repeated-add-not-synced)
    entry held, other payload       -> conflicting: refused, the first copy stands
    entry held and unreadable here  -> write it again: good bytes replace damaged ones
    bytes with a wrong checksum     -> corrupt: refused

Two payloads are compared by the CRC32C in the header of each entry, which was verified when the entry arrived.

A ledger without a record in ZooKeeper was either deleted, or its record was lost. A missing record proves nothing: an
operator may have removed it, or ZooKeeper may have been restored from an older backup (hazards former-incarnation and
missing-record-is-no-deletion). Two facts prove a deletion, and both stay in ZooKeeper:

    the topic's tombstone exists                             the topic was deleted with all of its ledgers
    the ledger is below `deleted_below` of its chain         the ledger was trimmed: the floor is written in the
                                                             compare-and-set that trims, and only rises

The floors of the log and of the ack log are in the topic's record, the floor of the cursor's ledgers is in the
cursor's record. An older backup has a lower floor, so it proves less and never more.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from sys import intern
from typing import NamedTuple, Protocol, Self

from oncelog.core.chain.next_ledger import LedgerPurpose
from oncelog.core.formats.batch import Buffer, Checksum, checksum_of
from oncelog.core.formats.entry import HEADER_BYTES, EntryHeader, EntryKind
from oncelog.core.ids import NO_ENTRY, EntryId, LedgerId, TopicId
from oncelog.core.ledger.metadata import EntryRange

#: Entries with their decoded headers.
Entries = Sequence[tuple[EntryHeader, Buffer]]


#: The kinds that are written to the ledgers of one purpose only; all other kinds belong to the log.
_PURPOSE_OF_KIND: dict[int, LedgerPurpose] = {
    EntryKind.SNAPSHOT_CHUNK: LedgerPurpose.DEDUP,
    EntryKind.SNAPSHOT_MANIFEST: LedgerPurpose.DEDUP,
    EntryKind.SUBSCRIPTIONS_CHUNK: LedgerPurpose.DEDUP,
    EntryKind.ACK_STATE: LedgerPurpose.ACKS,
    EntryKind.HEAD_SNAPSHOTS: LedgerPurpose.DEDUP,
    EntryKind.HEAD_ACKS: LedgerPurpose.ACKS,
}
#: The number of each purpose in a tombstone, and on the wire.
PURPOSES = (LedgerPurpose.LOG, LedgerPurpose.DEDUP, LedgerPurpose.ACKS)
_ORIGIN_BYTES = 17


class LedgerOrigin(NamedTuple):
    """The topic of a ledger and its purpose there, as the header of each entry states them."""

    topic_id: TopicId
    purpose: LedgerPurpose

    @classmethod
    def of(cls, header: EntryHeader) -> Self:
        return cls(header.topic_id, _PURPOSE_OF_KIND.get(header.kind, LedgerPurpose.LOG))

    def encode(self) -> bytes:
        """Of a tombstone's record: the topic id, 16 bytes, then the purpose: 0 log, 1 snapshots, 2 acknowledgements."""
        return bytes.fromhex(self.topic_id) + bytes([PURPOSES.index(self.purpose)])

    @classmethod
    def decode(cls, data: Buffer) -> Self | None:
        """None: the record does not name an origin."""
        if len(data) != _ORIGIN_BYTES or data[-1] >= len(PURPOSES):
            return None
        return cls(TopicId(intern(bytes(data[:-1]).hex())), PURPOSES[data[-1]])


class RecordKind(IntEnum):
    """The kinds of journal records. The first two and REPAIR_ADD have an entry as bytes; a tombstone may have the
    origin of its ledger. The number 5 is a segment's seal.

    LIMBO: the directory had a hole when `ledger_id` was the cluster's ledger counter; every ledger below it may lack
    entries (hazard damaged-fence). 0: none lacks any now. The bytes list all known holes. LIMBO_CLEARED: this ledger is
    complete again. SEGMENT_REMOVED: the live records of segment `entry_id` were copied, and its file may be missing
    (hazard removed-segment). ERA: the era is `ledger_id`, the bytes are its restore id, and `entry_id` is how the node
    came to it (`core.node.era`). FLOOR: ledgers below `ledger_id` of the chain in the bytes were trimmed. NOTE: a note
    (`core.formats.note`).
    """

    ADD = 1
    RECOVERY_ADD = 2
    FENCE = 3
    LEDGER_ERASED = 4
    REPAIR_ADD = 6
    LIMBO = 7
    LIMBO_CLEARED = 8
    SEGMENT_REMOVED = 9
    ERA = 10
    FLOOR = 11
    NOTE = 12


#: The entry id of a tombstone: whether the ledger was deleted, or this node's copy alone was not needed any more.
DELETED = EntryId(1)
NOT_DELETED = EntryId(0)
#: The kinds that store an entry.
ENTRY_KINDS = frozenset({RecordKind.ADD, RecordKind.RECOVERY_ADD, RecordKind.REPAIR_ADD})


class JournalRecord(NamedTuple):
    """lsn: number of the record in this run of the process, counted from 1 by the journal, too."""

    lsn: int
    kind: RecordKind
    ledger_id: LedgerId
    entry_id: EntryId
    data: Buffer


class StorageIndex(Protocol):
    """The entries that the node holds. The shell adds a record before it reports Synced for it, at the latest."""

    def contains(self, ledger_id: LedgerId, entry_id: EntryId) -> bool:
        """False only if the entry was certainly never stored here, or was deleted with its ledger. Damaged is True."""

    def last_entry(self, ledger_id: LedgerId) -> int | None:
        """The highest entry id held; None if there is no entry."""

    def count_up_to(self, ledger_id: LedgerId, end: EntryId) -> int:
        """How many of the entries 0..end are held. An entry above the end of a CLOSED ledger makes up for none."""

    def entry_crc(self, ledger_id: LedgerId, entry_id: EntryId) -> int | None:
        """The CRC32C in the header of a held entry. None if the entry cannot be read and should be stored again."""


class StoreResult(NamedTuple):
    """The outcome for some entries. held: stored now or earlier. fresh: those of them that are stored now.

    synced: whether every held entry is known to be synced.
    """

    held: list[EntryId]
    fresh: list[EntryId]
    synced: bool
    corrupt: list[EntryId]
    conflicting: list[EntryId]


@dataclass(slots=True)
class StorageLedger:
    """One ledger of one storage node."""

    ledger_id: LedgerId
    fenced: bool = False
    #: the record of the fence; 0: durable since before this run
    fence_lsn: int = 0
    #: a check found the ledger OPEN with this node as a member, or entries of its writer are stored here
    writable: bool = False
    #: the copy is being erased: every call is refused until the tombstone is synced (hazard copy-erased-before-joining)
    erasing: bool = False
    #: the copy was erased, and no repair has stored an entry since
    erased: bool = False
    #: whether the ledger's record names this node, as of the last check; None: not checked yet
    named: bool | None = None
    #: end of the ledger if a check found it CLOSED with this node as a member or joining: repair adds are accepted
    repair_end: EntryId | None = None
    last_add_confirmed: EntryId = NO_ENTRY
    #: the topic and purpose of the ledger; None until an entry is stored
    origin: LedgerOrigin | None = None
    #: {entry id: its CRC} of the entries handed to the journal and not yet synced
    pending: dict[EntryId, int] = field(default_factory=dict)
    #: entries that are stored here and could not be read
    damaged: dict[EntryId, None] = field(default_factory=dict)
    #: number of the check in progress; 0: none
    check: int = 0
    #: the check is a review: it also decides what becomes of the copy
    reviewing: bool = False
    #: the record is whole and names this node, so what the review does not find is damage
    attested: bool = False
    #: the entries that the review may find missing
    lost: tuple[EntryRange, ...] = ()
    #: the damaged entries that the review reads again
    examined: dict[EntryId, None] = field(default_factory=dict)
    #: [(call, kind, entries)] that wait for a check, in the order of arrival
    queued: list[tuple[int, RecordKind, Entries]] = field(default_factory=list)
    #: reviews that are answered after this check, and those that need another one
    reviews: list[int] = field(default_factory=list)
    next_reviews: list[int] = field(default_factory=list)

    @property
    def idle(self) -> bool:
        """Whether the state apart from stored entries is empty, so that this object can be dropped."""
        if self.check or self.pending or self.erasing:
            return False
        return self.erased or not (self.fenced or self.writable)

    def is_of(self, topic_id: TopicId) -> bool:
        """Whether what is stored here belongs to this topic. If not, the ledger id was given twice (hazard
        ledger-id-given-twice)."""
        return self.origin is None or self.origin.topic_id == topic_id

    def note_stored(self, header: EntryHeader) -> None:
        """An entry with this header is stored."""
        self.last_add_confirmed = max(self.last_add_confirmed, header.last_add_confirmed)
        if self.origin is None:
            self.origin = LedgerOrigin.of(header)

    def store(
        self, entries: Entries, kind: RecordKind, records: list[JournalRecord], *, lsn: int, index: StorageIndex,
        checksum: Checksum,
    ) -> StoreResult:  # fmt: skip
        """Check each entry by itself, and append to `records`, from `lsn` on, what must be written."""
        ledger_id, pending = self.ledger_id, self.pending
        held: list[EntryId] = []
        fresh: list[EntryId] = []
        corrupt: list[EntryId] = []
        conflicting: list[EntryId] = []
        synced = True
        for header, data in entries:
            entry_id = header.entry_id
            crc = verified_crc(header, data, checksum)
            if crc is None:
                corrupt.append(entry_id)
                continue
            if not self.is_of(header.topic_id):
                conflicting.append(entry_id)  # the ledger id was given twice (hazard ledger-id-given-twice)
                continue
            first = pending.get(entry_id)
            if first is not None:
                synced = False
            elif entry_id not in self.damaged and index.contains(ledger_id, entry_id):
                first = index.entry_crc(ledger_id, entry_id)
            if first is None:
                records.append(JournalRecord(lsn + len(fresh), kind, ledger_id, entry_id, data))
                pending[entry_id] = crc
                fresh.append(entry_id)
                self.note_stored(header)
            elif first != crc:
                conflicting.append(entry_id)
                continue
            held.append(entry_id)
        return StoreResult(held, fresh, synced and not fresh, corrupt, conflicting)


def verified_crc(header: EntryHeader, data: Buffer, checksum: Checksum) -> int | None:
    """The checksum in the entry's header; None if the bytes do not match it, or their length is wrong.

    Source: the layout in `core.formats.entry`. The header was decoded from the same bytes, so the ids need no check.
    """
    if len(data) != HEADER_BYTES + header.body_bytes:
        return None
    crc = int.from_bytes(memoryview(data)[4:8], "little")
    return crc if checksum_of(data, checksum) == crc else None


def was_deleted(ledger_id: LedgerId, *, deleted_below: LedgerId, topic_deleted: bool) -> bool:
    """Whether a ledger whose record is missing was deleted.

    deleted_below: the floor in the record of the ledger's chain; 0 if there is no such record.
    topic_deleted: whether the topic has a tombstone.
    """
    return topic_deleted or ledger_id < deleted_below
