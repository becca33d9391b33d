"""The topics of this owner by state or by a figure, with a few lines about each, for operators.

Finding the topics costs some microseconds for each topic of the owner; the lines are made for one page only.
"""

import asyncio
import heapq
import json
import time
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from oncelog.core.delivery.subscription import Subscription
from oncelog.core.errors import InvalidArgument
from oncelog.core.names import whole_topic
from oncelog.core.topic.folded_rows import Row, folded
from oncelog.core.topic.listing import UNCONSUMED_MS, ListedState, ListPosition, ListQuery, ListSort
from oncelog.core.topic.serving import Serving
from oncelog.topic_owner.observe.lag_listing import choice
from oncelog.topic_owner.observe.rates import OwnerRates, refused
from oncelog.topic_owner.observe.subscription_states import (
    backlog_of,
    blocked_since_ms,
    dead_letters_waiting,
    largest_backlog,
    name_of,
    unconsumed,
)
from oncelog.topic_owner.observe.topic_states import figures
from oncelog.topic_owner.shell.topic_registry import TopicRegistry
from oncelog.topic_owner.shell.topic_runner import TopicRunner
from oncelog.wire import observation_pb2 as pb

#: Topics of one answer: a page and the next topic.
LISTED_MAX = 1_001
#: Topics that are looked at, and whose lines are made, at once: producers need not wait for the whole list.
_LOOKED_AT = 500
_SLICE = 50
#: Of the requests that this owner knows.
VERSION = 1


def wall_ms() -> int:
    return time.time_ns() // 1_000_000


class _Found(NamedTuple):
    """runners: of one topic; of several partitions where they are folded."""

    place: ListPosition
    runners: tuple[TopicRunner, ...]


class TopicListing:
    def __init__(self, topics: TopicRegistry, rates: OwnerRates, *, now_ms: Callable[[], int] = wall_ms) -> None:
        """now_ms: since 1970, as the time at which entries are appended."""
        self._topics = topics
        self._rates = rates
        self._now_ms = now_ms

    async def answer(self, request: pb.ListTopicsRequest) -> pb.ListTopicsAnswer:
        """Raises InvalidArgument."""
        if not 1 <= request.limit <= LISTED_MAX:
            raise InvalidArgument(f"limit={request.limit}: give 1 to {LISTED_MAX}", field="limit", limit=LISTED_MAX)
        query = ListQuery(
            choice(ListedState, request.state, "state"), request.namespace, request.name,
            choice(ListSort, request.sort, "sort"), request.folded,
        )  # fmt: skip
        every = await self._found(query)
        after = ListPosition(request.after_rank, request.after_topic) if request.after_topic else None
        behind = every if after is None else [found for found in every if found.place > after]
        page = heapq.nsmallest(request.limit, behind, key=lambda found: found.place)
        answer = pb.ListTopicsAnswer(total=sum(len(found.runners) for found in every), version=VERSION)
        made = 0
        for found in page:
            answer.topics.append(self._listed(found, fold=query.folded))
            made += len(found.runners)
            if made >= _SLICE:
                made = 0
                await asyncio.sleep(0)
        return answer

    async def _found(self, query: ListQuery) -> list[_Found]:
        every: list[_Found] = []
        partitions: dict[str, list[TopicRunner]] = {}
        for number, runner in enumerate(self._topics, 1):
            if number % _LOOKED_AT == 0:
                await asyncio.sleep(0)
            if not query.matches(runner.name):
                continue
            rank = 0 if query.state is None else self._rank(runner, query.state)
            if rank is None:
                continue
            name = runner.name or runner.topic_id
            if query.folded:
                partitions.setdefault(whole_topic(name), []).append(runner)
            else:
                order = rank if query.sort is None else -self._figure(runner, query.sort)
                every.append(_Found(ListPosition(order, name), (runner,)))
        every += [_Found(ListPosition(0, name), tuple(runners)) for name, runners in partitions.items()]
        return every

    def _rank(self, runner: TopicRunner, state: ListedState) -> int | None:
        """The smaller, the worse; None: the topic is not in this state."""
        serving = runner.core.serving
        match state:
            case ListedState.WAITING:
                waiting = runner.wait_reason()
                return None if waiting is None else waiting.since_ms
            case ListedState.HELD:
                held = None if serving is None else serving.space.held
                return None if held is None else held.since_ms
            case ListedState.BLOCKED:
                return None if serving is None else blocked_since_ms(serving)
            case ListedState.BACKLOG:
                largest = None if serving is None else largest_backlog(serving)
                return None if serving is None or largest is None else -backlog_of(largest, serving)
            case ListedState.GROWING:
                rates = self._rates.of(runner)
                growing = None if rates is None else rates.growing()
                return None if growing is None else -growing[1]
            case ListedState.UNCONSUMED:
                idle = None if serving is None else self._unconsumed(serving)
                return None if idle is None else idle[1]
            case ListedState.DEAD_LETTERS:
                waiting_letters = None if serving is None else dead_letters_waiting(runner.name, serving)
                return -waiting_letters if waiting_letters else None

    def _unconsumed(self, serving: Serving) -> tuple[Subscription, int] | None:
        return unconsumed(serving, before_ms=self._now_ms() - UNCONSUMED_MS)

    def _figure(self, runner: TopicRunner, sort: ListSort) -> int:
        """The larger, the earlier in the list; 0 where it is unknown."""
        serving, rates = runner.core.serving, self._rates.of(runner)
        if serving is None:
            return 0
        match sort:
            case ListSort.NAME:
                return 0
            case ListSort.MESSAGES:
                return serving.log.table.state.next_index
            case ListSort.BYTES:
                return serving.space.ledgers.message_bytes or 0
            case ListSort.BACKLOG:
                largest = largest_backlog(serving)
                return 0 if largest is None else backlog_of(largest, serving)
            case ListSort.RATE_IN:
                return 0 if rates is None else round((rates.rate_in or 0) * 1000)
            case ListSort.RATE_OUT:
                return 0 if rates is None else round((rates.rate_out or 0) * 1000)
            case ListSort.REFUSED:
                return refused(serving)

    def _listed(self, found: _Found, *, fold: bool) -> pb.ListedTopic:
        rows, (first, *_) = [self._row(runner) for runner in found.runners], found.runners
        partition = fold and first.name != found.place.topic and bool(first.name)
        return pb.ListedTopic(
            topic=found.place.topic,
            topic_id="" if partition else first.topic_id,
            owner_epoch=0 if partition else first.owner_epoch,
            rank=found.place.rank,
            summary_json=json.dumps(folded(rows) if partition else rows[0]),
        )

    def _row(self, runner: TopicRunner) -> Row:
        """Beside the fields of a ListedTopic."""
        waiting, serving = runner.wait_reason(), runner.core.serving
        shown: dict[str, Any] = {
            "phase": runner.core.phase.value,
            "states": [state.value for state in ListedState if self._rank(runner, state) is not None],
            "waiting_for": None if waiting is None else waiting.code,
            "waiting_since_ms": None if waiting is None else waiting.since_ms,
            "waiting_message": None if waiting is None else waiting.message,
        }
        return shown if serving is None else {**shown, **self._figures(runner, serving)}

    def _figures(self, runner: TopicRunner, serving: Serving) -> Mapping[str, Any]:
        rates = self._rates.of(runner)
        growing = None if rates is None else rates.growing()
        idle = self._unconsumed(serving)
        return {
            **figures(serving, rates),
            "subscriptions": sum(1 for _ in serving.subscriptions),
            "blocked_subscriptions": sum(1 for each in serving.subscriptions if each.blocked() is not None),
            "blocked_since_ms": blocked_since_ms(serving),
            "refused": refused(serving),
            "backlog_change_10m": None if rates is None else rates.backlog_change,
            "growing_subscription": None if growing is None else name_of(serving, growing[0]),
            "unconsumed_subscription": None if idle is None else idle[0].state.name,
            "unconsumed_since_ms": None if idle is None else idle[1],
            "dead_letters": dead_letters_waiting(runner.name, serving),
        }
