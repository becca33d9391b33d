"""The consumers that are connected to one subscription, and those that were until a moment ago."""

from collections.abc import Iterable
from dataclasses import dataclass, field

from pyroaring import BitMap64

from oncelog.core.delivery.credit import Credit
from oncelog.core.delivery.events import ConsumerOpening
from oncelog.core.delivery.outstanding import Outstanding
from oncelog.core.ids import ConsumerNumber, Generation


@dataclass(slots=True, eq=False)
class ConnectedConsumer:
    """One attachment. opening: as requested."""

    number: ConsumerNumber
    opening: ConsumerOpening
    out: Outstanding
    #: when it attached to this owner, on this stream
    since_ms: int
    credit: Credit = field(init=False)
    #: of the messages that were sent, those that had been delivered before
    redelivered: int = 0
    #: of its durable grant while it is the active consumer, else 0
    generation: Generation = Generation(0)
    #: whether its ConsumerOpening was answered
    answered: bool = False
    #: of its answer: what it presented and keeps
    kept: BitMap64 = field(default_factory=BitMap64)

    def __post_init__(self) -> None:
        self.credit = Credit(whole_entries=self.opening.whole_entries)

    @property
    def name(self) -> str:
        return self.opening.consumer_name

    @property
    def left(self) -> int:
        """How many messages may be sent now: as far as the credit goes, while the outbox of the stream has room. If it
        has none, a RoomReturned follows."""
        left = self.credit.left
        return left if left and self.has_room else 0

    @property
    def has_room(self) -> bool:
        """Whether the outbox of the stream takes another entry. If not, a RoomReturned follows."""
        return self.opening.outbox.ask(self.number)

    def takes(self, count: int) -> bool:
        """Whether the consumer is to be sent some of `count` messages of one entry now."""
        return self.credit.takes(count) and self.has_room

    @property
    def instance_id(self) -> bytes:
        return self.opening.instance_id


@dataclass(slots=True)
class Away:
    """A consumer whose stream broke, while it may come back with what it holds."""

    bits: BitMap64
    begun: BitMap64
    #: whose delivery counts already
    counted: BitMap64
    until_ms: int


class Consumers:
    """The connected consumers, and the order in which those with credit, and with room at their streams, take turns."""

    __slots__ = ("_by_instance", "_by_name", "_turn", "away", "by_number")

    def __init__(self) -> None:
        self.by_number: dict[ConsumerNumber, ConnectedConsumer] = {}
        #: names and instances are unique among the connected consumers
        self._by_name: dict[str, ConnectedConsumer] = {}
        self._by_instance: dict[bytes, ConnectedConsumer] = {}
        #: {instance_id: a consumer that was lost}
        self.away: dict[bytes, Away] = {}
        #: the consumers with credit and room, the next in turn first; others may have taken the room since
        self._turn: dict[ConsumerNumber, ConnectedConsumer] = {}

    def __len__(self) -> int:
        return len(self.by_number)

    def add(self, consumer: ConnectedConsumer) -> None:
        self.by_number[consumer.number] = consumer
        self._by_name[consumer.name] = consumer
        self._by_instance[consumer.instance_id] = consumer

    def remove(self, consumer: ConnectedConsumer) -> None:
        del self.by_number[consumer.number]
        if self._by_name.get(consumer.name) is consumer:
            del self._by_name[consumer.name]
        if self._by_instance.get(consumer.instance_id) is consumer:
            del self._by_instance[consumer.instance_id]
        self._turn.pop(consumer.number, None)

    def connected(self, consumer: ConnectedConsumer) -> bool:
        return consumer.number in self.by_number

    def of_instance(self, instance_id: bytes) -> ConnectedConsumer | None:
        return self._by_instance.get(instance_id) if instance_id else None

    def named(self, name: str) -> ConnectedConsumer | None:
        return self._by_name.get(name)

    @property
    def any_credit(self) -> bool:
        """Whether a consumer may be sent something."""
        return self.first_with_credit() is not None

    def first_with_credit(self) -> ConnectedConsumer | None:
        """The first consumer in turn that may be sent something."""
        while self._turn:
            consumer = next(iter(self._turn.values()))
            if consumer.left:
                return consumer
            del self._turn[consumer.number]
        return None

    def credit_changed(self, consumer: ConnectedConsumer) -> None:
        """The consumer reported, was sent something or has room: it goes to the end of the turn, or leaves it."""
        if not consumer.left:
            self._turn.pop(consumer.number, None)
        elif consumer.number not in self._turn:
            self._turn[consumer.number] = consumer
        elif len(self._turn) > 1:
            self._turn[consumer.number] = self._turn.pop(consumer.number)

    def with_credit(self) -> Iterable[ConnectedConsumer]:
        """The consumers with credit, the next in turn first."""
        return self._turn.values()

    def next_for(self, count: int) -> ConnectedConsumer | None:
        """The next consumer in turn whose credit takes messages out of `count` of one entry."""
        return next((c for c in self._turn.values() if c.takes(count)), None)

    def best(self, partition: int) -> ConnectedConsumer | None:
        """The consumer that ought to be active: the lowest priority first, then by name; partitions are spread."""
        if not self.by_number:
            return None
        lowest = min(c.opening.priority for c in self.by_number.values())
        names = sorted((c.name, c.number) for c in self.by_number.values() if c.opening.priority == lowest)
        return self.by_number[names[partition % len(names)][1]]
