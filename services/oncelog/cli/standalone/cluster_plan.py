"""The processes of a standalone cluster: names, directories, quorums and command lines.

Rules
- A directory holds one cluster. Storage node N always uses storage-N, so a restarted cluster finds its data.
- `--port` and `--http-port` are the ports of the first metadata service; each further one has the next port. All other
  ports are free ones, which clients find through the metadata services. Storage nodes keep theirs over restarts.
"""

import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path

HOST = "127.0.0.1"
#: Variables of the command line. They are removed because services reject unknown ONCELOG_ variables.
CLIENT_VARIABLES = ("ONCELOG_URL", "ONCELOG_ADMIN_URL")


#: An owner that stops need not wait for stability, because there are no rolling upgrades here. Then its drain timeout.
STABILITY_TIMEOUT_MS, DRAIN_TIMEOUT_MS = 1, 10_000


class Role(StrEnum):
    ZOOKEEPER = "zookeeper"
    METADATA = "metadata"
    STORAGE = "storage"
    OWNER = "owner"


@dataclass(frozen=True, slots=True)
class ClusterPlan:
    """A cluster as requested. port, http_port: of the first metadata service; 0: any free port.

    redis_url: a running Redis for idempotency keys; empty: as in the environment.
    """

    data: Path
    storage_node_count: int = 3
    owner_count: int = 2
    metadata_count: int = 1
    port: int = 6650
    http_port: int = 8080
    redis_url: str = ""

    @property
    def zookeeper_data(self) -> Path:
        return self.data / "zookeeper"

    @property
    def storage_directories(self) -> list[Path]:
        """Those that a storage node has written to, also in an earlier run with more nodes."""
        return [path for path in sorted(self.data.glob(f"{Role.STORAGE}-*")) if path.is_dir() and any(path.iterdir())]

    @property
    def status_path(self) -> Path:
        return self.data / "standalone.json"

    def log_path(self, name: str) -> Path:
        return self.data / "logs" / f"{name}.log"


@dataclass(frozen=True, slots=True)
class ProcessPlan:
    """One process. command: its first item is an absolute path."""

    name: str
    role: Role
    command: tuple[str, ...]


def quorums(storage_node_count: int) -> tuple[int, int]:
    """(write quorum, ack quorum): 3 and 2 with three or more nodes, else as many copies as nodes."""
    if storage_node_count >= 3:
        return 3, 2
    return storage_node_count, storage_node_count


def creation(zookeeper: str) -> tuple[str, ...]:
    """The command that creates the cluster in ZooKeeper, unless it exists."""
    return (sys.executable, "-m", "oncelog.metadata", "--zookeeper", zookeeper, "--create-cluster")


def metadata_processes(plan: ClusterPlan, zookeeper: str) -> list[ProcessPlan]:
    return [
        _child(
            Role.METADATA,
            number,
            "oncelog.metadata",
            zookeeper,
            port=plan.port and plan.port + number - 1,
            more=("--http-port", str(plan.http_port and plan.http_port + number - 1)),
        )
        for number in range(1, plan.metadata_count + 1)
    ]


def storage_processes(plan: ClusterPlan, zookeeper: str) -> list[ProcessPlan]:
    return [
        _child(
            Role.STORAGE,
            number,
            "oncelog.log_storage",
            zookeeper,
            more=("--data", str(plan.data / f"{Role.STORAGE}-{number}")),
        )
        for number in range(1, plan.storage_node_count + 1)
    ]


def owner_processes(plan: ClusterPlan, zookeeper: str) -> list[ProcessPlan]:
    write_quorum, ack_quorum = quorums(plan.storage_node_count)
    more = ("--write-quorum", str(write_quorum), "--ack-quorum", str(ack_quorum))
    return [
        _child(Role.OWNER, number, "oncelog.topic_owner", zookeeper, more=more)
        for number in range(1, plan.owner_count + 1)
    ]


def process_environment(own: Mapping[str, str], *, redis_url: str = "") -> dict[str, str]:
    """The environment of the services, based on that of this process.

    Their drain timeout is shorter than the supervisor's, so that each can exit by itself.
    """
    shared = {name: value for name, value in own.items() if name not in CLIENT_VARIABLES}
    given = {"ONCELOG_REDIS_URL": redis_url} if redis_url else {}
    bounds = {
        "ONCELOG_STABILITY_TIMEOUT_MS": str(STABILITY_TIMEOUT_MS),
        "ONCELOG_DRAIN_TIMEOUT_MS": str(DRAIN_TIMEOUT_MS),
        # All processes are on one machine, so clients reach the storage nodes.
        "ONCELOG_STORAGE_READS": "true",
    }
    return bounds | shared | given


def with_ports(child: ProcessPlan, take: Callable[[], int]) -> ProcessPlan:
    """The same, with a port from `take` in place of 0, so that a restart keeps the ports.

    Clients know those of metadata services. A storage node whose directory was deleted replaces its former self because
    it has the same address.
    """
    command = list(child.command)
    for option in ("--port", "--http-port"):
        if option not in command:
            continue
        at = command.index(option) + 1
        command[at] = command[at] if int(command[at]) else str(take())
    return replace(child, command=tuple(command))


def _child(
    role: Role, number: int, module: str, zookeeper: str, *, port: int = 0, more: tuple[str, ...] = ()
) -> ProcessPlan:
    addresses = ("--zookeeper", zookeeper, "--host", HOST, "--port", str(port), "--health-port", "0")
    return ProcessPlan(f"{role}-{number}", role, (sys.executable, "-m", module, *addresses, *more))
