"""The level of a cluster: the process version (`core.process_version`) that every process of it is known to have.

    STORED level --announce(target)--> ANNOUNCED target --every process knows it--> STORED target
                                                        --some do not--> STORED level, and they are named

Rules
- What older programs cannot read is written only at a stored level that knows it. An operator raises it, nothing else;
  until then every process can go back to a version of the stored level.
- A process that starts registers, then reads the record, and ends if it does not know the level or the announced one.
  The level is announced, then the processes are counted. So one of the two sees the other (hazard
  start-races-finalize).
- A storage node that is away counts, too: it comes back with its data. What it noted last states its version (hazard
  away-node-of-an-older-version). One that was retired or decommissioned does not come back.
- A running process that finds a level that it does not know ends.
- Each step is a compare-and-set of the record that was read, so two operators at once do no harm.

Source: CockroachDB's cluster version, and its finalization.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple


class Level(NamedTuple):
    """stored: at which the cluster acts. announced: to which it is being raised; 0: to none."""

    stored: int
    announced: int = 0


@dataclass(frozen=True, slots=True)
class KnownProcess:
    """A process that takes part, or may again. kind: "owner", "storage node" or "metadata service". address: its host,
    of a storage node with its port. away: it is not registered."""

    kind: str
    address: str
    version: int
    away: bool = False

    def __str__(self) -> str:
        return f"{self.kind} {self.address} (version {self.version}{', away' if self.away else ''})"


class WriteLevel(NamedTuple):
    """Compare-and-set of the record that was read, then read again."""

    level: Level


class CountProcesses(NamedTuple):
    """List all processes, after a sync that follows the read of the record."""


class LevelRaised(NamedTuple):
    """The target is stored."""


class LevelKept(NamedTuple):
    """behind: who does not know the target. Nothing is announced any more, unless another level is."""

    behind: tuple[KnownProcess, ...]
    announced: int = 0


FinalizeStep = WriteLevel | CountProcesses | LevelRaised | LevelKept


def after_read(level: Level, target: int) -> FinalizeStep:
    """The next step to raise a level that was read."""
    if level.stored >= target:
        return LevelRaised()
    if level.announced == target:
        return CountProcesses()
    if level.announced:
        return LevelKept((), level.announced)
    return WriteLevel(Level(level.stored, target))


def after_count(level: Level, target: int, processes: Iterable[KnownProcess]) -> tuple[WriteLevel, LevelKept | None]:
    """What is written, and the answer if the target is withdrawn. level: as read before the count."""
    behind = behind_of(processes, target)
    if behind:
        return WriteLevel(Level(level.stored)), LevelKept(behind)
    return WriteLevel(Level(target)), None


def behind_of(processes: Iterable[KnownProcess], version: int) -> tuple[KnownProcess, ...]:
    """Those of a lower version, in a fixed order."""
    found = [one for one in processes if one.version < version]
    return tuple(sorted(found, key=lambda one: (one.kind, one.address, one.version, one.away)))


def start_refusal(level: Level, version: int) -> str | None:
    """Why a process of this version does not take part; None: it does."""
    needed = max(level.stored, level.announced)
    if needed <= version:
        return None
    if level.stored > version:
        return f"this cluster has level {level.stored}, and this program knows level {version}: start a newer version"
    return (
        f"this cluster is being raised to level {level.announced}, and this program knows level {version}: start a "
        "newer version; if the level stays as it is, this one starts again"
    )
