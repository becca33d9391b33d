"""The memory budget, in bytes, of the recent batches of all producers of one topic.

When the budget is exceeded, the producers that have been inactive longest lose their batches first. Their ids are then
answered as older than the recent batches (a duplicate without a position, or not verified). Marks are never forgotten.
The order of activity is that of the log, so a replay forgets the same batches; a snapshot keeps the order of activity.
Forgotten batches are exempt from the law of the fold, as are the batches above RECENT_BATCHES_MAX: `recent_floor` marks
the limit.
"""

from collections.abc import Iterator, Mapping
from typing import Protocol

from oncelog.core.dedup.recent_batches import RecentBatches
from oncelog.core.ids import ProducerId

#: For one topic.
RECENT_BYTES_MAX = 64 * 1024 * 1024


class BatchHolder(Protocol):
    """The part of a producer's state that the budget needs."""

    producer_id: ProducerId
    recent_batches: RecentBatches
    last_activity_ms: int

    def forget_all(self) -> None: ...


class BatchBudget:
    """bytes: memory of all recent batches of one topic. evicted: batches forgotten because of the budget so far."""

    def __init__(self, bytes_max: int = RECENT_BYTES_MAX) -> None:
        self.bytes_max = bytes_max
        self.bytes = 0
        self.evicted = 0
        self._evicted_taken = 0
        #: {producer id: producer} of those with recent batches, the least recently active first
        self._recent: dict[ProducerId, BatchHolder] = {}
        #: those of them whose recent batches are open, in the same order
        self._open: dict[ProducerId, BatchHolder] = {}

    def __len__(self) -> int:
        """The number of producers with recent batches."""
        return len(self._recent)

    def __contains__(self, producer_id: object) -> bool:
        return producer_id in self._recent

    def in_order(self) -> Iterator[ProducerId]:
        """The least recently active first."""
        return iter(self._recent)

    def take_evicted(self) -> int:
        """Batches forgotten since the last call."""
        taken, self._evicted_taken = self.evicted - self._evicted_taken, self.evicted
        return taken

    def used(self, producer: BatchHolder) -> None:
        """The producer was active or its recent batches changed: count them again, and shrink to the budget."""
        pid, recent_batches = producer.producer_id, producer.recent_batches
        size = recent_batches.bytes
        self.bytes += size - recent_batches.counted
        recent_batches.counted = size
        self._recent.pop(pid, None)
        self._open.pop(pid, None)
        if size:
            self._recent[pid] = producer
            if recent_batches.is_open:
                self._open[pid] = producer
        if self.bytes > self.bytes_max:
            self._shrink()

    def replaced(self, before: BatchHolder | None, producer: BatchHolder) -> None:
        """A snapshot replaced the state of a producer."""
        if before is not None:
            self.bytes -= before.recent_batches.counted
        self.used(producer)

    def pack_idle(self, *, before_ms: int) -> None:
        """Pack the batches of producers that have been inactive since `before_ms`."""
        for pid, producer in list(self._open.items()):
            if producer.last_activity_ms >= before_ms:
                return
            self._pack(pid)

    def _shrink(self) -> None:
        """Pack, then forget. The most recently used producer is last in both orders and is never touched."""
        while self.bytes > self.bytes_max and len(self._open) > 1:
            self._pack(next(iter(self._open)))
        while self.bytes > self.bytes_max and len(self._recent) > 1:
            producer = self._recent.pop(next(iter(self._recent)))
            self._open.pop(producer.producer_id, None)
            self.evicted += len(producer.recent_batches)
            producer.forget_all()
            self._count(producer)

    def _pack(self, pid: ProducerId) -> None:
        producer = self._open.pop(pid)
        producer.recent_batches.pack()
        self._count(producer)

    def _count(self, producer: BatchHolder) -> None:
        size = producer.recent_batches.bytes
        self.bytes += size - producer.recent_batches.counted
        producer.recent_batches.counted = size

    def agrees_with(self, producers: Mapping[ProducerId, BatchHolder]) -> bool:
        """Whether the counted bytes are those of these producers; for invariants."""
        return self.bytes == sum(producer.recent_batches.bytes for producer in producers.values())
