"""An oracle of liveness after the last fault: a possible delivery does not wait, and no report of credit is lost.

That everything is acknowledged in the end does not show a wake-up that is lost and made up for much later.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from oncelog.core.acks.changes import SubscriptionType
from oncelog.core.delivery.acknowledging import SHARED_TYPES
from oncelog.core.delivery.credit import Credit
from oncelog.core.delivery.subscription import Subscription
from oncelog.core.delivery.subscriptions import Subscriptions
from oncelog.verify.violation import Violation

if TYPE_CHECKING:
    from tests.simulation.consumers.client import ConsumerClient

#: More than a takeover makes consumers wait, and than a request, a read and a write of the ack log take together.
STALL_TICKS_MAX = 3_000


class Stalls:
    """Looks at the cores of the owner and of the consumers between two steps of a run."""

    def __init__(self) -> None:
        #: {what stands still: (how it was, since when)}
        self._since: dict[str, tuple[object, int]] = {}

    def look(self, subscriptions: Subscriptions, clients: "Sequence[ConsumerClient]", *, epoch: int, now: int) -> None:
        """epoch: of the owner whose subscriptions these are. Raises Violation."""
        for each in subscriptions:
            waits = _can_deliver(each, subscriptions.log.next_index)
            self._note(each.state.name, (epoch, each.delivered_counts) if waits else None, now)
        for client in clients:
            self._note(client.name, _unreported(client, subscriptions), now)

    def _note(self, what: str, how: object, now: int) -> None:
        """how: None: it goes on."""
        before, since = self._since.get(what, (None, now))
        if how is None:
            self._since.pop(what, None)
        elif how != before:
            self._since[what] = how, now
        elif now - since > STALL_TICKS_MAX:
            raise Violation("stall", f"{what} stands still since {since}: {how}")


def _can_deliver(subscription: Subscription, end: int) -> bool:
    """Whether there is a message that could go to a consumer now."""
    consumers = list(subscription.consumers)
    if not consumers or subscription.pause_reason or not end or subscription.type is SubscriptionType.KEY_SHARED:
        return False  # in a key_shared subscription one consumer may get a message, and it depends on the others
    active = subscription.attachments.activation.active
    ready = [active] if active is not None and subscription.type not in SHARED_TYPES else consumers
    return all(_has_credit(each.credit) for each in ready) and bool(subscription._context.deliverable.free(0, end - 1))


def _has_credit(credit: Credit) -> bool:
    return credit.left > 0 and credit.left >= credit.window // 2


def _unreported(client: "ConsumerClient", subscriptions: Subscriptions) -> object:
    """The credit that the consumer gives and the one that its owner knows, if they differ."""
    session = client.session
    attached = None if session.attachment is None else session.attachment.consumer
    if not client.alive or attached is None:
        return None
    known = next((c.credit for each in subscriptions for c in each.consumers if c.number == attached), None)
    given, taken = session.messages.credit, None if known is None else (known.handed_out, known.window)
    return None if taken in (None, given) else (given, taken)
