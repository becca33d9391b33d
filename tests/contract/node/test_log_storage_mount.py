"""A volume that is not mounted is not formatted as a new node."""

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from oncelog.core.errors import StorageDirectoryRefused
from oncelog.log_storage.directory.storage_directory import StorageDirectory
from oncelog.log_storage.directory.volume_mount import has_own_filesystem, refuse_unmounted
from oncelog.log_storage.serve.node_registration import NodeRegistration
from oncelog.metadata_store.records.registry import LiveStorageNode, Registry, StorageCookie
from tests.contract.storage_client.ledger_world import A
from tests.contract.stores.store_backends import Backend, new_cluster

HOST, PORT = "oncelog-storage-1.oncelog-storage-headless.logs.svc", 6650
CLUSTER = "c" * 32
ON_VOLUME = StorageCookie(A, HOST, PORT, own_filesystem=True)


@pytest.fixture
def mount_point() -> Iterator[Path]:
    """An empty directory on the file system of temporary files, as the mount point of an absent volume is."""
    with tempfile.TemporaryDirectory() as directory:
        yield Path(directory)


def test_own_filesystem_is_found_for_directories_that_do_not_exist_yet(mount_point: Path) -> None:
    """Linux mounts /proc as a file system of its own."""
    assert has_own_filesystem(Path("/proc/log"))
    assert not has_own_filesystem(mount_point / "log")
    assert not has_own_filesystem(Path("/"))


@pytest.mark.hazard("unmounted-volume")
def test_empty_mount_point_of_a_known_volume_is_refused(mount_point: Path) -> None:
    """The former node had a volume; this directory is on the disk of the machine. The error says what to do."""
    for path in (mount_point, mount_point / "log"):
        with pytest.raises(StorageDirectoryRefused, match=f"{A} .* is not mounted.*ONCELOG_MOUNT_CHECK=false"):
            refuse_unmounted(path, [ON_VOLUME], host=HOST, port=PORT)


@pytest.mark.parametrize(
    "cookies",
    [
        [],
        [StorageCookie(A, HOST, PORT)],
        [StorageCookie(A, HOST, PORT + 1, own_filesystem=True)],
        [StorageCookie(A, "other", PORT, own_filesystem=True)],
        [StorageCookie(A, HOST, PORT, retired=True, own_filesystem=True)],
    ],
    ids=["first node", "no volume before", "other port", "other host", "retired"],
)
def test_directory_without_a_known_volume_is_formatted(cookies: list[StorageCookie], mount_point: Path) -> None:
    """Where volumes are directories of the machine's own disk, nothing can be told apart."""
    refuse_unmounted(mount_point, cookies, host=HOST, port=PORT)


def test_replaced_volume_is_formatted() -> None:
    """A new volume is a file system of its own, too."""
    refuse_unmounted(Path("/proc/log"), [ON_VOLUME], host=HOST, port=PORT)


def test_directory_with_an_identity_may_move_to_the_disk_of_the_machine(mount_point: Path) -> None:
    """Its entries are there, so nothing is hidden."""
    StorageDirectory.open(mount_point, CLUSTER, segment_bytes=1 << 20).close()
    refuse_unmounted(mount_point, [ON_VOLUME], host=HOST, port=PORT)


@pytest.mark.asyncio
async def test_cookie_says_whether_the_directory_has_its_own_filesystem(backend: Backend) -> None:
    """Nodes of an earlier version did not record it, and a directory may move: each start corrects the cookie."""
    registry = Registry(await new_cluster(backend))
    node = LiveStorageNode(A, HOST, PORT, 1 << 30)
    for own in (False, True, False):
        await NodeRegistration(registry, node, address_is_chosen=True, own_filesystem=own).join()
        assert (await registry.cookies())[A].own_filesystem is own
