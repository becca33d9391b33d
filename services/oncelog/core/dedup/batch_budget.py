"""How many recent batches the producers of one topic may keep in memory: a budget of bytes.

The batches of the producers that were least recently active go first: then their ids are answered as older than what is
remembered (duplicate without a position, or not verified). Marks are never forgotten. The order is that of the log, so
replaying it forgets alike; a snapshot is read in the order of activity in which it was written. What is forgotten is
outside of the law of the fold, as are the batches above RUNS_MAX: `runs_floor` says how far it reaches.
"""

from collections.abc import Iterator, Mapping
from typing import Protocol

from oncelog.core.dedup.recent_batches import Runs
from oncelog.core.ids import ProducerId

#: Of one topic.
REMEMBERED_BYTES_MAX = 64 * 1024 * 1024


class Remembers(Protocol):
    """What of a producer the budget needs."""

    producer_id: ProducerId
    runs: Runs
    last_activity_ms: int

    def forget_all(self) -> None: ...


class RunBudget:
    """Of one topic. bytes: what all runs cost now. evicted: batches forgotten because of the budget, since it began."""

    def __init__(self, bytes_max: int = REMEMBERED_BYTES_MAX) -> None:
        self.bytes_max = bytes_max
        self.bytes = 0
        self.evicted = 0
        self._told = 0
        #: {producer id: producer} of those with runs, the least recently active first
        self._recent: dict[ProducerId, Remembers] = {}
        #: those of them whose runs are open, in the same order
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
        """The producer was active, or its runs have changed: count it, and keep to the budget."""
        pid, runs = producer.producer_id, producer.runs
        size = runs.bytes
        self.bytes += size - runs.counted
        runs.counted = size
        self._recent.pop(pid, None)
        self._open.pop(pid, None)
        if size:
            self._recent[pid] = producer
            if runs.is_open:
                self._open[pid] = producer
        if self.bytes > self.bytes_max:
            self._shrink()

    def replaced(self, before: Remembers | None, producer: Remembers) -> None:
        """A snapshot says something newer of a producer."""
        if before is not None:
            self.bytes -= before.runs.counted
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
            self.evicted += len(producer.runs)
            producer.forget_all()
            self._count(producer)

    def _pack(self, pid: ProducerId) -> None:
        producer = self._open.pop(pid)
        producer.runs.pack()
        self._count(producer)

    def _count(self, producer: Remembers) -> None:
        size = producer.runs.bytes
        self.bytes += size - producer.runs.counted
        producer.runs.counted = size

    def agrees_with(self, producers: Mapping[ProducerId, Remembers]) -> bool:
        """Whether it has counted what these producers hold; for invariants."""
        return self.bytes == sum(producer.runs.bytes for producer in producers.values())
