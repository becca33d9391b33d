"""The states of a storage node, and all storage nodes of a cluster as one process sees them.

A node is a directory that ever joined. Its registration is a record of its session, its cookie is a lasting record.

                       registers                     no answer
             ABSENT -------------------->  LIVE  ------------------->  SILENT
               ^                             |    <-------------------    |
               |                             |          answers           |
               '--- its registration ends ---+----------------------------'

    LIVE, SILENT, ABSENT     --decommission-->  DRAINING  --no ledger needs it-->  RETIRED
                             <--cancel--
    all others than RETIRED  --another directory joins at its address-->  RETIRED

Rules
- A DRAINING or RETIRED node may be registered. Then its copies can be read, and it gets no further ones.
- Nothing is expected of a RETIRED node that is not registered. Any other node may return with its copies.
- A node that nobody has heard of is ABSENT: its cookie may be written soon.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum

from oncelog.core.ids import Incarnation


class NodeState(Enum):
    """LIVE: registered. SILENT: registered, but it did not answer lately. ABSENT: not registered, and it may return.
    DRAINING: an operator removes it; its copies are moved to other nodes. RETIRED: replaced or removed, for ever."""

    LIVE = "live"
    SILENT = "silent"
    ABSENT = "absent"
    DRAINING = "draining"
    RETIRED = "retired"


@dataclass(frozen=True, slots=True)
class NodeView:
    """What the registration and the cookie of one node say.

    silent: registered, but it did not answer the last question. read_only: an operator or a nearly full disk. joining:
    not yet a member of the cluster (hazard unmounted-volume).
    """

    incarnation: Incarnation
    registered: bool = True
    silent: bool = False
    draining: bool = False
    retired: bool = False
    read_only: bool = False
    joining: bool = False
    #: the clock of the process when it first saw the node unregistered; None while it is registered
    absent_since_ms: int | None = None

    @property
    def state(self) -> NodeState:
        if self.retired:
            return NodeState.RETIRED
        if self.draining:
            return NodeState.DRAINING
        if not self.registered:
            return NodeState.ABSENT
        return NodeState.SILENT if self.silent else NodeState.LIVE

    @property
    def in_service(self) -> bool:
        """Whether it is a node that stays: LIVE or SILENT."""
        return self.state in (NodeState.LIVE, NodeState.SILENT)

    @property
    def answers(self) -> bool:
        return self.registered and not self.silent

    @property
    def may_return(self) -> bool:
        """Whether it is not registered, and may return with its copies."""
        return not (self.registered or self.retired)

    @property
    def never_returns(self) -> bool:
        """Whether nothing is expected of it any more, unless its directory is served again."""
        return self.retired and not self.registered


class StorageNodes:
    """All storage nodes at one time. absent_delay_ms: after which absent ones are replaced (hazard flapping-node)."""

    def __init__(self, views: Iterable[NodeView] = (), *, now_ms: int = 0, absent_delay_ms: int = 0) -> None:
        self.views = {view.incarnation: view for view in views}
        self.registered = tuple(node for node, view in self.views.items() if view.registered)
        self._now_ms = now_ms
        self._absent_delay_ms = absent_delay_ms
        #: of nodes that are not known, made once: a cluster may have many ledgers
        self._unknown: dict[Incarnation, NodeView] = {}

    def __getitem__(self, node: Incarnation) -> NodeView:
        view = self.views.get(node) or self._unknown.get(node)
        if view is None:
            view = self._unknown[node] = NodeView(node, registered=False)
        return view

    def in_state(self, *states: NodeState) -> tuple[Incarnation, ...]:
        return tuple(node for node, view in self.views.items() if view.state in states)

    def long_absent(self, node: Incarnation) -> bool:
        since = self[node].absent_since_ms
        return since is not None and self._now_ms - since >= self._absent_delay_ms

    def to_replace(self, node: Incarnation) -> bool:
        """Whether its copies are made elsewhere now: it is retired, draining, or absent for the delay."""
        return self[node].state in (NodeState.RETIRED, NodeState.DRAINING) or self.long_absent(node)

    @property
    def targets(self) -> list[Incarnation]:
        """The nodes that can take copies of further ledgers."""
        views = self.views.values()
        return [view.incarnation for view in views if view.in_service and not (view.read_only or view.joining)]
