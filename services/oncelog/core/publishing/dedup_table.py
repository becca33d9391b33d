"""Checking a batch: which messages are new, which are duplicates, and what must be refused.

There are two layers. `state` is the fold of the durable log. `pending` lies on top and holds only what was handed to
the ledger and is not durable yet: accepted marks, in-flight batches, in-flight grants. A failed write drops the whole
upper layer, and the durable state remains (Pulsar #5218 advanced its mark before the write and lost the retry). Entries
become durable in log order, so the upper layer drains from its front.

    first > accepted mark          new (contiguous: exactly the next id, else SequenceGap; epoched: the next id, or the
                                   first one of a higher epoch)
    an id that is in a batch       duplicate, or joins that batch's write in flight
    an id below recent_floor       contiguous: duplicate, position unknown; monotonic: below the mark, not verified;
                                   epoched: a duplicate in the epoch of the mark, stale in an older one, which may have
                                   ended before that id (hazard copy-of-an-older-epoch)
    an id between, never stored    stale. A check by ranges would call it a duplicate and lose it. Only this message is
                                   refused; the whole batch when the producer is contiguous or epoched, or when the
                                   batch has no duplicate and no new message
    a known prefix, then new ids   stored verbatim with skip_first = the prefix's length, which includes stale ids

A unit (see `core.formats.batch`) is judged as a whole, and never cut (hazard batches-of-keys):

    first > accepted mark          new
    its first, last and count are  duplicate, or joins that batch's write in flight
    those of a recent batch
    last <= recent_floor           below the mark, not verified
    else                           stale: refused. An id of another batch that lies within a recent unit is not verified
"""

from bisect import bisect_right
from dataclasses import dataclass, field
from typing import NamedTuple

from oncelog.core.errors import (
    InvalidBatch,
    InvariantViolated,
    NotOwner,
    OncelogError,
    ProducerFenced,
    SequenceGap,
    StaleSequence,
    UnknownProducer,
)
from oncelog.core.formats.batch import BatchHeader, Buffer, decode_ids
from oncelog.core.formats.entry import EntryHeader, ProducerOpened, SequenceMode
from oncelog.core.formats.epoched_ids import begins_epoch, epoch_of
from oncelog.core.formats.outcome import RESULT_RANGES_MAX, ResultKind, ResultRange, refuses
from oncelog.core.formats.producers_aged import ProducersAged
from oncelog.core.ids import BEFORE_ALL, NO_SEQUENCE, NOT_DEDUPLICATED, Generation, Position, ProducerId, SequenceId
from oncelog.core.names import is_reserved
from oncelog.core.publishing.dedup_state import DedupState, highest_unnamed, recent_batch_of
from oncelog.core.publishing.producer_state import ProducerState
from oncelog.core.publishing.recent_batches import NeedIds, RecentBatch, locate


@dataclass(frozen=True, slots=True)
class Accept:
    """Append the batch. The first `skip_first` messages are not new; `known` has their results."""

    skip_first: int = 0
    known: tuple[ResultRange, ...] = ()


@dataclass(frozen=True, slots=True)
class NothingNew:
    """No message is new: answer `known` as soon as everything up to `settles_at` is durable."""

    known: tuple[ResultRange, ...]
    settles_at: Position


@dataclass(frozen=True, slots=True)
class Refused:
    """The batch is refused and ends its session; nothing of it is stored. suspect: this owner may be deposed."""

    error: OncelogError
    suspect: bool = False


@dataclass(frozen=True, slots=True)
class Wait:
    """The verdict depends on a grant that is not durable yet: check again when it is."""


#: Looked up once, because each batch is compared with them.
_MONOTONIC, _EPOCHED = SequenceMode.MONOTONIC, SequenceMode.EPOCHED

BatchVerdict = Accept | NothingNew | Refused | NeedIds | Wait
ACCEPT = Accept()
WAIT = Wait()


@dataclass(slots=True)
class PendingProducer:
    """The in-flight state of one producer. accepted: highest id handed to the ledger. batches: ascending, above the
    persisted mark."""

    accepted: SequenceId
    batches: list[RecentBatch] = field(default_factory=list)
    #: the newest in-flight grant
    grant: ProducerOpened | None = None
    position: Position = BEFORE_ALL
    #: ids at or below it may be in an in-flight entry that was written with dedup disabled, and in no batch
    floor: SequenceId = NO_SEQUENCE


class KnownIds(NamedTuple):
    """What is known of the ids that one producer has sent.

    batches: the recent ones, durable and then in flight, ascending. floor: ids at or below it are older than those.
    settles_at: what says so about the floor is durable up to this position.
    """

    batches: list[RecentBatch]
    floor: SequenceId
    settles_at: Position


class DedupTable:
    """Checks the batches of one topic; used by the one task that owns the topic."""

    def __init__(self, state: DedupState, *, dedup_enabled: bool = True) -> None:
        self.state = state
        #: False: batches are stored without a check of their sequence ids, but those of producers with reserved names;
        #: grants, fencing and the fold go on
        self.dedup_enabled = dedup_enabled
        #: {producer id: its in-flight state}
        self._pending: dict[ProducerId, PendingProducer] = {}
        #: {name: producer id} of in-flight grants for new names
        self._pending_names: dict[str, ProducerId] = {}
        #: producers that expire by an entry in flight: nothing is decided about them before it is durable
        self._expiring: set[ProducerId] = set()

    # --- questions ----------------------------------------------------------------------------------------------------

    def producer_id_of(self, name: str) -> ProducerId | None:
        known = self.state.producers.id_of(name)
        return self._pending_names.get(name) if known is None else known

    def knows(self, producer_id: ProducerId) -> bool:
        return producer_id in self.state.producers or producer_id in self._pending

    def generation_of(self, producer_id: ProducerId) -> tuple[Generation, bool]:
        """Return (newest generation, whether its grant is durable, and the producer does not expire just now). The
        producer must be known."""
        if producer_id in self._expiring:
            return self.state.producers[producer_id].generation, False
        pending = self._pending.get(producer_id)
        if pending is not None and pending.grant is not None:
            return pending.grant.generation, False
        return self.state.producers[producer_id].generation, True

    def expires(self, producer_id: ProducerId) -> bool:
        """Whether the producer expires by an entry in flight, or is about to be removed."""
        return producer_id in self._expiring

    def settled(self, producer_id: ProducerId) -> bool:
        """Whether nothing of this producer is in flight, and neither is its expiry."""
        return not self.in_flight(producer_id) and not self.expires(producer_id)

    def in_flight(self, producer_id: ProducerId) -> bool:
        """Whether a batch, a grant or a renewal of this producer is in flight."""
        return producer_id in self._pending

    def mode_of(self, producer_id: ProducerId) -> SequenceMode:
        producer = self.state.producers.get(producer_id)
        if producer is not None:
            return producer.mode
        grant = self._pending[producer_id].grant
        if grant is None:
            raise InvariantViolated(f"producer {producer_id} is in flight without a grant")
        return grant.mode

    def role_of(self, producer_id: ProducerId) -> str:
        """The role that owns the producer's name; empty: none."""
        producer = self.state.producers.get(producer_id)
        if producer is not None and producer.role:
            return producer.role
        pending = self._pending.get(producer_id)
        return pending.grant.role if pending is not None and pending.grant is not None else ""

    def accepted_of(self, producer_id: ProducerId) -> SequenceId:
        pending = self._pending.get(producer_id)
        return pending.accepted if pending is not None else self.state.producers[producer_id].persisted

    def remembered(self, producer_id: ProducerId, position: Position) -> RecentBatch | None:
        """The producer's recent batch that is stored, or in flight, at this position."""
        batches = self.known_ids(self.state.producers[producer_id]).batches
        return next((recent for recent in batches if recent.position == position), None)

    def known_ids(self, producer: ProducerState) -> KnownIds:
        """Of a producer of the fold, which may be a copy of an idle one."""
        pending, floor = self._pending.get(producer.producer_id), producer.recent_floor
        if pending is None:
            return KnownIds(list(producer.recent_batches), floor, self.state.position)
        batches = [*producer.recent_batches, *pending.batches]
        if pending.floor > floor:
            return KnownIds(batches, pending.floor, pending.position)
        return KnownIds(batches, floor, self.state.position)

    # --- checking -----------------------------------------------------------------------------------------------------

    def check(self, batch: BatchHeader, deltas: Buffer) -> BatchVerdict:
        """Decide on one batch; changes nothing. A producer's error is a verdict, not an exception."""
        pid = batch.producer_id
        if pid == NOT_DEDUPLICATED:
            return ACCEPT
        if not self.knows(pid):
            return Refused(
                UnknownProducer(f"producer id {pid} is unknown to this owner: open the producer by name again")
            )
        generation, durable = self.generation_of(pid)
        if batch.generation != generation or not durable:
            return self._check_generation(batch, generation, durable)
        producer = self.state.producers[pid]
        mode = producer.mode
        gapless = mode is not _MONOTONIC
        if gapless and (not batch.dense or (mode is _EPOCHED and epoch_of(batch.first) != epoch_of(batch.last))):
            return Refused(_with_holes(mode, batch))
        accepted = self.accepted_of(pid)
        if not self.dedup_enabled and not is_reserved(producer.name):
            return ACCEPT
        if batch.first > accepted:
            if (
                gapless
                and batch.first != accepted + 1
                and not (mode is _EPOCHED and begins_epoch(batch.first, accepted))
            ):
                return Refused(
                    SequenceGap(
                        f"expected sequence id {accepted + 1}, got {batch.first}: resend from id {accepted + 1}",
                        expected=accepted + 1,
                    )
                )
            return ACCEPT
        return self._check_known(producer, batch, deltas, accepted)

    def _check_generation(self, batch: BatchHeader, current: Generation, durable: bool) -> BatchVerdict:
        if batch.generation > current:
            error = NotOwner(
                f"generation {batch.generation} of producer {batch.producer_id} was granted by another owner"
            )
            return Refused(error, suspect=True)
        if not durable:
            return WAIT
        return Refused(
            ProducerFenced(
                f"a newer instance has this producer name (generation {current}): stop this one", current=current
            )
        )

    def _check_unit(self, producer: ProducerState, batch: BatchHeader, accepted: SequenceId) -> BatchVerdict:
        recent_batches, floor, settles_at = self.known_ids(producer)
        for recent in recent_batches:
            if (recent.first, recent.last, recent.count) == (batch.first, batch.last, batch.count):
                known = ResultRange(ResultKind.DUPLICATE, batch.count, recent.position, recent.offset)
                return NothingNew((known,), recent.position)
        if batch.last <= floor:
            return NothingNew((ResultRange(ResultKind.BELOW_MARK, batch.count, None, 0),), settles_at)
        return Refused(_stale(batch, accepted, whole=True))

    def _check_known(
        self, producer: ProducerState, batch: BatchHeader, deltas: Buffer, accepted: SequenceId
    ) -> BatchVerdict:
        if batch.unit:
            return self._check_unit(producer, batch, accepted)
        ids = decode_ids(batch, deltas)
        split = batch.count if batch.last <= accepted else bisect_right(ids, accepted)
        recent_batches, floor, settles_at = self.known_ids(producer)
        located = locate(ids[:split], recent_batches, floor=floor, mode=producer.mode)
        if isinstance(located, NeedIds):
            return located
        if refuses(located):
            nothing_else = len(located) == 1 and split == batch.count
            if nothing_else or producer.mode is not _MONOTONIC or len(located) > RESULT_RANGES_MAX:
                whole = nothing_else or producer.mode is _EPOCHED
                return Refused(_stale(batch, accepted, whole=whole, mode=producer.mode))
            pending = self._pending.get(producer.producer_id)
            if pending is not None:
                # A message that is stale because of an in-flight write is answered when that write is durable.
                return NothingNew(located, pending.position) if split == batch.count else Accept(split, located)
        if split == batch.count:
            settled = max((p.position for p in located if p.position), default=settles_at)
            return NothingNew(located, max(settled, self._unit_in_flight(producer.producer_id)))
        return Accept(split, located)

    def _unit_in_flight(self, pid: ProducerId) -> Position:
        """The newest one: an id within it has no position, and is answered when the unit is durable."""
        pending = self._pending.get(pid)
        batches = [] if pending is None else pending.batches
        return max((recent.position for recent in batches if recent.unit), default=BEFORE_ALL)

    # --- events ----------------------------------------------------------------------------------------------------

    def accepted(self, batch: BatchHeader, deltas: Buffer, *, position: Position, skip_first: int) -> None:
        """The batch was handed to the ledger at `position`."""
        pid = batch.producer_id
        if pid == NOT_DEDUPLICATED:
            return
        pending = self._pending_of(pid)
        if batch.unit and batch.first <= pending.accepted:
            pending.floor = max(pending.floor, batch.last)
            pending.accepted = max(pending.accepted, batch.last)
        elif not self.dedup_enabled:
            recent_batches = self.known_ids(self.state.producers[pid]).batches
            unnamed = highest_unnamed(batch, deltas, recent_batches, above=pending.accepted, skip=skip_first)
            pending.floor = max(pending.floor, unnamed)
        recent = recent_batch_of(batch, deltas, position=position, above=pending.accepted, skip=skip_first)
        if recent is not None:
            pending.batches.append(recent)
            pending.accepted = recent.last
        pending.position = position

    def granting(self, grant: ProducerOpened, *, position: Position) -> None:
        """A grant was handed to the ledger at `position`. Raises InvariantViolated for a pid bound to another name."""
        known = self.state.producers.id_of(grant.name)
        if known != grant.producer_id and (known is not None or self.knows(grant.producer_id)):
            raise InvariantViolated(
                f"producer id {grant.producer_id} is bound already and cannot stand for {grant.name!r}"
            )
        if known is None:
            self._pending_names[grant.name] = grant.producer_id
            self._pending[grant.producer_id] = PendingProducer(grant.persisted)
        pending = self._pending_of(grant.producer_id)
        pending.grant = grant
        pending.position = position

    def _pending_of(self, pid: ProducerId) -> PendingProducer:
        pending = self._pending.get(pid)
        if pending is None:
            pending = self._pending[pid] = PendingProducer(self.state.producers[pid].persisted)
        return pending

    def persisted_batch(self, header: EntryHeader, batch: BatchHeader, deltas: Buffer) -> None:
        """An entry of messages became durable; entries come in log order."""
        self.state.fold_messages(header, batch, deltas)
        pending = self._pending.get(batch.producer_id)
        if pending is not None:
            if pending.batches and pending.batches[0].position == header.position:
                del pending.batches[0]
            self._settle(batch.producer_id, pending)

    def persisted_grant(self, header: EntryHeader, grant: ProducerOpened) -> None:
        """A grant became durable: from here on it fences every older generation."""
        self.state.fold_opened(header, grant)
        self._pending_names.pop(grant.name, None)
        pending = self._pending[grant.producer_id]
        if pending.grant == grant:
            pending.grant = None
        self._settle(grant.producer_id, pending)

    def removing(self, producer_id: ProducerId) -> None:
        """An entry that expires the producer follows as soon as nothing of it is in flight."""
        self._expiring.add(producer_id)

    def ageing(self, aged: ProducersAged, *, position: Position) -> None:
        """An entry that renews producers, or lets them expire, was handed to the ledger at `position`."""
        for pid in aged.expired:
            if pid in self._pending or pid not in self.state.producers:
                raise InvariantViolated(f"producer {pid} expires while something of it is in flight")
        self._expiring.update(aged.expired)
        for renewal in aged.renewed:
            self._pending_of(renewal.producer_id).position = position

    def persisted_ages(self, header: EntryHeader, aged: ProducersAged) -> None:
        self.state.fold_aged(header, aged)
        self._expiring.difference_update(aged.expired)
        for renewal in aged.renewed:
            self._settle(renewal.producer_id, self._pending[renewal.producer_id])

    def _settle(self, pid: ProducerId, pending: PendingProducer) -> None:
        if pending.position <= self.state.position:
            del self._pending[pid]

    def rollback(self) -> None:
        """A write failed: drop everything in flight. The durable state remains."""
        self._pending.clear()
        self._pending_names.clear()
        self._expiring.clear()

    def check_invariants(self) -> None:
        for pid, pending in self._pending.items():
            mark = self.state.producers[pid].persisted if pid in self.state.producers else pending.accepted
            if pending.accepted < mark:
                raise InvariantViolated(f"producer {pid}: accepted {pending.accepted} is below persisted {mark}")
            for recent in pending.batches:
                if recent.position <= self.state.position:
                    raise InvariantViolated(f"producer {pid}: batch at {recent.position} is durable and in flight")


def _with_holes(mode: SequenceMode, batch: BatchHeader) -> InvalidBatch:
    """Of a batch that cannot be of a producer whose ids have no gaps."""
    if batch.dense:
        message = f"sequence ids {batch.first}..{batch.last} of one batch are of two epochs"
        return InvalidBatch(message, field="sequence_ids")
    producer = "an epoched" if mode is _EPOCHED else "a contiguous"
    return InvalidBatch(f"the ids of {producer} producer's batch must have no holes", field="sequence_ids")


def _stale(
    batch: BatchHeader, accepted: SequenceId, *, whole: bool, mode: SequenceMode = SequenceMode.MONOTONIC
) -> StaleSequence:
    below = f"below {accepted}, the highest id of this producer"
    if batch.unit:
        message = (
            f"sequence ids {batch.first}..{batch.last} begin at or below {accepted}, the highest id of this producer. "
            "The batch can only be stored as a whole, and no such batch is remembered: send its messages again with "
            f"ids above {accepted}"
        )
    elif mode is _EPOCHED and epoch_of(batch.first) < epoch_of(accepted):
        message = (
            f"the batch is of epoch {epoch_of(batch.first)}, the producer has gone on to epoch {epoch_of(accepted)}, "
            "and no such batch is remembered: only its client knows which records it has sent again since"
        )
    elif batch.first == batch.last:
        message = f"sequence id {batch.first} is {below}, and was never stored: use an id above {accepted}"
    else:
        which = f"{'all' if whole else 'some'} of the sequence ids {batch.first}..{batch.last}"
        message = f"{which} are {below}, and were never stored: use ids above {accepted}"
    return StaleSequence(message, high_water=accepted)
