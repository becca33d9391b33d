"""Changes of a topic's subscriptions that are in flight in the ack log, and the requests that wait for them."""

from dataclasses import dataclass, field
from typing import NamedTuple

from oncelog.core.acks.changes import SubscriptionCreated
from oncelog.core.delivery.events import ConsumerOpening
from oncelog.core.ids import SubscriptionNumber


@dataclass(slots=True, eq=False)
class CreateToken:
    """A SubscriptionCreated in flight, and the requests that wait for it. call: of the administrator who asked."""

    change: SubscriptionCreated
    openings: list[ConsumerOpening] = field(default_factory=list)
    call: int | None = None


@dataclass(slots=True, eq=False)
class DeleteToken:
    """A SubscriptionDeleted in flight, and the requests that wait for it."""

    number: SubscriptionNumber
    call: int
    openings: list[ConsumerOpening] = field(default_factory=list)


class Routed(NamedTuple):
    """What the ack log holds for a change: the token of one subscription."""

    number: SubscriptionNumber
    token: object
