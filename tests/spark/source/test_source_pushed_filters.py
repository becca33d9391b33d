"""Filters exclude no message that a query wants."""

from datetime import UTC, datetime

import pytest
from pyspark.sql.datasource import (
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    LessThan,
    LessThanOrEqual,
    Not,
    StringStartsWith,
)

from oncelog.core.ids import EntryId, LedgerId, TopicId
from oncelog_spark.source.arrow_columns import FoundEntry, RowOrigin
from oncelog_spark.source.offsets import ClosedLedger, Span
from oncelog_spark.source.pushed_filters import EVERYTHING, Between, bounds_of
from tests.spark.stored_entries import opened, stored_entry

SPAN = Span("public/default/flights", TopicId("1" * 32), 10, 100)


@pytest.mark.parametrize(
    ("each", "between"),
    [
        (EqualTo(("index",), 5), Between(5, 5)),
        (EqualNullSafe(("index",), 5), Between(5, 5)),
        (GreaterThan(("index",), 5), Between(least=6)),
        (GreaterThanOrEqual(("index",), 5), Between(least=5)),
        (LessThan(("index",), 5), Between(most=4)),
        (LessThanOrEqual(("index",), 5), Between(most=5)),
        (In(("index",), (9, 2, 5)), Between(2, 9)),
    ],
)
def test_a_comparison_bounds_its_column(each: Filter, between: Between) -> None:
    """Inclusive or exclusive."""
    assert bounds_of([each]).index == between


@pytest.mark.parametrize(
    "each",
    [
        Not(EqualTo(("index",), 5)),
        EqualTo(("index",), None),
        EqualTo(("index",), 5.5),
        EqualTo(("index",), True),
        In(("index",), (1, None)),
        In(("index",), ()),
        IsNotNull(("index",)),
        EqualTo(("properties", "index"), 5),
        EqualTo(("value",), b"x"),
        StringStartsWith(("topic",), "a"),
        Not(EqualTo(("topic",), "a")),
        LessThan(("topic",), "a"),
        GreaterThan(("publish_time",), datetime(2026, 1, 1)),  # noqa: DTZ001  # of no zone: only Spark can compare it
    ],
)
def test_an_unknown_filter_excludes_nothing(each: Filter) -> None:
    """Spark evaluates it anyway."""
    assert bounds_of([each]) == EVERYTHING


def test_filters_narrow_each_other() -> None:
    """All of them apply."""
    bounds = bounds_of(
        [
            GreaterThanOrEqual(("index",), 20),
            LessThan(("index",), 50),
            GreaterThan(("index",), 3),
            In(("producer_name",), ("a", "b")),
            EqualTo(("producer_name",), "b"),
        ]
    )
    assert bounds.index == Between(20, 49)
    assert bounds.producer_names == frozenset({"b"})
    assert bounds.cut(SPAN) == SPAN._replace(first=20, end=50)


@pytest.mark.parametrize(("least", "most", "rows"), [(0, 9, 0), (100, 200, 0), (0, 200, 90), (99, 99, 1), (10, 10, 1)])
def test_a_range_is_cut_to_the_wanted_messages(least: int, most: int, rows: int) -> None:
    """Also at its ends."""
    bounds = bounds_of([GreaterThanOrEqual(("index",), least), LessThanOrEqual(("index",), most)])
    assert bounds.cut(SPAN).rows == rows


def test_closed_ledgers_that_are_not_wanted_are_left_out() -> None:
    """The open tail stays: its ledger is not known yet."""
    closed = [ClosedLedger(LedgerId(n), 20 * n, 20 * n + 20, EntryId(1), ()) for n in range(4)]
    wanted = bounds_of([In(("ledger_id",), (1, 2))]).cut_ledgers(SPAN, closed)
    assert wanted == [SPAN._replace(first=20, end=60), SPAN._replace(first=80, end=100)]
    assert EVERYTHING.cut_ledgers(SPAN, closed) == [SPAN]
    assert bounds_of([EqualTo(("ledger_id",), 9)]).cut_ledgers(SPAN._replace(end=60), closed) == []


def test_an_entry_is_filtered_by_the_columns_its_messages_share() -> None:
    """Its ledger, its producer, and the publish time of its batch: one second after 1970 here."""
    found = FoundEntry(opened(stored_entry([b"x"], place=(3, 4))), "importer")

    def wants(*filters: Filter) -> bool:
        return bounds_of(list(filters)).may_want_entry(found)

    packed = datetime(1970, 1, 1, 0, 0, 1, tzinfo=UTC)
    assert wants()
    assert wants(
        EqualTo(("publish_time",), packed), EqualTo(("ledger_id",), 3), EqualTo(("producer_name",), "importer")
    )
    assert not wants(GreaterThan(("publish_time",), packed))
    assert not wants(LessThan(("publish_time",), packed))
    assert not wants(EqualTo(("ledger_id",), 4))
    assert not wants(EqualTo(("producer_name",), "other"))


def test_topics_and_partitions_are_filtered_by_their_names() -> None:
    """As rows name them."""
    origin = RowOrigin("public/default/parts", 1)
    assert bounds_of([EqualTo(("topic",), "public/default/parts"), EqualTo(("partition",), 1)]).may_want_topic(origin)
    assert not bounds_of([EqualTo(("topic",), "public/default/other")]).may_want_topic(origin)
    assert not bounds_of([GreaterThan(("partition",), 1)]).may_want_topic(origin)
