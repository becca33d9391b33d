"""What limits the ack state of a topic, as delivery asks for it."""

from typing import Protocol

from oncelog.core.subscriptions.state import SubscriptionsState, SubscriptionState


class Judge(Protocol):
    """Decides whether new messages of a subscription are withheld (PIP-299), and whether the ack state is full."""

    def pause_reason(self, state: SubscriptionState, *, paused: bool) -> str:
        """Why; empty: they are not. paused: whether they are withheld now."""

    def full(self, state: SubscriptionsState) -> bool:
        """Whether the ack state of the topic is at its hard limit."""


class NoLimits:
    """A Judge that withholds nothing."""

    def pause_reason(self, state: SubscriptionState, *, paused: bool) -> str:
        return ""

    def full(self, state: SubscriptionsState) -> bool:
        return False


NO_LIMITS = NoLimits()
