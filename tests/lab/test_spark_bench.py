"""The arithmetic of the Spark benchmark. No speeds: those depend on the machine."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from oncelog_lab.failures import LabFailed
from oncelog_lab.spark_bench.alternation import SparkSample, alternate, rate_row, seconds_row
from oncelog_lab.spark_bench.corpus import printable_values
from oncelog_lab.spark_bench.stream_rows import FEW, parts_of, steady_batches


def samples(*figures: float) -> list[SparkSample]:
    return [SparkSample(figure, 1.5) for figure in figures]


def test_loads_alternate_and_the_first_round_does_not_count() -> None:
    """So that a machine that becomes slower slows all loads."""
    order: list[str] = []

    def load(name: str) -> Callable[[], Awaitable[SparkSample]]:
        async def run() -> SparkSample:
            order.append(name)
            return SparkSample(float(len(order)), 0.0)

        return run

    lines: list[str] = []
    found = asyncio.run(alternate({"a": load("a"), "b": load("b")}, runs=2, tell=lines.append, what="source"))
    assert order == ["a", "b"] * 3
    assert {name: [each.figure for each in listed] for name, listed in found.items()} == {"a": [3, 5], "b": [4, 6]}
    assert lines[:3] == ["source: warming up, 2 runs", "source: round 1 of 2, 2 runs", "  a: 3"]


def test_row_is_the_median_with_the_range_of_the_ratio() -> None:
    """The ratio divides medians. The range is that of the single rounds."""
    row = rate_row("source", samples(50.0, 90.0, 60.0), samples(100.0, 100.0, 200.0), of="Parquet", row_bytes=100_000)
    assert (row.figure, row.limit, row.ratio, row.unit) == (60.0, 100.0, 0.6, "rows/s")
    assert row.note == "6 MB/s; ratio to Parquet: 0.30 to 0.90"
    assert row.detail["ratios"] == [0.5, 0.9, 0.3]
    alone = seconds_row("micro-batch, text", samples(0.5, 0.7))
    assert (alone.figure, alone.ratio, alone.unit, alone.note) == (0.6, None, "s", "")


def test_first_batch_of_a_stream_does_not_count() -> None:
    """It includes the start of the workers. A stream that lost a row has no figure."""
    first, second, third = [(FEW, {"triggerExecution": seconds}) for seconds in (9.0, 1.0, 2.0)]
    assert steady_batches([first, second, third], 3 * FEW) == [second, third]
    with pytest.raises(LabFailed, match="processed 4 rows in 2 batches, expected 6"):
        steady_batches([first, second], 6)
    with pytest.raises(LabFailed, match="6 rows in 1 batches"):
        steady_batches([(6, {})], 6)


def test_a_micro_batch_names_what_it_spends_its_time_on() -> None:
    """A phase that did not happen took no time."""
    phases = [{"latestOffset": 0.1, "queryPlanning": 0.02, "addBatch": took, "walCommit": 0.03} for took in (0.2, 0.4)]
    assert parts_of([(FEW, each) for each in phases]) == "plan 0.12 s, read and write 0.30 s, Spark's log 0.03 s"


@pytest.mark.parametrize("message_bytes", [1, 2, 99, 100])
def test_values_are_single_lines_of_text(message_bytes: int) -> None:
    """Spark's text source would read a value with a line break as two rows."""
    values = printable_values(message_bytes)
    assert {len(value) for value in values} == {message_bytes}
    assert all(value.isascii() and value.decode().isprintable() for value in values)
