"""One chaos run: the workload starts, the faults of the schedule are injected, and the workload gives the verdict."""

import logging
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from oncelog_lab.chaos.report import ChaosReport, make_report, pauses_text
from oncelog_lab.chaos.runner import HEALTHY_DEADLINE_S, FaultRunner, Tell
from oncelog_lab.chaos.schedule import QUIET_S, FaultStep, make_schedule
from oncelog_lab.cluster import standalone_cluster
from oncelog_lab.failures import LabFailed
from oncelog_lab.faults.injector import FaultInjector
from oncelog_lab.faults.kinds import DEFAULT_KINDS, Component, FaultKind, why_not
from oncelog_lab.faults.kubernetes_injector import KubernetesFaultInjector, NodeCommands
from oncelog_lab.faults.process_injector import ProcessFaultInjector
from oncelog_lab.kubernetes.kubectl import Kubectl
from oncelog_lab.waiting import until
from oncelog_lab.workload.connection import RunningWorkload, WorkloadConnection
from oncelog_lab.workload.pod import PodWorkload
from oncelog_lab.workload.process import ProcessWorkload

logger = logging.getLogger(__name__)

_START_DEADLINE_S = 180.0
_VERDICT_DEADLINE_S = 600.0

StartWorkload = Callable[[WorkloadConnection], AbstractAsyncContextManager[RunningWorkload]]


@dataclass(frozen=True, slots=True)
class ChaosSettings:
    """kinds: None: all that the cluster survives and that can be injected. pace: see `FaultRunner.run`.

    quiet_s: how long the clients run before the first fault, as a baseline for their pauses.
    """

    seed: int
    seconds: float
    kinds: tuple[FaultKind, ...] | None = None
    pace: float = 1.0
    quiet_s: float = QUIET_S
    healthy_deadline_s: float = HEALTHY_DEADLINE_S


class Timeline:
    """Prints what happens, with the seconds since the start."""

    def __init__(self, tell: Tell) -> None:
        self._tell = tell
        self._began_s = time.time()

    def tell(self, sentence: str, at_s: float | None = None) -> None:
        elapsed_s = (time.time() if at_s is None else at_s) - self._began_s
        self._tell(f"{elapsed_s:7.1f} s  {sentence}")

    def on_event(self, event: dict[str, Any]) -> None:
        """An event of the workload."""
        match event["event"]:
            case "ready":
                self.tell(f"workload: {', '.join(event['clients'])} on {', '.join(event['topics'])}")
                for what, why in event["left_out"].items():
                    self.tell(f"skipped {what}: {why}")
            case "takeover":
                phases = " ".join(f"{phase} {ms:.0f}" for phase, ms in event["phases_ms"].items() if phase != "acquire")
                self.tell(
                    f"takeover of {event['topic']} by epoch {event['owner_epoch']}: {phases} ms, "
                    f"{event['replayed_entries']} entries replayed"
                )
            case "error":
                self.tell(f"{event['client']}: {event['error']}")
            case "checking":
                self.tell(f"reading everything back: {event['acked']:,} messages acknowledged")
            case "output":
                self.tell(f"workload: {event['text']}")


def choose_kinds(
    wanted: Sequence[FaultKind] | None, counts: Mapping[Component, int], left_out: Mapping[FaultKind, str], tell: Tell
) -> tuple[FaultKind, ...]:
    """The kinds that are possible. Raises LabFailed for an impossible kind that the user named."""
    chosen = []
    for kind in DEFAULT_KINDS if wanted is None else wanted:
        reason = why_not(kind, counts) or left_out.get(kind)
        if reason is None:
            chosen.append(kind)
        elif wanted is None:
            tell(f"skipped {kind}: {reason}")
        else:
            raise LabFailed(f"{kind} is not possible here: {reason}")
    return tuple(chosen)


def steps_of(
    settings: ChaosSettings, counts: Mapping[Component, int], left_out: Mapping[FaultKind, str], tell: Tell
) -> tuple[FaultStep, ...]:
    """The schedule for a cluster of this size. Raises LabFailed, InvalidArgument."""
    kinds = choose_kinds(settings.kinds, counts, left_out, tell)
    return make_schedule(settings.seed, seconds=settings.seconds, kinds=kinds, counts=counts)


async def run_chaos(
    settings: ChaosSettings, injector: FaultInjector, start: StartWorkload, timeline: Timeline
) -> ChaosReport:
    """The whole run. Raises LabFailed if it cannot start, or has no verdict."""
    counts = await injector.counts()
    timeline.tell("cluster: " + ", ".join(f"{count} {component}" for component, count in counts.items()))
    steps = steps_of(settings, counts, injector.left_out(), timeline.tell)
    link = WorkloadConnection(timeline.on_event)
    async with start(link) as workload:
        await until(lambda: bool(link.ready) or workload.ended(), _START_DEADLINE_S, "the start of the workload")
        from_s = time.time() + settings.quiet_s * settings.pace
        what = "an acknowledgement for every client"
        await until(lambda: workload.ended() or not link.silent(from_s), _START_DEADLINE_S, what)
        if workload.ended():
            raise LabFailed("the workload ended before the first fault; see its output above")
        quiet_gap_ms_p999 = link.beat.steady_gap_ms_p999
        runner = FaultRunner(injector, link, timeline.tell, healthy_deadline_s=settings.healthy_deadline_s)
        results = await runner.run(steps, pace=settings.pace)
        await workload.end()
        await until(lambda: bool(link.verdict) or workload.ended(), _VERDICT_DEADLINE_S, "the verdict")
    if link.verdict is None:
        raise LabFailed("the workload ended without a verdict; see its output above")
    for hit in results.hits:
        sentence = f"{hit.injected.fault.kind} of {hit.injected.victim}: pauses {pauses_text(hit, link.pauses)}"
        timeline.tell(sentence, hit.injected.at_s)
    return make_report(settings.seed, steps, results, link.pauses, link.verdict, quiet_gap_ms_p999)


@asynccontextmanager
async def standalone_run(data: Path | None, seed: int) -> AsyncIterator[tuple[FaultInjector, StartWorkload]]:
    """A standalone cluster, ended with the run. data: its directory; None: a temporary one."""
    with tempfile.TemporaryDirectory(prefix="oncelog-chaos-") as folder:
        directory = (data or Path(folder)) / "cluster"
        directory.mkdir(parents=True, exist_ok=True)
        async with standalone_cluster(directory, metadata=2) as cluster:
            arguments = ("--url", cluster.url, "--admin-url", cluster.admin_url, "--seed", str(seed))
            yield ProcessFaultInjector(cluster), lambda link: ProcessWorkload.running(arguments, link)


@asynccontextmanager
async def kubernetes_run(
    namespace: str, release: str, seed: int, commands: NodeCommands
) -> AsyncIterator[tuple[FaultInjector, StartWorkload]]:
    """A release of the current kube context."""
    async with Kubectl.connected(namespace) as kubectl:
        nodes: list[str] = []
        injector = KubernetesFaultInjector(kubectl, release, commands, lambda: nodes[-1] if nodes else "")
        arguments = ("--seed", str(seed))
        try:
            yield injector, lambda link: PodWorkload.running(kubectl, release, arguments, link, nodes)
        finally:
            try:
                await injector.close()
            except LabFailed as error:  # the verdict is more important than what is left over
                logger.warning("could not delete the pods and Services of this run, delete them by hand: %s", error)
