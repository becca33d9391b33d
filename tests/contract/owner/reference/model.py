"""The reference model: what an owner must say to a producer, in one function over the plain history of a topic.

It knows nothing of ledgers, snapshots, sessions or takeovers: a producer is its generation and the places of its
messages. `histories` drives a real owner and this model through the same histories.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import NamedTuple

from oncelog.core.formats.opening import ProducerInstance
from oncelog.core.ids import Position, ProducerId
from oncelog.core.publishing.recent_batches import RECENT_BATCHES_MAX


class Verdict(Enum):
    """FRESH to STALE: of one message; STALE and the others: of all that was asked."""

    FRESH = "fresh"
    DUPLICATE = "duplicate"
    JOINED = "joined in flight"
    UNVERIFIED = "unverified"
    STALE = "stale"
    GAP = "gap"
    FENCED = "fenced"
    EXPIRED = "expired"
    UNKNOWN = "unknown"


@dataclass(slots=True)
class Written:
    """A batch that was handed to the log. position: of its entry; None: its write is in flight."""

    position: Position | None = None


class Place(NamedTuple):
    """Where a message is: the entry, and the index of the message in its batch."""

    written: Written
    offset: int


@dataclass(slots=True)
class ReferenceProducer:
    """lasts: the highest id of each batch that was stored with new ids. active_ms: when it last did anything,
    or was connected."""

    contiguous: bool
    generation: int
    leased: bool = False
    active_ms: int = 0
    mark: int = -1
    places: dict[int, Place] = field(default_factory=dict)
    lasts: list[int] = field(default_factory=list)

    def floor(self, further: int = 0) -> int:
        """The places of ids at or below it are forgotten, when so many further batches are stored."""
        forgotten = len(self.lasts) + further - RECENT_BATCHES_MAX
        return self.lasts[forgotten - 1] if forgotten > 0 else -1

    def store(self, ids: Sequence[int]) -> Written:
        """What is above the mark becomes a batch of the log."""
        written = Written()
        for offset, number in enumerate(ids):
            if number > self.mark:
                self.places[number] = Place(written, offset)
        self.mark = ids[-1]
        self.lasts.append(self.mark)
        return written


@dataclass(slots=True)
class ReferenceTopic:
    producers: dict[ProducerId, ReferenceProducer] = field(default_factory=dict)
    expired: dict[ProducerId, None] = field(default_factory=dict)


def verdict(topic: ReferenceTopic, instance: ProducerInstance, ids: Sequence[int] = ()) -> Verdict | list[Verdict]:
    """What the holder of an instance is told that sends a batch of these ids; none: that only comes back, or renews.

    One verdict for all of it, or one for each message.
    """
    producer = topic.producers.get(instance.producer_id)
    if producer is None:
        return Verdict.EXPIRED if instance.producer_id in topic.expired else Verdict.UNKNOWN
    if instance.generation != producer.generation:
        return Verdict.FENCED
    if producer.contiguous and ids and ids[0] > producer.mark + 1:
        return Verdict.GAP
    each = []
    for number in ids:
        place = producer.places.get(number)
        if number > producer.mark:
            each.append(Verdict.FRESH)
        elif number <= producer.floor():
            each.append(Verdict.DUPLICATE if producer.contiguous else Verdict.UNVERIFIED)
        elif place is None:
            each.append(Verdict.STALE)
        else:
            each.append(Verdict.DUPLICATE if place.written.position else Verdict.JOINED)
    return Verdict.STALE if ids and set(each) == {Verdict.STALE} else each
