"""Pulsar's rule for what is a duplicate, as its broker has it (MessageDeduplication).

A topic keeps two numbers for each producer name: the highest sequence id that was taken for writing (`pushed`), and the
highest one that was written (`persisted`). A batch is judged by its first and last id alone:

    first above `pushed`        NEW         stored; `pushed` becomes the last id
    first up to `persisted`     DUPLICATE   confirmed without a place, not stored
    between the two             UNKNOWN     refused; the client connects again, and sends it again

A broker that starts reads the topic: both numbers are then those of the newest entry of each name. A broker whose write
fails sets `pushed` back; here a write only fails when the process ends.
"""

from enum import Enum, auto

NOTHING = -1


class Finding(Enum):
    """About one batch."""

    NEW = auto()
    DUPLICATE = auto()
    UNKNOWN = auto()


class PulsarMarks:
    """Of one topic."""

    def __init__(self) -> None:
        self._pushed: dict[str, int] = {}
        self._persisted: dict[str, int] = {}

    def found(self, name: str, first: int, last: int) -> Finding:
        """The verdict about a batch that came; a new one is written now."""
        if first > self._pushed.get(name, NOTHING):
            self._pushed[name] = last
            return Finding.NEW
        return Finding.DUPLICATE if first <= self._persisted.get(name, NOTHING) else Finding.UNKNOWN

    def written(self, name: str, last: int) -> None:
        """A new batch is durable. The number is replaced, also by a lower one, as Pulsar does."""
        self._persisted[name] = last

    def recovered(self, name: str, last: int) -> None:
        """An entry of the topic, read in order when the broker starts."""
        self._pushed[name] = self._persisted[name] = last

    def last_sequence_id(self, name: str) -> int:
        """As a new producer is told: of what was taken, not of what was written. NOTHING: none."""
        return self._pushed.get(name, NOTHING)
