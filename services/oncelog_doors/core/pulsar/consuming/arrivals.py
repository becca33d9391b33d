"""Entries that the log has delivered to one consumer of Pulsar, and that were not sent yet.

queue     in the order of their arrival
parked    behind a delivery of the same entry, where that stops no other entry
"""

from collections import deque
from collections.abc import Container, Iterable, Iterator, Mapping
from typing import Generic, NamedTuple, TypeVar

from oncelog.core.ids import Position, SeekEpoch
from oncelog_doors.core.pulsar.consuming.ack_sets import Ranges, joined, size_of, without

E = TypeVar("E")


class Arrived(NamedTuple, Generic[E]):
    """Messages of one entry that the log gives to this consumer.

    entry: what the shell needs to make its bytes; not looked at here. base_index, count: of the whole entry, as its
    header has them. ranges: the messages that are meant, ascending indexes of the topic. can_be_cut: as
    `parts.can_be_cut` says, also if all messages are meant: fewer of them may be sent.
    """

    entry: E
    position: Position
    base_index: int
    count: int  # type: ignore[assignment]  # hides tuple.count, which has no use here
    ranges: Ranges
    seek_epoch: SeekEpoch
    can_be_cut: bool = True


class Arrivals(Generic[E]):
    """unsent: messages that have left it without being sent."""

    def __init__(self) -> None:
        self.unsent = 0
        self._queue: deque[Arrived[E]] = deque()
        self._parked: dict[Position, list[Arrived[E]]] = {}

    @property
    def messages(self) -> int:
        return sum(size_of(each.ranges) for each in self)

    def __iter__(self) -> Iterator[Arrived[E]]:
        yield from self._queue
        for parts in self._parked.values():
            yield from parts

    @property
    def first(self) -> Arrived[E] | None:
        """Of the queue."""
        return self._queue[0] if self._queue else None

    def add(self, arrived: Arrived[E]) -> None:
        self._queue.append(arrived)

    def put_back(self, arrived: Arrived[E], ranges: Ranges) -> None:
        """These messages of an entry go next; empty: none."""
        if ranges:
            self._queue.appendleft(arrived._replace(ranges=ranges))

    def take_first(self, ranges: Ranges) -> None:
        """These messages of the first entry are sent. The others stay."""
        arrived = self._queue.popleft()
        self.put_back(arrived, without(arrived.ranges, ranges))

    def park_first(self) -> None:
        arrived = self._queue.popleft()
        self._parked.setdefault(arrived.position, []).append(arrived)

    def unpark(self, position: Position) -> None:
        """The delivery of this entry is over."""
        self._queue.extendleft(reversed(self._parked.pop(position, ())))

    def drop(self, gone: Mapping[Position, Ranges]) -> None:
        """These messages are not sent."""
        if not gone or not (self._queue or self._parked):
            return
        self._queue = deque(self._without(self._queue, gone))
        for position in gone.keys() & self._parked.keys():
            self._parked[position] = list(self._without(self._parked[position], gone))

    def _without(self, arrived: Iterable[Arrived[E]], gone: Mapping[Position, Ranges]) -> Iterator[Arrived[E]]:
        for each in arrived:
            ranges = without(each.ranges, gone[each.position]) if each.position in gone else each.ranges
            self.unsent += size_of(each.ranges) - size_of(ranges)
            if ranges:
                yield each._replace(ranges=ranges)

    def take_away(self, positions: Container[Position]) -> Ranges:
        """Nothing of these entries is sent. Returns the messages that waited."""
        taken = [each for each in self if each.position in positions]
        if not taken:
            return ()
        self._queue = deque(each for each in self._queue if each.position not in positions)
        self._parked = {position: parts for position, parts in self._parked.items() if position not in positions}
        self.unsent += sum(size_of(each.ranges) for each in taken)
        return joined(part for each in taken for part in each.ranges)

    def clear(self) -> Ranges:
        """As `take_away`, of all entries."""
        return self.take_away({each.position for each in self})
