"""The topics of this owner by state, the worst first, with a few lines about each, for operators.

Finding the topics costs some microseconds for each topic of the owner; the lines are made for one page only.
"""

import heapq
import json
from collections.abc import Mapping
from typing import NamedTuple

from oncelog.core.errors import InvalidArgument
from oncelog.core.topic.listing import ListedState, ListPosition
from oncelog.core.topic.serving import Serving
from oncelog.topic_owner.observe.subscription_states import (
    backlog_of,
    blocked_since_ms,
    largest_backlog,
    name_of,
    oldest_unacked_ms,
)
from oncelog.topic_owner.shell.topic_registry import TopicRegistry
from oncelog.topic_owner.shell.topic_runner import TopicRunner
from oncelog.wire import observation_pb2 as pb

Json = Mapping[str, object]
#: Topics of one answer: a page and the next topic.
LISTED_MAX = 1_001


class _Found(NamedTuple):
    place: ListPosition
    runner: TopicRunner


def list_topics(topics: TopicRegistry, request: pb.ListTopicsRequest) -> pb.ListTopicsAnswer:
    """Raises InvalidArgument."""
    if not 1 <= request.limit <= LISTED_MAX:
        raise InvalidArgument(f"limit={request.limit}: give 1 to {LISTED_MAX}", field="limit", limit=LISTED_MAX)
    state = _state_of(request.state)
    # A topic whose record is not read yet has no name, and is in no namespace.
    inside = f"{request.namespace}/" if request.namespace else ""
    every = [found for runner in topics if runner.name.startswith(inside) and (found := _found(runner, state))]
    after = ListPosition(request.after_rank, request.after_topic) if request.after_topic else None
    behind = every if after is None else [found for found in every if found.place > after]
    page = heapq.nsmallest(request.limit, behind, key=lambda found: found.place)
    return pb.ListTopicsAnswer(topics=[_listed(found) for found in page], total=len(every))


def _state_of(name: str) -> ListedState | None:
    if not name:
        return None
    try:
        return ListedState(name)
    except ValueError as error:
        known = ", ".join(ListedState)
        raise InvalidArgument(f"state={name!r} is unknown to this owner: it knows {known}", field="state") from error


def _found(runner: TopicRunner, state: ListedState | None) -> _Found | None:
    rank = 0 if state is None else _rank(runner, state)
    return None if rank is None else _Found(ListPosition(rank, runner.name or runner.topic_id), runner)


def _rank(runner: TopicRunner, state: ListedState) -> int | None:
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


def _listed(found: _Found) -> pb.ListedTopic:
    return pb.ListedTopic(
        topic=found.place.topic,
        topic_id=found.runner.topic_id,
        owner_epoch=found.runner.owner_epoch,
        rank=found.place.rank,
        summary_json=json.dumps(_summary(found.runner)),
    )


def _summary(runner: TopicRunner) -> Json:
    """Beside the fields of a ListedTopic."""
    waiting, serving = runner.wait_reason(), runner.core.serving
    shown: dict[str, object] = {
        "phase": runner.core.phase.value,
        "states": [state.value for state in ListedState if _rank(runner, state) is not None],
        "waiting_for": None if waiting is None else waiting.code,
        "waiting_since_ms": None if waiting is None else waiting.since_ms,
        "waiting_message": None if waiting is None else waiting.message,
    }
    return shown if serving is None else {**shown, **_subscriptions(serving)}


def _subscriptions(serving: Serving) -> Json:
    held, largest = serving.space.held, largest_backlog(serving)
    return {
        "publishing": serving.space.publishing,
        "held_since_ms": None if held is None else held.since_ms,
        "held_by": None if held is None else name_of(serving, held.number),
        "subscriptions": sum(1 for _ in serving.subscriptions),
        "blocked_subscriptions": sum(1 for each in serving.subscriptions if each.blocked() is not None),
        "blocked_since_ms": blocked_since_ms(serving),
        "backlog_messages": 0 if largest is None else backlog_of(largest, serving),
        "backlog_subscription": None if largest is None else largest.state.name,
        "oldest_unacked_ms": oldest_unacked_ms(serving),
    }
