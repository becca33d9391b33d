"""What consumers received and acknowledged, and what may not have come again. Pure.

A consumer reports each batch before it acknowledges it, and the acknowledgement when it was told that it is durable. So
one that is killed at any moment may leave out an acknowledgement, never a message.

    never delivered          no consumer reported the message
    acknowledged, seen again a message arrived at a consumer after a durable acknowledgement of it

A message may wait in the buffer of another consumer while it is acknowledged: it was sent before. So a consumer says
since when its buffer was not empty; what arrived after that was sent later, but for the time in the network.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from oncelog.core.sdk.consumer.index_set import IndexSet

#: What was sent before an acknowledgement arrives within this time, on one machine. After the death of an owner nothing
#: is delivered again for a second, so an acknowledgement that it forgot shows.
IN_FLIGHT_S = 0.5
Range = tuple[int, int]


@dataclass(frozen=True, slots=True)
class _AckedRange:
    first: int
    last: int
    at_s: float


class Consumption:
    """The account of all consumers of one subscription of one topic. Times are those of one monotonic clock."""

    def __init__(self) -> None:
        #: messages that were received at least once; those whose acknowledgement was reported
        self.received = IndexSet()
        self.acked = IndexSet()
        #: messages handed to an application, each time counted
        self.delivered = 0
        #: of these, messages that some application had received before
        self.redelivered = 0
        self.acked_seen_again = 0
        self._acked_ranges: list[_AckedRange] = []

    def receive(self, ranges: Iterable[Range], *, empty_at_s: float) -> None:
        """A consumer received these messages, all of which arrived after its buffer was empty at `empty_at_s`."""
        for first, last in ranges:
            count = last - first + 1
            self.delivered += count
            self.redelivered += sum(part.last - part.first + 1 for part in self.received.overlap(first, last))
            for part in self.acked.overlap(first, last):
                self.acked_seen_again += self._seen_again(part.first, part.last, empty_at_s)
            self.received.add(first, last)

    def _seen_again(self, first: int, last: int, empty_at_s: float) -> int:
        return sum(
            min(last, acked.last) - max(first, acked.first) + 1
            for acked in self._acked_ranges
            if acked.first <= last and first <= acked.last and acked.at_s + IN_FLIGHT_S < empty_at_s
        )

    def acknowledge(self, ranges: Iterable[Range], *, at_s: float) -> None:
        """A consumer was told that these acknowledgements are durable."""
        for first, last in ranges:
            self.acked.add(first, last)
            self._acked_ranges.append(_AckedRange(first, last, at_s))

    def never_delivered(self, count: int) -> int:
        """How many of the messages 0 .. count - 1 no consumer has received."""
        return sum(part.last - part.first + 1 for part in self.received.gaps(0, count - 1)) if count else 0
