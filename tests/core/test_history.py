"""Figures over time: what a plot shows of what was sampled, and the bound on memory."""

import random
import sys

import pytest

from oncelog.core.history import LINE_BYTES, LONGEST_MS, QUIET_MS, SERIES_BYTES, SPANS, History, Kind, Series, span_of

STEP = SPANS[0].step_ms
NOW = 1_000 * SPANS[-1].step_ms
KINDS = {"topic": (Kind.MEAN, Kind.HIGHEST)}
ROOM = SERIES_BYTES + 2 * LINE_BYTES + len("topic") + 1


def filled(*samples: tuple[int, float | None, float | None], end: int = NOW) -> Series:
    """samples: (steps before NOW, rate, level)."""
    series = Series(KINDS["topic"], NOW)
    for steps, *values in samples:
        series.put(values, end - steps * STEP)
    return series


def test_ten_minutes_show_each_sample_and_gaps() -> None:
    """What was not sampled is unknown, not 0."""
    lines = filled((3, 1.0, 5.0), (1, 3.0, None), (0, 0.0, 2.0)).lines(600_000, NOW)
    assert (lines.step_ms, len(lines.values[0])) == (STEP, 60)
    assert lines.begin_ms == NOW - 59 * STEP
    assert lines.values[0] == [None] * 56 + [1.0, None, 3.0, 0.0]
    assert lines.values[1] == [None] * 56 + [5.0, None, None, 2.0]


def test_coarse_place_has_the_mean_of_a_rate_and_the_peak_of_a_level() -> None:
    """Six samples of ten seconds are one minute."""
    series = Series(KINDS["topic"], NOW)
    for number in range(6):
        series.put((float(number), 100.0 if number == 2 else 1.0), NOW + number * STEP)
    lines = series.lines(3_600_000, NOW)
    assert (lines.values[0][-1], lines.values[1][-1]) == (2.5, 100.0)
    lines = series.lines(86_400_000, NOW)
    assert (lines.step_ms, len(lines.values[0]), lines.values[1][-1]) == (300_000, 288, 100.0)


@pytest.mark.parametrize(("range_ms", "step_ms"), [(600_000, 10_000), (600_001, 60_000), (21_600_000, 300_000)])
def test_range_is_shown_as_finely_as_it_is_kept(range_ms: int, step_ms: int) -> None:
    """Six hours are a quarter of a day."""
    assert span_of(range_ms)[1].step_ms == step_ms
    assert len(Series(KINDS["topic"], NOW).lines(range_ms, NOW).values[0]) == range_ms // step_ms


def test_old_places_are_not_shown_again() -> None:
    """A ring has the places of an hour ago where those of now belong; and after a pause all are unknown."""
    series = filled((63, 7.0, 7.0), (0, 1.0, 1.0))
    assert series.lines(600_000, NOW).values[0] == [None] * 59 + [1.0]
    later = NOW + 10 * LONGEST_MS + 7 * STEP
    assert set(series.lines(600_000, later).values[0]) == {None}
    series.put((2.0, 2.0), later)
    assert series.lines(600_000, later).values[0] == [None] * 59 + [2.0]
    series.put((4.0, 4.0), NOW)  # the clock was set back
    assert series.lines(600_000, later).values[0][-1] == 3.0


def test_idle_series_ends_after_a_day_and_none_begins_without_a_value() -> None:
    """A topic that was deleted is not kept for ever."""
    history = History(KINDS, bytes_max=10 * ROOM)
    history.idle(("topic", "a"), NOW)
    assert len(history) == 0
    history.put(("topic", "a"), (1.0, 0.0), NOW)
    history.idle(("topic", "a"), NOW + LONGEST_MS - 1)
    assert list(history) == [("topic", "a")]
    history.idle(("topic", "a"), NOW + LONGEST_MS)
    assert (list(history), history.bytes, history.dropped) == ([], 0, 0)


def test_bound_drops_the_quietest_and_refuses_the_rest() -> None:
    """And says how many. A series that was above 0 a moment ago stays."""
    history = History(KINDS, bytes_max=2 * ROOM)
    history.put(("topic", "a"), (1.0, 0.0), NOW)
    history.put(("topic", "b"), (1.0, 0.0), NOW + 1)
    history.put(("topic", "a"), (1.0, 0.0), NOW + 2)
    history.put(("topic", "c"), (1.0, 0.0), NOW + QUIET_MS)
    assert (list(history), history.dropped, history.refused) == ([("topic", "b"), ("topic", "a")], 0, 1)
    history.put(("topic", "c"), (1.0, 0.0), NOW + QUIET_MS + 1)
    assert (list(history), history.dropped, history.refused) == ([("topic", "a"), ("topic", "c")], 1, 1)
    history.check_invariants()


def test_memory_is_what_is_said() -> None:
    """About: the bound is one on memory, and not on a number that means nothing."""
    series = Series(KINDS["topic"], NOW)
    rings = [ring for span in series._rings for ring in span]
    size = sys.getsizeof(series) + sum(sys.getsizeof(ring) + sys.getsizeof(ring.places) for ring in rings)
    size += sys.getsizeof(series._rings) + sum(map(sys.getsizeof, series._rings)) + sys.getsizeof(series._newest)
    assert 0.7 < (SERIES_BYTES + 2 * LINE_BYTES) / size < 1.5


@pytest.mark.parametrize("seed", range(20))
def test_random_samples_keep_the_bound_and_the_newest_value(seed: int) -> None:
    """Whatever comes, in whatever order."""
    drawn, now_ms = random.Random(seed), NOW
    history = History(KINDS, bytes_max=5 * ROOM)
    for _ in range(300):
        now_ms += drawn.choice((STEP, STEP, QUIET_MS, 0))
        key = ("topic", drawn.choice("abcdefgh"))
        value = drawn.choice((0.0, 1.0, 8.0))
        history.put(key, (value, value), now_ms)
        history.check_invariants()
        series = history.get(key)
        if series is not None:
            newest = series.lines(600_000, now_ms).values[1][-1]
            assert newest is not None
            assert newest >= value
