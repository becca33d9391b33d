"""Whether the volume of a data directory is mounted (hazard unmounted-volume).

An empty directory at the address of a node that had stored something has two explanations: its disk was replaced, or
its volume is not mounted now. In the second case a new node must not be formatted: the mount would later hide what it
has acknowledged.

Rules
1. A cookie says whether its directory was on a file system of its own, apart from that of `/` and of temporary files.
   A directory without an identity, on one of these two, at the address of such a cookie, is not formatted.
2. In a container, `/` is the image, and temporary files are on the disk of the machine, as is the mount point of a
   volume that is not mounted. The chart mounts an emptyDir at /tmp for this.
3. Nothing follows where volumes are directories of the machine's own disk: no node there has a file system of its own.
"""

import tempfile
from collections.abc import Iterable
from pathlib import Path

from oncelog.core.errors import StorageDirectoryRefused
from oncelog.log_storage.directory.identity import IDENTITY
from oncelog.metadata_store.records.registry import StorageCookie


def has_own_filesystem(path: Path) -> bool:
    """Whether the directory, or the nearest one above it that exists, is on a file system of its own."""
    existing = next(each for each in (path, *path.absolute().parents) if each.exists())
    shared = {Path(each).stat().st_dev for each in ("/", tempfile.gettempdir())}
    return existing.stat().st_dev not in shared


def refuse_unmounted(path: Path, cookies: Iterable[StorageCookie], *, host: str, port: int) -> None:
    """host, port: the address of this node, which was configured. Raises StorageDirectoryRefused."""
    if (path / IDENTITY).exists() or has_own_filesystem(path):
        return
    for cookie in cookies:
        if (cookie.host, cookie.port) == (host, port) and cookie.own_filesystem and not cookie.retired:
            raise StorageDirectoryRefused(
                f"{path}: the directory is empty and on the disk of this machine, but storage node "
                f"{cookie.incarnation} at {host}:{port} had a volume of its own: the volume is not mounted. Mount it "
                f"and start again. To give this node a directory without a volume, set ONCELOG_MOUNT_CHECK=false; "
                f"the copies of {cookie.incarnation} are then replaced from other nodes"
            )
