"""Small values for the tests of the owner's cores: batches, entries, and logs of them."""

import zlib
from collections.abc import Iterable, Sequence

from oncelog.core.formats.batch import (
    BatchHeader,
    Buffer,
    decode_batch,
    deltas_of,
    encode_batch,
    encode_deltas,
)
from oncelog.core.formats.compression import Compression
from oncelog.core.formats.entry import (
    EntryHeader,
    EntryKind,
    ProducerOpened,
    SequenceMode,
    encode_header,
    encode_opened,
)
from oncelog.core.formats.producers_aged import NameLifetimes, ProducersAged, Renewal, encode_aged
from oncelog.core.ids import (
    NO_SEQUENCE,
    EntryId,
    Generation,
    Incarnation,
    InstanceId,
    LedgerId,
    OwnerEpoch,
    Position,
    ProducerId,
    SequenceId,
    TopicId,
)
from oncelog.core.publishing.dedup_state import DedupState
from oncelog.core.publishing.producer_state import ProducerState
from oncelog.core.publishing.recent_batches import RecentBatch, RecentBatches
from oncelog.core.topic_events.events import ReceivedBatch

TOPIC = TopicId("0f" * 16)
A, B, C, D = (Incarnation(name) for name in "abcd")
PID = ProducerId(1)
MONOTONIC, CONTIGUOUS, EPOCHED = SequenceMode.MONOTONIC, SequenceMode.CONTIGUOUS, SequenceMode.EPOCHED


def checksum(data: Buffer, value: int) -> int:
    """CRC32 instead of CRC32C: the cores take any."""
    return zlib.crc32(data, value)


def at(entry_id: int, ledger_id: int = 1) -> Position:
    return Position(LedgerId(ledger_id), EntryId(entry_id))


def batch(
    ids: Sequence[int],
    *,
    pid: int = PID,
    generation: int = 1,
    payload: bytes = b"payload",
    publish_time_ms: int = 1,
    compression: Compression = Compression.NONE,
) -> bytes:
    """The producer's bytes of one batch with these ids."""
    return encode_batch(
        payload,
        producer_id=ProducerId(pid),
        generation=Generation(generation),
        first=ids[0],
        last=ids[-1],
        count=len(ids),
        publish_time_ms=publish_time_ms,
        checksum=checksum,
        deltas=encode_deltas(ids),
        compression=compression,
    )


def parts(ids: Sequence[int], *, pid: int = PID, generation: int = 1) -> tuple[BatchHeader, bytes]:
    """Header and id deltas of such a batch, as the dedup check takes them."""
    data = batch(ids, pid=pid, generation=generation)
    header = decode_batch(data, checksum)
    return header, bytes(deltas_of(header, data))


def received(
    request: int, ids: Sequence[int], *, pid: int = PID, generation: int = 1, payload: bytes = b"payload"
) -> ReceivedBatch:
    data = batch(ids, pid=pid, generation=generation, payload=payload)
    return ReceivedBatch(request, decode_batch(data, checksum), data)


def grant(
    name: str = "p",
    *,
    pid: int = PID,
    generation: int = 1,
    mode: SequenceMode = MONOTONIC,
    instance_id: bytes = b"",
    role: str = "",
    lifetime_ms: int = 0,
) -> ProducerOpened:
    return ProducerOpened(
        TOPIC, name, ProducerId(pid), Generation(generation), mode, NO_SEQUENCE, InstanceId(instance_id), role,
        lifetime_ms=lifetime_ms,
    )  # fmt: skip


class LogOf:
    """A log as its entries' bytes, written one after the other without any machine."""

    def __init__(self, *, entries_per_ledger: int = 1000) -> None:
        self.entries: list[tuple[EntryHeader, bytes]] = []
        self.next_index = 0
        self._per_ledger = entries_per_ledger

    def add(self, kind: EntryKind, body: bytes, *, count: int = 0, skip_first: int = 0, now_ms: int = 0) -> EntryHeader:
        number = len(self.entries)
        header = EntryHeader(
            kind=kind,
            ledger_id=LedgerId(1 + number // self._per_ledger),
            entry_id=EntryId(number % self._per_ledger),
            last_add_confirmed=EntryId(-1),
            length=0,
            owner_epoch=OwnerEpoch(1),
            append_time_ms=now_ms,
            base_index=self.next_index,
            skip_first=skip_first,
            count=count,
            body_bytes=len(body),
            topic_id=TOPIC,
        )
        self.next_index += count
        self.entries.append((header, encode_header(header, body, checksum) + body))
        return header

    def granted(self, opened: ProducerOpened, *, now_ms: int = 0) -> EntryHeader:
        return self.add(EntryKind.PRODUCER_OPENED, encode_opened(opened), now_ms=now_ms)

    def aged(
        self, passed_ms: int, renewed: Sequence[Renewal] = (), expired: Sequence[int] = (), *,
        lifetimes: NameLifetimes | None = None,
    ) -> EntryHeader:  # fmt: skip
        aged = ProducersAged(passed_ms, tuple(renewed), tuple(map(ProducerId, expired)), lifetimes=lifetimes)
        return self.add(EntryKind.PRODUCERS_AGED, encode_aged(aged))

    def stored(
        self, ids: Sequence[int], *, pid: int = PID, generation: int = 1, skip_first: int = 0, now_ms: int = 0
    ) -> EntryHeader:
        data = batch(ids, pid=pid, generation=generation)
        count = len(ids) - skip_first
        return self.add(EntryKind.MESSAGES, data, count=count, skip_first=skip_first, now_ms=now_ms)


def fold(entries: Iterable[tuple[EntryHeader, bytes]], into: DedupState | None = None) -> DedupState:
    state = DedupState() if into is None else into
    for header, data in entries:
        state.fold(header, data)
    state.check_invariants()
    return state


def plain(state: DedupState) -> dict[ProducerId, ProducerState]:
    """The state of each producer without the ids of batches with holes, which a snapshot leaves in their entries."""

    def without_deltas(recent: RecentBatch) -> RecentBatch:
        return recent._replace(deltas=b"" if recent.dense else None)

    return {
        pid: ProducerState(
            p.name, p.producer_id, p.generation, p.mode, p.persisted,
            RecentBatches(without_deltas(r) for r in p.recent_batches),
            p.recent_floor, p.last_activity_ms, p.instance_id, p.role, p.growths, p.lifetime_ms, p.active_at_ms,
            p.history,
        )
        for pid, p in sorted(state.producers.items())
    }  # fmt: skip


def sequence(number: int) -> SequenceId:
    return SequenceId(number)
