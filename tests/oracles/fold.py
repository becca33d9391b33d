"""Folds the log again, by other code than the owner's: the state that dedup must have, and the rules of the log.

base_index is dense from 0 over the whole log · positions ascend · owner epochs ascend, one to a ledger
a name always has the same producer id, and a producer id one name · each grant increments the generation by one · a
grant contains the persisted mark · an instance is not granted a name that it has already · the generation of a batch is
that of the last grant before it · an id that has expired is never granted again, and no batch of it follows · a message
in chunks names whole chunks of its own ledger and id, before it
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import NamedTuple

from oncelog.core.formats.batch import payload_of
from oncelog.core.formats.chunks import OFFSET_BYTES, ChunkNames
from oncelog.core.formats.entry import GIVEN_UP_GENERATIONS, EntryHeader, ProducerOpened, SequenceMode, body_of
from oncelog.core.formats.head import LedgerHead
from oncelog.core.formats.producers_aged import ProducersAged
from oncelog.core.ids import (
    BEFORE_ALL,
    NO_INSTANCE,
    Generation,
    InstanceId,
    LedgerId,
    OwnerEpoch,
    Position,
    ProducerId,
)
from oncelog.core.publishing.dedup_state import DedupState
from oncelog.core.publishing.producer_state import ProducerState
from oncelog.core.publishing.recent_batches import RecentBatch, ids_of_batch
from oncelog.verify.stored_log import LoggedEntry, count_of
from oncelog.verify.violation import Violation


def check_former(head: LedgerHead, header: EntryHeader, position: Position) -> None:
    """position: where the fold of the chain stands before this head. A rebuild has nothing else to know it. Raises
    Violation."""
    if header.entry_id:
        raise Violation("heads", f"the head at {header.position} is not the first entry of its ledger")
    if head.former != (None if position == BEFORE_ALL else position):
        raise Violation("heads", f"the head at {header.position} follows {head.former}, and the chain {position}")


def numbers_of(entry: LoggedEntry) -> Sequence[int]:
    """The ids under which the fold has the messages of an entry with a batch: a unit counts as one message."""
    assert entry.batch is not None
    return (entry.batch.last,) if entry.batch.unit else entry.ids[entry.header.skip_first :]


class MessagePlace(NamedTuple):
    """Where a message is stored, with its value and the generation of its producer."""

    position: Position
    index: int  # type: ignore[assignment]  # hides tuple.index, which is not used
    value: bytes
    generation: Generation


@dataclass(slots=True)
class FoldedProducer:
    """places: every visible copy of every id, in log order. marked: those that raised the mark."""

    name: str
    producer_id: ProducerId
    generation: Generation
    mode: SequenceMode
    mark: int = -1
    instance_id: InstanceId = NO_INSTANCE
    role: str = ""
    lifetime_ms: int = 0
    active_at_ms: int = 0
    places: dict[int, list[MessagePlace]] = field(default_factory=dict)
    marked: dict[int, MessagePlace] = field(default_factory=dict)


class LogFold:
    """Receives a topic's entries in order. Raises Violation if one cannot follow the entries before it."""

    def __init__(self) -> None:
        self.producers: dict[ProducerId, FoldedProducer] = {}
        self.names: dict[str, FoldedProducer] = {}
        self.expired: dict[ProducerId, FoldedProducer] = {}
        #: how much time has passed in the log
        self.time_ms = 0
        #: {whether names are assigned: how long producers without a lease live, 0: for ever; and since when it counts}
        self.lifetimes = {True: (0, 0), False: (0, 0)}
        self.position = BEFORE_ALL
        self.next_index = 0
        #: (ledger, owner epoch) of the newest entry
        self.epoch: tuple[LedgerId, OwnerEpoch] = (LedgerId(-1), OwnerEpoch(0))
        #: {position: entry}, in log order
        self.entries: dict[Position, LoggedEntry] = {}

    def add(self, entry: LoggedEntry) -> None:
        header = entry.header
        if header.position <= self.position:
            raise Violation("positions ascend", f"entry {header.position} follows {self.position}")
        if header.base_index != self.next_index:
            raise Violation(
                "base_index", f"entry {header.position} begins at message {header.base_index}, not {self.next_index}"
            )
        ledger, epoch = self.epoch
        if header.owner_epoch < epoch or (header.ledger_id == ledger and header.owner_epoch != epoch):
            raise Violation("owner epochs", f"entry {header.position} of epoch {header.owner_epoch} follows {epoch}")
        self.epoch = (header.ledger_id, header.owner_epoch)
        if entry.head is None:
            self.position = header.position
        else:
            check_former(entry.head, header, self.position)
        self.next_index = header.next_index
        self.entries[header.position] = entry
        if entry.grant is not None:
            self._granted(header.position, entry.grant)
        elif entry.batch is not None and entry.batch.producer_id:
            self._stored(entry)
        elif entry.aged is not None:
            self._aged(header.position, entry.aged)
        if entry.chunks is not None:
            self._named(header, entry.chunks)
        if entry.given_up is not None:
            for known in self.producers.values():
                known.generation = Generation(known.generation + GIVEN_UP_GENERATIONS)
                known.instance_id = NO_INSTANCE
        expected = count_of(entry)
        if header.count != expected:
            raise Violation("count", f"entry {header.position} counts {header.count} messages and holds {expected}")

    def _named(self, header: EntryHeader, names: ChunkNames) -> None:
        """A message names whole chunks of its own ledger and producer, before it."""
        size = 0
        for entry_id, checksum in names.chunks:
            chunk = self.entries.get(Position(header.ledger_id, entry_id))
            if names.ledger_id != header.ledger_id or chunk is None or chunk.chunk is None:
                raise Violation("chunks", f"the message at {header.position} names {entry_id}, which is no chunk")
            batch = self.entries[header.position].batch
            same = batch is not None and (batch.producer_id, batch.generation, batch.first) == (
                chunk.chunk.producer_id, chunk.chunk.generation, chunk.chunk.first,
            )  # fmt: skip
            if not same or chunk.chunk.checksum != checksum:
                raise Violation("chunks", f"the message at {header.position} names {entry_id}, a chunk of another one")
            size += chunk.chunk.payload_bytes - OFFSET_BYTES
        if size != names.value_bytes:
            raise Violation("chunks", f"the message at {header.position} has {names.value_bytes} bytes, not {size}")

    def producer(self, pid: ProducerId) -> FoldedProducer | None:
        """Also one that has expired. None: the log never granted this id."""
        return self.producers.get(pid) or self.expired.get(pid)

    def everyone(self) -> Iterator[FoldedProducer]:
        """Also those that have expired."""
        return chain(self.producers.values(), self.expired.values())

    def _granted(self, position: Position, grant: ProducerOpened) -> None:
        known = self.producers.get(grant.producer_id)
        if known is None:
            if grant.producer_id in self.expired:
                raise Violation(
                    "ids never repeat", f"producer {grant.producer_id}, which expired, is granted at {position}"
                )
            if grant.name in self.names:
                raise Violation("one id for a name", f"{grant.name!r} is bound again at {position}")
            known = FoldedProducer(grant.name, grant.producer_id, Generation(0), grant.mode)
            self.producers[grant.producer_id] = self.names[grant.name] = known
        if (known.name, known.mode, known.generation + 1) != (grant.name, grant.mode, grant.generation):
            raise Violation("grants", f"{grant} at {position} follows generation {known.generation} of {known.name!r}")
        if grant.persisted != known.mark:
            raise Violation("grant's mark", f"{grant} at {position}, the log before it has {known.mark}")
        if grant.instance_id and known.instance_id == grant.instance_id:
            raise Violation(
                "one grant for an instance", f"{grant} at {position} is for the instance that already has the name"
            )
        known.generation = grant.generation
        known.lifetime_ms, known.active_at_ms = grant.lifetime_ms or known.lifetime_ms, self.time_ms
        known.instance_id = grant.instance_id
        known.role = known.role or grant.role

    def _aged(self, position: Position, aged: ProducersAged) -> None:
        self.time_ms += aged.passed_ms
        if aged.lifetimes is not None:
            for assigned, lifetime_ms in ((True, aged.lifetimes.assigned_ms), (False, aged.lifetimes.chosen_ms)):
                former_ms, since_ms = self.lifetimes[assigned]
                shorter = (lifetime_ms or math.inf) < (former_ms or math.inf)
                self.lifetimes[assigned] = (lifetime_ms, self.time_ms if shorter else since_ms)
        for pid, generation, lifetime_ms in aged.renewed:
            renewed = self.producers.get(pid)
            if renewed is None or renewed.generation != generation:
                raise Violation("renewals", f"generation {generation} of producer {pid} is renewed at {position}")
            renewed.active_at_ms, renewed.lifetime_ms = self.time_ms, lifetime_ms or renewed.lifetime_ms
        for pid in aged.expired:
            expired = self.producers.pop(pid, None)
            if expired is None:
                raise Violation("expiry", f"producer {pid}, which is unknown, expires at {position}")
            idle_ms, lives_ms = self._life_of(expired)
            if not aged.by and idle_ms < lives_ms:
                raise Violation("lifetimes", f"producer {pid} expires at {position}, {idle_ms} ms after it was active")
            del self.names[expired.name]
            self.expired[pid] = expired

    def _life_of(self, known: FoldedProducer) -> tuple[float, float]:
        """How long it has been idle, as its lifetime counts, and that lifetime; ms."""
        if known.lifetime_ms:
            return self.time_ms - known.active_at_ms, known.lifetime_ms
        lifetime_ms, since_ms = self.lifetimes[known.name == f"producer-{known.producer_id}"]
        return self.time_ms - max(known.active_at_ms, since_ms), lifetime_ms or math.inf

    def _stored(self, entry: LoggedEntry) -> None:
        header, batch = entry.header, entry.batch
        assert batch is not None
        known = self.producers.get(batch.producer_id)
        if known is None:
            raise Violation("unknown producer", f"entry {header.position} is of {batch.producer_id}, never granted")
        if batch.generation != known.generation:
            raise Violation(
                "fencing", f"entry {header.position} of generation {batch.generation} follows {known.generation}"
            )
        known.active_at_ms = self.time_ms
        if batch.unit:
            self._stored_whole(entry, known)
            return
        for index in range(header.skip_first, batch.count):
            number = entry.ids[index]
            place = MessagePlace(header.position, index, bytes(entry.values[index]), batch.generation)
            known.places.setdefault(number, []).append(place)
            if number > known.mark:
                known.mark = number
                known.marked[number] = place

    @staticmethod
    def _stored_whole(entry: LoggedEntry, known: FoldedProducer) -> None:
        """A unit counts as one message under its last id, whose value is the entry of its client."""
        header, batch = entry.header, entry.batch
        assert batch is not None
        if header.skip_first:
            raise Violation("units", f"entry {header.position} stores a unit without its first {header.skip_first}")
        value = bytes(payload_of(batch, body_of(entry.data)))
        place = MessagePlace(header.position, 0, value, batch.generation)
        known.places.setdefault(batch.last, []).append(place)
        if batch.last > known.mark:
            known.mark = batch.last
            known.marked[batch.last] = place

    def compare(self, state: DedupState) -> None:
        """Raises Violation unless an owner's state after a takeover equals the fold of the whole log."""
        if (state.position, state.next_index) != (self.position, self.next_index):
            raise Violation(
                "state is the fold",
                f"taken over up to {state.position} with message {state.next_index}, "
                f"the log ends at {self.position} with {self.next_index}",
            )
        logged = state.lifetimes
        theirs_live = {
            True: (logged.assigned_ms, logged.assigned_since_ms), False: (logged.chosen_ms, logged.chosen_since_ms)
        }  # fmt: skip
        if theirs_live != self.lifetimes:
            raise Violation("state is the fold", f"lifetimes {theirs_live}, the log has {self.lifetimes}")
        producers = dict(state.producers.items())
        names = {producer.name: int(pid) for pid, producer in producers.items()}
        if names != {name: int(known.producer_id) for name, known in self.names.items()}:
            raise Violation("state is the fold", f"names {names} and {list(self.names)}")
        for pid, known in self.producers.items():
            producer = producers[pid]
            mine = (
                known.name, known.generation, known.mode, known.mark, known.instance_id, known.role, known.lifetime_ms,
                known.active_at_ms,
            )  # fmt: skip
            theirs = (
                producer.name, producer.generation, producer.mode, producer.persisted, producer.instance_id,
                producer.role, producer.lifetime_ms, producer.active_at_ms,
            )  # fmt: skip
            if mine != theirs:
                raise Violation("state is the fold", f"producer {pid} is {theirs}, the log has {mine}")
            _compare_recent_batches(known, producer)


def _compare_recent_batches(known: FoldedProducer, producer: ProducerState) -> None:
    """Above the floor, the recent batches contain every id that raised the mark, with its position."""
    beyond = {number: place for number, place in known.marked.items() if number > producer.recent_floor}
    if sum(1 if recent.unit else recent.count for recent in producer.recent_batches) != len(beyond):
        raise Violation(
            "recent batches",
            f"producer {known.name!r}: the recent batches and the log above {producer.recent_floor} differ",
        )
    for recent in producer.recent_batches:
        for number, index in _named_by(recent):
            place = beyond.get(number)
            if place is None or (place.position, place.index) != (recent.position, index):
                raise Violation(
                    "recent batches", f"producer {known.name!r}: {recent} names id {number}, the log has {place}"
                )


def _named_by(recent: RecentBatch) -> list[tuple[int, int]]:
    """[(id, index in its entry)] of the ids that the batch contains."""
    if recent.unit:
        return [(recent.last, 0)]
    if recent.deltas is None:
        return [(recent.first, recent.offset)]
    return [(number, recent.offset + i) for i, number in enumerate(ids_of_batch(recent))]
