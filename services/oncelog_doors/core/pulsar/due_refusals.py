"""Refusals that the next PRODUCER of a closed producer is answered.

A refusal is for one producer object of a client, never for a name: another instance of the name would fail what it has
sent. The token that the client sends back in PRODUCER identifies the object. Clients before 2.8 send none back; they
are known by the connection and their number of the producer there.

If the client comes to another door, or later, nothing is due. It sends the batch again, which is refused again.
"""

from collections.abc import Hashable
from dataclasses import dataclass

from oncelog_doors.core.pulsar.server_errors import Refusal

DUE_MS = 60_000
#: More than that many producers at once are not refused; the oldest refusals go first.
COUNT_MAX = 10_000


@dataclass(frozen=True, slots=True)
class _Due:
    refusal: Refusal
    until_ms: int


def addressee(topic: str, token: int, connection: int, producer_id: int) -> Hashable:
    """The producer object that gets a refusal. token 0: the client has none."""
    return (topic, token) if token else (topic, 0, connection, producer_id)


class DueRefusals:
    """Of one door."""

    def __init__(self) -> None:
        #: in the order of their ends
        self._due: dict[Hashable, _Due] = {}

    def add(self, who: Hashable, refusal: Refusal, now_ms: int) -> None:
        """It replaces an earlier one."""
        self._due.pop(who, None)
        while self._due and (len(self._due) >= COUNT_MAX or next(iter(self._due.values())).until_ms <= now_ms):
            del self._due[next(iter(self._due))]
        self._due[who] = _Due(refusal, now_ms + DUE_MS)

    def take(self, who: Hashable, now_ms: int) -> Refusal | None:
        """What is due, once."""
        due = self._due.pop(who, None)
        return None if due is None or due.until_ms <= now_ms else due.refusal

    def __len__(self) -> int:
        return len(self._due)
