"""The options `startingPosition` and `endingPosition`. Pure.

    earliest                             the first message that is kept
    latest                               behind the last message that is stored when the query begins
    1767225600000                        the first entry appended at or after this time, ms since 1970
    {"flights": 42, "orders": "latest"}  for each topic the number of a message, or `earliest` or `latest`

In JSON a partitioned topic is named as a whole (only `earliest`, `latest`), or partition by partition.
"""

import json
from collections.abc import Iterable, Mapping
from enum import StrEnum
from typing import NamedTuple

from oncelog.core.errors import InvalidArgument, OncelogError
from oncelog.core.names import parse_topic
from oncelog_spark.source.offsets import TopicState

_TIME_MS_MAX = 2**53


class Edge(StrEnum):
    EARLIEST = "earliest"
    LATEST = "latest"


class AtTime(NamedTuple):
    """ms since 1970."""

    time_ms: int


class ByTopic(NamedTuple):
    """{full name of a topic or partition: number of a message, or an edge}."""

    positions: Mapping[str, int | Edge]


PositionOption = Edge | AtTime | ByTopic


def parse_position(option: str, text: str) -> PositionOption:
    """Parse the value of an option. Raises InvalidArgument, which names the option."""
    text = text.strip()
    if text.lower() in tuple(Edge):
        return Edge(text.lower())
    if text.isascii() and text.isdigit() and len(text) <= 16 and int(text) <= _TIME_MS_MAX:
        return AtTime(int(text))
    try:
        values = json.loads(text)
    except ValueError as error:
        raise _wrong(option, text) from error
    if not isinstance(values, dict) or not values:
        raise _wrong(option, text)
    return ByTopic({_name(option, topic): _number(option, topic, value) for topic, value in values.items()})


def number_at(option: str, position: Edge | ByTopic, state: TopicState) -> int:
    """The number of the message at this position of one topic. Raises InvalidArgument."""
    edge: int | Edge | None = position if isinstance(position, Edge) else position.positions.get(state.topic)
    if edge is None and isinstance(position, ByTopic):
        edge = position.positions.get(topic_of(state.topic))
        if isinstance(edge, int):
            whole = topic_of(state.topic)
            message = f"option {option}: {whole} is partitioned: give a number for each partition, as {state.topic}"
            raise InvalidArgument(message, field=option)
    match edge:
        case Edge.EARLIEST:
            return state.earliest
        case Edge.LATEST:
            return state.next
        case None:
            raise InvalidArgument(f"option {option} has no entry for topic {state.topic}", field=option)
    if edge > state.next:
        message = f"option {option}: {state.topic} has no message {edge} yet: its next message is {state.next}"
        raise InvalidArgument(message, field=option, limit=state.next)
    return edge


def check_named(option: str, position: PositionOption, topics: Iterable[str]) -> None:
    """Raises InvalidArgument for a topic in the option that the query does not read."""
    known = {name for topic in topics for name in (topic, topic_of(topic))}
    for topic in position.positions if isinstance(position, ByTopic) else ():
        if topic not in known:
            raise InvalidArgument(f"option {option} names {topic}, which this query does not read", field=option)


def topic_of(topic: str) -> str:
    """The name without the suffix of a partition."""
    name = parse_topic(topic)
    return f"{name.namespace_name}/{name.local}"


def _name(option: str, topic: str) -> str:
    try:
        return str(parse_topic(topic))
    except OncelogError as error:
        raise InvalidArgument(f"option {option}: {error.message}", field=option) from error


def _number(option: str, topic: str, value: object) -> int | Edge:
    if isinstance(value, str) and value.lower() in tuple(Edge):
        return Edge(value.lower())
    if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**63:
        return value
    message = f"option {option}: {topic} must be earliest, latest or the number of a message, not {value!r:.60}"
    raise InvalidArgument(message, field=option)


def _wrong(option: str, text: str) -> InvalidArgument:
    forms = 'earliest, latest, a time in ms since 1970, or JSON as {"flights": 42}'
    return InvalidArgument(f"option {option} must be {forms}, not {text[:80]!r}", field=option)
