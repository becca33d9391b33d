"""Whether ZooKeeper still has the history that this process has seen in it, or has lost some of it (hazards
ledger-id-given-twice, emptied-zookeeper).

Rules
- A cluster's record is written once, and the counter of ledger ids only rises. A process that finds another record,
  none, or a lower counter than before has a ZooKeeper whose data was lost, or restored from an older backup.
- ZooKeeper itself refuses a client that has seen a later transaction than it has. That alone does not show a restored
  ensemble: its next leader begins a new epoch, and all transactions of that are later.
"""


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
