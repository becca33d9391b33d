"""Rows, targets and tables of the bench: the arithmetic by which a figure is said to be reached."""

import io
import json
import math

import pytest
from rich.console import Console

from oncelog.lab.bench.figures import Latencies, Row, Target, percentile
from oncelog.lab.bench.table import print_table, to_json
from oncelog.lab.bench.takeover import longest_gap


def test_percentile_is_the_smallest_value_that_enough_values_do_not_exceed() -> None:
    """Of 100 values the 99th percentile is the 99th, not the highest; of one value it is that one."""
    assert percentile(list(range(1, 101)), 0.99) == 99
    assert percentile(list(range(1, 101)), 0.50) == 50
    assert percentile([7.0], 0.99) == 7.0


def test_latencies_are_in_ms_and_need_no_order() -> None:
    """The loads hand over seconds, in the order of the answers."""
    latencies = Latencies.of([0.003, 0.001, 0.002])
    assert (latencies.p50_ms, latencies.max_ms, latencies.count) == (2.0, 3.0, 3)


@pytest.mark.parametrize(
    ("target", "figure", "limit", "ok"),
    [
        (Target(0.65, of_ratio=True), 65.0, 100.0, True),
        (Target(0.65, of_ratio=True), 64.0, 100.0, False),
        (Target(2.0, at_most=True, of_ratio=True), 3.0, 1.5, True),
        (Target(2.0, at_most=True, of_ratio=True), 3.1, 1.5, False),
        (Target(10, at_most=True), 10.0, None, True),
        (Target(10), 9.0, None, False),
        (Target(0.5, of_ratio=True), 9.0, None, False),
        (Target(10), math.nan, None, False),
    ],
)
def test_row_is_ok_when_its_target_is_met(target: Target, figure: float, limit: float | None, ok: bool) -> None:
    """At least or at most, of the ratio or of the figure; what was not measured is never reached."""
    assert Row("x", figure, "u", limit, target).ok is ok


def test_row_without_a_target_is_neither_reached_nor_missed() -> None:
    """The limits themselves are nobody's duty."""
    assert Row("limits", 1.0, "MB/s").ok is None


def test_json_holds_every_row_and_no_number_that_json_has_not() -> None:
    """NaN is no JSON, and readers of the object should not have to know that."""
    shown = json.loads(json.dumps(to_json([Row("x", math.nan, "ms", target=Target(1)), Row("y", 2.0, "ms", 4.0)])))
    assert [row["figure"] for row in shown["rows"]] == [None, 2.0]
    assert [row["ratio"] for row in shown["rows"]] == [None, 0.5]
    assert shown["machine"]["cores"]


def test_table_shows_figure_ratio_reach_and_verdict() -> None:
    """What people compare with the documents."""
    out = io.StringIO()
    rows = [Row("publish", 600.0, "msg/s", 1000.0, Target(0.65, of_ratio=True, of="limits"))]
    print_table(rows, Console(file=out, width=120))
    shown = " ".join(out.getvalue().split())
    assert "publish 600 msg/s 0.60 >= 0.65 x limits no" in shown
    assert "0 of 1 rows" in shown


def test_longest_gap_begins_at_the_last_answer_before_a_death() -> None:
    """What a client feels begins with the last answer that it got, and pauses long before that are not the death's."""
    assert longest_gap([0.0, 5.0, 5.1, 7.1, 7.2], since=4.9) == pytest.approx(2.0)


def test_no_gap_is_found_where_nothing_was_acknowledged() -> None:
    """Nothing to compare is no pause."""
    assert longest_gap([], since=0.0) == 0.0
