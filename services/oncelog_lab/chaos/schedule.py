"""The schedule of a chaos run: which faults, in which order, with which pauses. Pure: a seed and options repeat it.

A fault has a kind and a `pick`, a number that chooses among the candidates at the time of the fault. Every kind comes
once before any kind comes again, in an order shuffled by the seed. A step is one fault, or two at once where every
quorum survives both. The next step starts when the cluster is healthy again, however long that takes. So a slow
machine changes the times, never the schedule.
"""

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from oncelog.core.errors import InvalidArgument
from oncelog_lab.faults.kinds import Component, Fault, FaultKind, fits, why_not

#: Before the first step: enough for every client to connect. A meaningful p99.9 needs a minute.
QUIET_S = 15.0
_PAIR_PROBABILITY = 0.3
_PAUSE_S_MIN, _PAUSE_S_MAX = 2.0, 6.0
_PICKS = 1 << 16
#: Expected seconds from the fault, without its hold, until the cluster is healthy again.
_NOMINAL_S: Mapping[FaultKind, float] = {
    FaultKind.ZOOKEEPER_KILL: 10,
    FaultKind.OWNER_PAUSE: 9,
    FaultKind.STORAGE_PAUSE: 8,
    FaultKind.NODE_DRAIN: 24,
    FaultKind.NODE_CUT: 36,
    FaultKind.NODE_POWER_LOSS: 32,
    FaultKind.VOLUME_FULL: 9,
    FaultKind.ROLLOUT: 20,
    FaultKind.STORAGE_LOSS: 40,
    FaultKind.BIT_ROT: 30,
}
_NOMINAL_OTHER_S = 6.0
#: (least, most) seconds of a fault that lasts.
_HOLD_S: Mapping[FaultKind, tuple[float, float]] = {
    # A session lasts 6 s: some pauses end before that, others after another owner has taken over.
    FaultKind.OWNER_PAUSE: (1.0, 12.0),
    FaultKind.STORAGE_PAUSE: (1.0, 10.0),
    FaultKind.NODE_DRAIN: (3.0, 10.0),
    FaultKind.NODE_CUT: (10.0, 30.0),
    FaultKind.NODE_POWER_LOSS: (5.0, 20.0),
    FaultKind.VOLUME_FULL: (4.0, 10.0),
}


@dataclass(frozen=True, slots=True)
class FaultStep:
    """One fault, or two at once. pause_s: time without faults before the step."""

    number: int
    pause_s: float
    faults: tuple[Fault, ...]

    @property
    def nominal_s(self) -> float:
        """Expected seconds from the start of its pause until the cluster is healthy again."""
        return self.pause_s + max(fault.hold_s + _nominal_s(fault.kind) for fault in self.faults)


def make_schedule(
    seed: int, *, seconds: float, kinds: Sequence[FaultKind], counts: Mapping[Component, int]
) -> tuple[FaultStep, ...]:
    """Steps for about so many seconds, at least one. counts: members of each component.

    Raises InvalidArgument if no kind is given, or if the cluster does not survive one of them.
    """
    if not kinds:
        raise InvalidArgument("no fault to plan: name some with --kinds", field="kinds")
    for kind in kinds:
        if (reason := why_not(kind, counts)) is not None:
            raise InvalidArgument(f"this cluster does not survive {kind}: {reason}", field="kinds")
    # A text as seed gives the same numbers in every interpreter.
    chance = random.Random(f"oncelog chaos {seed}")
    ordered = [kind for kind in FaultKind if kind in kinds]
    bag: list[FaultKind] = []
    steps: list[FaultStep] = []
    planned_s = 0.0
    while not steps or planned_s + min(_nominal_s(kind) for kind in ordered) <= seconds:
        if not bag:
            bag = chance.sample(ordered, len(ordered))
        together = [bag.pop(0)]
        if chance.random() < _PAIR_PROBABILITY:
            partner = next((kind for kind in bag if fits([together[0], kind], counts)), None)
            if partner is not None:
                bag.remove(partner)
                together.append(partner)
        pause_s = round(chance.uniform(_PAUSE_S_MIN, _PAUSE_S_MAX), 1)
        steps.append(FaultStep(len(steps) + 1, pause_s, tuple(_fault(kind, chance) for kind in together)))
        planned_s += steps[-1].nominal_s
    return tuple(steps)


def _fault(kind: FaultKind, chance: random.Random) -> Fault:
    least, most = _HOLD_S.get(kind, (0.0, 0.0))
    return Fault(kind, chance.randrange(_PICKS), round(chance.uniform(least, most), 1))


def _nominal_s(kind: FaultKind) -> float:
    return _NOMINAL_S.get(kind, _NOMINAL_OTHER_S)
