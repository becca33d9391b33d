"""Where reading begins and ends, as options say it. Pure.

    earliest    the first message that is kept
    latest      behind the last message that is there when the query begins
    1767225600000                                    the first entry appended at or after this time, ms since 1970
    {"flights": 42, "orders": "latest"}              each topic on its own: the number of a message, or an edge

In JSON a partitioned topic is named as a whole, for an edge, or part by part.
"""

import json
from collections.abc import Iterable, Mapping
from enum import StrEnum
from typing import NamedTuple

from oncelog.core.errors import InvalidArgument, OncelogError
from oncelog.core.names import parse_topic
from oncelog.pipeline.source.offsets import TopicState

_TIME_MS_MAX = 2**53


class Edge(StrEnum):
    EARLIEST = "earliest"
    LATEST = "latest"


class AtTime(NamedTuple):
    """ms since 1970."""

    time_ms: int


class ByTopic(NamedTuple):
    """{full name of a topic or part: number of a message, or an edge}."""

    places: Mapping[str, int | Edge]


PositionOption = Edge | AtTime | ByTopic


def parse_position(option: str, text: str) -> PositionOption:
    """Read the value of an option. Raises InvalidArgument, which names the option."""
    text = text.strip()
    if text.lower() in tuple(Edge):
        return Edge(text.lower())
    if text.isascii() and text.isdigit() and len(text) <= 16 and int(text) <= _TIME_MS_MAX:
        return AtTime(int(text))
    try:
        told = json.loads(text)
    except ValueError as error:
        raise _wrong(option, text) from error
    if not isinstance(told, dict) or not told:
        raise _wrong(option, text)
    return ByTopic({_name(option, topic): _number(option, topic, value) for topic, value in told.items()})


def number_at(option: str, place: Edge | ByTopic, state: TopicState) -> int:
    """The number of a message that the place means in one topic. Raises InvalidArgument."""
    edge: int | Edge | None = place if isinstance(place, Edge) else place.places.get(state.topic)
    if edge is None and isinstance(place, ByTopic):
        edge = place.places.get(topic_of(state.topic))
        if isinstance(edge, int):
            message = f"option {option}: {topic_of(state.topic)} has parts: give a number for each, as {state.topic}"
            raise InvalidArgument(message, field=option)
    match edge:
        case Edge.EARLIEST:
            return state.earliest
        case Edge.LATEST:
            return state.next
        case None:
            raise InvalidArgument(f"option {option} says nothing of {state.topic}, which is read, too", field=option)
    if edge > state.next:
        message = f"option {option}: {state.topic} has no message {edge} yet: its next will be {state.next}"
        raise InvalidArgument(message, field=option, limit=state.next)
    return edge


def check_named(option: str, place: PositionOption, topics: Iterable[str]) -> None:
    """Raises InvalidArgument for a topic that is not among those read: it is misspelt, or forgotten."""
    known = {name for topic in topics for name in (topic, topic_of(topic))}
    for topic in place.places if isinstance(place, ByTopic) else ():
        if topic not in known:
            raise InvalidArgument(f"option {option} names {topic}, which is not read", field=option)


def topic_of(topic: str) -> str:
    """The name without the suffix of a part."""
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
    message = f"option {option}: {topic} is earliest, latest or the number of a message, not {value!r:.60}"
    raise InvalidArgument(message, field=option)


def _wrong(option: str, text: str) -> InvalidArgument:
    forms = 'earliest, latest, a time in ms since 1970, or JSON as {"flights": 42}'
    return InvalidArgument(f"option {option} is {forms}, not {text[:80]!r}", field=option)
