"""The order of the random faults. Pure: a seed repeats it.

Every kind comes once before any kind comes again, in an order that the seed shuffles. How long a fault takes depends on
the machine, so two runs of the same time may end after a different number of faults.
"""

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum


class FaultKind(StrEnum):
    KILL = "kill"
    KILL_AT_STEP = "kill at a step"
    PAUSE = "pause"
    POWER_CUT = "power cut"
    POWER_CUT_OF_ALL = "power cut of all nodes"
    DISK_ERROR = "disk error"
    FULL_DISK = "full disk"
    NO_DESCRIPTORS = "no descriptors"
    FLIPPED_BITS = "flipped bits"
    WIPED_DIRECTORY = "wiped directory"


#: These destroy copies, so they wait until the node may be replaced.
DESTRUCTIVE = frozenset({FaultKind.FLIPPED_BITS, FaultKind.WIPED_DIRECTORY})
#: Longer than the timeout of an add; some pauses are shorter.
_HOLD_S = (0.5, 7.0)
#: A longer pause ends the node's session with ZooKeeper.
_SESSION_S = 2.0
_ERRORS = (("write", "EIO"), ("sync", "EIO"), ("sync_directory", "EIO"), ("rename", "EIO"), ("write", "ENOSPC"))
_STEPS = ("create", "write", "allocate", "sync", "sync_directory", "rename", "unlink")
#: The journal makes these steps all the time; the others only when a segment is full.
_FREQUENT = ("write", "sync")
_SKIPPED_MAX = 40


@dataclass(frozen=True, slots=True)
class PlannedFault:
    """node: number of the victim, from 0. seed: for what else the fault chooses. also: roles of processes that are
    killed at the same time. step, error, kill, skip: of the rule for the interposed disk; empty without a rule."""

    number: int
    kind: FaultKind
    node: int
    seed: int
    hold_s: float
    also: tuple[str, ...] = ()
    step: str = ""
    error: str = ""
    kill: str = ""
    skip: int = 0

    @property
    def ends_session(self) -> bool:
        """Whether a pause lasts longer than the node's session."""
        return self.hold_s > _SESSION_S

    @property
    def name(self) -> str:
        return f"{self.number:04}-{self.kind.replace(' ', '-')}"

    def text(self) -> str:
        """One line for people."""
        rule = " ".join(filter(None, (self.kill, self.step, self.error, f"after {self.skip}" if self.skip else "")))
        parts = [
            f"{self.number}: {self.kind} of storage-{self.node + 1}",
            rule,
            *(f"and a kill of {each}" for each in self.also),
        ]
        return " ".join(filter(None, parts))


def plan_faults(seed: int, *, nodes: int, kinds: Sequence[FaultKind] = tuple(FaultKind)) -> Iterator[PlannedFault]:
    """Without end."""
    # A text as seed gives the same numbers in every interpreter.
    chance = random.Random(f"fault proof {seed}")
    number = 0
    while True:
        for kind in chance.sample(kinds, len(kinds)):
            number += 1
            step = error = kill = ""
            skip = 0
            if kind is FaultKind.KILL_AT_STEP:
                step, kill = chance.choice(_STEPS), chance.choice(("before", "after"))
            elif kind is FaultKind.DISK_ERROR:
                step, error = chance.choice(_ERRORS)
            elif kind is FaultKind.FULL_DISK:
                step, error = "allocate", "ENOSPC"
            if step in _FREQUENT:
                skip = chance.randrange(_SKIPPED_MAX)
            also = tuple(role for role in ("owner", "metadata") if chance.random() < 0.2)
            hold_s = round(chance.uniform(*_HOLD_S), 1)
            yield PlannedFault(
                number,
                kind,
                chance.randrange(nodes),
                chance.randrange(1, 1 << 16),
                hold_s,
                also,
                step,
                error,
                kill,
                skip,
            )
