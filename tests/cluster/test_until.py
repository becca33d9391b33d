"""The waiter itself: it hands on the first truthy answer, and at the deadline it tells what it waited for."""

import asyncio

import pytest

from tests.cluster.until import until, until_sync


@pytest.mark.asyncio
async def test_first_truthy_answer_is_returned() -> None:
    """Waiting and reading are one step: what was waited for is what the test goes on with."""
    answers = iter([None, "", "ready", "later"])
    assert await until(lambda: next(answers), 5, every_s=0) == "ready"


@pytest.mark.asyncio
async def test_awaitable_condition_is_awaited() -> None:
    """Conditions that ask a server are coroutines."""
    answers = iter([0, 0, 7])

    async def condition() -> int:
        return next(answers)

    assert await until(condition, 5, every_s=0) == 7


@pytest.mark.asyncio
async def test_deadline_names_condition_and_last_answer() -> None:
    """A test that waited in vain must say for what."""
    with pytest.raises(AssertionError, match=r"not within 0\.01 s: the owner .*last answer: 0"):
        await until(lambda: 0, 0.01, every_s=0.001, waiting_for="the owner")


@pytest.mark.asyncio
async def test_deadline_also_ends_a_condition_that_hangs() -> None:
    """A server that accepts and never answers must not hang the suite."""

    async def condition() -> bool:
        await asyncio.Event().wait()
        return True

    with pytest.raises(AssertionError, match="no answer yet"):
        await until(condition, 0.01)


@pytest.mark.asyncio
async def test_error_of_condition_passes() -> None:
    """A TimeoutError of the condition's own is not our deadline."""

    def condition() -> bool:
        raise TimeoutError("mine")

    with pytest.raises(TimeoutError, match="mine"):
        await until(condition, 5)


def test_sync_face_does_the_same() -> None:
    """Tests of processes need no event loop."""
    answers = iter([False, True])
    assert until_sync(lambda: next(answers), 5, every_s=0)
    with pytest.raises(AssertionError, match="last answer: \\[\\]"):
        until_sync(list, 0, every_s=0)
