"""One chaos run from its beginning to its verdict: the workload begins, the schedule strikes, the workload judges."""

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import Any

from oncelog.lab.chaos.local_workload import RunningWorkload
from oncelog.lab.chaos.report import Report, make_report, told_pauses
from oncelog.lab.chaos.runner import HEAL_DEADLINE_S, Faults, Runner, Tell
from oncelog.lab.chaos.schedule import BEGIN_QUIET_S, DEFAULT_KINDS, Kind, Part, Step, make_schedule, why_not
from oncelog.lab.chaos.target import ChaosFailed, Target
from oncelog.lab.chaos.workload_link import WorkloadLink

_BEGIN_DEADLINE_S = 180.0
_VERDICT_DEADLINE_S = 600.0

StartWorkload = Callable[[WorkloadLink], AbstractAsyncContextManager[RunningWorkload]]


@dataclass(frozen=True, slots=True)
class RunSettings:
    """kinds: None: all that the cluster can stand and the target has means for. pace: see `Runner.run`.
    quiet_s: how long the clients run in peace before the schedule begins: what they see then is what the rest is
    measured against.
    """

    seed: int
    seconds: float
    kinds: tuple[Kind, ...] | None = None
    pace: float = 1.0
    quiet_s: float = BEGIN_QUIET_S
    heal_deadline_s: float = HEAL_DEADLINE_S


class Timeline:
    """What happens, with its time since the beginning."""

    def __init__(self, tell: Tell) -> None:
        self._tell = tell
        self._began_s = time.time()

    def tell(self, sentence: str, at_s: float | None = None) -> None:
        elapsed_s = (time.time() if at_s is None else at_s) - self._began_s
        self._tell(f"{elapsed_s:7.1f} s  {sentence}")

    def heard(self, said: dict[str, Any]) -> None:
        """An event of the workload."""
        match said["event"]:
            case "ready":
                self.tell(f"workload: {', '.join(said['clients'])} on {', '.join(said['topics'])}")
                for what, why in said["left_out"].items():
                    self.tell(f"left out: {what}: {why}")
            case "takeover":
                phases = " ".join(f"{phase} {ms:.0f}" for phase, ms in said["phases_ms"].items() if phase != "acquire")
                self.tell(
                    f"takeover of {said['topic']} by epoch {said['owner_epoch']}: {phases} ms, "
                    f"{said['replayed_entries']} entries replayed"
                )
            case "trouble":
                self.tell(f"{said['client']}: {said['error']}")
            case "checking":
                self.tell(f"reading everything back: {said['acked']:,} messages acknowledged")
            case "said":
                self.tell(f"workload said: {said['text']}")


def choose_kinds(
    wanted: Sequence[Kind] | None, counts: Mapping[Part, int], no_means: Mapping[Kind, str], tell: Tell
) -> tuple[Kind, ...]:
    """What is asked for and possible. What is not possible is said, and is an error where it was asked for by name.

    Raises ChaosFailed.
    """
    chosen = []
    for kind in DEFAULT_KINDS if wanted is None else wanted:
        reason = why_not(kind, counts) or no_means.get(kind)
        if reason is None:
            chosen.append(kind)
        elif wanted is None:
            tell(f"left out: {kind}: {reason}")
        else:
            raise ChaosFailed(f"{kind} is not possible here: {reason}")
    return tuple(chosen)


async def run_chaos(settings: RunSettings, target: Target, start: StartWorkload, timeline: Timeline) -> Report:
    """The whole run. Raises ChaosFailed: it could not begin, or there is no verdict."""
    counts = await target.counts()
    timeline.tell("cluster: " + ", ".join(f"{count} {part}" for part, count in counts.items()))
    kinds = choose_kinds(settings.kinds, counts, target.left_out(), timeline.tell)
    steps = make_schedule(settings.seed, seconds=settings.seconds, kinds=kinds, counts=counts)
    link = WorkloadLink(timeline.heard)
    async with start(link) as workload:
        await link.until(lambda: bool(link.ready) or workload.ended(), _BEGIN_DEADLINE_S, "the workload begins")
        from_s = time.time() + settings.quiet_s * settings.pace
        quiet = "every client has an acknowledgement"
        await link.until(lambda: workload.ended() or not link.silent(from_s), _BEGIN_DEADLINE_S, quiet)
        if workload.ended():
            raise ChaosFailed("the workload has ended before it began; what it said is above")
        quiet_gap_ms_p999 = link.beat.steady_gap_ms_p999
        runner = Runner(target, link, timeline.tell, heal_deadline_s=settings.heal_deadline_s)
        faults = await runner.run(steps, pace=settings.pace)
        await workload.end()
        await link.until(lambda: bool(link.verdict) or workload.ended(), _VERDICT_DEADLINE_S, "the verdict")
    if link.verdict is None:
        raise ChaosFailed("the workload has ended without a verdict; what it said is above")
    _tell_pauses(faults, link, timeline)
    return make_report(settings.seed, steps, faults, link.pauses, link.verdict, quiet_gap_ms_p999)


def _tell_pauses(faults: Faults, link: WorkloadLink, timeline: Timeline) -> None:
    for hit in faults.hits:
        struck = hit.struck
        timeline.tell(f"{struck.fault.kind} of {struck.victim}: pauses {told_pauses(hit, link.pauses)}", struck.at_s)


def steps_of(settings: RunSettings, counts: Mapping[Part, int], no_means: Mapping[Kind, str]) -> tuple[Step, ...]:
    """What a run with these settings would do to such a cluster. Raises ChaosFailed, InvalidArgument."""
    kinds = choose_kinds(settings.kinds, counts, no_means, lambda _: None)
    return make_schedule(settings.seed, seconds=settings.seconds, kinds=kinds, counts=counts)
