"""What metadata services keep for plots: the rates of busy topics, and the backlogs of subscriptions, as this owner has
sampled them. What is idle is left out, so that thousands of idle topics cost next to nothing on the wire.
"""

import asyncio
import heapq
from typing import NamedTuple

from oncelog.core.errors import InvalidArgument
from oncelog.core.topic.serving import Serving
from oncelog.topic_owner.observe.rates import OwnerRates
from oncelog.topic_owner.observe.subscription_states import backlog_of
from oncelog.topic_owner.shell.topic_registry import TopicRegistry
from oncelog.wire import observation_pb2 as pb

#: Topics of one answer, and subscriptions of it in all.
SAMPLED_MAX = 10_000
#: Topics that are looked at, and written down, at once.
_SLICE = 250


class _Found(NamedTuple):
    """A topic that is not idle. order: the busiest first, then by full name."""

    order: tuple[float, str]
    serving: Serving
    rate_in: float
    rate_out: float


class TopicSamples:
    def __init__(self, topics: TopicRegistry, rates: OwnerRates) -> None:
        self._topics = topics
        self._rates = rates

    async def answer(self, request: pb.SampleTopicsRequest) -> pb.SampleTopicsAnswer:
        """Raises InvalidArgument."""
        if not 1 <= request.limit <= SAMPLED_MAX:
            raise InvalidArgument(f"limit={request.limit}: give 1 to {SAMPLED_MAX}", field="limit", limit=SAMPLED_MAX)
        answer = pb.SampleTopicsAnswer(newest=self._rates.newest)
        found: list[_Found] = []
        for number, runner in enumerate(list(self._topics), 1):
            if number % _SLICE == 0:
                await asyncio.sleep(0)
            serving = runner.core.serving
            if serving is None or not runner.name:
                continue
            answer.served += 1
            backlog = sum(backlog_of(each, serving) for each in serving.subscriptions)
            answer.backlog_messages += backlog
            rates = self._rates.of(runner)
            rate_in, rate_out = ((rates and rates.rate_in) or 0.0, (rates and rates.rate_out) or 0.0)
            if backlog or rate_in or rate_out:
                found.append(_Found((-rate_in - rate_out, runner.name), serving, rate_in, rate_out))
        answer.left_out = max(0, len(found) - request.limit)
        room = request.limit
        for number, one in enumerate(heapq.nsmallest(request.limit, found, key=lambda one: one.order), 1):
            if number % _SLICE == 0:
                await asyncio.sleep(0)
            sample = pb.TopicSample(topic=one.order[1], rate_in=one.rate_in, rate_out=one.rate_out)
            backlogs = _backlogs(one.serving)
            answer.left_out += max(0, len(backlogs) - room)
            sample.subscriptions.extend(backlogs[:room])
            room -= len(sample.subscriptions)
            answer.topics.append(sample)
        return answer


def _backlogs(serving: Serving) -> list[pb.SubscriptionSample]:
    """The largest first."""
    ledgers = serving.space.ledgers
    shown = [
        pb.SubscriptionSample(
            name=each.state.name,
            backlog_messages=backlog,
            oldest_unacked_ms=ledgers.stored_ms(each.state.acks.mark_delete),
        )
        for each in serving.subscriptions
        if (backlog := backlog_of(each, serving))
    ]
    return sorted(shown, key=lambda one: -one.backlog_messages)
