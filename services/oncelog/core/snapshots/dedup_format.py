"""The format of a snapshot, and the reader of the newest complete one (phase "load snapshot").

A cursor ledger begins with its head (`core.formats.head`), which is passed over, and a base (all producers and
subscriptions), followed by deltas (what has changed since the last complete snapshot). Each snapshot is some chunks and
then one SNAPSHOT_MANIFEST, its commit record: SNAPSHOT_CHUNK entries with producers, then SUBSCRIPTIONS_CHUNK entries
(`core.snapshots.ack_snapshot`). A snapshot exists when its manifest is durable; chunks without a manifest are ignored.

The reader keeps the chunks of subscriptions as bytes, because programs without subscriptions read snapshots, too. They
begin like a SNAPSHOT_CHUNK, with the snapshot number and their index among them.

Body of a SNAPSHOT_CHUNK: snapshot number 8, chunk index 4, producers 4, then the record of each producer (see
`producer_record`). A base has the producers in the order of activity.

Manifest body: snapshot number 8, previous 8 (-1: a base), position ledger 8 and entry 8, next_index 8, producers in all
8, chunks 4, CRC32C over the chunk bodies 4. The position is the cursor's mark_delete. A topic with an ack log has 16
more bytes, the position there: ledger 8 and entry 8. Then the chunks of subscriptions are counted and summed, too.
A topic whose log counts time has 40 more bytes at the end, in ms: how much has passed, then the lifetimes of assigned
and of chosen names, and since when each of them counts.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from struct import Struct
from typing import NamedTuple

from oncelog.core.errors import CorruptEntry
from oncelog.core.formats.batch import Buffer, Checksum
from oncelog.core.formats.entry import EntryKind
from oncelog.core.ids import BEFORE_ALL, EntryId, LedgerId, Position
from oncelog.core.policies.producer_lifetimes import FOR_EVER, LoggedLifetimes
from oncelog.core.publishing.dedup_state import DedupState
from oncelog.core.publishing.producer_record import ProducerRow, read_record
from oncelog.core.publishing.producers import RECENT_BYTES_MAX

#: A chunk ends before this size, far below the limit of an entry, so snapshots of any number of producers fit.
CHUNK_BYTES = 256 * 1024

_CHUNK = Struct("<qII")
_MANIFEST = Struct("<qqqqqqII")
_ACKS = Struct("<qq")
_TIME = Struct("<QQQQQ")


class SnapshotManifest(NamedTuple):
    """The commit record of one snapshot: the state as of exactly `position` in the log, and `acks` in the ack log."""

    number: int
    previous: int
    position: Position
    next_index: int
    producers_count: int
    chunks_count: int
    chunks_crc: int
    acks: Position = BEFORE_ALL
    time_ms: int = 0
    lifetimes: LoggedLifetimes = FOR_EVER

    @property
    def is_base(self) -> bool:
        return self.previous < 0


def encode_chunks(number: int, producers: Iterable[bytes], *, first_index: int = 0) -> list[bytes]:
    """Return the chunk bodies, at least one. producers: their records. first_index: of the first chunk in its
    snapshot."""
    chunks: list[bytes] = []
    records: list[bytes] = []
    size = 0
    for record in producers:
        if records and size + len(record) > CHUNK_BYTES:
            chunks.append(_CHUNK.pack(number, first_index + len(chunks), len(records)) + b"".join(records))
            records, size = [], 0
        records.append(record)
        size += len(record)
    chunks.append(_CHUNK.pack(number, first_index + len(chunks), len(records)) + b"".join(records))
    return chunks


def encode_manifest(m: SnapshotManifest) -> bytes:
    body = _MANIFEST.pack(
        m.number, m.previous, *m.position, m.next_index, m.producers_count, m.chunks_count, m.chunks_crc
    )
    acks = b"" if m.acks == BEFORE_ALL else _ACKS.pack(*m.acks)
    aged = _TIME.pack(m.time_ms, *m.lifetimes) if m.time_ms or m.lifetimes != FOR_EVER else b""
    return b"".join((body, acks, aged))


def decode_manifest(body: Buffer) -> SnapshotManifest:
    """Raises CorruptEntry when the body is not a manifest."""
    rest = len(body) - _MANIFEST.size
    if rest not in (0, _TIME.size, _ACKS.size, _ACKS.size + _TIME.size):
        raise CorruptEntry(f"a snapshot manifest of {len(body)} bytes")
    number, previous, ledger, entry, next_index, producers, chunks, crc = _MANIFEST.unpack_from(body)
    acks = Position(*_ACKS.unpack_from(body, _MANIFEST.size)) if rest not in (0, _TIME.size) else BEFORE_ALL
    aged = rest not in (0, _ACKS.size)
    time_ms, *lifetimes = _TIME.unpack_from(body, len(body) - _TIME.size) if aged else (0, *FOR_EVER)
    position = Position(LedgerId(ledger), EntryId(entry))
    return SnapshotManifest(
        number, previous, position, next_index, producers, chunks, crc, acks, time_ms, LoggedLifetimes(*lifetimes)
    )


def decode_chunk(body: Buffer) -> tuple[int, int, list[ProducerRow]]:
    """Return (snapshot number, chunk index, producers). Raises CorruptEntry when the body is not a chunk."""
    if len(body) < _CHUNK.size:
        raise CorruptEntry(f"a snapshot chunk of {len(body)} bytes")
    number, index, count = _CHUNK.unpack_from(body)
    at = _CHUNK.size
    producers = []
    for _ in range(count):
        producer, at = read_record(body, at)
        producers.append(producer)
    if at != len(body):
        raise CorruptEntry(f"a snapshot chunk has {len(body) - at} bytes too many")
    return number, index, producers


def _number_and_index(chunk: Buffer) -> tuple[int, int]:
    """Raises CorruptEntry when the body is too short."""
    if len(chunk) < _CHUNK.size:
        raise CorruptEntry(f"a snapshot chunk of {len(chunk)} bytes")
    number, index, _ = _CHUNK.unpack_from(chunk)
    return number, index


@dataclass(slots=True)
class _Arriving:
    """The chunks of one snapshot whose manifest has not arrived yet.

    state: where their producers go if it is the ledger's first snapshot, else they are kept in `producers`. fault: why
    the chunks cannot be used.
    """

    number: int
    state: DedupState | None
    producers: list[ProducerRow] = field(default_factory=list)
    producer_chunks: int = 0
    subscriptions: list[Buffer] = field(default_factory=list)
    crc: int = 0
    consistent: bool = True
    fault: CorruptEntry | None = None

    @property
    def chunks_count(self) -> int:
        return self.producer_chunks + len(self.subscriptions)

    def take(self, kind: int, chunk: Buffer, checksum: Checksum) -> None:
        if kind == EntryKind.SNAPSHOT_CHUNK:
            number, index, found = decode_chunk(chunk)
            expected, self.producer_chunks = self.producer_chunks, self.producer_chunks + 1
            if self.state is None:
                self.producers += found
            else:
                self.state.restore(found)
        else:
            number, index = _number_and_index(chunk)
            expected = len(self.subscriptions)
            self.subscriptions.append(chunk)
        self.consistent = self.consistent and (number, index) == (self.number, expected)
        self.crc = checksum(chunk, self.crc)


@dataclass(slots=True)
class SnapshotReader:
    """Reads one cursor ledger's entries in order and keeps the newest complete chain of base and deltas.

    Incomplete or inconsistent snapshots are ignored; a delta counts only after exactly the snapshot it was taken after.
    Each chunk is decoded when it is fed, so that no call takes long. The first snapshot of a ledger is its base.
    """

    checksum: Checksum
    recent_bytes_max: int = RECENT_BYTES_MAX
    #: given recent_bytes_max
    new_state: Callable[[int], DedupState] = DedupState
    #: the state of the newest complete chain, None before the first complete base
    state: DedupState | None = None
    #: the chunks of subscriptions of that chain, from the base on, in order
    subscriptions: list[Buffer] = field(default_factory=list)
    #: its last manifest
    manifest: SnapshotManifest | None = None
    #: the base's manifest: a trim must not go beyond its position
    base: SnapshotManifest | None = None
    #: what has arrived since the last manifest
    _arriving: _Arriving | None = None

    def feed(self, entry_id: EntryId, kind: int, body: Buffer) -> None:
        """Take one verified entry of the cursor's ledger. Raises CorruptEntry for a kind that does not belong there."""
        if kind in (EntryKind.SNAPSHOT_CHUNK, EntryKind.SUBSCRIPTIONS_CHUNK):
            self._take(kind, body)
        elif kind == EntryKind.SNAPSHOT_MANIFEST:
            arrived, self._arriving = self._arriving, None
            self._commit(decode_manifest(body), arrived)
        elif kind != EntryKind.HEAD_SNAPSHOTS:
            raise CorruptEntry(f"entry {entry_id} of a dedup cursor is of kind {kind}")

    def _take(self, kind: int, chunk: Buffer) -> None:
        arriving = self._arriving
        try:
            number, index = _number_and_index(chunk)
            if arriving is None or (kind == EntryKind.SNAPSHOT_CHUNK and index == 0):
                # The first chunk of a snapshot. Chunks before it without a manifest are of one that was never finished.
                first = self.new_state(self.recent_bytes_max) if self.state is None else None
                arriving = self._arriving = _Arriving(number, first)
            arriving.take(kind, chunk, self.checksum)
        except CorruptEntry as fault:
            # It matters only if a manifest names this chunk.
            arriving = self._arriving = arriving or _Arriving(-1, None)
            arriving.fault = arriving.fault or fault

    def _commit(self, manifest: SnapshotManifest, arrived: _Arriving | None) -> None:
        arrived = arrived or _Arriving(manifest.number, None)
        if arrived.fault is not None:
            raise arrived.fault
        if (
            not arrived.consistent
            or arrived.number != manifest.number
            or arrived.chunks_count != manifest.chunks_count
            or arrived.crc != manifest.chunks_crc
        ):
            return
        state = self._state_of(manifest, arrived)
        if state is None:
            return
        state.position = manifest.position
        state.next_index = manifest.next_index
        state.time_ms, state.lifetimes = manifest.time_ms, manifest.lifetimes
        if manifest.is_base:
            self.base = manifest
            self.subscriptions = []
        self.subscriptions += arrived.subscriptions
        self.state = state
        self.manifest = manifest

    def _state_of(self, manifest: SnapshotManifest, arrived: _Arriving) -> DedupState | None:
        """The state with the producers that have arrived; None: they do not follow what was read, or are not all."""
        if manifest.is_base:
            state = self.new_state(self.recent_bytes_max) if arrived.state is None else arrived.state
        elif self.state is not None and self.manifest is not None and manifest.previous == self.manifest.number:
            state = self.state
        else:
            return None
        lives = {producer.producer_id: bool(producer.row) for producer in arrived.producers}  # the last record counts
        change = sum(after - (pid in state.producers) for pid, after in lives.items())
        if len(state.producers) + change != manifest.producers_count:
            return None
        state.restore(arrived.producers)
        return state
