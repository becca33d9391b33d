"""All producers of one topic, and the memory budget of their recent batches.

    active   a ProducerState: the producer was active lately, or was looked at
    idle     its row, about 300 bytes in all: after a takeover, and when it was inactive for a while

Looking at a producer (`[]`, `get`) makes it active: what is changed is never a copy. `values` and `items` give copies
of the idle ones, for reading.

When the budget is exceeded, the producers that have been inactive longest become idle first, and lose their batches
next. Their ids are then answered as older than the recent batches (a duplicate without a position, or not verified).
Marks are never forgotten. The order of activity is that of the log, so a replay forgets the same batches; a snapshot
keeps the order of activity. Forgotten batches are exempt from the law of the fold, as are the batches above
RECENT_BATCHES_MAX: `recent_floor` marks the limit.
"""

from bisect import bisect_right, insort
from collections import OrderedDict
from collections.abc import Callable, Iterator
from itertools import chain

from oncelog.core.errors import InvariantViolated
from oncelog.core.ids import ProducerId
from oncelog.core.publishing.producer_record import (
    HEAD_BYTES,
    Ages,
    ProducerRow,
    ages_of,
    batches_bytes_of,
    decode_row,
    encode_record,
    encode_row,
    id_of,
    record_of,
    record_of_expired,
)
from oncelog.core.publishing.producer_state import ProducerState

#: For one topic.
RECENT_BYTES_MAX = 64 * 1024 * 1024
#: So many producers become idle in one call, about 10 ms.
_IDLE_AT_ONCE = 3000


class Producers:
    """bytes: memory of all recent batches. evicted: batches forgotten because of the budget so far."""

    def __init__(self, bytes_max: int = RECENT_BYTES_MAX) -> None:
        self.bytes_max = bytes_max
        self.bytes = 0
        self.evicted = 0
        self._evicted_taken = 0
        #: {name: state, or row of an idle one}
        self._held: dict[str, ProducerState | bytes] = {}
        #: {producer id: name} of the idle ones without recent batches, and of those with recent batches, the least
        #: recently active first
        self._bare: dict[ProducerId, str] = {}
        self._idle: dict[ProducerId, str] = {}
        #: {producer id: state}, the least recently active first. A plain dict would look at all the places of those
        #: removed before it finds its first one.
        self._active: OrderedDict[ProducerId, ProducerState] = OrderedDict()
        #: the idle ones that lose their batches next
        self._losing: Iterator[ProducerId] = iter(())
        #: ids in ascending order, also of some that were removed; None: nobody has asked for them yet
        self._ascending: list[ProducerId] | None = None

    # --- reading ------------------------------------------------------------------------------------------------------

    def __len__(self) -> int:
        return len(self._held)

    def __contains__(self, pid: object) -> bool:
        return pid in self._active or pid in self._idle or pid in self._bare

    def __iter__(self) -> Iterator[ProducerId]:
        """First those without recent batches, then the others, the most recently active last."""
        return chain(self._bare, self._idle, self._active)

    @property
    def names(self) -> Iterator[str]:
        """In the order in which they came."""
        return iter(self._held)

    def items(self) -> Iterator[tuple[ProducerId, ProducerState]]:
        """In this order, for reading only."""
        for pid, name in chain(self._bare.items(), self._idle.items()):
            held = self._held[name]
            yield pid, held if isinstance(held, ProducerState) else decode_row(name, held)
        yield from self._active.items()

    def values(self) -> Iterator[ProducerState]:
        """In this order, for reading only."""
        return (producer for _, producer in self.items())

    def id_of(self, name: str) -> ProducerId | None:
        held = self._held.get(name)
        if held is None:
            return None
        return held.producer_id if isinstance(held, ProducerState) else id_of(held)

    def name_of(self, pid: ProducerId) -> str | None:
        active = self._active.get(pid)
        return self._idle.get(pid) or self._bare.get(pid) if active is None else active.name

    def record(self, pid: ProducerId) -> bytes:
        """The producer's record in a snapshot; of one that is not here, that it has expired."""
        active = self._active.get(pid)
        if active is not None:
            return encode_record(active)
        name = self._idle.get(pid) or self._bare.get(pid)
        if name is None:
            return record_of_expired(pid)
        held = self._held[name]
        if isinstance(held, ProducerState):
            raise InvariantViolated(f"producer {pid} is idle and active")
        return record_of(name, held)

    def ages_of(self, pid: ProducerId) -> Ages | None:
        """Without making it active. None: there is no such producer."""
        active = self._active.get(pid)
        if active is not None:
            return Ages(active.lifetime_ms, active.active_at_ms)
        name = self._idle.get(pid) or self._bare.get(pid)
        held = None if name is None else self._held[name]
        return ages_of(held) if isinstance(held, bytes) else None

    def peek(self, pid: ProducerId) -> ProducerState | None:
        """For reading only: an idle producer stays idle. None: there is no such producer."""
        active = self._active.get(pid)
        if active is not None:
            return active
        name = self._idle.get(pid) or self._bare.get(pid)
        held = None if name is None else self._held[name]
        return decode_row(str(name), held) if isinstance(held, bytes) else None

    def memory_of(self, pid: ProducerId) -> int:
        """Bytes of what is kept of this producer: its name, its record and its recent batches; 0: there is none."""
        active = self._active.get(pid)
        if active is not None:
            return (
                len(active.name.encode())
                + HEAD_BYTES
                + len(active.role.encode())
                + len(active.history)
                + active.recent_batches.bytes
            )
        name = self._idle.get(pid) or self._bare.get(pid)
        held = None if name is None else self._held[name]
        return len(str(name).encode()) + len(held) if isinstance(held, bytes) else 0

    def after(self, pid: int, count_max: int) -> list[ProducerId]:
        """The next ids above `pid`, ascending; none if there are no more. The first call sorts all ids, further ones
        cost as much as what they return."""
        if self._ascending is None or len(self._ascending) > 2 * len(self):
            self._ascending = sorted(self)
        found: list[ProducerId] = []
        at = bisect_right(self._ascending, pid)
        while at < len(self._ascending) and len(found) < count_max:
            end = at + count_max - len(found)
            found += [each for each in self._ascending[at:end] if each in self]
            at = end
        return found

    @property
    def remembering(self) -> int:
        """The number of producers with recent batches."""
        return len(self._idle) + sum(1 for producer in self._active.values() if len(producer.recent_batches))

    def take_evicted(self) -> int:
        """Batches forgotten since the last call."""
        taken, self._evicted_taken = self.evicted - self._evicted_taken, self.evicted
        return taken

    # --- one producer, to be changed ----------------------------------------------------------------------------------

    def get(self, pid: ProducerId) -> ProducerState | None:
        """The producer's state, for as long as no other one is `used`; None: there is no such producer."""
        active = self._active.get(pid)
        if active is not None:
            return active
        name = self._idle.pop(pid, None) or self._bare.pop(pid, None)
        return None if name is None else self._open(pid, name)

    def __getitem__(self, pid: ProducerId) -> ProducerState:
        producer = self.get(pid)
        if producer is None:
            raise KeyError(pid)
        return producer

    def _open(self, pid: ProducerId, name: str) -> ProducerState:
        """An idle producer becomes active, as the least recently active one."""
        row = self._held[name]
        if isinstance(row, ProducerState):
            raise InvariantViolated(f"producer {pid} is idle and active")
        producer = self._held[name] = self._active[pid] = decode_row(name, row)
        self._active.move_to_end(pid, last=False)
        self.bytes -= batches_bytes_of(row)
        self._count(producer)
        return producer

    def used(self, producer: ProducerState) -> None:
        """The producer is new, was active, or its recent batches changed: count them, and shrink to the budget."""
        pid = producer.producer_id
        if self._active.get(pid) is not producer:
            if pid in self or producer.name in self._held:
                raise InvariantViolated(f"a state of producer {pid} was changed that is no longer current")
            self._active[pid] = self._held[producer.name] = producer
            self._added(pid)
        self._active.move_to_end(pid)
        self._count(producer)
        if self.bytes > self.bytes_max:
            self._shrink()

    def remove(self, pid: ProducerId) -> ProducerState | None:
        """Forget the producer, and free its name. None: there is none."""
        producer = self.get(pid)
        if producer is not None:
            del self._active[pid]
            del self._held[producer.name]
            self.bytes -= producer.recent_batches.counted
        return producer

    def update_all(self, change: Callable[[ProducerState], None]) -> None:
        """Change each producer, in a way that keeps its recent batches."""
        for pid, name in chain(self._bare.items(), self._idle.items()):
            held = self._held[name]
            producer = held if isinstance(held, ProducerState) else decode_row(name, held)
            change(producer)
            self._held[name] = encode_row(producer)
            if producer.producer_id != pid:
                raise InvariantViolated(f"producer {pid} has changed its id")
        for producer in self._active.values():
            change(producer)

    def _added(self, pid: ProducerId) -> None:
        if self._ascending is not None:
            insort(self._ascending, pid)  # nearly always at the end: ids of one server ascend

    # --- idle ones ----------------------------------------------------------------------------------------------------

    def restore(self, restored: ProducerRow) -> bytes | None:
        """Put in a producer of a snapshot, as the most recently active idle one. Returns the row that it replaces."""
        pid, name, row = restored
        replaced = self._held.get(name)
        if replaced is not None:
            active = self._active.pop(pid, None)
            if isinstance(replaced, ProducerState):
                self.bytes -= replaced.recent_batches.counted
                replaced = encode_row(replaced)
            elif active is None:
                self.bytes -= batches_bytes_of(replaced)
            if self._idle.pop(pid, None) is None:
                self._bare.pop(pid, None)
        else:
            self._added(pid)
        self._put(pid, name, row)
        if self.bytes > self.bytes_max:
            self._shrink()
        return replaced

    def make_idle(self, *, before_ms: int) -> None:
        """Producers that have been inactive since `before_ms` become idle. There may be more of them than one call
        takes; the next call goes on."""
        for _ in range(_IDLE_AT_ONCE):
            first = next(iter(self._active.values()), None)
            if first is None or first.last_activity_ms >= before_ms:
                return
            self._make_idle()

    def _make_idle(self) -> None:
        """The least recently active producer becomes idle."""
        pid, producer = self._active.popitem(last=False)
        self.bytes -= producer.recent_batches.counted
        self._put(pid, producer.name, encode_row(producer))

    def _put(self, pid: ProducerId, name: str, row: bytes) -> None:
        size = batches_bytes_of(row)
        self._held[name] = row
        (self._idle if size else self._bare)[pid] = name
        self.bytes += size

    # --- the budget ---------------------------------------------------------------------------------------------------

    def _shrink(self) -> None:
        """The most recently active producer is never touched."""
        while self.bytes > self.bytes_max and len(self._active) > 1:
            self._make_idle()
        while self.bytes > self.bytes_max and self._idle:
            self._forget_one()

    def _forget_one(self) -> None:
        """The least recently active idle producer with recent batches loses them."""
        pid = next(self._losing, None)
        if pid is None:
            self._losing = iter(list(self._idle))
            return
        name = self._idle.pop(pid, None)
        if name is None:
            return  # it was active meanwhile
        row = self._held[name]
        if isinstance(row, ProducerState):
            raise InvariantViolated(f"producer {pid} is idle and active")
        producer = decode_row(name, row)
        self.bytes -= batches_bytes_of(row)
        self.evicted += len(producer.recent_batches)
        producer.forget_all()
        self._put(pid, name, encode_row(producer))

    def _count(self, producer: ProducerState) -> None:
        recent_batches = producer.recent_batches
        size = recent_batches.bytes
        self.bytes += size - recent_batches.counted
        recent_batches.counted = size

    def check_invariants(self) -> None:
        """Each producer is at one place, and its batches are counted."""
        counted = 0
        for name, held in self._held.items():
            if isinstance(held, ProducerState):
                pid, size = held.producer_id, held.recent_batches.bytes
                bound = self._active.get(pid) is held and held.name == name
            else:
                pid, size = id_of(held), batches_bytes_of(held)
                bound = (self._idle if size else self._bare).get(pid) == name
            if not bound:
                raise InvariantViolated(f"name {name!r} and producer {pid} are not bound to each other")
            counted += size
        if len(self._held) != len(self._bare) + len(self._idle) + len(self._active):
            raise InvariantViolated("a producer is idle and active")
        if counted != self.bytes:
            raise InvariantViolated(f"the batches of all producers are counted as {self.bytes} bytes, not {counted}")
