"""A fake cluster and a fake workload for the chaos runner. A fault makes the cluster unhealthy for some checks."""

import asyncio
import json
import time
from collections.abc import AsyncIterator, Collection, Mapping
from contextlib import asynccontextmanager
from typing import Any

from oncelog_lab.chaos.session import StartWorkload
from oncelog_lab.failures import FaultMissed, LabFailed
from oncelog_lab.faults.injector import InjectedFault
from oncelog_lab.faults.kinds import VICTIM_COMPONENT, Component, Fault, FaultKind, why_not
from oncelog_lab.verdict import LogVerdict
from oncelog_lab.workload.connection import WorkloadConnection

COUNTS: Mapping[Component, int] = dict(zip(Component, (3, 3, 2, 3, 1), strict=True))
PERFECT: Mapping[str, Any] = LogVerdict(acked=10, stored=10).to_json()

#: What the clients of the workload report.
_BEAT = {
    "steady-1": {"gaps_ms": [[420.0, 0.0]], "idle_ms": 0.0},
    "named-1": {"gaps_ms": [[900.0, 0.0]], "idle_ms": 0.0},
}


class FakeCluster:
    """missing: kinds without a target. never_healthy: kinds after which the cluster stays unhealthy.
    no_recovery: kinds whose recovery fails. checks: how many checks find the cluster unhealthy after a fault."""

    def __init__(
        self,
        *,
        missing: tuple[FaultKind, ...] = (),
        never_healthy: tuple[FaultKind, ...] = (),
        no_recovery: tuple[FaultKind, ...] = (),
        checks: int = 2,
    ) -> None:
        self.injected: list[InjectedFault] = []
        self.recovered: list[InjectedFault] = []
        #: kinds that were injected while the cluster was unhealthy after another kind
        self.overlapping: list[tuple[FaultKind, FaultKind]] = []
        self._missing = missing
        self._never_healthy = never_healthy
        self._no_recovery = no_recovery
        self._checks = checks
        self._unhealthy: dict[FaultKind, int] = {}

    async def counts(self) -> Mapping[Component, int]:
        return COUNTS

    def left_out(self) -> Mapping[FaultKind, str]:
        return {FaultKind.VOLUME_FULL: "its volumes are too large"}

    async def inject(self, fault: Fault, owner_addresses: Collection[str]) -> InjectedFault:
        if fault.kind in self._missing:
            raise FaultMissed("there is no target")
        assert why_not(fault.kind, COUNTS) is None
        self.overlapping += [(other, fault.kind) for other in self._unhealthy]
        self._unhealthy[fault.kind] = self._checks
        component = VICTIM_COMPONENT.get(fault.kind, Component.STORAGE)
        victim = fault.choose([f"{component}-{number}" for number in range(COUNTS[component])])
        self.injected.append(InjectedFault(fault, victim, time.time()))
        return self.injected[-1]

    async def recover(self, injected: InjectedFault) -> None:
        assert injected in self.injected
        if injected.fault.kind in self._no_recovery:
            raise LabFailed("the node does not start")
        self.recovered.append(injected)

    async def unhealthy(self) -> str | None:
        for kind in list(self._unhealthy):
            self._unhealthy[kind] -= kind not in self._never_healthy
            if self._unhealthy[kind] <= 0:
                del self._unhealthy[kind]
        return ", ".join(self._unhealthy) or None


class FakeWorkload:
    """Emits the events of a workload, and this verdict. None: it ends without a verdict."""

    def __init__(self, link: WorkloadConnection, verdict: Mapping[str, Any] | None) -> None:
        self._link = link
        self._verdict = verdict
        self._ended = False

    def emit(self, event: str, **facts: object) -> None:
        self._link.take(json.dumps({"event": event, "at_s": time.time(), **facts}))

    def begin(self) -> None:
        self.emit("ready", topics=["t"], clients=sorted(_BEAT), left_out={"HTTP publishers": "there is no route"})
        self.emit("route", topic="t", address="owner-1.x:6650", owner_epoch=1)
        phases = {"acquire": 0.0, "recover": 1.0, "load_snapshot": 2.0, "replay": 3.0, "open": 4.0}
        self.emit("takeover", topic="t", owner_epoch=1, ms=4.0, replayed_entries=7, phases_ms=phases)
        self._beat()

    def _beat(self) -> None:
        if not self._ended:
            self.emit("beat", acked=5, steady_gap_ms_p999=9.0, clients=_BEAT)
            asyncio.get_running_loop().call_later(0.01, self._beat)

    async def end(self) -> None:
        if self._verdict is not None:
            self.emit("verdict", **self._verdict)
        self._ended = True

    def ended(self) -> bool:
        return self._ended


def starting(verdict: Mapping[str, Any] | None = PERFECT) -> StartWorkload:
    """How the run starts a fake workload."""

    @asynccontextmanager
    async def start(link: WorkloadConnection) -> AsyncIterator[FakeWorkload]:
        workload = FakeWorkload(link, verdict)
        workload.begin()
        yield workload

    return start
