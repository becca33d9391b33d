"""The dedup cursor: it decides when a snapshot is taken and written, and how far the log and the ack log may be
trimmed.

    IDLE --due, changes durable--> OPENING (a cursor ledger, when none is open) -> WRITING (chunks)
         -> COMMITTING (the manifest) -> IDLE when the manifest is confirmed
    finish -> one more snapshot where something changed -> the ledger is closed -> `finished` is called

Rules
- A snapshot is the durable fold of both chains at exactly its positions: producers and subscriptions. Many producers
  are encoded in several steps, one when the chunks of the last one are confirmed (`snapshot_encoder`); the positions
  are those of the last step.
- The manifest is appended only when every chunk of its snapshot is confirmed. A snapshot whose ledger fails never
  happened; the next one is a base in a new ledger, so no record of the changes is needed. The topic serves meanwhile.
- A new ledger begins with a base. The list keeps the two newest complete bases; older ledgers leave it in the same
  compare-and-set that links a new one.
- The trim bound of each chain is the position of the oldest kept base there, never of the newest, and None while an
  older ledger is still listed.
- A new base begins when the deltas since the last one have as many bytes as that base. So a large state is not
  written again and again, and a takeover reads at most twice as much as needed. A small base is also followed by a new
  one after deltas_max deltas, and any base after base_age_max_ms, because the trim bounds move only with a base.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple

from oncelog.core.acks.ack_log import AckLog
from oncelog.core.chain.managed_ledger import ManagedLedger, ManagedLedgerState
from oncelog.core.chain.next_ledger import DeleteLedgers, NextLedger
from oncelog.core.delivery.events import AnswerAdmin
from oncelog.core.errors import InvariantViolated
from oncelog.core.formats.batch import Checksum
from oncelog.core.formats.entry import EntryKind
from oncelog.core.formats.head import LedgerHead
from oncelog.core.formats.topic_record import CursorLink, CursorRecord
from oncelog.core.ids import BEFORE_ALL, EntryId, LedgerId, Position
from oncelog.core.ledger.metadata import LedgerMetadata
from oncelog.core.publishing.log import InFlight
from oncelog.core.publishing.producers import RECENT_BYTES_MAX
from oncelog.core.records.records import CursorKey, RecordWritten, WriteRecord
from oncelog.core.records.status import WriteStatus
from oncelog.core.snapshots.ack_snapshot import encode_subscriptions
from oncelog.core.snapshots.dedup_encoder import STEP_PRODUCERS, SnapshotEncoder
from oncelog.core.snapshots.dedup_format import SnapshotManifest, encode_manifest
from oncelog.core.snapshots.snapshot_requests import SnapshotRequests
from oncelog.core.snapshots.taken_over import NOTHING, NewestSnapshot, ReplaySize, TakenOver
from oncelog.core.topic_events.effects import SnapshotTaken, Step
from oncelog.core.topic_events.events import SnapshotRequested


@dataclass(frozen=True, slots=True)
class SnapshotSettings:
    """A snapshot is written after entries_max entries, or after interval_ms with a change, but not within gap_ms of the
    last one."""

    entries_max: int = 1000
    interval_ms: int = 120_000
    gap_ms: int = 1000
    #: a snapshot is also due when entries of the ack log with so many bytes were folded since the last one. A
    #: takeover folds them again: as single acknowledgements, 1 MiB takes more than a second.
    ack_bytes_max: int = 1 << 19
    #: deltas on one small base, after which a new base begins
    deltas_max: int = 20
    #: a larger base is followed by a new one when its deltas have as many bytes as itself
    small_base_bytes_max: int = 1 << 20
    #: age of a base at which a new one begins with the next snapshot
    base_age_max_ms: int = 3_600_000
    #: the batches of a producer without activity for so long are packed
    idle_after_ms: int = 60_000
    #: memory for the recent batches of all producers of a topic
    recent_bytes_max: int = RECENT_BYTES_MAX
    #: producers that are encoded in one step
    step_producers: int = STEP_PRODUCERS


class BasePositions(NamedTuple):
    """Where a complete base is: in the log, and in the ack log (BEFORE_ALL without one)."""

    log: Position
    acks: Position


class CursorState(Enum):
    IDLE = "idle"
    OPENING = "opening"
    WRITING = "writing"
    COMMITTING = "committing"


@dataclass(slots=True)
class SnapshotInProgress:
    """last_entry: the entry whose confirmation completes the present step or state. manifest: None until all is
    encoded."""

    encoder: SnapshotEncoder
    last_entry: EntryId
    manifest: SnapshotManifest | None = None
    evicted: int = 0
    #: what need not be replayed any more once it is durable
    covered: ReplaySize = NOTHING
    #: when its manifest was appended
    taken_ms: int = 0


class SnapshotWriter:
    """Writes the snapshots of one topic through its own managed ledger, between a takeover and its end."""

    def __init__(
        self,
        step: Step,
        next_ledger: NextLedger,
        taken: TakenOver,
        acks: AckLog,
        settings: SnapshotSettings,
        checksum: Checksum,
        *,
        suspect: Callable[[], None],
        finished: Callable[[], None],
        head: Callable[[LedgerMetadata], LedgerHead | None] = lambda _metadata: None,
    ) -> None:
        """suspect: another owner may have the cursor. finished: called when nothing more will be written. head: of the
        open ledger."""
        self._step = step
        self.ledgers = ManagedLedger(next_ledger, self, step)
        self.durable = taken.state
        self._acks = acks
        self.record = record = taken.cursor
        self.settings = settings
        self._checksum = checksum
        self.head = head
        self._suspect = suspect
        self._finished = finished
        self.state = CursorState.IDLE
        loaded = taken.loaded
        #: number of the newest complete snapshot, of this or an earlier owner
        self.number = loaded.number if loaded else 0
        #: {ledger: positions of its complete base}, oldest first; a ledger that the takeover could not read has none
        self.bases: dict[LedgerId, BasePositions] = {}
        if loaded:
            older = (link for link in record.ledgers if link.ledger_id < loaded.ledger_id)
            self.bases = {
                link.ledger_id: BasePositions(link.base, link.acks or BEFORE_ALL)
                for link in older
                if link.base is not None
            }
            self.bases[loaded.ledger_id] = BasePositions(loaded.base, loaded.acks)
        #: the newest durable snapshot, of this or an earlier owner
        self.newest: NewestSnapshot | None = loaded.newest if loaded else None
        #: the positions of the newest one of this owner in the log and in the ack log
        self._taken: Position | None = None
        self._taken_acks: Position | None = None
        #: when it was durable, the last one has failed, or this owner began
        self._since_ms = step.now_ms
        #: what a takeover would replay
        self.to_replay = ReplaySize(taken.replayed_entries, taken.replayed_bytes)
        #: how many snapshots have failed with their ledger, and when the last one did; 0: none
        self.failures, self.failed_ms = 0, 0
        self.requests = SnapshotRequests(step)
        #: when the base of the open ledger was begun, and the bytes of it and of its deltas
        self._base_ms = step.now_ms
        self._base_bytes = 0
        self._delta_bytes = 0
        self._writing: SnapshotInProgress | None = None
        self._deltas = 0
        #: log entries folded since the newest snapshot
        self.entries_since = taken.replayed_entries
        self._record_version = taken.cursor_version
        #: the record being written, None when no write is in flight
        self._linking: CursorRecord | None = None
        self._finishing = False

    # --- when ---------------------------------------------------------------------------------------------------------

    @property
    def ready(self) -> bool:
        """Whether a snapshot can begin: none is being written, the ledgers are neither closing nor lost, and the ack
        log says what was given up of it."""
        return (
            self.state is CursorState.IDLE
            and self.ledgers.state in (ManagedLedgerState.IDLE, ManagedLedgerState.OPEN)
            and not self._acks.given_up
        )

    @property
    def behind(self) -> bool:
        """Whether the state has moved since the newest snapshot of this owner."""
        return self.durable.position not in (self._taken, BEFORE_ALL) or self._acks.state.position not in (
            self._taken_acks,
            BEFORE_ALL,
        )

    def folded(self, entries: Sequence[InFlight]) -> None:
        """Entries of the log are durable, and folded."""
        self.entries_since += len(entries)
        size = sum(entry.header.body_bytes for entry in entries)
        self.to_replay = ReplaySize(self.to_replay.entries + len(entries), self.to_replay.bytes + size)

    def request(self, event: SnapshotRequested) -> None:
        """Write a snapshot now, unless the newest one is of this state."""
        if not self.behind:
            self._step.emit(AnswerAdmin(event.call))
            return
        self.requests.add(event.call, self.durable.position, self._acks.state.position)
        self.take_if_due()

    def take_if_due(self) -> None:
        """Begin a snapshot if one is due, or requested. Between two there is always the gap, so that requests cannot
        keep an owner busy. If the newest one seems to be of the future, the clock went back, and one is due."""
        settings, since_ms = self.settings, self._step.now_ms - self._since_ms
        if 0 <= since_ms < settings.gap_ms or (
            not self.requests
            and self.entries_since < settings.entries_max
            and self._acks.bytes_since < settings.ack_bytes_max
            and 0 <= since_ms < settings.interval_ms
        ):
            return
        if not self._finishing and self.ready and self.behind and self.ledgers.next.nodes.store_reachable:
            self._begin()

    def roll_if_due(self) -> None:
        """Write the next snapshot into another ledger, although none is due, where the open one has lacked a member for
        long."""
        writer = self.ledgers.writer
        if self.ledgers.lacks_member and self.ledgers.open and writer is not None and writer.next_entry > 0:
            self.rebase()

    def rebase(self) -> None:
        """Write a base into another ledger, although no snapshot is due: the trim bounds move with bases."""
        if self.ready and not self._finishing and self.ledgers.next.nodes.store_reachable:
            self._begin(rebase=True)

    def finish(self) -> None:
        """The topic is about to close and still serves. One more snapshot is written, and then `finished` is called."""
        self._finishing = True
        if self.ready:
            if self.behind:
                self._begin()
            else:
                self._end()

    def _end(self) -> None:
        if self.ledgers.open:
            self.ledgers.finish()
        else:
            self._finished()

    def _begin(self, *, rebase: bool = False) -> None:
        """Take a snapshot now, opening a cursor ledger first where none is open, or for `rebase`."""
        needs_base = rebase or not self.ledgers.open or self._base_due
        if needs_base and not (self.ledgers.open and self.ledgers.writer and self.ledgers.writer.next_entry == 0):
            self.state = CursorState.OPENING
            if self.ledgers.open:
                self.ledgers.roll()
            else:
                self.ledgers.open_next()
        else:
            self._write()

    @property
    def _base_due(self) -> bool:
        settings = self.settings
        if self._step.now_ms - self._base_ms >= settings.base_age_max_ms:
            return True
        if self._base_bytes <= settings.small_base_bytes_max:
            return self._deltas >= settings.deltas_max or self._delta_bytes >= settings.small_base_bytes_max
        return self._delta_bytes >= self._base_bytes

    # --- writing ------------------------------------------------------------------------------------------------------

    def _write(self) -> None:
        writer = self.ledgers.writer
        if writer is None or not self.ledgers.open:
            raise InvariantViolated("a snapshot is written without an open cursor ledger")
        self.durable.producers.make_idle(before_ms=self._step.now_ms - self.settings.idle_after_ms)
        encoder = SnapshotEncoder(
            self.durable, self.number + 1, self._checksum, writer.next_entry == 0, self.settings.step_producers
        )
        self._writing = SnapshotInProgress(encoder, writer.next_entry)
        self.state = CursorState.WRITING
        self._encode(self._writing)

    def _encode(self, writing: SnapshotInProgress) -> None:
        """Append the chunks of the next step; with the last one, what else belongs to the snapshot."""
        encoder = writing.encoder
        chunks = [(EntryKind.SNAPSHOT_CHUNK, chunk) for chunk in encoder.step()]
        if encoder.done:
            chunks += [(EntryKind.SUBSCRIPTIONS_CHUNK, chunk) for chunk in self._rest_of(writing)]
        if chunks:
            self._append(writing, chunks)
        elif encoder.done:
            self._commit(writing)  # all chunks are confirmed

    def _append(self, writing: SnapshotInProgress, bodies: list[tuple[EntryKind, bytes]]) -> None:
        for kind, body in bodies:
            writing.last_entry = self.ledgers.append(kind, body).entry_id
        self.ledgers.flush()

    def _rest_of(self, writing: SnapshotInProgress) -> list[bytes]:
        """The chunks of subscriptions, with the state as it is now; and note what the manifest will say."""
        encoder, state, subscriptions = writing.encoder, self.durable, self._acks.state
        used = subscriptions.position != BEFORE_ALL
        of_subscriptions = encode_subscriptions(encoder.number, subscriptions, base=encoder.base) if used else []
        crc = encoder.crc
        for chunk in of_subscriptions:
            crc = self._checksum(chunk, crc)
        self._count_bytes(encoder.size_bytes + sum(map(len, of_subscriptions)), is_base=encoder.base)
        writing.manifest = SnapshotManifest(
            encoder.number,
            -1 if encoder.base else self.number,
            state.position,
            state.next_index,
            len(state.producers),
            encoder.chunks_count + len(of_subscriptions),
            crc,
            subscriptions.position,
            state.time_ms,
            state.lifetimes,
        )
        writing.evicted = state.producers.take_evicted()
        writing.covered = self.to_replay
        subscriptions.snapshot_taken()
        self.entries_since = self._acks.bytes_since = 0
        return of_subscriptions

    def _count_bytes(self, count: int, *, is_base: bool) -> None:
        if is_base:
            self._base_ms, self._base_bytes, self._delta_bytes = self._step.now_ms, count, 0
        else:
            self._delta_bytes += count

    def confirmed(self, ledger_id: LedgerId, last_add_confirmed: EntryId) -> None:
        """The cursor ledger's last_add_confirmed moved."""
        writing = self._writing
        if writing is None or last_add_confirmed < writing.last_entry:
            return
        if self.state is CursorState.COMMITTING:
            self._committed(ledger_id, writing)
        elif writing.manifest is None:
            self._encode(writing)
        else:
            self._commit(writing)

    def _commit(self, writing: SnapshotInProgress) -> None:
        """Every chunk is confirmed: append the manifest."""
        if writing.manifest is None:
            raise InvariantViolated("a snapshot is committed before all of it was encoded")
        self.state = CursorState.COMMITTING
        writing.taken_ms = self._step.now_ms
        self._append(writing, [(EntryKind.SNAPSHOT_MANIFEST, encode_manifest(writing.manifest))])

    def _committed(self, ledger_id: LedgerId, writing: SnapshotInProgress) -> None:
        manifest = writing.manifest
        if manifest is None:
            raise InvariantViolated("a snapshot was committed before all of it was encoded")
        self._writing = None
        self.state = CursorState.IDLE
        self.number = manifest.number
        self._taken, self._taken_acks, self._since_ms = manifest.position, manifest.acks, self._step.now_ms
        self.newest = NewestSnapshot(manifest.position, writing.taken_ms)
        entries, size = self.to_replay
        self.to_replay = ReplaySize(entries - writing.covered.entries, size - writing.covered.bytes)
        self.requests.durable(manifest.position, manifest.acks)
        if manifest.is_base:
            self.bases[ledger_id] = BasePositions(manifest.position, manifest.acks)
        else:
            self._deltas += 1
        self._step.emit(
            SnapshotTaken(
                manifest.number, manifest.position, manifest.producers_count, manifest.is_base, writing.evicted
            )
        )
        if self._finishing:
            self._end()

    # --- its ledgers --------------------------------------------------------------------------------------------------

    def link_ledger(self, ledger_id: LedgerId) -> None:
        """The next cursor ledger is ready: name it in the record."""
        self._linking = self.record_with(ledger_id)
        key = CursorKey(self.ledgers.settings.topic_id)
        self._step.emit(WriteRecord(key, self._linking, self._record_version))

    def record_written(self, event: RecordWritten[CursorKey, CursorRecord]) -> None:
        """Take the answer to the link of a cursor ledger: the base goes into it, with the state as it is by now."""
        if self._linking is None:
            return
        if event.status is not WriteStatus.OK:
            self._suspect()  # written by another, or the reply was lost
            return
        if event.version != self._record_version + 1:
            return  # a late answer to a write from before the takeover: each write adds one to the version
        record, self._linking, self._record_version = self._linking, None, event.version
        removed = self.linked(record)
        if removed:
            self._step.emit(DeleteLedgers(tuple(removed)))
        self.ledgers.linked()
        if self.ledgers.open:
            self._deltas = 0
            self._write()

    def ledger_closed(self, *, failed: bool) -> None:
        """A failed ledger costs the snapshot in progress; it is retried after the gap."""
        if failed:
            if self._writing is not None:
                self.number = max(self.number, self._writing.encoder.number)
                self._writing = None
            self.state = CursorState.IDLE
            self._since_ms = self.failed_ms = self._step.now_ms
            self.failures += 1
            self.entries_since = self.settings.entries_max
        if self._finishing and (failed or self.state is CursorState.IDLE):
            self._finished()  # after a failure the next owner only replays more
        elif self.state is CursorState.OPENING:
            self.ledgers.open_next()

    def ledger_lost(self) -> None:
        self._suspect()

    # --- which ledgers are kept --------------------------------------------------------------------------------------

    def record_with(self, ledger_id: LedgerId) -> CursorRecord:
        """The record that links a new ledger and keeps the two newest complete bases before it."""
        complete = list(self.bases)
        oldest = complete[-2] if len(complete) >= 2 else -1
        kept = [self._link_of(link.ledger_id) for link in self.record.ledgers if link.ledger_id >= oldest]
        return self.record.with_ledgers((*kept, CursorLink(ledger_id, None)))

    def _link_of(self, ledger_id: LedgerId) -> CursorLink:
        base = self.bases.get(ledger_id)
        if base is None:
            return CursorLink(ledger_id, None)
        return CursorLink(ledger_id, base.log, None if base.acks == BEFORE_ALL else base.acks)

    def linked(self, record: CursorRecord) -> list[LedgerId]:
        """The record was written; returns the ledgers that it no longer lists."""
        kept = {link.ledger_id: None for link in record.ledgers}
        gone = [link.ledger_id for link in self.record.ledgers if link.ledger_id not in kept]
        self.record = record
        self.bases = {ledger: base for ledger, base in self.bases.items() if ledger in kept}
        return gone

    def trim_bound(self) -> Position | None:
        """The position of the oldest kept base in the log: all kept snapshots cover the log up to it. None: nothing may
        be trimmed."""
        base = self._oldest_base()
        return None if base is None else base.log

    def ack_trim_bound(self) -> Position | None:
        """The same for the ack log."""
        base = self._oldest_base()
        return None if base is None else base.acks

    def _oldest_base(self) -> BasePositions | None:
        return None if len(self.bases) < 2 else self.first_base

    @property
    def first_base(self) -> BasePositions | None:
        """Of the oldest listed ledger: no listed snapshot is older. None: none is listed, or it is not known."""
        return self.bases.get(self.record.ledgers[0].ledger_id) if self.record.ledgers else None
