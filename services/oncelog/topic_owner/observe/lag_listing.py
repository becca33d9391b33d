"""The subscriptions of all topics of this owner by their backlog, or by the age of their oldest message, for operators.

Finding them costs some microseconds for each subscription of the owner; their statistics are made for one page only.
Topics that are not served yet have none here: they are counted.
"""

import asyncio
import heapq
import json
from collections.abc import Iterator
from enum import StrEnum
from typing import NamedTuple, TypeVar

from oncelog.core.delivery.subscription import Subscription
from oncelog.core.errors import InvalidArgument
from oncelog.core.topic.lag_listing import Lag, LagQuery, LagSort, LagState, lag_position
from oncelog.core.topic.listing import NAMED_MAX, ListPosition
from oncelog.core.topic.serving import Serving
from oncelog.topic_owner.observe.rates import OwnerRates
from oncelog.topic_owner.observe.subscription_states import backlog_of, is_redrive, summary_of
from oncelog.topic_owner.shell.topic_registry import TopicRegistry
from oncelog.topic_owner.shell.topic_runner import TopicRunner
from oncelog.wire import observation_pb2 as pb

#: Subscriptions of one answer: a page and the next one.
LISTED_MAX = 1_001
#: Subscriptions that are looked at, and whose statistics are made, at once: producers need not wait for the whole list.
_LOOKED_AT = 500
_SLICE = 50
ChoiceT = TypeVar("ChoiceT", bound=StrEnum)


class _Found(NamedTuple):
    place: ListPosition
    runner: TopicRunner
    subscription: Subscription
    lag: Lag


class LagListing:
    def __init__(self, topics: TopicRegistry, rates: OwnerRates) -> None:
        self._topics = topics
        self._rates = rates

    async def answer(self, request: pb.ListLagsRequest) -> pb.ListLagsAnswer:
        """Raises InvalidArgument."""
        if not 1 <= request.limit <= LISTED_MAX:
            raise InvalidArgument(f"limit={request.limit}: give 1 to {LISTED_MAX}", field="limit", limit=LISTED_MAX)
        query = LagQuery(
            choice(LagState, request.state, "state"), request.namespace, request.topic, request.subscription,
            choice(LagSort, request.sort, "sort") or LagSort.BACKLOG,
        )  # fmt: skip
        every: list[_Found] = []
        for number, found in enumerate(self._found(query), 1):
            every.append(found)
            if number % _LOOKED_AT == 0:
                await asyncio.sleep(0)
        after = ListPosition(request.after_rank, request.after_name) if request.after_name else None
        behind = every if after is None else [found for found in every if found.place > after]
        waiting = sorted(runner.name or runner.topic_id for runner in self._topics if _waits(runner, query))
        answer = pb.ListLagsAnswer(
            waiting=len(waiting),
            waiting_first=waiting[:NAMED_MAX],
            total=len(every),
            backlog_messages=sum(found.lag.backlog for found in every),
            oldest_unacked_ms=min(
                (at_ms for found in every if (at_ms := found.lag.oldest_ms) is not None), default=None
            ),
        )
        page = heapq.nsmallest(request.limit, behind, key=lambda found: found.place)
        for number, found in enumerate(page, 1):
            answer.lags.append(self._listed(found))
            if number % _SLICE == 0:
                await asyncio.sleep(0)
        return answer

    def _found(self, query: LagQuery) -> Iterator[_Found]:
        """From a copy of the list of topics: the caller lets others go on in between."""
        for runner in list(self._topics):
            serving = runner.core.serving
            if serving is None or not query.matches_topic(runner.name):
                continue
            for subscription in list(serving.subscriptions):
                name = subscription.state.name
                lag = _lag(subscription, serving)
                if query.matches(name) and lag.is_in(query.state):
                    place = lag_position(lag.rank(query.sort), runner.name or runner.topic_id, name)
                    yield _Found(place, runner, subscription, lag)

    def _listed(self, found: _Found) -> pb.ListedLag:
        runner, serving = found.runner, found.runner.core.serving
        shown: dict[str, object] = {"name": found.subscription.state.name}
        if serving is not None:
            rates = self._rates.of(runner)
            number = found.subscription.state.number
            shown |= summary_of(found.subscription, serving, serving.space.ledgers.spans())
            shown["backlog_change_10m"] = None if rates is None else rates.change_of(number)
        return pb.ListedLag(
            topic=runner.name or runner.topic_id,
            topic_id=runner.topic_id,
            owner_epoch=runner.owner_epoch,
            subscription=found.subscription.state.name,
            rank=found.place.rank,
            summary_json=json.dumps(shown),
        )


def _waits(runner: TopicRunner, query: LagQuery) -> bool:
    """Whether the query is about this topic, and what it has is not known: it is still taken over."""
    return runner.core.serving is None and not runner.progress.ended and query.matches_topic(runner.name)


def _lag(subscription: Subscription, serving: Serving) -> Lag:
    backlog = backlog_of(subscription, serving)
    return Lag(
        backlog=backlog,
        oldest_ms=serving.space.ledgers.stored_ms(subscription.state.acks.mark_delete) if backlog else None,
        has_consumers=subscription.has_consumers,
        blocked=subscription.blocked() is not None,
        redrive=is_redrive(subscription),
    )


def choice(choices: type[ChoiceT], name: str, field: str) -> ChoiceT | None:
    """None: no name is given. Raises InvalidArgument."""
    if not name:
        return None
    try:
        return choices(name)
    except ValueError as error:
        raise InvalidArgument(f"{field}={name!r} is unknown to this owner", field=field) from error
