"""One entry that a consumer of Pulsar was sent, or is being sent: which messages its id means there.

PREPARED    its bytes are made
OUT         it was sent
BACK        given back by the client, or taken back by the owner
"""

from enum import Enum, auto
from typing import Generic, TypeVar

from oncelog.core.ids import Position
from oncelog_doors.core.pulsar.consuming.ack_sets import Ranges, all_bits, bits_of_words, ranges_of_bits, size_of
from oncelog_doors.core.pulsar.consuming.acknowledgements import NamedId
from oncelog_doors.core.pulsar.consuming.arrivals import Arrived

E = TypeVar("E")


class State(Enum):
    PREPARED = auto()
    OUT = auto()
    BACK = auto()


class HeldEntry(Generic[E]):
    """Sets of messages are bits of `sends` (see `ack_sets`)."""

    __slots__ = (
        "acking", "arrived", "count", "is_part", "left", "mixed", "number", "position", "recalled", "sends", "state",
        "was_back", "was_sent",
    )  # fmt: skip

    def __init__(self, position: Position, sends: Ranges) -> None:
        self.position = position
        #: messages that batch_index counts
        self.sends = sends
        self.count = size_of(sends)
        #: messages of the newest delivery that the client has not acknowledged
        self.left = 0
        #: of these, what the owner has taken back
        self.recalled = 0
        self.state = State.PREPARED
        #: of the newest delivery
        self.number = 0
        #: until it is sent
        self.arrived: Arrived[E] | None = None
        self.was_sent = self.was_back = False
        #: the newest delivery, which has the fewest messages, has not all of the entry
        self.is_part = False
        #: former deliveries counted their messages in another way
        self.mixed = False
        #: (ticket, messages) of acknowledgements that are not durable
        self.acking: list[tuple[int, Ranges]] = []

    def ranges(self, bits: int) -> Ranges:
        return self.sends if bits == all_bits(self.count) else ranges_of_bits(self.sends, bits)

    @property
    def may_be_named_again(self) -> bool:
        """The client may acknowledge a former delivery after the newest one: other messages must not be sent under this
        id."""
        return self.was_back and self.is_part

    def recount(self, sends: Ranges) -> None:
        """From this delivery on, batch_index counts these messages."""
        self.sends, self.count, self.mixed = sends, size_of(sends), True

    def named(self, named: NamedId, *, up_to: bool = False) -> int | None:
        """Which of the sent messages an acknowledgement names; None: it contradicts what was sent. up_to: it means all
        messages of the batch in front, too.

        Without an acknowledgement set it is everything, because clients wait until a batch is complete. An id of one
        message of a batch means that message; Java, C++ and Go send none.
        """
        sized = named.batch_size > 0
        if sized and named.batch_size != self.count:
            return None
        every, unclear = all_bits(self.count), self.mixed and not sized
        if named.ack_set:
            bits = bits_of_words(named.ack_set)
            return None if bits is None or bits & ~every or unclear else every & ~bits
        if named.batch_index < 0:
            return every
        if named.batch_index >= self.count or unclear:
            return None
        return all_bits(named.batch_index + 1) if up_to else 1 << named.batch_index
