"""A cluster whose processes have the version of this tree, a former or a next one, and change it.

    with FormerCluster.running(directory) as cluster: await cluster.change_version("owner-1", Version.CURRENT)

The former version is the archive `tests/golden/version-8/services.tar.xz`: its package as it was. The next one is this
tree's package, but one level higher (`next_version`). Both run with the libraries of this tree's virtualenv.
"""

import signal
import tarfile
from collections.abc import Mapping
from enum import Enum
from pathlib import Path

from tests.cluster.cluster_fixture import START_S, Cluster
from tests.cluster.until import until
from tests.upgrade_proof.mixed_standalone import versions
from tests.upgrade_proof.next_version import write_next

#: Every process that a cluster of these tests may have.
NAMES = [f"{role}-{number}" for role in ("metadata", "storage", "owner") for number in range(1, 4)]
ROOT = Path(__file__).resolve().parents[2]
GOLDEN = ROOT / "tests" / "golden" / "version-8"
#: Of the archive, and the level of a cluster that it creates.
FORMER_VERSION = 8


class Version(Enum):
    """Which package a process runs."""

    FORMER = "former"
    CURRENT = "current"
    NEXT = "next"


def unpacked(archive: Path, directory: Path) -> Path:
    """The content of an archive of ours."""
    with tarfile.open(archive) as packed:
        packed.extractall(directory, filter="data")
    return directory


class MixedCluster(Cluster):
    """See `Cluster`. Processes are named metadata-1, storage-1, owner-1 and so on."""

    program = ("tests.upgrade_proof.mixed_standalone",)
    #: of all processes at first
    first = Version.CURRENT

    def __init__(self, data: Path, arguments: list[str], environment: Mapping[str, str]) -> None:
        super().__init__(data, arguments, {**environment, "PYTHONPATH": f"{ROOT}:{ROOT / 'services'}"})
        former, following = (data.with_name(f"{data.name}.{each.value}") for each in (Version.FORMER, Version.NEXT))
        self._packages = {
            Version.FORMER: unpacked(GOLDEN / "services.tar.xz", former) / "services",
            Version.CURRENT: ROOT / "services",
            Version.NEXT: write_next(ROOT / "services", following),
        }
        versions(data).mkdir(exist_ok=True)
        for name in NAMES:
            self.choose(name, self.first)

    @property
    def former_package(self) -> Path:
        """For PYTHONPATH of programs of the former version."""
        return self._packages[Version.FORMER]

    def choose(self, name: str, version: Version) -> None:
        """The version of the next start."""
        link = versions(self.data) / name
        link.unlink(missing_ok=True)
        link.symlink_to(self._packages[version])

    async def change_version(self, name: str, version: Version) -> None:
        """End the process as a roll-out does, and return once it serves in the other version."""
        self.choose(name, version)
        pid = self.signal(name, signal.SIGTERM)
        wanted = f"{name} in the {version.value} version"
        await until(lambda: self._serves_again(name, pid), START_S, waiting_for=wanted)

    def _serves_again(self, name: str, pid: int) -> bool:
        process = self.processes[name]
        return bool(process["state"] == "serving" and process["pid"] != pid)


class FormerCluster(MixedCluster):
    """Begins as a cluster of the former version."""

    first = Version.FORMER
