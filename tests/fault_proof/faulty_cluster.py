"""A cluster of real processes whose storage nodes run over interposed disks: `with FaultyCluster.running(…) as own`.

cluster.order("storage-1", DiskOrders(...))   # from the next step of that node on
await cluster.cut_power("storage-1", once=…)  # kill it; its unsynced writes are lost before it starts again
"""

import shutil
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from tests.cluster.cluster_fixture import Cluster
from tests.cluster.kills import Once, kill_unless_ended, moment
from tests.fault_proof.interposed_disk import FAULTS_VARIABLE, DiskOrders, DiskRule, orders_path, used_path

ROOT = Path(__file__).resolve().parents[2]


class FaultyCluster(Cluster):
    """See `Cluster`. Storage nodes are named storage-1, storage-2 and so on."""

    program = ("tests.fault_proof.faulty_standalone",)

    def __init__(self, data: Path, arguments: list[str], environment: Mapping[str, str]) -> None:
        self._faults = data.with_name("faults")
        own = {FAULTS_VARIABLE: str(self._faults), "PYTHONPATH": f"{ROOT}:{ROOT / 'services'}"}
        super().__init__(data, arguments, {**environment, **own})
        self._orders: dict[str, DiskOrders] = {}

    @property
    def storage_names(self) -> list[str]:
        return sorted(name for name, process in self.processes.items() if process["role"] == "storage")

    def order(self, node: str, *rules: DiskRule) -> None:
        """Replace the rules of a node; they hold from its next step on."""
        self._write(node, replace(self._orders.get(node, DiskOrders()), rules=rules))

    def has_used(self, node: str, rule: str) -> bool:
        """Whether the rule has taken effect."""
        return used_path(self._faults, node, rule).exists()

    async def cut_power(self, *nodes: str, seed: int = 0, once: Once) -> None:
        """Kill the nodes as soon as the condition holds, and lose their unsynced writes: all of them, or with a seed
        some of them."""
        with self.held():
            for node in nodes:
                former = self._orders.get(node, DiskOrders())
                self._write(node, replace(former, power_cuts=former.power_cuts + 1, seed=seed))
            await moment(once)
            for node in nodes:  # a rule of its disk may have ended it, or ends it now
                pid = self.processes[node]["pid"]
                if pid is not None:
                    await kill_unless_ended(pid)

    def wipe(self, node: str) -> None:
        """Delete the directory of a node that is down, as with a new disk."""
        shutil.rmtree(self.data / node)
        shutil.rmtree(self.data / f"{node}.unsynced", ignore_errors=True)

    def _write(self, node: str, orders: DiskOrders) -> None:
        self._orders[node] = orders
        orders.write(orders_path(self._faults, node))
