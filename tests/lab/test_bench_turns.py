"""What the bench of Spark says of its samples. No speeds: those belong to the machine."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from oncelog.lab.bench.processes import BenchFailed
from oncelog.lab.spark_bench.corpus import printable_values
from oncelog.lab.spark_bench.formats import file_source, topic_sink, topic_source
from oncelog.lab.spark_bench.stream_rows import FEW, steady_batches
from oncelog.lab.spark_bench.turns import Sample, busy_s, in_turns, rate_row, ratios_of, seconds_row


def samples(*figures: float) -> list[Sample]:
    return [Sample(figure, 1.5) for figure in figures]


def test_contestants_take_turns_and_the_first_turn_does_not_count() -> None:
    """One after the other, so that a machine that slows down slows each of them."""
    order: list[str] = []
    told: list[str] = []

    def contestant(name: str) -> Callable[[], Awaitable[Sample]]:
        async def run() -> Sample:
            order.append(name)
            return Sample(float(len(order)), 0.0)

        return run

    found = asyncio.run(in_turns({"a": contestant("a"), "b": contestant("b")}, runs=2, tell=told.append, what="source"))
    assert order == ["a", "b"] * 3
    assert {name: [each.figure for each in listed] for name, listed in found.items()} == {"a": [3, 5], "b": [4, 6]}
    assert told == [
        "source: warming up, 2 runs", "source: turn 1 of 2, 2 runs", "  a: 3", "  b: 4",
        "source: turn 2 of 2, 2 runs", "  a: 5", "  b: 6",
    ]  # fmt: skip
    order.clear()
    asyncio.run(in_turns({"a": contestant("a")}, runs=2, tell=told.append, what="stream", warm_up=False))
    assert order == ["a", "a"]


def test_a_row_is_the_median_and_its_note_says_how_noisy_the_ratio_is() -> None:
    """The ratio divides medians; the range is that of the turns, each by itself."""
    row = rate_row("source", samples(50.0, 90.0, 60.0), samples(100.0, 100.0, 200.0), of="Parquet", row_bytes=100_000)
    assert (row.figure, row.limit, row.ratio, row.unit) == (60.0, 100.0, 0.6, "rows/s")
    assert row.note == "6 MB/s; ratio to Parquet: 0.30 to 0.90"
    assert row.detail["ratios"] == [0.5, 0.9, 0.3]
    assert row.detail["busy_cores"] == [1.5, 1.5, 1.5]
    assert ratios_of(samples(1.0, 3.0), samples(2.0, 2.0)) == [0.5, 1.5]


def test_a_row_without_another_to_compare_with_has_no_ratio() -> None:
    """What others are compared with stands for itself."""
    row = seconds_row("micro-batch, text", samples(0.5, 0.7))
    assert (row.figure, row.ratio, row.unit, row.note) == (0.6, None, "s", "")


def test_the_first_batch_of_a_stream_does_not_count() -> None:
    """It starts workers; and a stream that has lost a row has no figure at all."""
    assert steady_batches([(FEW, 9.0), (FEW, 1.0), (FEW, 2.0)], 3 * FEW) == [(FEW, 1.0), (FEW, 2.0)]
    with pytest.raises(BenchFailed, match="took 4 rows in 2 batches: 6 in more"):
        steady_batches([(2, 9.0), (2, 1.0)], 6)
    with pytest.raises(BenchFailed, match="took 6 rows in 1 batches"):
        steady_batches([(6, 9.0)], 6)


@pytest.mark.parametrize("message_bytes", [1, 2, 99, 100])
def test_values_are_lines_of_text_of_the_size_that_was_asked_for(message_bytes: int) -> None:
    """Spark's text source would see two rows in a value with a line's end."""
    values = printable_values(message_bytes)
    assert {len(value) for value in values} == {message_bytes}
    assert all(value.isascii() and value.decode().isprintable() for value in values)


def test_places_are_plain_values_with_the_options_that_users_give() -> None:
    """They cross to the sessions' processes as JSON."""
    assert topic_source("oncelog://h:1", "t", closedLedgers="owner") == {
        "format": "oncelog", "options": {"serviceUrl": "oncelog://h:1", "topic": "t", "closedLedgers": "owner"},
        "path": None,
    }  # fmt: skip
    assert file_source("text", "/x", maxFilesPerTrigger="2")["options"] == {"maxFilesPerTrigger": "2"}
    assert topic_sink("u", "t", "batch", "p", jobId="j")["options"] == {
        "serviceUrl": "u", "topic": "t", "mode": "batch", "producerPrefix": "p", "jobId": "j",
    }  # fmt: skip


def test_the_machine_says_how_busy_it_was() -> None:
    """A counter that only grows."""
    assert 0 < busy_s() <= busy_s()
