"""until() itself: at the deadline it fails, and names what it waited for."""

import asyncio

import pytest

from tests.cluster.until import EVERY_MAX_S, pause_s, until


@pytest.mark.asyncio
async def test_deadline_names_condition_and_last_answer() -> None:
    """A test that times out must report what it waited for."""
    with pytest.raises(AssertionError, match=r"not within 0\.01 s: the owner .*last answer: 0"):
        await until(lambda: 0, 0.01, every_s=0.001, waiting_for="the owner")


@pytest.mark.asyncio
async def test_deadline_also_ends_a_condition_that_hangs() -> None:
    """A server that accepts and never responds must not block the suite."""

    async def condition() -> bool:
        await asyncio.Event().wait()
        return True

    with pytest.raises(AssertionError, match="no answer yet"):
        await until(condition, 0.01)


@pytest.mark.parametrize(("waited_s", "pause"), [(0.0, 0.02), (0.3, 0.02), (2.0, 0.1), (60.0, EVERY_MAX_S)])
def test_what_takes_long_is_asked_less_often(waited_s: float, pause: float) -> None:
    """Unless it must not be missed by a moment, or is asked rarely anyway."""
    assert pause_s(waited_s, 0.02, closely=False) == pause
    assert pause_s(waited_s, 0.02, closely=True) == 0.02
    assert pause_s(waited_s, 1.0, closely=False) == 1.0
    assert pause_s(waited_s, 0, closely=False) == 0
