"""The checks of a connection's batches: which are made together, and that none is forgotten."""

import asyncio
import threading
from collections import Counter
from typing import Any

import pytest

from oncelog.core.formats.batch import LONG_CHECK_BYTES, LONG_CHECK_COUNT
from oncelog.runtime.tasks import BackgroundTasks
from oncelog_doors.core.kafka.batch_checks import BatchRefusal, CheckedBatch, checked
from oncelog_doors.core.kafka.error_codes import ErrorCode
from oncelog_doors.kafka.checking import CHECKED_TOGETHER_BYTES_MAX, Checking, Found
from tests.doors.kafka.client_batches import Sent, batch_of, numbered
from tests.doors.raw_connection import DEADLINE_S

pytestmark = pytest.mark.asyncio

BYTES_MAX = 1 << 20
SMALL = batch_of(numbered(1))
LARGE = batch_of(numbered(4_000))
assert LONG_CHECK_BYTES < len(LARGE) < BYTES_MAX


class Turns:
    """Counts the turns of the event loop."""

    def __init__(self) -> None:
        self.count = 0
        self._tick()

    def _tick(self) -> None:
        self.count += 1
        self._next = asyncio.get_running_loop().call_soon(self._tick)

    def stop(self) -> None:
        self._next.cancel()


async def found_in_turns(batches: list[bytes]) -> list[tuple[Found, int]]:
    """What is found of each batch, and in which turn. All are given at once."""
    checking, turns = Checking(BackgroundTasks()), Turns()

    async def one(batch: bytes) -> tuple[Found, int]:
        return await checking.checked(batch, BYTES_MAX), turns.count

    found = await asyncio.gather(*map(one, batches))
    turns.stop()
    return found


async def test_batches_that_come_together_with_a_large_one_are_checked_together() -> None:
    """So all of it goes to the owner in one turn, and in few frames."""
    found = await found_in_turns([LARGE, LARGE, SMALL, LARGE])
    assert [each.records for each, _ in found if isinstance(each, CheckedBatch)] == [LARGE, LARGE, SMALL, LARGE]
    assert len({turn for _, turn in found}) == 1


async def test_no_more_bytes_than_a_frame_are_checked_together() -> None:
    fits = CHECKED_TOGETHER_BYTES_MAX // len(LARGE)
    found = await found_in_turns([LARGE] * (fits + 3))
    assert list(Counter(turn for _, turn in found).values()) == [fits, 3]


@pytest.mark.parametrize(
    "batch",
    [
        batch_of([Sent()] * (LONG_CHECK_COUNT + 1)),
        batch_of([Sent()] * 30_000, codec=4),
        batch_of([Sent(b"x" * 2 * LONG_CHECK_BYTES)], codec=4),
    ],
    ids=["many records", "very many, compressed", "large without its compression"],
)
async def test_small_batch_that_takes_long_is_checked_in_another_thread(
    batch: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each record costs 1 us and more: 100,000 would delay all clients of the door by a tenth of a second."""
    threads = []

    def seen(*given: Any) -> Found:
        threads.append(threading.current_thread())
        return checked(*given)

    monkeypatch.setattr("oncelog_doors.kafka.checking.checked", seen)
    assert len(batch) < LONG_CHECK_BYTES
    [(found, _)] = await found_in_turns([batch])
    assert isinstance(found, CheckedBatch)
    [thread] = threads
    assert thread is not threading.main_thread()


async def test_request_with_many_small_batches_leaves_others_their_turns() -> None:
    """They are one request, with a batch for each of many partitions."""
    batch, turns = batch_of(numbered(900)), Turns()
    checking = Checking(BackgroundTasks())
    for _ in range(100):
        await checking.checked(batch, BYTES_MAX)
    turns.stop()
    assert turns.count > 100 * len(batch) // (2 * LONG_CHECK_BYTES)


async def test_a_refusal_is_that_of_its_own_batch() -> None:
    broken = LARGE[:-1] + b"?"
    found = [each for each, _ in await found_in_turns([LARGE, broken, LARGE])]
    assert [type(each) for each in found] == [CheckedBatch, BatchRefusal, CheckedBatch]
    assert isinstance(found[1], BatchRefusal)
    assert found[1].code is ErrorCode.CORRUPT_MESSAGE


async def test_a_lost_connection_keeps_nobody_waiting() -> None:
    """Its request is cancelled while its batch is checked; a later one is checked as ever."""
    checking = Checking(BackgroundTasks())
    lost = [asyncio.ensure_future(checking.checked(LARGE, BYTES_MAX)) for _ in range(3)]
    await asyncio.wait(lost, timeout=0)
    for each in lost:
        each.cancel()
    async with asyncio.timeout(DEADLINE_S):
        assert isinstance(await checking.checked(LARGE, BYTES_MAX), CheckedBatch)
