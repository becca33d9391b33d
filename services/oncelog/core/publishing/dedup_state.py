"""The fold of a topic's log into its dedup state: producer id -> (name, generation, mode, persisted mark, recent
batches, last activity, instance, role).

Rules
- The fold records facts and rejects nothing: the highest mark and the first position win, whether dedup was enabled or
  not.
- It moves entry by entry in log order; an entry whose base_index is not the next one is a hole and stops the fold.
- Entries that an operator has given up are passed over (`skip_given_up`). Grants and batches may then be missing until
  the log says so (GivenUp): a batch of an unknown producer is passed over, and a higher generation or mark is believed.
- Time is what PRODUCERS_AGED entries say has passed, and no clock: an owner whose clock is wrong, or that slept, and a
  takeover never shorten a producer's life (`expiry`). An expired producer is forgotten, and its name is free. Its id is
  never issued again, so its zombie stays unknown.
- The head of a ledger says nothing about producers: the fold stays where it was, so a ledger with nothing but a head
  changes no position.
- Everything here is durable. In-flight batches live in `table.DedupTable`, on top, and are dropped by a failed write.
- Law: snapshot(P) + replay(P..end) == fold(whole log), except for batches at or below `recent_floor`: each producer
  keeps its newest 64 batches, within a budget of memory for all producers (`producers`).
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence

from oncelog.core.errors import CorruptEntry, InvariantViolated, LogHole
from oncelog.core.formats.batch import BatchHeader, Buffer, decode_ids, deltas_of, encode_deltas, peek_batch
from oncelog.core.formats.entry import (
    GIVEN_UP_GENERATIONS,
    EntryHeader,
    EntryKind,
    ProducerOpened,
    body_of,
    decode_opened,
)
from oncelog.core.formats.producers_aged import ProducersAged, decode_aged
from oncelog.core.ids import (
    BEFORE_ALL,
    GENERATION_MAX,
    NO_INSTANCE,
    NO_SEQUENCE,
    NOT_DEDUPLICATED,
    Generation,
    InstanceId,
    Position,
    ProducerId,
    SequenceId,
)
from oncelog.core.policies.producer_lifetimes import FOR_EVER
from oncelog.core.publishing.generation_history import GenerationRecord, with_generation
from oncelog.core.publishing.producer_record import ProducerRow, instance_of
from oncelog.core.publishing.producer_state import ProducerState
from oncelog.core.publishing.producers import RECENT_BYTES_MAX, Producers
from oncelog.core.publishing.recent_batches import RecentBatch


def recent_batch_of(
    batch: BatchHeader, deltas: Buffer, *, position: Position, above: SequenceId, skip: int
) -> RecentBatch | None:
    """The part of a batch above the mark `above`, without its first `skip` messages; None when nothing is left, or
    when a unit is not above the mark as a whole."""
    if skip == 0 and batch.first > above:
        content = (0, 0, 0) if batch.compression else (batch.generation, batch.publish_time_ms, batch.checksum)
        return RecentBatch(batch.first, batch.last, batch.count, position, 0, bytes(deltas), *content, batch.unit)
    if batch.unit:
        return None
    ids = decode_ids(batch, deltas)
    start = max(skip, bisect_right(ids, above))
    if start >= len(ids):
        return None
    rest = ids[start:]
    return RecentBatch(SequenceId(rest[0]), SequenceId(rest[-1]), len(rest), position, start, encode_deltas(rest))


def highest_unnamed(
    batch: BatchHeader, deltas: Buffer, recent_batches: Sequence[RecentBatch], *, above: SequenceId, skip: int
) -> SequenceId:
    """The highest new id of a stored batch at or below the mark `above` that is in no recent batch, or NO_SEQUENCE.

    Such an id is stored only while dedup is disabled. A later check must not call it stale, so the recent batches up to
    it are forgotten, which makes it older than all recent batches. A recent batch with holes counts as naming none of
    its ids, whether its deltas are remembered or not: that differs between a live owner and one that replays.
    """
    if batch.first > above or skip >= batch.count:
        return NO_SEQUENCE
    ids = decode_ids(batch, deltas)
    for i in range(bisect_right(ids, above) - 1, skip - 1, -1):
        at = bisect_left(recent_batches, ids[i], key=lambda recent: recent.last)
        if at == len(recent_batches) or ids[i] < recent_batches[at].first:
            return SequenceId(ids[i])
        if not recent_batches[at].dense:
            return recent_batches[at].last
    return NO_SEQUENCE


def assigned_name(producer_id: ProducerId) -> str:
    """The name assigned to a producer that was opened without one, or leased."""
    return f"producer-{producer_id}"


class DedupState:
    """The durable state of one topic, as of exactly `position`."""

    def __init__(self, recent_bytes_max: int = RECENT_BYTES_MAX) -> None:
        #: recent_bytes_max: memory budget of all producers' recent batches
        self.producers = Producers(recent_bytes_max)
        #: {instance id: producer id} of the producers with assigned names
        self.unnamed: dict[InstanceId, ProducerId] = {}
        #: the last entry folded in
        self.position: Position = BEFORE_ALL
        #: base_index of the next entry
        self.next_index: int = 0
        #: how much time has passed in this log
        self.time_ms = 0
        #: how long producers without a lease live
        self.lifetimes = FOR_EVER
        #: producers changed, or expired, since the last complete snapshot, in order of change
        self.dirty: dict[ProducerId, None] = {}
        #: entries were passed over, and no GivenUp was folded since
        self.holed = False
        #: False: entries were passed over just now, so that next_index is only a lower bound
        self.index_known = True

    def fold(self, header: EntryHeader, data: Buffer) -> None:
        """Fold one entry, given whole or cut after the id deltas. Raises LogHole or CorruptEntry; never skips one."""
        body = body_of(data)
        if header.kind == EntryKind.MESSAGES:
            batch = peek_batch(body)
            deltas = deltas_of(batch, body)
            if len(deltas) != batch.ids_bytes:
                raise CorruptEntry(f"entry {header.position} is cut inside its id deltas")
            self.fold_messages(header, batch, deltas)
        elif header.kind == EntryKind.CHUNK:
            self.fold_chunk(header)
        elif header.kind == EntryKind.PRODUCER_OPENED:
            self.fold_opened(header, decode_opened(body))
        elif header.kind == EntryKind.PRODUCERS_AGED:
            self.fold_aged(header, decode_aged(body))
        elif header.kind == EntryKind.GIVEN_UP:
            self.fold_given_up(header)
        elif header.kind == EntryKind.HEAD_LOG:
            self._require_next(header)
        else:
            raise CorruptEntry(f"entry {header.position} is of kind {header.kind}, which this version does not support")

    def fold_messages(self, header: EntryHeader, batch: BatchHeader, deltas: Buffer) -> None:
        self._step(header)
        if batch.producer_id == NOT_DEDUPLICATED:
            return
        producer = self.producers.get(batch.producer_id)
        if self.holed and producer is None:
            return
        if producer is None or (batch.generation > producer.generation and not self.holed):
            raise CorruptEntry(f"entry {header.position} is of producer {batch.producer_id}, which was never granted")
        if batch.generation > producer.generation:
            producer.generation = batch.generation
            self._held_by(producer, NO_INSTANCE)
        if batch.first <= producer.persisted and batch.unit:
            producer.outlive(batch.last)
        elif batch.first <= producer.persisted:
            producer.forget_below(
                highest_unnamed(
                    batch, deltas, producer.recent_batches, above=producer.persisted, skip=header.skip_first
                )
            )
        recent = recent_batch_of(
            batch, deltas, position=header.position, above=producer.persisted, skip=header.skip_first
        )
        if recent is not None:
            producer.remember(recent.without_long_deltas())
        producer.last_activity_ms, producer.active_at_ms = header.append_time_ms, self.time_ms
        self.dirty[batch.producer_id] = None
        self.producers.used(producer)

    def fold_chunk(self, header: EntryHeader) -> None:
        """A chunk says nothing by itself: the message that names it moves the producer's mark."""
        self._step(header)

    def fold_opened(self, header: EntryHeader, grant: ProducerOpened) -> None:
        self._step(header)
        if grant.topic_id != header.topic_id:
            raise CorruptEntry(f"entry {header.position} grants a producer of another topic")
        producer = self.producers.get(grant.producer_id)
        if producer is None:
            if self.producers.id_of(grant.name) is not None:
                raise CorruptEntry(f"entry {header.position} binds {grant.name!r} to a second producer id")
            producer = ProducerState(grant.name, grant.producer_id, grant.generation, grant.mode)
            producer.persisted = producer.recent_floor = grant.persisted
            producer.growths = grant.growths
        elif producer.name != grant.name or grant.generation <= producer.generation:
            raise CorruptEntry(f"entry {header.position} grants {grant.name!r} against what the log says before it")
        elif self.holed and grant.persisted > producer.persisted:
            producer.forget_all()
            producer.persisted = producer.recent_floor = grant.persisted
        producer.generation = grant.generation
        self._held_by(producer, grant.instance_id)
        producer.role = producer.role or grant.role
        producer.lifetime_ms = grant.lifetime_ms or producer.lifetime_ms
        if grant.address is not None:
            granted = GenerationRecord(
                grant.generation, header.append_time_ms, bool(grant.lifetime_ms), grant.role, grant.address
            )
            producer.history = with_generation(producer.history, granted)
        producer.last_activity_ms, producer.active_at_ms = header.append_time_ms, self.time_ms
        self.producers.used(producer)
        self.dirty[grant.producer_id] = None

    def fold_aged(self, header: EntryHeader, aged: ProducersAged) -> None:
        self._step(header)
        self.time_ms += aged.passed_ms
        if aged.lifetimes is not None:
            self.lifetimes = self.lifetimes.changed(*aged.lifetimes, self.time_ms)
        for pid, generation, lifetime_ms in aged.renewed:
            renewed = self.producers.get(pid)
            if renewed is None or generation != renewed.generation:
                if self.holed:
                    continue
                raise CorruptEntry(f"entry {header.position} renews generation {generation} of producer {pid}")
            renewed.lifetime_ms = lifetime_ms or renewed.lifetime_ms
            renewed.last_activity_ms, renewed.active_at_ms = header.append_time_ms, self.time_ms
            self.producers.used(renewed)
            self.dirty[pid] = None
        for pid in aged.expired:
            expired = self.producers.remove(pid)
            if expired is None and not self.holed:
                raise CorruptEntry(f"entry {header.position} expires producer {pid}, which is unknown")
            if expired is not None:
                self.unnamed.pop(expired.instance_id, None)
                self.dirty[pid] = None

    def fold_given_up(self, header: EntryHeader) -> None:
        """Messages and grants that were acknowledged may be gone. Their numbers and generations are not used again, and
        each instance must open its name again: it then sees which of its messages are stored (hazard
        index-given-twice)."""
        self._step(header)
        self.holed = False

        def invalidate(producer: ProducerState) -> None:
            producer.generation = Generation(min(producer.generation + GIVEN_UP_GENERATIONS, GENERATION_MAX))
            self._held_by(producer, NO_INSTANCE)

        self.producers.update_all(invalidate)
        self.dirty.update(dict.fromkeys(self.producers))

    def skip_given_up(self, position: Position) -> None:
        """Pass over the entries up to `position`, which an operator has given up."""
        if position <= self.position:
            raise InvariantViolated(f"entries up to {position} cannot be passed over: {self.position} was folded in")
        self.position = position
        self.holed, self.index_known = True, False

    def begin_ledger(self, base_index: int) -> bool:
        """Whether the next entry may be the first one of a ledger that begins with this message."""
        if not self.index_known and base_index >= self.next_index:
            self.next_index, self.index_known = base_index, True
        return base_index == self.next_index

    def _held_by(self, producer: ProducerState, instance_id: InstanceId) -> None:
        self.unnamed.pop(producer.instance_id, None)
        producer.instance_id = instance_id
        if instance_id and producer.name == assigned_name(producer.producer_id):
            self.unnamed[instance_id] = producer.producer_id

    def _require_next(self, header: EntryHeader) -> None:
        """Raises LogHole."""
        passed_over = not self.index_known and header.base_index >= self.next_index
        if (header.base_index != self.next_index and not passed_over) or header.position <= self.position:
            raise LogHole(
                f"entry {header.position} begins at message {header.base_index}, but the log before it ends at "
                f"{self.position} with message {self.next_index}: an entry between them is missing"
            )

    def _step(self, header: EntryHeader) -> None:
        self._require_next(header)
        self.position = header.position
        self.next_index, self.index_known = header.next_index, True

    def restore(self, producers: Iterable[ProducerRow]) -> None:
        """Put in the producers of a snapshot, or replace them."""
        for producer in producers:
            if not producer.row:
                expired = self.producers.remove(producer.producer_id)
                if expired is not None:
                    self.unnamed.pop(expired.instance_id, None)
                continue
            replaced = self.producers.restore(producer)
            if replaced is not None:
                self.unnamed.pop(instance_of(replaced), None)
            if producer.name == assigned_name(producer.producer_id):
                instance_id = instance_of(producer.row)
                if instance_id:
                    self.unnamed[instance_id] = producer.producer_id

    def learn_deltas(self, position: Position, batch: BatchHeader, deltas: Buffer) -> None:
        """Put the ids read from an entry into the recent batch at its position."""
        producer = self.producers.get(batch.producer_id)
        if producer is None:
            return
        for i, recent in enumerate(producer.recent_batches):
            if recent.position == position:
                ids = decode_ids(batch, deltas)[recent.offset :]
                producer.recent_batches.replace(i, recent._replace(deltas=encode_deltas(ids)))
        self.producers.used(producer)

    def forget_until(self, producer_id: ProducerId, position: Position) -> None:
        """Forget a producer's batches up to the one at `position`, whose ids can no longer be read."""
        producer = self.producers[producer_id]
        producer.forget_until(position)
        self.producers.used(producer)

    def check_invariants(self) -> None:
        self.producers.check_invariants()
        for pid, producer in self.producers.items():
            mark = producer.recent_floor
            for first, last in producer.recent_batches.spans():
                if not mark < first <= last:
                    raise InvariantViolated(f"recent batches of producer {pid} do not ascend at {first}")
                mark = last
            if mark != producer.persisted:
                raise InvariantViolated(
                    f"producer {pid}: persisted mark {producer.persisted}, last batch ends at {mark}"
                )
