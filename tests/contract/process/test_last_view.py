"""A view keeps what it saw last, and says since when it sees nothing new."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable

import pytest
import pytest_asyncio

from oncelog.core.errors import StoreUnavailable
from oncelog.runtime.observing.last_view import LastView

pytestmark = pytest.mark.asyncio

WAIT_MS = 20


class Source:
    """Answers with what is put into it, counted; an event holds the answer back."""

    def __init__(self) -> None:
        self.reads = 0
        self.answer: int | StoreUnavailable = 1
        self.open = asyncio.Event()
        self.open.set()

    async def read(self) -> int:
        self.reads += 1
        await self.open.wait()
        if isinstance(self.answer, StoreUnavailable):
            raise self.answer
        return self.answer


Viewing = Callable[[Callable[[], Awaitable[int]], int], LastView[int]]


@pytest_asyncio.fixture
async def viewing() -> AsyncIterator[Viewing]:
    async with asyncio.TaskGroup() as group:
        yield lambda read, fresh_ms: LastView(read, group.create_task, fresh_ms=fresh_ms, wait_ms=WAIT_MS)


async def test_callers_at_the_same_time_share_one_read(viewing: Viewing) -> None:
    """And so do those who come while the value is fresh."""
    source = Source()
    view = viewing(source.read, 60_000)
    answers = await asyncio.gather(*(view.get() for _ in range(10)))
    assert {answer.value for answer in [*answers, await view.get()]} == {1}
    assert source.reads == 1


async def test_silence_shows_the_last_value_and_since_when(viewing: Viewing) -> None:
    """The read goes on behind it, and its answer is seen later."""
    source = Source()
    view = viewing(source.read, 0)
    first = await view.get()
    assert (first.silent_since_ms, first.problem) == (None, None)
    source.open.clear()
    silent = await view.get()
    assert (silent.value, silent.as_of_ms) == (1, first.as_of_ms)
    assert silent.silent_since_ms is not None
    assert "no answer" in str(silent.problem)
    assert (await view.get()).silent_since_ms == silent.silent_since_ms
    source.answer = 2
    source.open.set()
    assert (await view.get()).value == 2
    assert source.reads == 2


async def test_failure_shows_the_last_value_and_the_first_time(viewing: Viewing) -> None:
    """Further failures do not move the time since when there is no answer; a success forgets it."""
    source = Source()
    view = viewing(source.read, 0)
    await view.get()
    source.answer = StoreUnavailable("no server")
    failed = await view.get()
    assert (failed.value, failed.problem) == (1, "no server")
    again = await view.get()
    assert again.silent_since_ms == failed.silent_since_ms
    source.answer = 3
    good = await view.get()
    assert (good.value, good.silent_since_ms, good.problem) == (3, None, None)


async def test_value_that_was_never_read_is_none(viewing: Viewing) -> None:
    """Unknown is not empty."""
    source = Source()
    source.answer = StoreUnavailable("no server")
    seen = await viewing(source.read, 0).get()
    assert (seen.value, seen.as_of_ms, seen.problem) == (None, None, "no server")
