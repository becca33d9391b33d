"""Changes of a topic's subscriptions that are in flight in the ack log, and the requests that wait for them."""

from dataclasses import dataclass, field
from typing import NamedTuple

from oncelog.core.acks.changes import SubscriptionCreated
from oncelog.core.delivery.events import (
    AdminRequest,
    AnswerAck,
    AnswerAdmin,
    AnswerSeek,
    AnswerSubscribe,
    ConsumerEffect,
    ConsumerOpening,
    SeekRequested,
)
from oncelog.core.delivery.group_offsets.events import GroupRequest
from oncelog.core.delivery.store_binding.events import RewindRequested
from oncelog.core.errors import OncelogError
from oncelog.core.ids import SubscriptionNumber


@dataclass(slots=True, eq=False)
class CreateToken:
    """A SubscriptionCreated in flight, and the requests that wait for it. call: of the administrator who asked."""

    change: SubscriptionCreated
    waiting: list[ConsumerOpening | GroupRequest] = field(default_factory=list)
    call: int | None = None


@dataclass(slots=True, eq=False)
class DeleteToken:
    """A SubscriptionDeleted in flight, and the requests that wait for it."""

    number: SubscriptionNumber
    call: int
    waiting: list[ConsumerOpening | GroupRequest] = field(default_factory=list)


@dataclass(slots=True, eq=False)
class PropertiesToken:
    """A PropertiesSet in flight."""

    call: int


class Routed(NamedTuple):
    """What the ack log holds for a change: the token of one subscription."""

    number: SubscriptionNumber
    token: object


def refused(event: ConsumerOpening | RewindRequested | AdminRequest, error: OncelogError) -> ConsumerEffect:
    """The answer to a request that was not carried out."""
    match event:
        case ConsumerOpening():
            return AnswerSubscribe(event.call, error)
        case SeekRequested():
            return AnswerSeek(event.call, error)
        case RewindRequested():
            return AnswerAck(event.consumer, event.request, error)
        case _:
            return AnswerAdmin(event.call, error)
