"""The subscriptions that are not idle: in this step, with new messages, and when time passes.

A topic may have thousands of idle subscriptions. They are skipped.
"""

from collections.abc import Iterable

from oncelog.core.delivery.subscription import Subscription
from oncelog.core.ids import SubscriptionNumber


class Activity:
    """Of the subscriptions of one topic."""

    def __init__(self) -> None:
        #: touched in this step
        self._touched: dict[SubscriptionNumber, Subscription] = {}
        #: with connected consumers, or a moment ago
        self._served: dict[SubscriptionNumber, Subscription] = {}
        #: for which time may bring something
        self._ticking: dict[SubscriptionNumber, Subscription] = {}

    @property
    def ticking(self) -> Iterable[Subscription]:
        return self._ticking.values()

    @property
    def idle(self) -> bool:
        """Whether time brings nothing to any of them."""
        return not self._ticking and not self._touched

    def touch(self, subscription: Subscription) -> None:
        """Something has happened to the subscription in this step."""
        self._touched[subscription.state.number] = subscription

    def take_touched(self) -> Iterable[Subscription]:
        """What was touched since the last call."""
        if not self._touched:
            return ()
        touched, self._touched = self._touched, {}
        self._ticking.update(touched)
        return touched.values()

    def served(self, subscription: Subscription) -> None:
        """A consumer may have attached."""
        self._served[subscription.state.number] = subscription

    def forget(self, number: SubscriptionNumber) -> None:
        """The subscription was deleted."""
        for subscriptions in (self._touched, self._served, self._ticking):
            subscriptions.pop(number, None)

    def messages_arrived(self) -> None:
        """Touch the subscriptions that have consumers, or are about to."""
        for number, subscription in list(self._served.items()):
            if subscription.is_served:
                self._touched[number] = subscription
            else:
                del self._served[number]

    def tick(self) -> None:
        """Time has passed: touch those that may deliver now."""
        for number, subscription in list(self._ticking.items()):
            if subscription.tick():
                self._touched[number] = subscription
            elif subscription.idle:
                del self._ticking[number]
