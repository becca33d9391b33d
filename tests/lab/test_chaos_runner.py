"""The chaos run against a fake cluster: each planned fault is injected and survived, or the run fails."""

import asyncio
import json
import re
import time
from collections.abc import Collection, Mapping
from typing import Any

import pytest

from oncelog_lab.acknowledgements import AckPause, AckPauses
from oncelog_lab.chaos.report import ChaosReport
from oncelog_lab.chaos.runner import FaultResults, FaultRunner
from oncelog_lab.chaos.schedule import FaultStep, make_schedule
from oncelog_lab.chaos.session import ChaosSettings, Timeline, run_chaos
from oncelog_lab.failures import LabFailed
from oncelog_lab.faults.injector import InjectedFault
from oncelog_lab.faults.kinds import DEFAULT_KINDS, Fault, FaultKind
from oncelog_lab.verdict import FAULTS
from oncelog_lab.workload.connection import WorkloadConnection
from tests.cluster.until import until
from tests.lab.chaos_fakes import COUNTS, PERFECT, FakeCluster, starting

SEED = 4
DEADLINE_S = 30.0
PAUSE = Fault(FaultKind.OWNER_PAUSE, 0, hold_s=5.0)
KILL = Fault(FaultKind.STORAGE_KILL, 0)
OWNER_KILL = (FaultKind.OWNER_KILL,)


async def chaos(
    cluster: FakeCluster,
    *,
    verdict: Mapping[str, Any] | None = PERFECT,
    kinds: tuple[FaultKind, ...] | None = None,
    healthy_deadline_s: float = 20.0,
    seconds: float = 1.0,
    lines: list[str] | None = None,
) -> ChaosReport:
    settings = ChaosSettings(SEED, seconds, kinds, pace=0.0, healthy_deadline_s=healthy_deadline_s)
    timeline = Timeline((lines if lines is not None else []).append)
    return await run_chaos(settings, cluster, starting(verdict), timeline)


@pytest.mark.asyncio
async def test_run_carries_out_the_schedule() -> None:
    """In order, with one recovery per fault. No step starts before the cluster is healthy after the last one."""
    cluster, lines = FakeCluster(), list[str]()
    report = await chaos(cluster, seconds=90.0, lines=lines)
    kinds = [kind for kind in DEFAULT_KINDS if kind is not FaultKind.VOLUME_FULL]
    steps = make_schedule(SEED, seconds=90.0, kinds=kinds, counts=COUNTS)
    assert [each.fault for each in cluster.injected] == [fault for step in steps for fault in step.faults]
    assert sorted(each.at_s for each in cluster.recovered) == [each.at_s for each in cluster.injected]
    pairs = {tuple(fault.kind for fault in step.faults) for step in steps if len(step.faults) == 2}
    assert set(cluster.overlapping) <= pairs
    assert report.perfect
    text = "\n".join(lines)
    for line in (
        "skipped volume-full: its volumes are too large",
        "skipped HTTP publishers",
        "epoch 1",
        "recover 1 load_snapshot 2 replay 3",
    ):
        assert line in text


@pytest.mark.asyncio
async def test_report_has_the_figures_of_each_kind() -> None:
    """In the JSON output."""
    shown = (await chaos(FakeCluster(), seconds=40.0, kinds=(*OWNER_KILL, FaultKind.STORAGE_KILL))).to_json()
    assert json.loads(json.dumps(shown)) == shown
    assert [shown[name] for name in ("ok", "acked", "lost", "duplicated", "out_of_order")] == [True, 10, 0, 0, 0]
    faults = shown["faults"]
    assert isinstance(faults, list)
    assert [fault["kind"] for fault in faults] == ["owner-kill", "storage-kill"]
    for fault in faults:
        assert fault["count"] == fault["planned"] > 0
        assert fault["client_gap_ms_p50"] == fault["client_gap_ms_max"] == 420.0
        assert fault["opening_gap_ms_max"] == 900.0
    assert shown["quiet_gap_ms_p999"] == 9.0


@pytest.mark.asyncio
async def test_missed_fault_fails_the_run() -> None:
    """A run without its faults proves nothing."""
    cluster = FakeCluster(missing=(FaultKind.STORAGE_KILL,))
    report = await chaos(cluster, seconds=40.0, kinds=(*OWNER_KILL, FaultKind.STORAGE_KILL))
    assert not report.perfect
    assert "storage-kill: there is no target" in report.misses[0]
    assert [figures.count for figures in report.figures if figures.kind is FaultKind.STORAGE_KILL] == [0]


@pytest.mark.asyncio
@pytest.mark.parametrize(
    ("cluster", "reason"),
    [
        (FakeCluster(no_recovery=OWNER_KILL), r"could not recover: owner-kill of .*: the node does not start"),
        (FakeCluster(never_healthy=OWNER_KILL), r"not healthy within 0 s: owner-kill"),
    ],
)
async def test_unhealthy_cluster_ends_the_faults_and_not_the_run(cluster: FakeCluster, reason: str) -> None:
    """The verdict is still given. The run has failed, and the remaining faults count as missed."""
    report = await chaos(cluster, seconds=40.0, kinds=OWNER_KILL, healthy_deadline_s=0.3)
    assert len(cluster.injected) == 1
    assert report.unhealthy is not None
    assert re.search(reason, report.unhealthy)
    assert report.misses
    assert (report.perfect, report.verdict["acked"]) == (False, 10)


@pytest.mark.asyncio
@pytest.mark.parametrize("change", [*({name: 1} for name in FAULTS), {"acked": 0}])
async def test_each_count_of_the_verdict_fails_the_run(change: dict[str, int]) -> None:
    """One message is enough. So does a run without any acknowledged message."""
    assert not (await chaos(FakeCluster(), kinds=OWNER_KILL, verdict={**PERFECT, **change})).perfect


@pytest.mark.asyncio
async def test_workload_without_a_verdict_is_an_error() -> None:
    """It must not look like a good verdict."""
    with pytest.raises(LabFailed, match="without a verdict"):
        await chaos(FakeCluster(), kinds=OWNER_KILL, verdict=None)


@pytest.mark.asyncio
async def test_impossible_kind_is_refused_if_named() -> None:
    """Left out silently, it would look like a fault that was survived."""
    with pytest.raises(LabFailed, match="volume-full is not possible here: its volumes"):
        await chaos(FakeCluster(), kinds=(FaultKind.VOLUME_FULL,))


class Steps:
    """A runner on a cluster that is healthy at once, and the beats of its workload."""

    def __init__(self, cluster: FakeCluster | None = None) -> None:
        self.cluster = cluster or FakeCluster(checks=0)
        self.link = WorkloadConnection(lambda _: None)
        self.runner = FaultRunner(self.cluster, self.link, lambda _: None, healthy_deadline_s=DEADLINE_S)

    def run(self, *faults: Fault, pace: float = 0.0, pause_s: float = 0.0) -> "asyncio.Task[FaultResults]":
        return asyncio.create_task(self.runner.run([FaultStep(1, pause_s, faults)], pace=pace))

    def beat(self, **clients: float) -> float:
        """clients: idle_ms of each. Returns the time of the beat."""
        at_s = time.time()
        shown = {name: {"gaps_ms": [], "idle_ms": idle_ms} for name, idle_ms in clients.items()}
        self.link.take(line("beat", at_s, acked=1, steady_gap_ms_p999=None, clients=shown))
        return at_s

    async def end(self, running: "asyncio.Task[FaultResults]", **clients: float) -> FaultResults:
        """Beat until the run ends."""
        await until(lambda: running.done() or not self.beat(**clients), DEADLINE_S)
        return await running


@pytest.mark.asyncio
async def test_step_ends_when_every_client_has_an_acknowledgement() -> None:
    """It is not enough that all members serve."""
    steps = Steps()
    running = steps.run(KILL)
    await until(lambda: steps.cluster.recovered, DEADLINE_S)
    steps.beat(one=0.0, other=60_000.0)
    healthy_s = steps.beat(one=0.0, other=0.0)
    [hit] = (await steps.end(running, one=0.0, other=0.0)).hits
    assert hit.healthy_at_s is not None
    assert hit.healthy_at_s >= healthy_s


@pytest.mark.asyncio
async def test_acknowledgement_before_the_recovery_does_not_count() -> None:
    """The topic may have a new owner while the old one is stopped, and the next fault would meet the stopped one."""
    steps = Steps()
    running = steps.run(PAUSE, pace=0.02)
    await until(lambda: steps.cluster.injected, DEADLINE_S)
    steps.beat(one=0.0)
    await until(lambda: steps.cluster.recovered, DEADLINE_S)
    healthy_s = steps.beat(one=0.0)
    [hit] = (await steps.end(running, one=0.0)).hits
    assert hit.healthy_at_s is not None
    assert hit.healthy_at_s >= healthy_s


@pytest.mark.asyncio
async def test_interrupted_run_recovers_its_faults() -> None:
    """Ctrl-C must not leave a stopped process or a cordoned node."""
    steps = Steps()
    running = steps.run(PAUSE, pace=100.0)
    await until(lambda: steps.cluster.injected, DEADLINE_S)
    running.cancel()
    await asyncio.wait([running])
    assert steps.cluster.recovered == steps.cluster.injected


@pytest.mark.asyncio
async def test_fault_lasts_as_long_as_planned() -> None:
    """Multiplied by the pace of the run, like the pause before it."""
    steps = Steps()
    began_s, pace = time.time(), 0.05
    running = steps.run(PAUSE, pace=pace, pause_s=2.0)
    await until(lambda: steps.cluster.recovered, DEADLINE_S)
    recovered_s = time.time()
    [hit] = (await steps.end(running, one=0.0)).hits
    assert hit.injected.at_s - began_s >= 0.9 * 2.0 * pace
    assert recovered_s - hit.injected.at_s >= 0.9 * PAUSE.hold_s * pace


class AtOnce(FakeCluster):
    """Each injection waits for another one."""

    def __init__(self) -> None:
        super().__init__(checks=0)
        self._both = asyncio.Barrier(2)

    async def inject(self, fault: Fault, owner_addresses: Collection[str]) -> InjectedFault:
        await self._both.wait()
        return await super().inject(fault, owner_addresses)


@pytest.mark.asyncio
async def test_two_faults_of_a_step_are_injected_at_once() -> None:
    """The search for a victim takes a while, and the first fault might be over by then."""
    steps = Steps(AtOnce())
    running = steps.run(KILL, PAUSE)
    await until(lambda: len(steps.cluster.recovered) == 2, DEADLINE_S)
    assert {hit.injected.fault.kind for hit in (await steps.end(running, one=0.0)).hits} == {KILL.kind, PAUSE.kind}


def test_percentile_of_steady_clients_excludes_openings() -> None:
    """The second longest of two thousand pauses. The pauses of other clients do not count either."""
    now_s = [0.0]
    pauses = AckPauses(lambda: now_s[0])
    assert pauses.steady_gap_ms_p999 is None
    for name, lengths_s in (("steady-1", [9.0, *[0.02] * 1998, 0.3, 0.5]), ("named-1", [5.0])):
        pauses.begins(name)
        for length_s in lengths_s:
            now_s[0] += length_s
            pauses.acknowledged(name)
    assert pauses.steady_gap_ms_p999 == pytest.approx(300.0)


def test_each_pause_is_reported_once() -> None:
    """With the time since its end, so that a pause before a fault does not count for the fault."""
    now_s = [0.0]
    pauses = AckPauses(lambda: now_s[0])
    pauses.begins("named-1")
    for at_s in (0.3, 0.4):
        now_s[0] = at_s
        pauses.acknowledged("named-1")
    now_s[0] = 0.5
    assert pauses.take() == {"named-1": {"gaps_ms": [[300.0, 200.0], [100.0, 100.0]], "idle_ms": 100.0}}
    assert pauses.take() == {"named-1": {"gaps_ms": [], "idle_ms": 100.0}}


def line(event: str, at_s: float, **facts: object) -> str:
    return json.dumps({"event": event, "at_s": at_s, **facts})


def test_times_of_the_workload_are_converted_to_the_local_clock() -> None:
    """The clock of the workload is 100 s ahead, and its first line was delayed."""
    now_s = [50.0]
    link = WorkloadConnection(lambda _: None, clock=lambda: now_s[0])
    link.take(line("ready", 148.0, topics=[], clients=[], left_out={}))
    now_s[0] = 51.0
    clients = {
        "named-1": {"gaps_ms": [[300.0, 800.0], [250.0, 500.0]], "idle_ms": 500.0},
        "named-2": {"gaps_ms": [], "idle_ms": 9000.0},
    }
    link.take(line("beat", 151.0, acked=3, steady_gap_ms_p999=None, clients=clients))
    assert link.pauses == [AckPause("named-1", 300.0, 50.2), AckPause("named-1", 250.0, 50.5)]
    assert link.beat.at_s == 51.0
    assert link.silent(50.2) == "no acknowledgement yet: named-2"
    assert link.silent(50.7) == "no acknowledgement yet: named-1, named-2"
    assert link.silent(51.0) == "no beat of the workload since"
    now_s[0] = 60.0  # a delayed line does not shift its own time
    link.take(line("beat", 152.0, acked=4, steady_gap_ms_p999=7.5, clients=clients))
    assert (link.beat.at_s, link.beat.steady_gap_ms_p999) == (52.0, 7.5)


def test_repeated_lines_of_the_workload_are_dropped() -> None:
    """The log of a pod is followed again from its start. Lines that are not events are passed on."""
    events: list[dict[str, Any]] = []
    link = WorkloadConnection(events.append)
    lines = [line("takeover", 1.0 + n, topic="t", owner_epoch=n) for n in range(3)]
    for each in (*lines, *lines, "Traceback: a bug\n"):
        link.take(each)
    assert [event["event"] for event in events] == ["takeover"] * 3 + ["output"]
    assert len(link.takeovers) == 3
