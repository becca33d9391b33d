"""`python -m tests.fault_proof.faulty_standalone`: `oncelog standalone` with storage nodes over interposed disks."""

import sys
from dataclasses import replace

from oncelog.cli.standalone import cluster_plan as plans
from oncelog.cli.standalone.cluster_plan import ClusterPlan, ProcessPlan
from tests.cluster.varied_standalone import standalone

_PRODUCT, _INTERPOSED = "oncelog.log_storage", "tests.fault_proof.storage_node"


def _processes(plan: ClusterPlan, zookeeper: str) -> list[ProcessPlan]:
    return [
        replace(child, command=tuple(_INTERPOSED if word == _PRODUCT else word for word in child.command))
        for child in plans.service_processes(plan, zookeeper)
    ]


def main() -> int:
    return standalone(_processes)


if __name__ == "__main__":
    sys.exit(main())
