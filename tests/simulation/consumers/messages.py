"""The durable messages of a topic, as its consumers' owners read them, and the topic of its dead letters.

Entries are read without faults here, as readers and takeovers read them under faults.
"""

from collections.abc import Iterable
from typing import TYPE_CHECKING

from oncelog.core.delivery.events import StoredEntry
from oncelog.core.errors import CorruptEntry
from oncelog.core.formats.batch import payload_of, peek_batch
from oncelog.core.formats.columns import decode_columns
from oncelog.core.formats.entry import EntryHeader, EntryKind, body_of, decode_entry
from oncelog.core.ids import EntryId, LedgerId, Position, TopicId
from oncelog.verify.violation import Violation
from tests.simulation.servers.store.decoding import decode_ledger
from tests.simulation.servers.store.ledger_lists import ids_known_to

if TYPE_CHECKING:
    from tests.simulation.servers.owners.owner_server import OwnerParts
    from tests.simulation.watches.watching import TopicWatch

#: The topic of all dead letters.
DEAD_LETTERS = TopicId("dd" * 16)
#: the producers' messages have these, by turns
KEYS = (b"a", b"b", b"c", b"d")


def sound_entries(parts: "OwnerParts", ledger_id: LedgerId, first: int, last: int) -> list[tuple[EntryHeader, bytes]]:
    """The durable entries `first` to `last` of a ledger, up to the first one of which no copy is sound."""
    found: dict[EntryId, tuple[EntryHeader, bytes]] = {}
    for disk in (disk for server in parts.nodes.values() for disk in server.disks.values()):
        for entry_id, data in disk.ever_held(ledger_id).items():
            if entry_id in found or not first <= entry_id <= last:
                continue
            try:
                header = decode_entry(data, ledger_id=ledger_id, entry_id=entry_id, checksum=parts.checksum)
            except CorruptEntry:
                continue
            found[entry_id] = header, data
    entries: list[tuple[EntryHeader, bytes]] = []
    while (following := found.get(EntryId(first + len(entries)))) is not None:
        entries.append(following)
    return entries


class StoredMessages:
    """The messages that some owner has confirmed, in order."""

    def __init__(self, parts: "OwnerParts", watch: "TopicWatch") -> None:
        self._parts = parts
        self._watch = watch
        self.entries: list[StoredEntry] = []
        #: of each message: its key, and when it was appended by the clock of its owner
        self.keys: list[bytes] = []
        self.appended_ms: list[int] = []
        #: {ledger: bytes of all its entries, also of those without messages}
        self._ledger_bytes: dict[LedgerId, int] = {}
        #: {ledger: entries looked at}; ledgers without further entries; up to where was looked
        self._looked_at: dict[LedgerId, int] = {}
        self._ended: dict[LedgerId, None] = {}
        self._confirmed: Position | None = None

    @property
    def first_index(self) -> int:
        first = self._watch.record.first
        return 0 if first is None else first.base_index

    @property
    def next_index(self) -> int:
        return len(self.keys)

    def read(self, first_index: int, end_index: int, count: int) -> tuple[StoredEntry, ...]:
        """Consecutive entries of an owner whose log ends at `end_index`, from the one that holds first_index on."""
        floor = self._watch.record.deleted_below
        found = (
            entry
            for entry in self.entries
            if first_index < entry.base_index + entry.count <= end_index and entry.position.ledger_id >= floor
        )
        return tuple(entry for entry, _ in zip(found, range(count), strict=False))

    def bytes_from(self, index: int) -> int:
        """Of this message and all behind it, as a backlog quota counts them: messages have the average size of their
        ledger, whose bytes include its grants."""
        counts: dict[LedgerId, tuple[int, int]] = {}
        for entry in self.entries:
            ledger_id, end = entry.position.ledger_id, entry.base_index + entry.count
            before, counted = counts.get(ledger_id, (0, 0))
            counts[ledger_id] = before + entry.count, counted + min(entry.count, max(end - index, 0))
        return sum(self._ledger_bytes[ledger_id] * counted // count for ledger_id, (count, counted) in counts.items())

    def look(self, confirmed: Position) -> None:
        """An owner has confirmed entries up to here."""
        if self._confirmed is not None and confirmed <= self._confirmed:
            return
        self._confirmed = confirmed
        for ledger_id in ids_known_to(self._parts.store, self._watch.record):
            if ledger_id in self._ended or ledger_id > confirmed.ledger_id:
                continue
            end = confirmed.entry_id
            if ledger_id < confirmed.ledger_id:
                # What was added behind the end of a CLOSED ledger is no part of the log: it is in a later ledger, too.
                data, _ = self._parts.store.get(f"ledgers/{ledger_id}")
                end = EntryId(-1) if data is None else decode_ledger(data).end
                self._ended[ledger_id] = None
            first = self._looked_at.get(ledger_id, 0)
            found = sound_entries(self._parts, ledger_id, first, end)
            self._looked_at[ledger_id] = first + len(found)
            for header, data in found:
                self._ledger_bytes[ledger_id] = self._ledger_bytes.get(ledger_id, 0) + len(data)
                if header.kind == EntryKind.MESSAGES and header.count:
                    self._add(header, data)

    def _add(self, header: EntryHeader, data: bytes) -> None:
        if header.base_index != self.next_index:
            raise Violation(
                "message indexes", f"{header.position} begins at {header.base_index}, not {self.next_index}"
            )
        self.entries.append(StoredEntry(header.position, header.base_index, header.count, header.skip_first, data))
        body = body_of(data)
        batch = peek_batch(body)
        keys = decode_columns(payload_of(batch, body), batch.count).keys or []
        self.keys += [key or b"" for key in keys[header.skip_first :]]
        self.appended_ms += [header.append_time_ms] * header.count


class DeadLetterTopic:
    """Stores each (subscription, sequence) once; a later one of the same number is a duplicate."""

    def __init__(self) -> None:
        #: {subscription id: the index of each sequence}
        self.stored: dict[str, list[int]] = {}

    def publish(self, subscription_id: str, topic_id: TopicId, sequence: int, index: int) -> None:
        stored = self.stored.setdefault(subscription_id, [])
        if topic_id != DEAD_LETTERS or sequence > len(stored):
            raise Violation("dead letters", f"sequence {sequence} of {index} leaves a gap behind {len(stored)}")
        if sequence < len(stored) and stored[sequence] != index:
            raise Violation("dead letters", f"{index} is number {sequence}, which {stored[sequence]} has")
        if sequence == len(stored):
            stored.append(index)


def keys_of(ids: Iterable[int]) -> list[bytes | None]:
    """The key of each message of a producer, by its id."""
    return [KEYS[each * 7 // 3 % len(KEYS)] for each in ids]
