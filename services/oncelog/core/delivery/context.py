"""What the parts of one subscription share."""

from collections.abc import Callable
from dataclasses import dataclass, field

from oncelog.core.acks.ack_state import SubscriptionState
from oncelog.core.acks.changes import Change
from oncelog.core.delivery.consumers import ConnectedConsumer, Consumers
from oncelog.core.delivery.deliverable import Deliverable
from oncelog.core.delivery.events import SubscriptionStep
from oncelog.core.errors import DeadlineExceeded, NotOwner, StaleSeekEpoch, TooManyRequests
from oncelog.core.ids import Generation, SeekEpoch

#: How far the time of time-outs goes on between two looks at it, which are a quarter of a second apart.
_RUN_MS_MAX = 1_000
#: Appends a change to the ack log; the token comes back when the change is durable and folded, or was dropped.
Append = Callable[[Change, object], None]


@dataclass(slots=True)
class Context:
    """state: the durable fold, which only the ack log changes."""

    step: SubscriptionStep
    append: Append
    state: SubscriptionState
    deliverable: Deliverable
    consumers: Consumers = field(default_factory=Consumers)
    #: messages sent to consumers, and those of them that had been delivered before; since this owner serves
    delivered: int = 0
    redelivered: int = 0
    #: nothing more is written: what is dropped is not written again
    closing: bool = False
    #: an administrator's change of the store of effects is being written: no consumer attaches
    rebinding: bool = False
    #: the highest generation that a group's change in flight gives the subscription; 0: none is in flight
    raising: Generation = Generation(0)
    _running_ms: int = 0
    _looked_at_ms: int = 0

    def running_ms(self) -> int:
        """The time for time-outs: it runs while this owner runs, and never goes back. After a jump of the clock, or
        when the process was paused, consumers have had no time to be heard, so that time does not count."""
        now_ms = self.step.now_ms
        self._running_ms += min(max(0, now_ms - self._looked_at_ms), _RUN_MS_MAX)
        self._looked_at_ms = now_ms
        return self._running_ms

    def clock_ms(self, running_ms: int) -> int:
        """What the clock said at this running time, if it has run with it since. Later than that if it has not."""
        return self._looked_at_ms - (self._running_ms - running_ms)

    def leave(self, consumer: ConnectedConsumer, first: int, last: int) -> None:
        """first..last are acknowledged: they leave `consumer`, or the consumer that holds them."""
        outstanding, held = self.deliverable.outstanding, consumer.out.bits
        elsewhere = outstanding.range_cardinality(first, last + 1) != held.range_cardinality(first, last + 1)
        consumer.out.acknowledged(first, last)
        if elsewhere:
            self.leave_all(first, last)
        self.deliverable.acknowledged(first, last)

    def leave_all(self, first: int, last: int) -> None:
        """first..last are acknowledged: they leave every consumer."""
        self.leave_holders(first, last)
        self.deliverable.acknowledged(first, last)

    def leave_holders(self, first: int, last: int) -> None:
        """first..last leave every consumer."""
        for consumer in self.consumers.by_number.values():
            consumer.out.acknowledged(first, last)
        for away in self.consumers.away.values():
            away.bits.remove_range(first, last + 1)


def outcome_unknown() -> DeadlineExceeded:
    """The answer to a change in flight at the end of this owner: the next owner may find it in the ack log."""
    return DeadlineExceeded("the topic moved before the change was confirmed: it may have been made")


def stale_seek_epoch(current: SeekEpoch) -> StaleSeekEpoch:
    """The answer to an acknowledgement of a former seek_epoch."""
    return StaleSeekEpoch("the subscription was sought since: receive the messages again", seek_epoch=current)


def moved() -> NotOwner:
    return NotOwner("the topic is being moved: look it up again")


def no_room() -> TooManyRequests:
    return TooManyRequests(
        "too many acknowledgements wait for the ack log, which cannot be written fast enough: send it again"
    )
