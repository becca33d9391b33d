"""The chaos runner, one step at a time: what it waits for before it goes on, and what it leaves mended."""

import asyncio
import json
import time

import pytest

from oncelog.lab.chaos.runner import Faults, Runner
from oncelog.lab.chaos.schedule import Fault, Kind, Step
from oncelog.lab.chaos.target import Scene, Struck
from oncelog.lab.chaos.workload_link import WorkloadLink
from tests.cluster.until import until
from tests.lab.chaos_fakes import FakeCluster

pytestmark = pytest.mark.asyncio

DEADLINE_S = 10.0
PAUSE = Fault(Kind.OWNER_PAUSE, 0, hold_s=5.0)
KILL = Fault(Kind.STORAGE_KILL, 0)


class Steps:
    """A runner on a cluster that is well again at once, and what its workload says."""

    def __init__(self, cluster: FakeCluster | None = None, *, heal_deadline_s: float = DEADLINE_S) -> None:
        self.cluster = cluster or FakeCluster(looks=0)
        self.link = WorkloadLink(lambda _: None)
        self.runner = Runner(self.cluster, self.link, lambda _: None, heal_deadline_s=heal_deadline_s)

    def run(self, *steps: Step, pace: float = 0.0) -> "asyncio.Task[Faults]":
        return asyncio.create_task(self.runner.run(steps, pace=pace))

    def beat(self, **clients: float) -> float:
        """idle_ms of each client; returns when it was said."""
        at_s = time.time()
        told = {name: {"gaps_ms": [], "idle_ms": idle_ms} for name, idle_ms in clients.items()}
        said = {"event": "beat", "at_s": at_s, "acked": 1, "steady_gap_ms_p999": None, "clients": told}
        self.link.take(json.dumps(said))
        return at_s

    async def over(self, running: "asyncio.Task[Faults]", **clients: float) -> Faults:
        """Go on saying it, as a workload does, until the run is over: what was said as a fault was being mended does
        not count, and when that was noted only the runner knows."""
        await until(lambda: running.done() or not self.beat(**clients), DEADLINE_S)
        return await running


def step(*faults: Fault, number: int = 1, pause_s: float = 0.0) -> Step:
    return Step(number, pause_s, faults)


async def test_step_lasts_until_every_client_has_an_acknowledgement_again() -> None:
    """That all members serve is not all: a client that hears nothing any more is what the run is for."""
    steps = Steps()
    running = steps.run(step(KILL))
    await until(lambda: steps.cluster.mended, DEADLINE_S)
    steps.beat(one=0.0, other=60_000.0)
    healed_s = steps.beat(one=0.0, other=0.0)
    [hit] = (await steps.over(running, one=0.0, other=0.0)).hits
    assert hit.healed_at_s is not None
    assert hit.healed_at_s >= healed_s


async def test_acknowledgement_before_the_mending_heals_nothing() -> None:
    """A topic may have been moved from an owner that is stopped, and the next fault meets that owner in its sleep."""
    steps = Steps()
    running = steps.run(step(PAUSE), pace=0.02)
    await until(lambda: steps.cluster.struck, DEADLINE_S)
    steps.beat(one=0.0)
    await until(lambda: steps.cluster.mended, DEADLINE_S)
    healed_s = steps.beat(one=0.0)
    [hit] = (await steps.over(running, one=0.0)).hits
    assert hit.healed_at_s is not None
    assert hit.healed_at_s >= healed_s


async def test_what_never_heals_has_no_time_of_healing() -> None:
    """Its pause lasts to the end of the run."""
    faults = await Steps(heal_deadline_s=0.1).run(step(KILL), step(KILL, number=2))
    assert [hit.healed_at_s for hit in faults.hits] == [None]
    assert faults.unhealed is not None
    assert [miss.step for miss in faults.misses] == [2]


async def test_run_that_is_interrupted_mends_what_it_holds() -> None:
    """Ctrl-C must leave no process stopped and no node cordoned."""
    steps = Steps()
    running = steps.run(step(PAUSE), pace=100.0)
    await until(lambda: steps.cluster.struck, DEADLINE_S)
    running.cancel()
    await asyncio.wait([running])
    assert steps.cluster.mended == steps.cluster.struck


async def test_faults_last_and_steps_keep_their_distance() -> None:
    """As planned, at the pace of the run: a fault that is mended at once is another fault."""
    steps = Steps()
    began_s, pace = time.time(), 0.05
    running = steps.run(step(PAUSE, pause_s=2.0), pace=pace)
    await until(lambda: steps.cluster.mended, DEADLINE_S)
    mended_s = time.time()
    [hit] = (await steps.over(running, one=0.0)).hits
    assert hit.struck.at_s - began_s >= 0.9 * 2.0 * pace
    assert mended_s - hit.struck.at_s >= 0.9 * PAUSE.hold_s * pace


class AtOnce(FakeCluster):
    """Each strike waits for another one."""

    def __init__(self) -> None:
        super().__init__(looks=0)
        self._both = asyncio.Barrier(2)

    async def strike(self, fault: Fault, scene: Scene) -> Struck:
        await self._both.wait()
        return await super().strike(fault, scene)


async def test_two_faults_of_a_step_strike_at_once() -> None:
    """To find a victim takes a while, and what heals meanwhile is not two at once."""
    steps = Steps(AtOnce())
    running = steps.run(step(KILL, PAUSE))
    await until(lambda: len(steps.cluster.mended) == 2, DEADLINE_S)
    assert {hit.struck.fault.kind for hit in (await steps.over(running, one=0.0)).hits} == {KILL.kind, PAUSE.kind}
