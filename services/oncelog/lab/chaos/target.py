"""What the runner strikes: a cluster behind a small face, so that the same run drives pods, processes or a fake."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

from oncelog.core.errors import Fatal
from oncelog.lab.chaos.schedule import Fault, Kind, Part


class ChaosFailed(Fatal):
    """The run cannot go on, or has no verdict; the message says what did not work and what to do."""


class FaultMissed(Fatal):
    """A fault found nothing to strike, or what it struck did not feel it."""


@dataclass(frozen=True, slots=True)
class Scene:
    """What the workload tells of the cluster at this moment. owner_addresses: of the topics' owners, host:port."""

    owner_addresses: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Struck:
    """A fault that hit. victim: as people know it. detail: what the target needs to mend it."""

    fault: Fault
    victim: str
    at_s: float
    detail: Mapping[str, str] = field(default_factory=dict)


class Target(Protocol):
    """A running cluster."""

    async def counts(self) -> Mapping[Part, int]:
        """Members of each part that belong to it. Raises ChaosFailed: there is no such cluster."""

    def left_out(self) -> Mapping[Kind, str]:
        """Kinds that this target has no means for, and why."""

    async def strike(self, fault: Fault, scene: Scene) -> Struck:
        """Do it. Raises FaultMissed."""

    async def mend(self, struck: Struck) -> None:
        """End what lasts: let go on, put back, start again. Called once for every fault that hit."""

    async def ailing(self) -> str | None:
        """What is not as it was before the faults; None: all members serve."""
