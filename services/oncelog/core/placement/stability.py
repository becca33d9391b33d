"""The stability wait: a draining owner keeps its topics until no other process of the cluster is restarting. Pure.

An upgrade restarts everything at once. Moving a topic needs ZooKeeper and the storage nodes many times. If one of them
restarts meanwhile, the topic's producers wait for seconds; while the topic stays where it is, they do not wait at all.

All times are seconds of one clock that never goes back.
"""

from collections.abc import Collection
from typing import Protocol

from oncelog.core.ids import Incarnation
from oncelog.core.ledger.member_selection import StorageNodesUpdated

#: Longer than an upgrade waits between two restarts of one component (a storage node's preStop hook and two probes).
STABLE_S = 8.0
#: A storage node that is absent for longer is not restarting. The owner does not wait for it.
RESTART_S = 60.0


class ClusterStability:
    """For how long this owner's ZooKeeper session and all known storage nodes have been present."""

    def __init__(self, now_s: float, *, restart_s: float = RESTART_S) -> None:
        #: whether no storage node can be reached at all
        self.isolated = True
        #: {absent storage node: since when}
        self._absent: dict[str, float] = {}
        self._restart_s = restart_s
        self._store_reachable = False
        #: when the session or a storage node came back last
        self._back_at_s = now_s

    def update(self, nodes: StorageNodesUpdated, *, now_s: float, unreachable: Collection[Incarnation] = ()) -> None:
        """unreachable: registered nodes, read-only ones included, that refuse connections."""
        if not (self._store_reachable and nodes.store_reachable) or self._absent.keys() - set(nodes.absent):
            self._back_at_s = now_s
        self._store_reachable = nodes.store_reachable
        self._absent = {node: self._absent.get(node, now_s) for node in nodes.absent}
        self.isolated = not nodes.live and not set(nodes.read_only).difference(unreachable)

    def stable_for_s(self, now_s: float) -> float:
        """For how long ZooKeeper has answered and no known storage node was absent; 0 if that is not so now."""
        if not self._store_reachable:
            return 0.0
        given_up_at_s = (since_s + self._restart_s for since_s in self._absent.values())
        return max(0.0, now_s - max(self._back_at_s, *given_up_at_s, 0.0))


class Stability(Protocol):
    """What `StabilityWait` asks of `ClusterStability`."""

    @property
    def isolated(self) -> bool: ...
    def stable_for_s(self, now_s: float) -> float: ...


class StabilityWait:
    """Decides when the wait ends, from one look at all ZooKeeper servers after the other.

    The owner's session uses only one of the servers, so all are looked at, for the whole of `stable_s`: a process that
    stops at the same moment as this one is still present at the first look. If neither they nor any storage node can be
    reached, the whole cluster ends, and nothing is worth waiting for.
    """

    def __init__(self, stability: Stability, *, now_s: float, stable_s: float) -> None:
        self._stability = stability
        self._stable_s = stable_s
        self._servers_back_at_s = now_s

    def looked(self, accepted: Collection[bool], *, now_s: float) -> bool | None:
        """accepted: of each ZooKeeper server, whether it takes connections. Returns whether the cluster is stable;
        None: look again."""
        if not all(accepted):
            self._servers_back_at_s = now_s
        elif min(now_s - self._servers_back_at_s, self._stability.stable_for_s(now_s)) >= self._stable_s:
            return True
        return False if self._stability.isolated and not any(accepted) else None
