"""The kinds of faults, and how many members of a cluster may be away at once."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum


class Component(StrEnum):
    """The components of a cluster, as the chart labels their pods."""

    OWNER = "owner"
    STORAGE = "storage"
    METADATA = "metadata"
    ZOOKEEPER = "zookeeper"
    REDIS = "redis"


class FaultKind(StrEnum):
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
    CONTROL_POD_KILL = "control-pod-kill"
    STORAGE_LOSS = "storage-loss"
    BIT_ROT = "bit-rot"


#: These destroy copies, so each waits until the cluster says that the node may be replaced, and ends when all copies
#: are there again.
DESTRUCTIVE = (FaultKind.STORAGE_LOSS, FaultKind.BIT_ROT)
#: Planned unless the user names kinds. The kill of a pod that serves nothing is a control, not a fault.
DEFAULT_KINDS = tuple(kind for kind in FaultKind if kind not in {FaultKind.CONTROL_POD_KILL, *DESTRUCTIVE})
#: The component of the victim, for kinds with one victim.
VICTIM_COMPONENT: Mapping[FaultKind, Component] = {
    FaultKind.OWNER_KILL: Component.OWNER,
    FaultKind.OWNER_PAUSE: Component.OWNER,
    FaultKind.STORAGE_KILL: Component.STORAGE,
    FaultKind.STORAGE_PAUSE: Component.STORAGE,
    FaultKind.VOLUME_FULL: Component.STORAGE,
    FaultKind.STORAGE_LOSS: Component.STORAGE,
    FaultKind.BIT_ROT: Component.STORAGE,
    FaultKind.METADATA_KILL: Component.METADATA,
    FaultKind.ZOOKEEPER_KILL: Component.ZOOKEEPER,
    FaultKind.REDIS_KILL: Component.REDIS,
}
PAUSES = (FaultKind.OWNER_PAUSE, FaultKind.STORAGE_PAUSE)
#: These can take one member of every component at once, so no other fault happens beside them.
NODE_KINDS = (FaultKind.NODE_DRAIN, FaultKind.NODE_CUT, FaultKind.NODE_POWER_LOSS)
WHOLE_CLUSTER = (*NODE_KINDS, FaultKind.ROLLOUT)
_NEVER_PAIRED = (*WHOLE_CLUSTER, FaultKind.CONTROL_POD_KILL)


@dataclass(frozen=True, slots=True)
class Fault:
    """pick: chooses the victim, modulo the number of candidates. hold_s: how long the fault lasts before recovery."""

    kind: FaultKind
    pick: int
    hold_s: float = 0.0

    def choose(self, candidates: Sequence[str]) -> str:
        """The victim. The same candidates give the same victim in every run."""
        return sorted(candidates)[self.pick % len(candidates)]


def spare_members(counts: Mapping[Component, int]) -> dict[Component, int]:
    """How many members of each component may be away at once. counts: members of each component."""
    return {
        Component.OWNER: max(0, counts.get(Component.OWNER, 0) - 1),
        Component.METADATA: max(0, counts.get(Component.METADATA, 0) - 1),
        # An entry has three copies, two of which must answer. So one node, whatever the number of nodes.
        Component.STORAGE: 1 if counts.get(Component.STORAGE, 0) >= 3 else 0,
        Component.ZOOKEEPER: max(0, (counts.get(Component.ZOOKEEPER, 0) - 1) // 2),
        # The log keeps what Redis keeps. Without Redis, HTTP publishing waits and nothing is lost.
        Component.REDIS: 1 if counts.get(Component.REDIS, 0) else 0,
    }


def why_not(kind: FaultKind, counts: Mapping[Component, int]) -> str | None:
    """Why a cluster of this size does not survive the fault. None if it does."""
    spare = spare_members(counts)
    if kind is FaultKind.CONTROL_POD_KILL:
        return None
    if kind in WHOLE_CLUSTER:
        missing = [component for component in Component if counts.get(component, 0) and not spare[component]]
        return _not_to_lose(missing[0], counts) if missing else None
    component = VICTIM_COMPONENT[kind]
    if not counts.get(component, 0):
        return f"there is no {component} here"
    return None if spare[component] else _not_to_lose(component, counts)


def _not_to_lose(component: Component, counts: Mapping[Component, int]) -> str:
    return f"the cluster does not survive the loss of one {component} process (it has {counts[component]})"


def fits(kinds: Sequence[FaultKind], counts: Mapping[Component, int]) -> bool:
    """Whether the cluster survives these faults at once."""
    if len(kinds) > 1 and any(kind in _NEVER_PAIRED for kind in kinds):
        return False
    spare = spare_members(counts)
    for kind in kinds:
        if why_not(kind, counts) is not None:
            return False
        if kind in VICTIM_COMPONENT:
            spare[VICTIM_COMPONENT[kind]] -= 1
    return all(count >= 0 for count in spare.values())
