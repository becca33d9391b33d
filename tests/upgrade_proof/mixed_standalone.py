"""`python -m tests.upgrade_proof.mixed_standalone`: `oncelog standalone` in which each process has its own version.

A process runs the package `oncelog` below the link DATA.versions/NAME. Whoever changes the link and ends the process
gets it back in the other version.
"""

import sys
from dataclasses import replace
from pathlib import Path

from oncelog.cli.standalone import cluster_plan as plans
from oncelog.cli.standalone.cluster_plan import ClusterPlan, ProcessPlan
from tests.cluster.varied_standalone import standalone


def versions(data: Path) -> Path:
    """The folder of the links."""
    return data.with_name(f"{data.name}.versions")


def _processes(plan: ClusterPlan, zookeeper: str) -> list[ProcessPlan]:
    def versioned(child: ProcessPlan) -> ProcessPlan:
        program = ("/usr/bin/env", f"PYTHONPATH={versions(plan.data) / child.name}")
        return replace(child, command=(*program, *child.command))

    return [versioned(child) for child in plans.service_processes(plan, zookeeper)]


if __name__ == "__main__":
    sys.exit(standalone(_processes, modules=()))
