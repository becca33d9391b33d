"""What lists of lags may be asked for. A lag is what one subscription of one topic has not acknowledged.

As for topics (`listing`), a row has a rank, ascending, and rows of one rank are ordered by name: by topic, then by
subscription. So each owner is asked once for each page and returns no more than a page.
"""

from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

from oncelog.core.topic.listing import ListPosition, is_left_out

#: The rank of a subscription whose oldest message has no known time: behind all others.
_NO_TIME = 1 << 53


class LagState(StrEnum):
    """A subscription may be in several of them."""

    #: it has messages that are not acknowledged
    BACKLOG = "backlog"
    #: it has such messages, and no consumer is connected
    NO_CONSUMER = "no_consumer"
    #: it gets no new messages because of its ack state
    BLOCKED = "blocked"


class LagSort(StrEnum):
    """The largest backlog, or the oldest message, first; or by name."""

    BACKLOG = "backlog"
    AGE = "age"
    NAME = "name"


@dataclass(frozen=True, slots=True)
class LagQuery:
    """state None: all subscriptions. namespace: tenant/namespace; empty: all. topic, subscription: text in the full
    name of the topic and in the name of the subscription, in any case; empty: any."""

    state: LagState | None = None
    namespace: str = ""
    topic: str = ""
    subscription: str = ""
    sort: LagSort = LagSort.BACKLOG

    def matches_topic(self, topic: str) -> bool:
        """topic: full name; empty while its owner has not read its record: then it is in no namespace."""
        return (
            (not self.namespace or topic.startswith(f"{self.namespace}/"))
            and (not self.topic or self.topic.casefold() in topic.casefold())
            and (self.state is not None or not is_left_out(topic, looked_for=self.topic))
        )

    def matches(self, subscription: str) -> bool:
        return not self.subscription or self.subscription.casefold() in subscription.casefold()


class Lag(NamedTuple):
    """Of one subscription. backlog: messages. oldest_ms: when the oldest of them was stored; None: it has none, or the
    time is not known. redrive: it keeps which dead letters were redriven, so its letters wait for an operator."""

    backlog: int
    oldest_ms: int | None
    has_consumers: bool
    blocked: bool
    redrive: bool

    def is_in(self, state: LagState | None) -> bool:
        """Whether the subscription is in this state; None: in any."""
        match state:
            case None:
                return True
            case LagState.BACKLOG:
                return self.backlog > 0
            case LagState.NO_CONSUMER:
                return self.backlog > 0 and not self.has_consumers and not self.redrive
            case LagState.BLOCKED:
                return self.blocked

    def rank(self, sort: LagSort) -> int:
        """The smaller, the earlier in the list."""
        match sort:
            case LagSort.BACKLOG:
                return -self.backlog
            case LagSort.AGE:
                return _NO_TIME if self.oldest_ms is None or not self.backlog else self.oldest_ms
            case LagSort.NAME:
                return 0


def lag_position(rank: int, topic: str, subscription: str) -> ListPosition:
    """A blank is in no name of a topic, and is less than all characters of one."""
    return ListPosition(rank, f"{topic} {subscription}")
