"""Pulsar's rule for what is a duplicate, as its broker has it (MessageDeduplication).

A topic keeps two numbers for each producer name: the highest sequence id that was taken for writing (`pushed`), and the
highest one that was written (`persisted`). A batch is judged by its first and last id alone:

    first above `pushed`        NEW         stored; `pushed` becomes the last id
    first up to `persisted`     DUPLICATE   confirmed without a place, not stored
    between the two             UNKNOWN     refused; the client connects again, and sends it again

A broker that starts takes the newest snapshot, and reads the entries behind it: both numbers are then those of the
newest entry of each name. A snapshot is written after so many entries, and keeps so many names; the others are
forgotten. Pulsar's settings are 1,000 and 10,000 (brokerDeduplicationEntriesInterval, -MaxNumberOfProducers); here they
are small, so that a history is short. A broker whose write fails sets `pushed` back; here a write only fails when the
process ends.
"""

from collections.abc import Iterable
from enum import Enum, auto
from itertools import islice

NOTHING = -1
SNAPSHOT_ENTRIES = 3
SNAPSHOT_NAMES = 2


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

    @classmethod
    def recovered(cls, entries: Iterable[tuple[str, int]]) -> "PulsarMarks":
        """After a start. entries: name and last id of each entry of the topic, in order."""
        marks = cls()
        live: dict[str, int] = {}
        for count, (name, last) in enumerate(entries, 1):
            live[name] = marks._persisted[name] = last
            if count % SNAPSHOT_ENTRIES == 0:
                marks._persisted = dict(islice(live.items(), SNAPSHOT_NAMES))
        marks._pushed = dict(marks._persisted)
        return marks

    def last_sequence_id(self, name: str) -> int:
        """What a new producer gets: of what was taken, not of what was written. NOTHING: none."""
        return self._pushed.get(name, NOTHING)
