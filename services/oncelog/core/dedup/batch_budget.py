"""How many recent batches the producers of one topic may keep in memory: a budget of bytes.

The batches of the producers that were least recently active go first: then their ids are answered as older than what is
remembered (duplicate without a position, or not verified). Marks are never forgotten. The order is that of the log, so
replaying it forgets alike; a snapshot is read in the order of activity in which it was written. What is forgotten is
outside of the law of the fold, as are the batches above RECENT_BATCHES_MAX: `recent_floor` says how far it reaches.
"""

from collections.abc import Iterator, Mapping
from typing import Protocol

from oncelog.core.dedup.recent_batches import RecentBatches
from oncelog.core.ids import ProducerId

#: Of one topic.
RECENT_BYTES_MAX = 64 * 1024 * 1024


class Remembers(Protocol):
    """What of a producer the budget needs."""

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
        self._told = 0
        #: {producer id: producer} of those with recent batches, the least recently active first
        self._recent: dict[ProducerId, Remembers] = {}
        #: those of them whose recent batches are open, in the same order
        self._open: dict[ProducerId, Remembers] = {}

    def __len__(self) -> int:
        """Producers whose batches are remembered."""
        return len(self._recent)

    def __contains__(self, producer_id: object) -> bool:
        return producer_id in self._recent

    def in_order(self) -> Iterator[ProducerId]:
        """The least recently active first."""
        return iter(self._recent)

    def take_evicted(self) -> int:
        """Batches forgotten since the last call."""
        taken, self._told = self.evicted - self._told, self.evicted
        return taken

    def used(self, producer: Remembers) -> None:
        """The producer was active, or its recent batches have changed: count it, and keep to the budget."""
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

    def replaced(self, before: Remembers | None, producer: Remembers) -> None:
        """A snapshot says something newer of a producer."""
        if before is not None:
            self.bytes -= before.recent_batches.counted
        self.used(producer)

    def pack_idle(self, *, before_ms: int) -> None:
        """Producers without activity since `before_ms` take the packed form."""
        for pid, producer in list(self._open.items()):
            if producer.last_activity_ms >= before_ms:
                return
            self._pack(pid)

    def _shrink(self) -> None:
        """The producer used last is at the end of both orders, and is spared."""
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

    def _count(self, producer: Remembers) -> None:
        size = producer.recent_batches.bytes
        self.bytes += size - producer.recent_batches.counted
        producer.recent_batches.counted = size

    def agrees_with(self, producers: Mapping[ProducerId, Remembers]) -> bool:
        """Whether it has counted what these producers hold; for invariants."""
        return self.bytes == sum(producer.recent_batches.bytes for producer in producers.values())
