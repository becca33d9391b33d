"""Places in a topic, as applications name them, and the message index at which each begins."""

import logging
from collections.abc import Callable
from datetime import UTC, datetime

from oncelog.client.network.backoff import persist
from oncelog.client.network.lookup import Route
from oncelog.client.network.network import Network
from oncelog.client.values.arguments import check_type
from oncelog.core.errors import InvalidArgument
from oncelog.core.formats.message_id import EARLIEST, LATEST, NO_PARTITION, Index, MessageId
from oncelog.core.names import TopicName
from oncelog.rpc.codecs.reader_codec import (
    FIND_INDEX,
    ReaderStart,
    StartAt,
    StartEdge,
    StartIndex,
    StartMessage,
    StartTime,
    start_to_wire,
)
from oncelog.wire.owner_pb2 import FindIndexAnswer, FindIndexRequest

logger = logging.getLogger(__name__)

Place = MessageId | datetime | Index
#: for errors
PLACES = "oncelog.EARLIEST, oncelog.LATEST, a MessageId, a datetime or an Index"
#: A time that is farther ahead is no difference between two clocks.
_AHEAD_S_MAX = 3600.0


def check_place(start: Place, inclusive: bool) -> None:
    """Raises InvalidArgument for another type, and for a datetime without a time zone: programs of two machines would
    mean two times by it. Warns of a time that is far ahead."""
    check_type("start", start, (MessageId, datetime, Index), PLACES)
    check_type("inclusive", inclusive, bool, "True or False")
    if not isinstance(start, datetime):
        return
    if start.utcoffset() is None:
        message = f"start: {start} has no time zone: replace(tzinfo=UTC) gives it one, or astimezone() to local time"
        raise InvalidArgument(message, field="start")
    ahead_s = (start - datetime.now(UTC)).total_seconds()
    if ahead_s > _AHEAD_S_MAX:
        logger.warning(
            "start: %s is %.0f hours ahead of this machine's clock. No message is that new: this begins at the end of "
            "the topic, and does not wait for that time",
            start, ahead_s / 3600,
        )  # fmt: skip


def check_of_all_partitions(start: Place, topic: str, partitions: int) -> None:
    """An index or a message id is a place of one partition alone. Raises InvalidArgument."""
    if isinstance(start, datetime) or start in (EARLIEST, LATEST):
        return
    message = (
        f"start: {start} is a place of one partition, and {topic} has {partitions}: use EARLIEST, LATEST or a datetime,"
        f" or the topic {topic}-partition-N"
    )
    raise InvalidArgument(message, field="start")


def check_topic_of(start: Place, topic: TopicName, route: Route) -> None:
    """Raises InvalidArgument for a message id of another topic, also of an earlier one of the same name (hazard
    recreated-topic)."""
    expected = (route.topic_id, NO_PARTITION if topic.partition is None else topic.partition)
    if isinstance(start, MessageId) and start.topic_id and (start.topic_id, start.partition) != expected:
        raise InvalidArgument(f"start: message id {start} belongs to another topic than {topic}", field="start")


def start_at(start: Place, *, inclusive: bool) -> StartAt:
    """The place, which `check_place` has passed, as the owner is asked for it."""
    if isinstance(start, datetime):
        return StartTime(max(0, int(start.timestamp() * 1000)))
    if isinstance(start, Index):
        return StartIndex(start.number)
    if start == EARLIEST:
        return StartEdge.EARLIEST
    if start == LATEST:
        return StartEdge.LATEST
    return StartMessage(start.position, start.batch_index, inclusive)


async def find_index(
    network: Network,
    topic: TopicName,
    start: Place,
    *,
    inclusive: bool,
    timeout_ms: int | None,
    create: bool = True,
) -> FindIndexAnswer:
    """The index at which a place of the topic begins. create: create the topic if it is missing.

    Raises InvalidArgument for a message id of another topic, TopicNotFound, another fatal error, or DeadlineExceeded
    with the last retriable reason.
    """
    at = start_at(start, inclusive=inclusive)
    what = f"the place of {start} in {topic}"
    return await ask_index(
        network, topic, at, lambda route: check_topic_of(start, topic, route),
        timeout_ms=timeout_ms, create=create, what=what,
    )  # fmt: skip


async def ask_index(
    network: Network,
    topic: TopicName,
    at: StartAt,
    check: Callable[[Route], None] = lambda _: None,
    *,
    timeout_ms: int | None,
    create: bool,
    what: str,
) -> FindIndexAnswer:
    """As `find_index`, of a place as the owner knows it. check: raises if the topic is another one. what: for errors.
    Raises also the errors of a read of this place: UnreadableEntry, EntriesLost."""

    async def ask(again: bool) -> FindIndexAnswer:
        route = await network.route(topic, fresh=again, create=create)
        check(route)
        seen = network.epochs.highest(route.topic_id)
        request = FindIndexRequest(start=start_to_wire(ReaderStart(str(topic), route.topic_id, at, seen)))
        return await network.ask_owner(route, FIND_INDEX, request)

    return await persist(ask, timeout_ms=timeout_ms, what=what)
