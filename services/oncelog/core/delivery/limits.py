"""What limits the subscriptions of a topic: how many there are, and their ack state, as delivery asks for it."""

from collections.abc import Iterable, Mapping
from typing import Protocol

from oncelog.core.acks.ack_state import SubscriptionsState, SubscriptionState
from oncelog.core.delivery.subscription import Subscription
from oncelog.core.errors import LimitReached
from oncelog.core.ids import SubscriptionNumber

#: Each subscription keeps its messages for ever, and its state is in every snapshot.
SUBSCRIPTIONS_MAX = 1_000
#: Of these, the ones that one role has created: the others stay for other roles.
ROLE_SUBSCRIPTIONS_MAX = 500


def refuse_creation(creators: Iterable[str], role: str) -> LimitReached | None:
    """Why `role` cannot create another subscription; None: it can. creators: the role that created each of the topic's
    subscriptions. A role is empty without authentication."""
    roles = list(creators)
    if len(roles) >= SUBSCRIPTIONS_MAX:
        message = f"the topic has {len(roles)} subscriptions, and at most {SUBSCRIPTIONS_MAX} are allowed"
        limit = SUBSCRIPTIONS_MAX
    elif role and (own := roles.count(role)) >= ROLE_SUBSCRIPTIONS_MAX:
        message = f"role {role} has {own} subscriptions of this topic, and at most {ROLE_SUBSCRIPTIONS_MAX} are allowed"
        limit = ROLE_SUBSCRIPTIONS_MAX
    else:
        return None
    return LimitReached(f"{message}: delete one that is not needed", field="subscription", limit=limit)


class AckStateCheck(Protocol):
    """Decides whether new messages of a subscription are withheld (PIP-299), and whether the ack state is full."""

    def pause_reason(self, state: SubscriptionState, *, paused: bool) -> str:
        """Why; empty: they are not. paused: whether they are withheld now."""

    def full(self, state: SubscriptionsState) -> bool:
        """Whether the ack state of the topic is at its hard limit."""


class NoLimits:
    """A AckStateCheck that withholds nothing."""

    def pause_reason(self, state: SubscriptionState, *, paused: bool) -> str:
        return ""

    def full(self, state: SubscriptionsState) -> bool:
        return False


NO_LIMITS = NoLimits()


class AckStateLimits:
    """Of one topic: it withholds new messages of subscriptions while their ack state is above the limit."""

    def __init__(
        self,
        check: AckStateCheck,
        state: SubscriptionsState,
        subscriptions: Mapping[SubscriptionNumber, Subscription],
    ) -> None:
        """state: the durable fold."""
        self.check = check
        self._state = state
        self._subscriptions = subscriptions
        self._full = False

    def judge(self, subscription: Subscription) -> None:
        """Decide whether new messages of this one are withheld."""
        reason = self.check.pause_reason(subscription.state, paused=bool(subscription.pause_reason))
        subscription.pause(reason)

    def look_for_room(self) -> None:
        """The ack state of the topic has changed."""
        full = self.check.full(self._state)
        if full or self._full:
            self._full = full
            for subscription in self._subscriptions.values():
                subscription.set_full(full)
