"""Cancellations of work that is repeated after errors."""

import asyncio

import pytest

from oncelog.runtime.tasks import CancelledByNobody, asked_cancellations_only

pytestmark = pytest.mark.asyncio


async def test_cancellation_is_not_lost_behind_an_error_of_the_same_moment() -> None:
    """A program with effects tries again after an error, so one that was stopped just then never ended. The error is
    the cause."""

    async def fails() -> None:
        outer.cancel()
        raise ValueError("bad")

    outer = asyncio.ensure_future(asked_cancellations_only(fails(), what="the work"))
    with pytest.raises(asyncio.CancelledError) as cancelled:
        await outer
    assert repr(cancelled.value.__cause__) == "ValueError('bad')"


async def test_cancellation_that_nobody_asked_for_is_an_error() -> None:
    """As of a future that a library has cancelled. What the work raises otherwise, it raises."""

    async def cancelled() -> None:
        raise asyncio.CancelledError

    async def fails() -> None:
        raise ValueError("bad")

    with pytest.raises(CancelledByNobody, match="the work was cancelled, and this program did not ask for it"):
        await asked_cancellations_only(cancelled(), what="the work")
    with pytest.raises(ValueError, match="bad"):
        await asked_cancellations_only(fails(), what="the work")
