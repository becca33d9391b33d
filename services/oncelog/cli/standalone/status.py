"""The status of a standalone cluster, in DIR/standalone.json and for `-o json`.

{"pid", "data", "light", "ready", "url", "admin_url", "console_url", "pulsar_url", "pulsar_rest_url", "kafka_servers",
"zookeeper", "processes": [{"name", "role", "pid", "state", "restarts", "serving"}]}; pid is null while a process is
down; serving has the addresses that the process reported; console_url is empty if the console is off, pulsar_url
without a door for clients of Pulsar, pulsar_rest_url without one that serves `pulsar-admin`, kafka_servers without one
for clients of Kafka.
"""

import contextlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from oncelog.cli.standalone.cluster_plan import Role
from oncelog.runtime.whole_file import overwrite_file


@dataclass(frozen=True, slots=True)
class ProcessStatus:
    """One process. restarts: number of restarts."""

    name: str
    role: str
    pid: int | None
    state: str
    restarts: int
    serving: Mapping[str, object]


@dataclass(frozen=True, slots=True)
class ClusterStatus:
    """The cluster. pid: of the supervisor. light: one copy of each message, for tests. ready: all processes became
    ready. tls: its services use TLS. rest: host:port of REST at the first metadata service, known before it serves."""

    pid: int
    data: str
    ready: bool
    processes: Sequence[ProcessStatus]
    tls: bool = False
    light: bool = False
    rest: str = ""

    @property
    def url(self) -> str:
        """The URL for clients."""
        scheme = "oncelog+tls" if self.tls else "oncelog"
        return f"{scheme}://" + ",".join(self._addresses(Role.METADATA, "address"))

    @property
    def admin_url(self) -> str:
        """The REST address of the first metadata service."""
        return self._http("http") or (f"{self._scheme}://{self.rest}" if self.rest else "")

    @property
    def console_url(self) -> str:
        """The address of the console, at the first metadata service; empty if it is off."""
        return self._http("console")

    @property
    def pulsar_url(self) -> str:
        """For clients of Pulsar; empty without a door."""
        scheme = "pulsar+ssl" if self.tls else "pulsar"
        return next((f"{scheme}://{address}" for address in self._addresses(Role.DOOR, scheme)), "")

    @property
    def pulsar_rest_url(self) -> str:
        """For `pulsar-admin`; empty without it."""
        return next((f"{self._scheme}://{address}" for address in self._addresses(Role.DOOR, self._scheme)), "")

    @property
    def kafka_servers(self) -> str:
        """host:port, as clients of Kafka take it for `bootstrap.servers`; empty without a door for them."""
        return ",".join(self._addresses(Role.DOOR, "kafka+ssl" if self.tls else "kafka"))

    @property
    def zookeeper(self) -> str:
        return ",".join(self._addresses(Role.ZOOKEEPER, "address"))

    def to_json(self) -> dict[str, object]:
        addresses = {
            "url": self.url,
            "admin_url": self.admin_url,
            "console_url": self.console_url,
            "pulsar_url": self.pulsar_url,
            "pulsar_rest_url": self.pulsar_rest_url,
            "kafka_servers": self.kafka_servers,
            "zookeeper": self.zookeeper,
        }
        return {"pid": self.pid, "data": self.data, "light": self.light, "ready": self.ready, **addresses} | {
            "processes": [asdict(process) | {"serving": dict(process.serving)} for process in self.processes]
        }

    @property
    def _scheme(self) -> str:
        return "https" if self.tls else "http"

    def _http(self, name: str) -> str:
        return next((f"{self._scheme}://{address}" for address in self._addresses(Role.METADATA, name)), "")

    def _addresses(self, role: Role, name: str) -> list[str]:
        return [
            str(process.serving[name]) for process in self.processes if process.role == role and name in process.serving
        ]


def write_status(path: Path, status: ClusterStatus) -> None:
    """Replace the file atomically; on a full disk, where that is not possible, in place. Raises OSError."""
    data = f"{json.dumps(status.to_json(), indent=2)}\n".encode()
    beside = path.with_suffix(".json.new")
    try:
        beside.write_bytes(data)
        beside.replace(path)
    except OSError:
        with contextlib.suppress(OSError):
            beside.unlink(missing_ok=True)
        overwrite_file(path, data)


def read_status(path: Path) -> dict[str, object]:
    """Raises OSError, and ValueError for a file that was cut off."""
    found: dict[str, object] = json.loads(path.read_text())
    return found
