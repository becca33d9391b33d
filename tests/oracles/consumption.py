"""What consumers of a topic may see. These checks know nothing of faults, and nothing of how an owner delivers.

A place is a subscription at one seek epoch: acknowledgements and deliveries of another one are void. A moment is any
number that does not descend.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from oncelog.core.acks.changes import IndexRange
from oncelog.verify.violation import Violation


class Place(NamedTuple):
    subscription_id: str
    seek_epoch: int


class Acknowledged(NamedTuple):
    """When a consumer learned it, and at which epoch of the owner."""

    moment: int
    owner_epoch: int


@dataclass(slots=True)
class PlaceHistory:
    """What consumers did at one place."""

    #: {consumer: what it has asked to acknowledge}
    asked: dict[str, set[int]] = field(default_factory=dict)
    #: {index: its first durable acknowledgement}
    acknowledged: dict[int, Acknowledged] = field(default_factory=dict)
    #: {index: its deliveries that the ack log counts, when that became durable, and at which owner epoch}
    counted: dict[int, list[tuple[int, int, int]]] = field(default_factory=dict)
    #: {index: how often an application has received it}
    received: dict[int, int] = field(default_factory=dict)
    #: messages that the topic itself has acknowledged, because they expired or were over a quota
    evicted: set[int] = field(default_factory=set)
    #: messages that never come again, by the ack log: acknowledged, or dead letters from now on
    over: set[int] = field(default_factory=set)
    #: {key: the highest message of it that an application has received}
    keys: dict[bytes, int] = field(default_factory=dict)
    #: consumers whose streams broke, less the deliveries that were counted for them
    losses: int = 0


class ConsumptionHistory:
    """Deliveries and acknowledgements of all consumers of a topic, as they happen. Raises Violation."""

    def __init__(self) -> None:
        self.places: dict[Place, PlaceHistory] = {}
        #: {(subscription, generation): the consumer that is active under it}
        self._generations: dict[tuple[str, int], str] = {}

    def at(self, place: Place) -> PlaceHistory:
        return self.places.setdefault(place, PlaceHistory())

    # --- the two promises ---------------------------------------------------------------------------------------------

    def asked(self, place: Place, indexes: Iterable[int], consumer: str) -> None:
        """A consumer asks to acknowledge these messages."""
        self.at(place).asked.setdefault(consumer, set()).update(indexes)

    def asked_by_others(self, place: Place, consumer: str) -> set[int]:
        """What others have asked to acknowledge than this consumer: an owner that is writing it delivers none of it."""
        asked = self.at(place).asked
        return set[int]().union(*(indexes for name, indexes in asked.items() if name != consumer))

    def recorded(self, place: Place, indexes: set[int]) -> None:
        """The ack log holds acknowledgements of these messages."""
        unasked = sorted(indexes.difference(*self.at(place).asked.values()))
        if unasked:
            raise Violation("delivered until acknowledged", f"nobody acknowledged {unasked[:5]} at {place}")
        self.at(place).over |= indexes

    def evicted(self, place: Place, indexes: set[int]) -> None:
        """The topic has acknowledged these messages itself. A consumer that was away may still work on one that it had
        got before: nobody waits for it, so later messages of its key may have been received."""
        self.at(place).evicted |= indexes
        self.at(place).over |= indexes

    def acknowledged(self, place: Place, ranges: Iterable[IndexRange], moment: int, owner_epoch: int) -> None:
        """A consumer was told that its acknowledgement is durable."""
        history = self.at(place)
        for index in _indexes(ranges):
            history.acknowledged.setdefault(index, Acknowledged(moment, owner_epoch))

    def delivered(
        self,
        place: Place,
        ranges: Iterable[IndexRange],
        counts: dict[int, int],
        sent: int,
        *,
        owner_epoch: int,
        epoch_seen: int,
    ) -> None:
        """A consumer took these messages; the owner sent them at the moment `sent`. counts: {index: which delivery it
        is}, of those above 1. epoch_seen: the highest epoch of an owner that the consumer has heard of.

        What was in flight when the acknowledgement was answered, and what a deposed owner sends to a consumer that has
        not heard of its successor, is no violation.
        """
        history = self.at(place)
        if owner_epoch < epoch_seen:
            raise Violation("deposed owners", f"messages of epoch {owner_epoch} were taken after {epoch_seen} was seen")
        for index in _indexes(ranges):
            acked = history.acknowledged.get(index)
            if acked is not None and acked.moment < sent and acked.owner_epoch <= owner_epoch:
                raise Violation(
                    "acknowledged once", f"message {index} at {place} was acknowledged at {acked} and sent at {sent}"
                )
            for deliveries, moment, epoch in history.counted.get(index, ()):
                if moment < sent and epoch <= owner_epoch and counts.get(index, 1) <= deliveries:
                    raise Violation(
                        "delivery counts", f"delivery {counts.get(index, 1)} of {index} after {deliveries} that count"
                    )

    # --- order, counts, grants ----------------------------------------------------------------------------------------

    def counted(
        self, place: Place, index: int, deliveries: int, moment: int, owner_epoch: int, *, max_deliveries: int
    ) -> None:
        """The ack log holds how often a message was delivered so far. max_deliveries: then it becomes a dead letter and
        does not come again; 0: never."""
        history = self.at(place)
        history.counted.setdefault(index, []).append((deliveries, moment, owner_epoch))
        if 0 < max_deliveries <= deliveries:
            history.over.add(index)

    def received(self, place: Place, index: int, key: bytes | None) -> None:
        """An application received a message. key: of a key_shared subscription; the same one for all messages of an
        exclusive or failover one; None: the type keeps no order."""
        history = self.at(place)
        if key is not None:
            highest = history.keys.get(key, -1)
            if index < highest and index not in history.received and index not in history.evicted:
                raise Violation("order of a key", f"{index} of {key!r} comes first after {highest}, at {place}")
            history.keys[key] = max(highest, index)
        history.received[index] = history.received.get(index, 0) + 1

    def dead_letter(self, place: Place, index: int, max_deliveries: int) -> None:
        """The ack log holds that a message is a dead letter: applications have received it so often (hazard
        timeout-in-the-window). Each loss of a consumer may count one delivery that its application had no time to
        report (hazard wrong-delivery-count)."""
        history = self.at(place)
        history.over.add(index)
        received = history.received.get(index, 0)
        history.losses -= max(0, max_deliveries - received)
        if history.losses < 0:
            raise Violation(
                "dead letters", f"{index} at {place} was received {received} times, max_deliveries is {max_deliveries}"
            )

    def lost(self, place: Place) -> None:
        """The stream of a consumer broke."""
        self.at(place).losses += 1

    def active(self, subscription_id: str, generation: int, consumer: str) -> None:
        """A consumer was told that it is the active one, under this generation."""
        before = self._generations.setdefault((subscription_id, generation), consumer)
        if generation and before != consumer:
            raise Violation("generations", f"{before} and {consumer} are active under generation {generation}")


def _indexes(ranges: Iterable[IndexRange]) -> Iterable[int]:
    return (index for first, last in ranges for index in range(first, last + 1))


class KeyOrder:
    """What one owner sends of a key_shared subscription at one seek epoch."""

    def __init__(self, keys: Sequence[bytes]) -> None:
        """keys: of each message of the topic."""
        self._keys = keys
        #: {index: the consumer that it was sent to last, or that keeps it}
        self._holders: dict[int, int] = {}

    def kept(self, consumer: int, ranges: Iterable[IndexRange]) -> None:
        """A reconnected consumer keeps these messages."""
        self._holders.update(dict.fromkeys(_indexes(ranges), consumer))

    def sent(self, consumer: int, index: int, pending: Callable[[int], bool]) -> None:
        """Every earlier message of the key is acknowledged, or with the same consumer. pending: whether a message is
        not acknowledged durably."""
        key = self._keys[index]
        for earlier in range(index):
            holder = self._holders.get(earlier)
            if self._keys[earlier] == key and holder != consumer and pending(earlier):
                where = "nobody" if holder is None else f"consumer {holder}"
                raise Violation("order of a key", f"{index} goes to consumer {consumer}, {earlier} is with {where}")
        self._holders[index] = consumer


class Repetition:
    """What one consumer of an exclusive or failover subscription receives: when a message that its application still
    works on comes again, everything behind it that the application works on comes again, in order (hazard
    timeout-in-the-window). What the application asks for again comes whenever its delay is over."""

    def __init__(self) -> None:
        #: what has to come again, ascending
        self._behind: list[int] = []

    def received(self, index: int, working: Iterable[int], *, asked_again: bool) -> None:
        """The application receives a message. working: what it has received before and neither acknowledged nor asked
        for again, without what never comes again (`PlaceHistory.over`). asked_again: whether it has asked for this one
        again."""
        working = set(working)
        came = {index} if asked_again else set()  # whose former delivery the application may still work on
        self._behind = [each for each in self._behind if each in working - came]
        if asked_again:
            return
        if self._behind and index > self._behind[0]:
            raise Violation(
                "order after a time-out", f"{index} comes before {self._behind[0]}, which has to come again"
            )
        if self._behind and index == self._behind[0]:
            del self._behind[0]
        elif index in working:
            self._behind = sorted(each for each in working if each > index)
