"""Limits of what a query can want, from the filters that Spark pushes down. Pure.

Spark still evaluates every filter itself. So limits may be coarse, and a filter that is not understood only costs time:
limits exclude whole topics, ledgers and entries, which are then not decompressed.

    topic, partition       topics
    index                  ranges of a topic, before anything is planned
    ledger_id              closed ledgers; entries
    publish_time, producer_name     entries: all messages of one share them
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

from pyspark.sql.datasource import (
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    LessThan,
    LessThanOrEqual,
)

from oncelog_spark.source.arrow_columns import FoundEntry, RowOrigin
from oncelog_spark.source.offsets import ClosedLedger, Span

_LEAST, _MOST = -(2**63), 2**63 - 1
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class Between:
    """Numbers from least to most, both inclusive."""

    least: int = _LEAST
    most: int = _MOST

    def __contains__(self, number: int) -> bool:
        return self.least <= number <= self.most

    def within(self, other: "Between") -> "Between":
        return Between(max(self.least, other.least), min(self.most, other.most))


@dataclass(frozen=True, slots=True)
class Bounds:
    """Limits of what is wanted. topics, producer_names: None for any; publish_time in microseconds since 1970."""

    index: Between = Between()
    ledger_id: Between = Between()
    publish_time: Between = Between()
    partition: Between = Between()
    topics: frozenset[str] | None = None
    producer_names: frozenset[str] | None = None

    def may_want_topic(self, origin: RowOrigin) -> bool:
        return origin.partition in self.partition and (self.topics is None or origin.topic in self.topics)

    def may_want_entry(self, found: FoundEntry) -> bool:
        """By the columns that are equal for all messages of an entry."""
        return (
            found.stored.entry.ledger_id in self.ledger_id
            and found.stored.batch.publish_time_ms * 1000 in self.publish_time
            and (self.producer_names is None or found.producer_name in self.producer_names)
        )

    def cut(self, span: Span) -> Span:
        """The messages of the span that are wanted, possibly none."""
        first = max(span.first, self.index.least)
        return span._replace(first=first, end=max(first, min(span.end, self.index.most + 1)))

    def cut_ledgers(self, span: Span, closed: Iterable[ClosedLedger]) -> list[Span]:
        """The span without the closed ledgers that are not wanted."""
        pieces: list[Span] = []
        first = span.first
        for ledger in closed:
            if ledger.ledger_id not in self.ledger_id and ledger.end > first and ledger.first < span.end:
                pieces.append(span._replace(first=first, end=max(first, ledger.first)))
                first = ledger.end
        pieces.append(span._replace(first=first))
        return [piece for piece in pieces if piece.rows > 0]


EVERYTHING = Bounds()
_NUMBERS = {"index", "ledger_id", "partition", "publish_time"}
_NAMES = {"topic": "topics", "producer_name": "producer_names"}


def bounds_of(filters: list[Filter]) -> Bounds:
    """The limits from all filters together; filters that give no limit are ignored."""
    bounds = EVERYTHING
    for each in filters:
        bounds = _narrowed(bounds, each)
    return bounds


def _narrowed(bounds: Bounds, each: Filter) -> Bounds:
    attribute: tuple[str, ...] = getattr(each, "attribute", ())
    if len(attribute) != 1:
        return bounds
    narrower: dict[str, Any] = {}
    [column] = attribute
    if column in _NUMBERS and (between := _between(each)) is not None:
        narrower[column] = getattr(bounds, column).within(between)
    if column in _NAMES and (names := _names(each)) is not None:
        known = getattr(bounds, _NAMES[column])
        narrower[_NAMES[column]] = names if known is None else known & names
    return replace(bounds, **narrower)


def _between(each: Filter) -> Between | None:
    match each:
        case EqualTo(_, value) | EqualNullSafe(_, value):
            least = most = _number(value)
        case GreaterThan(_, value):
            least, most = _number(value, above=1), _MOST
        case GreaterThanOrEqual(_, value):
            least, most = _number(value), _MOST
        case LessThan(_, value):
            least, most = _LEAST, _number(value, above=-1)
        case LessThanOrEqual(_, value):
            least, most = _LEAST, _number(value)
        case In(_, values):
            numbers = [_number(value) for value in values]
            if not numbers or None in numbers:
                return None
            least, most = min(n for n in numbers if n is not None), max(n for n in numbers if n is not None)
        case _:
            return None
    return None if least is None or most is None else Between(least, most)


def _number(value: Any, *, above: int = 0) -> int | None:
    """An integer, or the microseconds of a time; None: a value that only Spark can compare. above: added, for < and
    >."""
    if isinstance(value, datetime) and value.tzinfo is not None:
        since = value - _EPOCH
        return (since.days * 86_400 + since.seconds) * 1_000_000 + since.microseconds + above
    if isinstance(value, int) and not isinstance(value, bool):
        return value + above
    return None


def _names(each: Filter) -> frozenset[str] | None:
    match each:
        case EqualTo(_, str(value)) | EqualNullSafe(_, str(value)):
            return frozenset({value})
        case In(_, values) if all(isinstance(value, str) for value in values):
            return frozenset(values)
    return None
