"""How long the next answer of a peer is waited for."""

import pytest

from oncelog.rpc.answer_times import RECENT_S, SLOW_FACTOR, AnswerTimes


class Clock:
    def __init__(self) -> None:
        self.now_s = 1_000.0

    def __call__(self) -> float:
        return self.now_s


@pytest.mark.hazard("fixed-limit-on-a-slow-machine")
def test_limit_follows_the_slowest_recent_answer_within_its_bounds() -> None:
    """A peer that answers within milliseconds keeps the lower bound: its death is noticed as fast as ever."""
    clock = Clock()
    times = AnswerTimes(min_ms=100, max_ms=1_000, clock=clock)
    assert times.limit_ms == 100
    for after_ms in (5, 3, 8):
        times.answered(after_ms)
    assert times.limit_ms == 100
    times.answered(120)
    assert times.limit_ms == 120 * SLOW_FACTOR
    times.answered(5_000)
    assert (times.limit_ms, times.measured_ms(400)) == (1_000, 400)
    clock.now_s += RECENT_S + 1
    assert times.limit_ms == 100


@pytest.mark.hazard("fixed-limit-on-a-slow-machine")
def test_late_answers_double_the_limit_until_there_is_an_answer() -> None:
    """So a slow peer is reached after a few attempts. Attempts at the same time count once."""
    times = AnswerTimes(min_ms=100, max_ms=1_000, clock=Clock())
    for limit_ms in (100, 200, 400, 800, 1_000, 1_000):
        assert times.limit_ms == limit_ms
        times.late(limit_ms)
        times.late(limit_ms)
        assert times.raised
    assert times.measured_ms(1_000) == 100
    times.answered(250)
    assert (times.limit_ms, times.raised) == (250 * SLOW_FACTOR, False)
