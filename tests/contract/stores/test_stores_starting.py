"""A process that has joined its cluster and starts while ZooKeeper is away: it asks again, and fails with advice."""

import asyncio
import json
from dataclasses import replace

import pytest

from oncelog.core.errors import CorruptEntry, OncelogError, StoreUnavailable, WrongCluster
from oncelog.core.placement.first_cluster import RESTORE
from oncelog.core.placement.level import Level
from oncelog.core.process_version import FIRST_VERSION, PROCESS_VERSION
from oncelog.metadata_store.joining.joining import join_cluster
from oncelog.metadata_store.joining.starting import registered_level, until_answered
from oncelog.metadata_store.records.cluster_store import ClusterStore
from oncelog.metadata_store.session import paths
from oncelog.runtime.process import Shutdown
from oncelog.runtime.settings import ProcessSettings
from tests.cluster.until import until
from tests.contract.stores.memory_store import MemorySession, MemoryTree

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


async def session_at(level: Level) -> MemorySession:
    """Of a cluster whose level is this one."""
    session = MemorySession(MemoryTree())
    store = ClusterStore(session)
    record = await store.establish()
    found = await store.find()
    assert found is not None
    await store.write(replace(record, level=level), version=found.version)
    return session


@pytest.mark.hazard("start-races-finalize")
async def test_start_looks_at_the_level_again_once_it_is_registered() -> None:
    """It has joined at a level that it knew."""
    assert await registered_level(PATIENT, Shutdown(), await session_at(Level(PROCESS_VERSION)))
    for unknown in (Level(PROCESS_VERSION + 1), Level(PROCESS_VERSION, PROCESS_VERSION + 1)):
        with pytest.raises(WrongCluster, match=f"level {PROCESS_VERSION + 1}.*knows level {PROCESS_VERSION}"):
            await registered_level(PATIENT, Shutdown(), await session_at(unknown))


@pytest.mark.hazard("late-rollback")
async def test_start_in_a_cluster_of_a_higher_level_ends_at_once() -> None:
    """In one sentence, before anything is opened or registered; waiting does not help."""
    session = await session_at(Level(PROCESS_VERSION + 1))

    async def connect(_timeout_ms: int) -> MemorySession:
        return session

    with pytest.raises(WrongCluster, match="start a newer version"):
        await join_cluster(PATIENT, Shutdown(), connect=connect)
    assert session.closed


@pytest.mark.parametrize(
    "changed", [{"format": 1}, {"level": FIRST_VERSION - 1}, {"level": 0}], ids=["format", "level", "none"]
)
async def test_cluster_below_the_first_level_is_refused_in_one_sentence(changed: dict[str, int]) -> None:
    """It is not damaged: no restore is advised. No program has written such a record."""
    session = await session_at(Level(PROCESS_VERSION))
    await _change(session, changed)
    with pytest.raises(WrongCluster, match=f"is below level {FIRST_VERSION}, the lowest that this version") as lost:
        await ClusterStore(session).read()
    assert RESTORE not in lost.value.message


async def test_format_1_without_any_further_field_is_below_the_first_level() -> None:
    session = await session_at(Level(PROCESS_VERSION))
    node = await session.read(paths.CLUSTER)
    assert node is not None
    await session.write(paths.CLUSTER, b'{"cluster_id":"c","format":1}', version=node.version)
    with pytest.raises(WrongCluster, match="below level"):
        await ClusterStore(session).find_replaceable()


async def test_later_format_of_the_cluster_is_refused() -> None:
    session = await session_at(Level(PROCESS_VERSION))
    await _change(session, {"format": 3})
    with pytest.raises(WrongCluster, match=r"format 3.*start a newer one"):
        await ClusterStore(session).read()


async def _change(session: MemorySession, changed: dict[str, int]) -> None:
    """Write the record of the cluster with these fields."""
    node = await session.read(paths.CLUSTER)
    assert node is not None
    fields = {**json.loads(node.data), **changed}
    await session.write(paths.CLUSTER, json.dumps(fields).encode(), version=node.version)
