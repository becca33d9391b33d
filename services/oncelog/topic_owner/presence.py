"""Whether the storage nodes, and the session with ZooKeeper, have all been there, and for how long."""

import time
from collections.abc import Collection

from oncelog.core.ids import Incarnation
from oncelog.core.ledger.members import StorageNodesUpdated

#: A storage node that is away for longer does not restart: it is not waited for.
RESTART_S = 60.0


class Presence:
    def __init__(self) -> None:
        #: whether no storage node can be reached at all
        self.alone = True
        #: {storage node that is away: since when}
        self._away: dict[str, float] = {}
        self._reachable = False
        #: when the session, or one of them, came back last
        self._back_at = time.monotonic()

    def see(self, nodes: StorageNodesUpdated, unreachable: Collection[Incarnation] = ()) -> None:
        """unreachable: those of them, read-only ones too, that cannot be connected to."""
        now = time.monotonic()
        if not (self._reachable and nodes.store_reachable) or self._away.keys() - set(nodes.absent):
            self._back_at = now
        self._reachable = nodes.store_reachable
        self._away = {node: self._away.get(node, now) for node in nodes.absent}
        self.alone = not nodes.live and not set(nodes.read_only).difference(unreachable)

    @property
    def whole_for_s(self) -> float:
        """How long ZooKeeper has answered and no known storage node was away; 0 when it is not so."""
        if not self._reachable:
            return 0.0
        given_up_at = (since + RESTART_S for since in self._away.values())
        return max(0.0, time.monotonic() - max(self._back_at, *given_up_at, 0.0))
