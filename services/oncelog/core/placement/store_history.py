"""Whether ZooKeeper still has the history that this process and the storage nodes have seen in it, or has lost some of
it (hazards ledger-id-given-twice, emptied-zookeeper, older-zookeeper-is-served).

Rules
- A cluster's record is written once, and the counter of ledger ids only rises. A process that finds another record,
  none, or a lower counter than before has a ZooKeeper whose data was lost, or restored from an older backup.
- ZooKeeper itself refuses a client that has seen a later transaction than it has. That alone does not show a restored
  ensemble: its next leader begins a new epoch, and all transactions of that are later.
- A storage node has a record of its own in ZooKeeper, which it writes while its journal grows, and nobody else does. A
  lower version of it than the node has written proves that ZooKeeper went back. One node is enough: nothing else, also
  no wrong setting of the node, can be the reason. But a record that is missing may have been deleted: it is a proof if
  ZooKeeper does not name the node, or if those of more than half of the nodes are missing.
- A node of a later era has taken part in a restore, perhaps in another ZooKeeper, and perhaps one that was given up. So
  more than half of the nodes must be of a later era.
- But a node writes its record only after it has joined a cluster that serves. So one node that has written it in a
  later era proves that this era was committed, also a node that ZooKeeper does not name, because it has come since. One
  that ZooKeeper names and that may not return, as a retired one, must not end the cluster.
- A node that does not answer proves nothing. What one has said stays true when it is gone.
"""

from collections.abc import Collection, Mapping
from typing import NamedTuple

from oncelog.core.ids import Incarnation


class StoreHistory:
    """What one process has seen."""

    def __init__(self, cluster_id: str) -> None:
        self._cluster_id = cluster_id
        self._next_ledger = 0

    def fault(self, cluster_id: str | None, next_ledger: int) -> str | None:
        """What was lost; None: nothing that is known. cluster_id: None without a record. next_ledger: 0 without one."""
        if cluster_id is None:
            return f"ZooKeeper has no record of cluster {self._cluster_id} any more: it has lost its data"
        if cluster_id != self._cluster_id:
            return (
                f"ZooKeeper has cluster {cluster_id}, but this process belongs to cluster {self._cluster_id}: "
                "ZooKeeper has lost its data, and another cluster was created in it"
            )
        if next_ledger < self._next_ledger:
            return (
                f"ZooKeeper is older than this process has seen it: its next ledger id is {next_ledger}, and was "
                f"{self._next_ledger}: it was restored from an older backup"
            )
        self._next_ledger = next_ledger
        return None


class NodeSaid(NamedTuple):
    """What a storage node has said of itself. address: where. era: the number of its era. written_version: of its own
    record, as it has written it last, among the records of the era with the number written_era; 0: it does not know."""

    address: str
    era: int
    written_era: int
    written_version: int


class NodesHistory:
    """What the storage nodes have said that one process has asked."""

    def __init__(self) -> None:
        self._said: dict[Incarnation, NodeSaid] = {}

    def hear(self, node: Incarnation, said: NodeSaid) -> bool:
        """Whether it is new."""
        former, self._said[node] = self._said.get(node), said
        return said != former

    def to_compare(self, era: int) -> list[Incarnation]:
        """The nodes that have written records of this era: their versions in ZooKeeper are to be read now."""
        return [node for node, said in self._said.items() if said.written_era == era]

    def fault(
        self,
        era: int,
        versions: Mapping[Incarnation, int],
        members: Collection[Incarnation],
        named: Collection[Incarnation] = (),
    ) -> str | None:
        """Why ZooKeeper, which is in this era, is older than the data; None: nothing proves it.

        versions: of the records of `to_compare`, read after the nodes have answered; -1 without one. members: the
        nodes that ZooKeeper names and that may return. named: also those that may not.
        """
        lower = {
            node: version
            for node, version in versions.items()
            if self._said[node].written_era == era and version < self._said[node].written_version
        }
        missing = {node for node, version in lower.items() if version < 0 and (node in members or node in named)}
        most = len(missing.intersection(members)) * 2 > len(members)
        proofs = [node for node in lower if node not in missing or most]
        if proofs:
            node, said = proofs[0], self._said[proofs[0]]
            return (
                f"ZooKeeper is older than the data: storage node {node} at {said.address} has written version "
                f"{said.written_version} of its record, and ZooKeeper has "
                f"{'none' if lower[node] < 0 else f'version {lower[node]}'}"
            )
        for node, said in self._said.items():
            if said.written_era > era and (node in members or node not in named):
                return (
                    f"ZooKeeper is older than the data: storage node {node} at {said.address} has written its record "
                    f"in era {said.written_era}, and ZooKeeper is in era {era}"
                )
        later = [said for node, said in self._said.items() if node in members and said.era > era]
        if len(later) * 2 <= len(members):
            return None
        return (
            f"ZooKeeper is older than the data: {len(later)} of {len(members)} storage nodes are in era "
            f"{max(said.era for said in later)}, among them {later[0].address}, and ZooKeeper is in era {era}"
        )
