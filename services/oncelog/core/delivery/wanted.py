"""An exclusive subscription that another consumer wants, while the client of a gateway has it.

    an opening meets the consumer of a gateway --> the gateway is asked whether its client is there; the opening waits
        it is there                            --> the opening is refused
        the consumer is gone                   --> the opening is tried again
        no answer in WANTED_MS                 --> the consumer is ended, and the opening is tried again

So a half-open connection between a gateway and its client keeps no subscription (hazard half-open-consumer). The client
of the SDK notices that itself: its stream to the owner is its connection.
"""

from oncelog.core.delivery.consumers import ConnectedConsumer
from oncelog.core.delivery.context import Context
from oncelog.core.delivery.events import ConsumerOpening, ConsumerWanted
from oncelog.core.ids import ConsumerNumber

#: A gateway gives its client less time.
WANTED_MS = 8_000


class WantedConsumer:
    """Of one subscription."""

    def __init__(self, context: Context) -> None:
        self._context = context
        #: the consumer whose gateway was asked; None: nothing waits
        self._asked: ConnectedConsumer | None = None
        self._until_ms = 0
        #: in order, with their consumers' numbers
        self.waiting: list[tuple[ConsumerOpening, ConsumerNumber]] = []

    def waits(self, opening: ConsumerOpening, number: ConsumerNumber, holder: ConnectedConsumer) -> bool:
        """Whether the opening waits for news of the consumer that has the subscription; else it is refused."""
        if not holder.opening.whole_entries or not holder.answered:
            return False
        self.waiting.append((opening, number))
        if self._asked is not holder:
            self._asked, self._until_ms = holder, self._context.step.now_ms + WANTED_MS
            self._context.step.emit(ConsumerWanted(holder.number))
        return True

    def abandon(self, call: int) -> None:
        self.waiting = [waiting for waiting in self.waiting if waiting[0].call != call]

    def take(self) -> list[tuple[ConsumerOpening, ConsumerNumber]]:
        """Those that wait; nothing is asked any more."""
        waiting, self.waiting, self._asked = self.waiting, [], None
        return waiting

    @property
    def is_over(self) -> bool:
        """Whether the consumer whose gateway was asked is gone, so that what waits is to be tried again."""
        return self._asked is not None and not self._context.consumers.connected(self._asked)

    def silent(self) -> ConnectedConsumer | None:
        """The consumer whose gateway has not answered in time."""
        return self._asked if self._asked is not None and self._context.step.now_ms >= self._until_ms else None
