"""The dedup cursor: it decides when a snapshot is taken and written, and how far the log may be trimmed.

    IDLE --due, changes durable--> OPENING (a cursor ledger, when none is open) -> WRITING (chunks, then the manifest)
         -> IDLE when the manifest is confirmed

Rules
- A snapshot is the durable fold at exactly its position: it is encoded in one step of the topic's task.
- The manifest is appended only when all chunks of its snapshot are confirmed. When the ledger fails, the snapshot is
  void, and the next one is a base in a new ledger, so the changes since then need not be remembered.
- A new ledger begins with a base. The record keeps the two newest complete bases; older ledgers are removed from it by
  the same compare-and-set that links a new one.
- The trim bound is the position of the oldest kept base, never of the newest, and None while an older ledger is still
  listed.
"""

from dataclasses import dataclass
from enum import Enum

from oncelog.core.dedup.batch_budget import RECENT_BYTES_MAX
from oncelog.core.dedup.snapshot import SnapshotManifest, encode_chunks, encode_manifest
from oncelog.core.dedup.state import DedupState
from oncelog.core.errors import InvariantViolated
from oncelog.core.formats.batch import Checksum
from oncelog.core.formats.entry import EntryKind
from oncelog.core.formats.topic_record import CursorLink, CursorRecord
from oncelog.core.ids import BEFORE_ALL, EntryId, LedgerId, Position
from oncelog.core.ledger.managed_ledger import LedgerEffect, LedgerNotification, ManagedLedger, ManagedLedgerState
from oncelog.core.ledger.writer import Add


@dataclass(frozen=True, slots=True)
class SnapshotSettings:
    """A snapshot is written after entries_max entries, or after interval_ms with a change, but not within gap_ms of the
    last one."""

    entries_max: int = 1000
    interval_ms: int = 120_000
    gap_ms: int = 1000
    #: deltas on one base, after which a new base begins
    deltas_max: int = 20
    #: the batches of a producer without activity for so long are packed
    idle_after_ms: int = 60_000
    #: memory for the recent batches of all producers of a topic
    recent_bytes_max: int = RECENT_BYTES_MAX


@dataclass(frozen=True, slots=True)
class SnapshotTaken:
    """The snapshot at `position` is durable."""

    number: int
    position: Position
    producers: int
    is_base: bool
    #: batches forgotten since the last snapshot because the memory budget was full
    evicted: int = 0


@dataclass(frozen=True, slots=True)
class LoadedSnapshot:
    """The snapshot from which a takeover started: its number, its ledger, and the position of that ledger's base."""

    number: int
    ledger_id: LedgerId
    base: Position


class CursorState(Enum):
    IDLE = "idle"
    OPENING = "opening"
    WRITING = "writing"
    COMMITTING = "committing"


@dataclass(slots=True)
class Writing:
    """The snapshot being written. last_entry: the entry whose confirmation completes the current step."""

    manifest: SnapshotManifest
    last_entry: EntryId
    evicted: int


class DedupCursor:
    """Writes the snapshots of one topic through its own managed ledger of ledgers."""

    def __init__(
        self,
        ledgers: ManagedLedger,
        record: CursorRecord,
        settings: SnapshotSettings,
        *,
        loaded: LoadedSnapshot | None,
        now_ms: int,
    ) -> None:
        self.ledgers = ledgers
        self.record = record
        self.settings = settings
        self.state = CursorState.IDLE
        #: number of the newest complete snapshot, of this or an earlier owner
        self.number = loaded.number if loaded else 0
        #: {ledger: position of its complete base}, oldest first; bases that the takeover could not read are left out
        self.bases: dict[LedgerId, Position] = {}
        if loaded:
            older = (link for link in record.ledgers if link.ledger_id < loaded.ledger_id)
            self.bases = {link.ledger_id: link.base for link in older if link.base is not None}
            self.bases[loaded.ledger_id] = loaded.base
        #: the newest durable snapshot's position and time; position None before the first of this owner
        self.taken: tuple[Position | None, int] = (None, now_ms)
        self._writing: Writing | None = None
        self._deltas = 0
        #: log entries folded since the newest snapshot
        self.entries_since = 0

    # --- when ---------------------------------------------------------------------------------------------------------

    @property
    def ready(self) -> bool:
        """Whether a snapshot can begin: none is being written, and the ledgers are neither closing nor lost."""
        return self.state is CursorState.IDLE and self.ledgers.state in (
            ManagedLedgerState.IDLE,
            ManagedLedgerState.OPEN,
        )

    def behind(self, state: DedupState) -> bool:
        """Whether the state has moved since the newest snapshot of this owner."""
        return state.position not in (self.taken[0], BEFORE_ALL)

    def due(self, state: DedupState, now_ms: int) -> bool:
        """Whether a snapshot should begin now."""
        at_ms = self.taken[1]
        if not self.ready or not self.behind(state) or now_ms - at_ms < self.settings.gap_ms:
            return False
        return self.entries_since >= self.settings.entries_max or now_ms - at_ms >= self.settings.interval_ms

    def begin(self, state: DedupState, checksum: Checksum, now_ms: int) -> list[LedgerEffect | LedgerNotification]:
        """Take a snapshot of `state` now, opening a cursor ledger first where none is open."""
        if not self.ready:
            return []
        needs_base = not self.ledgers.open or self._deltas >= self.settings.deltas_max
        if needs_base and not (self.ledgers.open and self.ledgers.writer and self.ledgers.writer.next_entry == 0):
            self.state = CursorState.OPENING
            return self.ledgers.roll() if self.ledgers.open else self.ledgers.open_next()
        return self._write(state, checksum, now_ms)

    def opened(self, state: DedupState, checksum: Checksum, now_ms: int) -> list[LedgerEffect | LedgerNotification]:
        """A cursor ledger was linked: the base goes into it, with the state as it is by now."""
        self._deltas = 0
        self.state = CursorState.IDLE
        return self._write(state, checksum, now_ms)

    # --- writing ------------------------------------------------------------------------------------------------------

    def _write(self, state: DedupState, checksum: Checksum, now_ms: int) -> list[LedgerEffect | LedgerNotification]:
        writer = self.ledgers.writer
        if writer is None or not self.ledgers.open:
            raise InvariantViolated("a snapshot is written without an open cursor ledger")
        is_base = writer.next_entry == 0
        number = self.number + 1
        state.budget.pack_idle(before_ms=now_ms - self.settings.idle_after_ms)
        changed = state.in_order_of_activity() if is_base else [state.producers[pid] for pid in state.dirty]
        chunks = encode_chunks(number, changed)
        crc = 0
        adds: list[Add] = []
        for chunk in chunks:
            crc = checksum(chunk, crc)
            adds.append(self._append(EntryKind.SNAPSHOT_CHUNK, chunk, now_ms))
        manifest = SnapshotManifest(
            number,
            -1 if is_base else self.number,
            state.position,
            state.next_index,
            len(state.producers),
            len(chunks),
            crc,
        )
        self._writing = Writing(manifest, adds[-1].entry_id, state.budget.take_evicted())
        state.dirty.clear()
        self.state = CursorState.WRITING
        self.entries_since = 0
        return [self.ledgers.send(adds)]

    def _append(self, kind: EntryKind, body: bytes, now_ms: int) -> Add:
        return self.ledgers.append(kind, body, base_index=0, skip_first=0, count=0, now_ms=now_ms)

    def confirmed(
        self, last_add_confirmed: EntryId, now_ms: int
    ) -> list[LedgerEffect | LedgerNotification | SnapshotTaken]:
        """The cursor ledger's last_add_confirmed moved."""
        writing = self._writing
        if writing is None or last_add_confirmed < writing.last_entry:
            return []
        manifest = writing.manifest
        if self.state is CursorState.WRITING:
            add = self._append(EntryKind.SNAPSHOT_MANIFEST, encode_manifest(manifest), now_ms)
            writing.last_entry = add.entry_id
            self.state = CursorState.COMMITTING
            return [self.ledgers.send([add])]
        if self.state is not CursorState.COMMITTING or self.ledgers.writer is None:
            return []
        self._writing = None
        self.state = CursorState.IDLE
        self.number = manifest.number
        self.taken = (manifest.position, now_ms)
        if manifest.is_base:
            self.bases[self.ledgers.writer.ledger_id] = manifest.position
        else:
            self._deltas += 1
        return [
            SnapshotTaken(
                manifest.number, manifest.position, manifest.producers_count, manifest.is_base, writing.evicted
            )
        ]

    def interrupted(self, now_ms: int) -> None:
        """The cursor ledger failed and was closed: the snapshot in progress is void; try again after the gap."""
        if self._writing is not None:
            self.number = max(self.number, self._writing.manifest.number)
            self._writing = None
        self.state = CursorState.IDLE
        self.taken = (self.taken[0], now_ms)
        self.entries_since = self.settings.entries_max

    # --- which ledgers are kept --------------------------------------------------------------------------------------

    def record_with(self, ledger_id: LedgerId) -> CursorRecord:
        """The record that links a new ledger and keeps the two newest complete bases before it."""
        complete = list(self.bases)
        oldest = complete[-2] if len(complete) >= 2 else -1
        kept = [CursorLink(ledger, self.bases.get(ledger)) for ledger, _ in self.record.ledgers if ledger >= oldest]
        return CursorRecord(self.record.owner_epoch, (*kept, CursorLink(ledger_id, None)))

    def linked(self, record: CursorRecord) -> list[LedgerId]:
        """The record was written; returns the ledgers that it no longer lists."""
        kept = {link.ledger_id: None for link in record.ledgers}
        gone = [link.ledger_id for link in self.record.ledgers if link.ledger_id not in kept]
        self.record = record
        self.bases = {ledger: base for ledger, base in self.bases.items() if ledger in kept}
        return gone

    def trim_bound(self) -> Position | None:
        """The position of the oldest kept base: all kept snapshots cover the log up to it. None: nothing may be
        trimmed."""
        if len(self.bases) < 2 or not self.record.ledgers:
            return None
        return self.bases.get(self.record.ledgers[0].ledger_id)
