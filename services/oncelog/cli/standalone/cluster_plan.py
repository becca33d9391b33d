"""The processes of a standalone cluster: names, directories, quorums and command lines.

Rules
- A directory holds one cluster. Storage node N always uses storage-N, so a restarted cluster finds its data.
- `--port` and `--http-port` are the ports of the first metadata service; each further one has the next port. All other
  ports are free ones, which clients find through the metadata services. Storage nodes keep theirs over restarts.
"""

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path
from typing import NamedTuple

HOST = "127.0.0.1"
#: An owner that stops need not wait for stability, because there are no rolling upgrades here. Then its drain timeout.
STABILITY_TIMEOUT_MS, DRAIN_TIMEOUT_MS = 1, 10_000


#: What the processes but ZooKeeper run.
MODULES = ("oncelog.log_storage", "oncelog.topic_owner", "oncelog.metadata")

#: Of a light cluster, which needs 112 MiB of free space.
LIGHT_SETTINGS = {"ONCELOG_SEGMENT_BYTES": str(16 << 20), "ONCELOG_FREE_BYTES_MIN": str(64 << 20)}


class Role(StrEnum):
    ZOOKEEPER = "zookeeper"
    METADATA = "metadata"
    STORAGE = "storage"
    OWNER = "owner"
    DOOR = "door"


class DoorPorts(NamedTuple):
    """Of a door for clients of other systems; 0: it does not serve these. pulsar_rest: for `pulsar-admin`."""

    pulsar: int = 0
    pulsar_rest: int = 0
    kafka: int = 0


NO_DOORS = DoorPorts()


@dataclass(frozen=True, slots=True)
class ClusterPlan:
    """A cluster as requested. port, http_port: of the first metadata service; 0: any free port. doors: what a door
    serves; there is none if it serves nothing.

    redis_url: a running Redis for idempotency keys; empty: as in the environment. light: for tests, with small files;
    the directory says so, because a light cluster has one copy of each message.
    """

    data: Path
    storage_node_count: int = 3
    owner_count: int = 2
    metadata_count: int = 1
    port: int = 6650
    http_port: int = 8080
    redis_url: str = ""
    light: bool = False
    doors: DoorPorts = NO_DOORS

    @property
    def zookeeper_data(self) -> Path:
        return self.data / "zookeeper"

    @property
    def storage_paths(self) -> list[Path]:
        """The directories of the storage nodes to be started."""
        return [self.data / f"{Role.STORAGE}-{number}" for number in range(1, self.storage_node_count + 1)]

    @property
    def storage_directories(self) -> list[Path]:
        """Those that a storage node has written to, also in an earlier run with more nodes."""
        return [path for path in sorted(self.data.glob(f"{Role.STORAGE}-*")) if path.is_dir() and any(path.iterdir())]

    @property
    def status_path(self) -> Path:
        return self.data / "standalone.json"

    @property
    def nodes_path(self) -> Path:
        """The health addresses of the storage nodes, for the creation or the restore of the cluster."""
        return self.data / "storage_nodes"

    @property
    def lost_path(self) -> Path:
        """Exists from a start without ZooKeeper's data until all processes serve: they wait for a restore."""
        return self.data / "zookeeper_lost"

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


def service_processes(plan: ClusterPlan, zookeeper: str) -> list[ProcessPlan]:
    """All but ZooKeeper."""
    return [
        *metadata_processes(plan, zookeeper),
        *storage_processes(plan, zookeeper),
        *owner_processes(plan, zookeeper),
    ]


def health_addresses(processes: Sequence[ProcessPlan]) -> list[str]:
    """host:port at which each storage node tells whether its directory is empty."""
    return [
        f"{HOST}:{child.command[child.command.index('--health-port') + 1]}"
        for child in processes
        if child.role is Role.STORAGE
    ]


def rest_address(processes: Sequence[ProcessPlan]) -> str:
    """host:port of REST at the first metadata service."""
    first = next(child for child in processes if child.role is Role.METADATA)
    return f"{HOST}:{first.command[first.command.index('--http-port') + 1]}"


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
            more=("--data", str(path)),
        )
        for number, path in enumerate(plan.storage_paths, start=1)
    ]


def owner_processes(plan: ClusterPlan, zookeeper: str) -> list[ProcessPlan]:
    write_quorum, ack_quorum = quorums(plan.storage_node_count)
    more = ("--write-quorum", str(write_quorum), "--ack-quorum", str(ack_quorum))
    return [
        _child(Role.OWNER, number, "oncelog.topic_owner", zookeeper, more=more)
        for number in range(1, plan.owner_count + 1)
    ]


def door_process(services: Sequence[ProcessPlan], ports: DoorPorts, *, tls: bool) -> ProcessPlan:
    """The door for clients of other systems, in front of the metadata services among these. tls: the services use TLS,
    and so does the door."""
    metadata = [child.command for child in services if child.role is Role.METADATA]
    addresses = ",".join(f"{HOST}:{command[command.index('--port') + 1]}" for command in metadata)
    url = f"oncelog{'+tls' if tls else ''}://{addresses}"
    suffix = "-tls" if tls else ""
    listening: list[str] = []
    for name, port in ports._asdict().items():
        if port:
            listening += [f"--{name.replace('_', '-')}{suffix}", f"{HOST}:{port}"]
    health = ("--host", HOST, "--health-port", "0")
    command = (sys.executable, "-m", "oncelog_doors", "serve", "--url", url, *listening, *health)
    return ProcessPlan(f"{Role.DOOR}-1", Role.DOOR, command)


def process_environment(own: Mapping[str, str], *, redis_url: str = "", light: bool = False) -> dict[str, str]:
    """The environment of the services, based on that of this process.

    Their drain timeout is shorter than the supervisor's, so that each can exit by itself.
    """
    given = {"ONCELOG_REDIS_URL": redis_url} if redis_url else {}
    bounds = {
        "ONCELOG_STABILITY_TIMEOUT_MS": str(STABILITY_TIMEOUT_MS),
        "ONCELOG_DRAIN_TIMEOUT_MS": str(DRAIN_TIMEOUT_MS),
        # All processes are on one machine, so clients reach the storage nodes.
        "ONCELOG_STORAGE_READS": "true",
        # Without authentication it answers this machine only.
        "ONCELOG_CONSOLE": "true",
    }
    return bounds | (LIGHT_SETTINGS if light else {}) | dict(own) | given


def with_ports(child: ProcessPlan, take: Callable[[int], int]) -> ProcessPlan:
    """The same, with a reserved port in place of 0, so that a restart keeps the ports.

    take: reserves that port, or a free one for 0, and returns it.

    Clients know those of metadata services. A storage node whose directory was deleted replaces its former self because
    it has the same address.
    """
    command = list(child.command)
    for option in ("--port", "--http-port", "--health-port"):
        if option not in command:
            continue
        at = command.index(option) + 1
        command[at] = str(take(int(command[at])))
    return replace(child, command=tuple(command))


def _child(
    role: Role, number: int, module: str, zookeeper: str, *, port: int = 0, more: tuple[str, ...] = ()
) -> ProcessPlan:
    addresses = ("--zookeeper", zookeeper, "--host", HOST, "--port", str(port), "--health-port", "0")
    return ProcessPlan(f"{role}-{number}", role, (sys.executable, "-m", module, *addresses, *more))
