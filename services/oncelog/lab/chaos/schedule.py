"""The schedule: which faults, in which order, at what distance. Pure: the same seed and options give the same schedule.

A fault names its kind and a `pick`, a number that chooses among the victims that are there when it strikes. Every kind
comes once before any comes again, in an order that the seed shuffles. A step is one fault, or two at once where both
together leave every quorum alive: that is the budget. The next step begins when everything is healed, however long
that takes, so what a slow machine changes is the time, never the schedule.
"""

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from oncelog.core.errors import InvalidArgument

#: Before the first step: enough for every client to be there; for a p99.9 worth its name it takes a minute.
BEGIN_QUIET_S = 15.0
_TWO_AT_ONCE = 0.3
_PAUSE_S_MIN, _PAUSE_S_MAX = 2.0, 6.0
_PICKS = 1 << 16


class Part(StrEnum):
    """What a cluster is made of."""

    OWNER = "owner"
    STORAGE = "storage"
    METADATA = "metadata"
    ZOOKEEPER = "zookeeper"
    REDIS = "redis"


class Kind(StrEnum):
    """What is done to it."""

    OWNER_KILL = "owner-kill"
    STORAGE_KILL = "storage-kill"
    METADATA_KILL = "metadata-kill"
    ZOOKEEPER_KILL = "zookeeper-leader-kill"
    REDIS_KILL = "redis-kill"
    OWNER_PAUSE = "owner-pause"
    STORAGE_PAUSE = "storage-pause"
    NODE_DRAIN = "node-drain"
    NODE_CUT = "node-cut"
    NODE_POWER_LOSS = "node-power-loss"
    VOLUME_FULL = "volume-full"
    ROLLOUT = "rollout"
    BYSTANDER_KILL = "bystander-kill"


#: What is planned unless kinds are named: a kill that no member feels is a control, no fault.
DEFAULT_KINDS = tuple(kind for kind in Kind if kind is not Kind.BYSTANDER_KILL)
#: The one part that a kind takes a member of.
VICTIM_PART: Mapping[Kind, Part] = {
    Kind.OWNER_KILL: Part.OWNER,
    Kind.OWNER_PAUSE: Part.OWNER,
    Kind.STORAGE_KILL: Part.STORAGE,
    Kind.STORAGE_PAUSE: Part.STORAGE,
    Kind.VOLUME_FULL: Part.STORAGE,
    Kind.METADATA_KILL: Part.METADATA,
    Kind.ZOOKEEPER_KILL: Part.ZOOKEEPER,
    Kind.REDIS_KILL: Part.REDIS,
}
#: These may take one of every part at once, so nothing else happens beside them.
NODE_KINDS = (Kind.NODE_DRAIN, Kind.NODE_CUT, Kind.NODE_POWER_LOSS)
ALONE = (*NODE_KINDS, Kind.ROLLOUT)
_UNPAIRED = (*ALONE, Kind.BYSTANDER_KILL)
#: Seconds from strike to healed that the plan reckons with, and for what is held, how long: least and most.
_NOMINAL_S: Mapping[Kind, float] = {
    Kind.ZOOKEEPER_KILL: 10,
    Kind.OWNER_PAUSE: 9,
    Kind.STORAGE_PAUSE: 8,
    Kind.NODE_DRAIN: 24,
    Kind.NODE_CUT: 36,
    Kind.NODE_POWER_LOSS: 32,
    Kind.VOLUME_FULL: 9,
    Kind.ROLLOUT: 20,
}
_NOMINAL_OTHER_S = 6.0
_HOLD_S: Mapping[Kind, tuple[float, float]] = {
    # A session lasts 6 s: some pauses end before it does, some after, when another owner has long taken over.
    Kind.OWNER_PAUSE: (1.0, 12.0),
    Kind.STORAGE_PAUSE: (1.0, 10.0),
    Kind.NODE_DRAIN: (3.0, 10.0),
    Kind.NODE_CUT: (10.0, 30.0),
    Kind.NODE_POWER_LOSS: (5.0, 20.0),
    Kind.VOLUME_FULL: (4.0, 10.0),
}


@dataclass(frozen=True, slots=True)
class Fault:
    """pick: chooses the victim, modulo how many there are. hold_s: how long it lasts before it is mended."""

    kind: Kind
    pick: int
    hold_s: float = 0.0

    def choose(self, victims: Sequence[str]) -> str:
        """The victim among those that are there, which must be in one order for all runs."""
        return sorted(victims)[self.pick % len(victims)]


@dataclass(frozen=True, slots=True)
class Step:
    """One fault, or two at once. pause_s: of quiet before it."""

    number: int
    pause_s: float
    faults: tuple[Fault, ...]

    @property
    def nominal_s(self) -> float:
        """Seconds from its pause to healed that the plan reckons with."""
        return self.pause_s + max(fault.hold_s + _nominal_s(fault.kind) for fault in self.faults)


def spare(counts: Mapping[Part, int]) -> dict[Part, int]:
    """How many of each part may be away at once without stopping it for good. counts: members of each part."""
    return {
        Part.OWNER: max(0, counts.get(Part.OWNER, 0) - 1),
        Part.METADATA: max(0, counts.get(Part.METADATA, 0) - 1),
        # Three copies of which two must answer: one, however many nodes there are.
        Part.STORAGE: 1 if counts.get(Part.STORAGE, 0) >= 3 else 0,
        Part.ZOOKEEPER: max(0, (counts.get(Part.ZOOKEEPER, 0) - 1) // 2),
        # It keeps what the log keeps as well: without it HTTP publishing waits, and nothing is lost.
        Part.REDIS: 1 if counts.get(Part.REDIS, 0) else 0,
    }


def why_not(kind: Kind, counts: Mapping[Part, int]) -> str | None:
    """Why this kind is beyond the budget of such a cluster; None when it is within."""
    left = spare(counts)
    if kind is Kind.BYSTANDER_KILL:
        return None
    if kind in ALONE:
        missing = [part for part in Part if counts.get(part, 0) and not left[part]]
        return f"there is no {missing[0]} to spare" if missing else None
    part = VICTIM_PART[kind]
    if not counts.get(part, 0):
        return f"there is no {part} here"
    return None if left[part] else f"there is no {part} to spare: {counts[part]} in all"


def fits(kinds: Sequence[Kind], counts: Mapping[Part, int]) -> bool:
    """Whether these faults may happen at once."""
    if len(kinds) > 1 and any(kind in _UNPAIRED for kind in kinds):
        return False
    left = spare(counts)
    for kind in kinds:
        if why_not(kind, counts) is not None:
            return False
        if kind in VICTIM_PART:
            left[VICTIM_PART[kind]] -= 1
    return all(count >= 0 for count in left.values())


def make_schedule(seed: int, *, seconds: float, kinds: Sequence[Kind], counts: Mapping[Part, int]) -> tuple[Step, ...]:
    """The steps that fill about so many seconds; at least one. kinds: each within the budget of `counts`.

    Raises InvalidArgument: no kind, or one that this cluster cannot stand.
    """
    if not kinds:
        raise InvalidArgument("there is no fault to plan: name some with --kinds", field="kinds")
    for kind in kinds:
        if (reason := why_not(kind, counts)) is not None:
            raise InvalidArgument(f"{kind} is not for this cluster: {reason}", field="kinds")
    # A text seeds the same numbers in every interpreter; what stands beside the seed keeps other options apart.
    chance = random.Random(f"oncelog chaos {seed}")
    ordered = [kind for kind in Kind if kind in kinds]
    bag: list[Kind] = []
    steps: list[Step] = []
    planned_s = 0.0
    while not steps or planned_s + min(_nominal_s(kind) for kind in ordered) <= seconds:
        if not bag:
            bag = chance.sample(ordered, len(ordered))
        together = [bag.pop(0)]
        if chance.random() < _TWO_AT_ONCE:
            partner = next((kind for kind in bag if fits([together[0], kind], counts)), None)
            if partner is not None:
                bag.remove(partner)
                together.append(partner)
        pause_s = round(chance.uniform(_PAUSE_S_MIN, _PAUSE_S_MAX), 1)
        steps.append(Step(len(steps) + 1, pause_s, tuple(_fault(kind, chance) for kind in together)))
        planned_s += steps[-1].nominal_s
    return tuple(steps)


def _fault(kind: Kind, chance: random.Random) -> Fault:
    least, most = _HOLD_S.get(kind, (0.0, 0.0))
    return Fault(kind, chance.randrange(_PICKS), round(chance.uniform(least, most), 1))


def _nominal_s(kind: Kind) -> float:
    return _NOMINAL_S.get(kind, _NOMINAL_OTHER_S)
