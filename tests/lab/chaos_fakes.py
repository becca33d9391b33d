"""A fake cluster and a fake workload for the chaos runner: what is struck ails until it is mended or comes back."""

import asyncio
import json
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

from oncelog.lab.chaos.schedule import VICTIM_PART, Fault, Kind, Part, why_not
from oncelog.lab.chaos.session import StartWorkload
from oncelog.lab.chaos.target import ChaosFailed, FaultMissed, Scene, Struck
from oncelog.lab.chaos.workload_link import WorkloadLink

WHOLE: Mapping[Part, int] = {Part.OWNER: 3, Part.STORAGE: 3, Part.METADATA: 2, Part.ZOOKEEPER: 3, Part.REDIS: 1}
PERFECT: Mapping[str, Any] = {
    "acked": 10,
    "stored": 10,
    "lost": 0,
    "duplicated": 0,
    "out_of_order": 0,
    "ghosts": 0,
    "holes": 0,
    "disagreements": 0,
    "stories": [],
}

#: What the clients of the workload meet.
_SEEN = {
    "steady-1": {"gaps_ms": [[420.0, 0.0]], "idle_ms": 0.0},
    "named-1": {"gaps_ms": [[900.0, 0.0]], "idle_ms": 0.0},
}


class FakeCluster:
    """misses: kinds that find nothing to strike. never_heals: kinds after which something ails for ever.
    never_mends: kinds that nobody can mend."""

    def __init__(
        self,
        *,
        misses: tuple[Kind, ...] = (),
        never_heals: tuple[Kind, ...] = (),
        never_mends: tuple[Kind, ...] = (),
        looks: int = 2,
    ) -> None:
        self._never_mends = never_mends
        self.struck: list[Struck] = []
        self.mended: list[Struck] = []
        #: kinds that ailed when another was struck: the budget of a step is its own
        self.overlapping: list[tuple[Kind, Kind]] = []
        self._misses = misses
        self._never_heals = never_heals
        self._looks = looks
        self._ails: dict[Kind, int] = {}

    async def counts(self) -> Mapping[Part, int]:
        return WHOLE

    def left_out(self) -> Mapping[Kind, str]:
        return {Kind.VOLUME_FULL: "its volumes are too large"}

    async def strike(self, fault: Fault, scene: Scene) -> Struck:
        if fault.kind in self._misses:
            raise FaultMissed("there is nothing to strike")
        assert why_not(fault.kind, WHOLE) is None
        self.overlapping += [(other, fault.kind) for other in self._ails]
        self._ails[fault.kind] = self._looks
        part = VICTIM_PART.get(fault.kind, Part.STORAGE)
        victim = fault.choose([f"{part}-{number}" for number in range(WHOLE[part])])
        self.struck.append(Struck(fault, victim, time.time()))
        return self.struck[-1]

    async def mend(self, struck: Struck) -> None:
        assert struck in self.struck
        if struck.fault.kind in self._never_mends:
            raise ChaosFailed("the node does not start")
        self.mended.append(struck)

    async def ailing(self) -> str | None:
        """Each look heals a little."""
        for kind in list(self._ails):
            self._ails[kind] -= kind not in self._never_heals
            if self._ails[kind] <= 0:
                del self._ails[kind]
        return ", ".join(self._ails) or None


class FakeWorkload:
    """Says what a real one does, and gives the verdict that it is told to give; None: it ends without one."""

    def __init__(self, link: WorkloadLink, verdict: Mapping[str, Any] | None) -> None:
        self._link = link
        self._verdict = verdict
        self._over = False

    def say(self, event: str, **facts: object) -> None:
        self._link.take(json.dumps({"event": event, "at_s": time.time(), **facts}))

    def begin(self) -> None:
        self.say("ready", topics=["t"], clients=sorted(_SEEN), left_out={"HTTP publishers": "there is no route"})
        self.say("route", topic="t", address="owner-1.x:6650", owner_epoch=1)
        phases = {"acquire": 0.0, "recover": 1.0, "load_snapshot": 2.0, "replay": 3.0, "open": 4.0}
        self.say("takeover", topic="t", owner_epoch=1, ms=4.0, replayed_entries=7, phases_ms=phases)
        self._beat()

    def _beat(self) -> None:
        if not self._over:
            self.say("beat", acked=5, steady_gap_ms_p999=9.0, clients=_SEEN)
            asyncio.get_running_loop().call_later(0.01, self._beat)

    async def end(self) -> None:
        if self._verdict is not None:
            self.say("verdict", **self._verdict)
        self._over = True

    def ended(self) -> bool:
        return self._over


def starting(verdict: Mapping[str, Any] | None = PERFECT) -> StartWorkload:
    """How the run starts a fake workload."""

    @asynccontextmanager
    async def start(link: WorkloadLink) -> AsyncIterator[FakeWorkload]:
        workload = FakeWorkload(link, verdict)
        workload.begin()
        yield workload

    return start
