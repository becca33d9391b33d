"""Acknowledgements that come before their messages are sent: of a client that has connected again.

A client holds acknowledgements back for a moment, 100 ms by default. If its connection breaks meanwhile, it sends them
on the next one, where nothing was sent yet. An id that names one of them is kept, and means the message when the log
delivers it to this consumer again. Then that message is acknowledged, and not sent.

- Only an entry with one message: of others it is not known which messages the client had.
- Only a subscription that was never sought, and that was not created for this consumer: a seek takes acknowledgements
  back, and a new subscription has none (hazard late-ack-after-seek). It is not known whether the client had the message
  before that.
- Only if the client wants no answer: the message may go to another consumer, and then nothing would answer.
"""

from collections.abc import Iterable
from typing import Any

from oncelog.core.ids import Position, SeekEpoch
from oncelog_doors.core.pulsar.consuming.acknowledgements import NamedId
from oncelog_doors.core.pulsar.consuming.arrivals import Arrived

#: The seek epoch of a subscription that was never sought.
FIRST_EPOCH = SeekEpoch(0)
#: Clients hold back at most 1,000. What is above it comes again.
EARLY_MAX = 10_000


class EarlyAcks:
    """Of one consumer."""

    def __init__(self) -> None:
        self._named: set[Position] = set()
        self._is_over = False

    def name(self, ids: Iterable[NamedId]) -> None:
        """Ids whose messages were not sent. Those of single messages of a batch are not kept."""
        for named in ids:
            if not (self._is_over or named.ack_set or named.batch_index >= 0 or len(self._named) >= EARLY_MAX):
                self._named.add(named.position)

    def take(self, arrived: Arrived[Any]) -> bool:
        """Whether this message, which is not sent yet, was acknowledged."""
        if arrived.count > 1 or arrived.seek_epoch != FIRST_EPOCH or arrived.position not in self._named:
            return False
        self._named.remove(arrived.position)
        return True

    def clear(self) -> None:
        self._named.clear()

    def end(self) -> None:
        """Keep none any more."""
        self._is_over = True
        self._named.clear()
