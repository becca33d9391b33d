"""How much of what clients send a door keeps, and what it does when a topic takes nothing.

    below the limits    the door reads
    at a limit          the connection whose SEND reached it is not read any more
    below it again      it is read again
    after 5 s           producers whose topic takes nothing are closed, and the connection is read again

A connection that is not read also stalls its acknowledgements, its PINGs and all of its other producers, and its client
closes it after a while (hazard unread-for-one-topic). So it lasts 5 s at most. Then the producers of which no SEND was
answered since are closed: those that keep more than 16 MiB, and if there is none, the ones that keep most, until the
limit is kept. Their SENDs that were not handed to the log are dropped: they are pending at the client, which sends them
again in order. SENDs that were handed to the log stay here until it has decided about them.
"""

from dataclasses import dataclass
from typing import NamedTuple

from oncelog.core.errors import InvariantViolated

PAUSE_MS = 5_000


class ProducerKey(NamedTuple):
    """One opening of a producer."""

    connection: int
    opening: int


@dataclass(frozen=True, slots=True)
class SendLimits:
    """large_bytes: a producer that keeps more is closed first."""

    connection_bytes: int = 64 * 1024 * 1024
    process_bytes: int = 256 * 1024 * 1024
    large_bytes: int = 16 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class StopReading:
    connection: int


@dataclass(frozen=True, slots=True)
class ReadAgain:
    connection: int


@dataclass(frozen=True, slots=True)
class DropProducer:
    """Close it, and drop its SENDs that were not handed over; their bytes count no more."""

    producer: ProducerKey


BudgetEffect = StopReading | ReadAgain | DropProducer


@dataclass(slots=True)
class _Kept:
    """Of one opening. queued: not handed to the log yet. answered_ms: when the log decided about one of its SENDs.
    over: the opening has ended, and what is left was handed to the log."""

    answered_ms: int
    queued: int = 0
    handed: int = 0
    over: bool = False

    @property
    def total(self) -> int:
        return self.queued + self.handed


class SendBudget:
    """Of one door. `next_ms` says when `tick` is called next."""

    def __init__(self, limits: SendLimits | None = None) -> None:
        self._limits = limits or SendLimits()
        self._kept: dict[ProducerKey, _Kept] = {}
        self._of_connection: dict[int, int] = {}
        self._total = 0
        #: {connection that is not read: since when}, the oldest one first
        self._stopped: dict[int, int] = {}

    @property
    def total(self) -> int:
        return self._total

    @property
    def next_ms(self) -> int | None:
        return min(self._stopped.values()) + PAUSE_MS if self._stopped else None

    def taken(self, producer: ProducerKey, size: int, now_ms: int) -> list[BudgetEffect]:
        """A SEND came."""
        kept = self._kept.get(producer)
        if kept is None:
            kept = self._kept[producer] = _Kept(now_ms)
        kept.queued += size
        self._add(producer.connection, size)
        if producer.connection in self._stopped or self._within(producer.connection):
            return []
        self._stopped[producer.connection] = now_ms
        return [StopReading(producer.connection)]

    def handed(self, producer: ProducerKey, size: int) -> None:
        """A SEND was handed to the log; it is not dropped any more."""
        kept = self._kept[producer]
        kept.queued -= size
        kept.handed += size

    def answered(self, producer: ProducerKey, size: int, now_ms: int) -> list[BudgetEffect]:
        """The log has decided about a SEND that was handed to it."""
        kept = self._kept[producer]
        kept.handed -= size
        kept.answered_ms = now_ms
        self._add(producer.connection, -size)
        if not kept.total:
            del self._kept[producer]
        return self._read_again()

    def rejected(self, producer: ProducerKey, size: int, now_ms: int) -> list[BudgetEffect]:
        """A check before the log has decided about a SEND."""
        self.handed(producer, size)
        return self.answered(producer, size, now_ms)

    def closed(self, producer: ProducerKey) -> list[BudgetEffect]:
        """The opening is over. What was handed to the log is answered later."""
        self._drop_queued(producer)
        return self._read_again()

    def disconnected(self, connection: int) -> list[BudgetEffect]:
        """After `closed` for each of its openings."""
        self._stopped.pop(connection, None)
        return self._read_again()

    def tick(self, now_ms: int) -> list[BudgetEffect]:
        """Some time has passed."""
        effects: list[BudgetEffect] = []
        for connection, since_ms in list(self._stopped.items()):
            if now_ms < since_ms + PAUSE_MS:
                continue
            for producer in self._stalled(connection, since_ms):
                self._drop_queued(producer)
                effects.append(DropProducer(producer))
            del self._stopped[connection]
            effects.append(ReadAgain(connection))
        return effects + self._read_again()

    def _stalled(self, connection: int, since_ms: int) -> list[ProducerKey]:
        """The producers to be closed: of the connection if its own limit is reached, else of all connections."""
        own = self._of_connection.get(connection, 0) >= self._limits.connection_bytes
        stalled = sorted(
            (
                (kept.total, kept.queued, producer)
                for producer, kept in self._kept.items()
                if not kept.over and kept.answered_ms <= since_ms and (producer.connection == connection or not own)
            ),
            reverse=True,
        )
        large = [producer for total, _, producer in stalled if total > self._limits.large_bytes]
        if large:
            return large
        over = self._of_connection.get(connection, 0) - self._limits.connection_bytes if own else 0
        over = max(over, self._total - self._limits.process_bytes)
        chosen = []
        for _, queued, producer in stalled:
            if over < 0:
                break
            over -= queued
            chosen.append(producer)
        return chosen

    def _within(self, connection: int) -> bool:
        return (
            self._of_connection.get(connection, 0) < self._limits.connection_bytes
            and self._total < self._limits.process_bytes
        )

    def _read_again(self) -> list[BudgetEffect]:
        ready = [connection for connection in self._stopped if self._within(connection)]
        for connection in ready:
            del self._stopped[connection]
        return [ReadAgain(connection) for connection in ready]

    def _drop_queued(self, producer: ProducerKey) -> None:
        kept = self._kept.get(producer)
        if kept is None:
            return
        self._add(producer.connection, -kept.queued)
        kept.queued, kept.over = 0, True
        if not kept.handed:
            del self._kept[producer]

    def _add(self, connection: int, size: int) -> None:
        self._total += size
        left = self._of_connection.get(connection, 0) + size
        if left:
            self._of_connection[connection] = left
        else:
            self._of_connection.pop(connection, None)

    def check_invariants(self) -> None:
        """Raises InvariantViolated."""
        of_connection: dict[int, int] = {}
        for producer, kept in self._kept.items():
            if kept.queued < 0 or kept.handed < 0 or not kept.total:
                raise InvariantViolated(f"{producer} keeps {kept}")
            of_connection[producer.connection] = of_connection.get(producer.connection, 0) + kept.total
        if of_connection != self._of_connection or sum(of_connection.values()) != self._total:
            raise InvariantViolated(f"the sums are {self._of_connection} and {self._total}, not {of_connection}")
