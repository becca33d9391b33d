"""A process that has joined its cluster and starts while ZooKeeper is away: it asks again, and fails with advice."""

import asyncio

import pytest

from oncelog.core.errors import CorruptEntry, OncelogError, StoreUnavailable
from oncelog.metadata_store.joining.starting import until_answered
from oncelog.runtime.process import Shutdown
from oncelog.runtime.settings import ProcessSettings
from tests.cluster.until import until

pytestmark = pytest.mark.asyncio
DEADLINE_S = 30.0
PATIENT = ProcessSettings(zookeeper_hosts="zookeeper:2181", start_timeout_ms=60_000)
HASTY = ProcessSettings(zookeeper_hosts="zookeeper:2181", start_timeout_ms=1)


class Asked:
    """A question that fails with these errors before it is answered."""

    def __init__(self, *refusals: OncelogError, for_ever: OncelogError | None = None) -> None:
        self.refusals = list(refusals)
        self.for_ever = for_ever
        self.times = 0

    async def __call__(self) -> None:
        self.times += 1
        if self.refusals or self.for_ever:
            raise self.for_ever or self.refusals.pop(0)


def away() -> StoreUnavailable:
    return StoreUnavailable("no answer within 10 s")


async def test_start_goes_on_when_zookeeper_is_back(caplog: pytest.LogCaptureFixture) -> None:
    """It ended with a traceback when ZooKeeper went away between two steps of a start."""
    asked = Asked(away(), away())
    assert await until_answered(PATIENT, Shutdown(), "the storage nodes", asked)
    assert (asked.times, caplog.messages) == (3, ["waiting for the storage nodes"])


async def test_start_fails_at_its_deadline_with_advice() -> None:
    with pytest.raises(
        StoreUnavailable, match=r"zookeeper:2181 did not answer for the storage nodes .* check ZooKeeper"
    ):
        await until_answered(HASTY, Shutdown(), "the storage nodes", Asked(for_ever=away()))


async def test_start_fails_at_once_with_what_waiting_cannot_solve() -> None:
    asked = Asked(CorruptEntry("the record is damaged"))
    with pytest.raises(CorruptEntry):
        await until_answered(PATIENT, Shutdown(), "the storage nodes", asked)
    assert asked.times == 1


async def test_shutdown_request_ends_the_wait() -> None:
    asked, shutdown = Asked(for_ever=away()), Shutdown()
    start = asyncio.ensure_future(until_answered(PATIENT, shutdown, "the storage nodes", asked))
    await until(lambda: asked.times, DEADLINE_S)
    shutdown.request("SIGTERM")
    assert not await asyncio.wait_for(start, DEADLINE_S)
