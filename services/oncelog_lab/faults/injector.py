"""The interface of a fault injector: one drives processes of this machine, one a release in Kubernetes."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Protocol

from oncelog_lab.faults.kinds import Component, Fault, FaultKind


@dataclass(frozen=True, slots=True)
class InjectedFault:
    """A fault that took effect. victim: its name for people. detail: what the injector needs for the recovery."""

    fault: Fault
    victim: str
    at_s: float
    detail: Mapping[str, str] = field(default_factory=dict)


class FaultInjector(Protocol):
    """A running cluster that faults are injected into."""

    async def counts(self) -> Mapping[Component, int]:
        """The number of members of each component. Raises LabFailed if there is no such cluster."""

    def left_out(self) -> Mapping[FaultKind, str]:
        """The kinds that cannot be injected here, and why."""

    async def inject(self, fault: Fault, owner_addresses: Collection[str]) -> InjectedFault:
        """Inject the fault, and return when it took effect. Raises FaultMissed.

        owner_addresses: host:port of the owners of the workload's topics. A fault of an owner takes one of these.
        """

    async def recover(self, injected: InjectedFault) -> None:
        """End the fault, if it lasts. Called once for each injected fault. Raises LabFailed."""

    async def unhealthy(self) -> str | None:
        """What differs from the cluster before the faults. None if all members serve."""
