"""The identity of a storage node: created with its directory, and ends with it.

identity.json    {format 2, cluster_id, incarnation, created_ms, first_segment_id, crc32c}: the two ids are UUIDs
                 as 32 hex digits; crc32c covers the other fields as JSON with sorted keys. Written as
                 identity.json.tmp, fsync, rename, fsync of the directory
"""

import json
import os
from dataclasses import dataclass
from pathlib import Path

from crc32c import crc32c

from oncelog.core.errors import StorageDirectoryRefused
from oncelog.core.formats.record_fields import built
from oncelog.log_storage.directory.descriptor_reserve import DescriptorReserve
from oncelog.log_storage.directory.segment_writer import DiskCalls, write_all

FORMAT = 2
IDENTITY = "identity.json"
TEMPORARY = ".tmp"
#: first_segment_id of a directory whose first segment is still being created.
NOT_FORMATTED = 0
#: What to do if files of a directory are lost: "Replacing a disk" in docs/incidents.md.
REPLACE = (
    "keep this directory, and start the node with another, empty one once `oncelog admin storage may-replace` allows "
    "it: repair copies its ledgers from other nodes"
)


@dataclass(frozen=True, slots=True)
class Identity:
    """The identity of this node. The two ids are 32 hex digits."""

    cluster_id: str
    incarnation: str
    created_ms: int
    first_segment_id: int

    def encode(self) -> bytes:
        fields: dict[str, int | str] = {
            "format": FORMAT,
            "cluster_id": self.cluster_id,
            "incarnation": self.incarnation,
            "created_ms": self.created_ms,
            "first_segment_id": self.first_segment_id,
        }
        fields["crc32c"] = crc32c(json.dumps(fields, sort_keys=True).encode())
        return json.dumps(fields, indent=1).encode() + b"\n"

    @classmethod
    def decode(cls, data: bytes, path: Path) -> "Identity":
        """Raises StorageDirectoryRefused."""
        look = f"`oncelog storage inspect {path.parent}` shows what the directory holds"
        try:
            fields = json.loads(data)
            checksum, form = fields.pop("crc32c"), fields.pop("format")
            # The fields of another format may be others, which does not make them invalid.
            identity = built(cls, fields) if form == FORMAT else None
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            raise StorageDirectoryRefused(
                f"{path}: not a valid identity ({error}); restore it; if it is lost, {REPLACE}; {look}"
            ) from error
        if identity is None:
            raise StorageDirectoryRefused(
                f"{path}: has format {form}, but this version reads format {FORMAT}; start a version of that format"
            )
        if checksum != crc32c(json.dumps(fields | {"format": form}, sort_keys=True).encode()):
            raise StorageDirectoryRefused(f"{path}: wrong checksum; restore the file; if it is lost, {REPLACE}; {look}")
        return identity


def sync_directory(path: Path, reserve: DescriptorReserve | None = None) -> None:
    flags = os.O_RDONLY | os.O_DIRECTORY
    fd = os.open(path, flags) if reserve is None else reserve.open(path, flags)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def write_identity(path: Path, identity: Identity) -> None:
    write_durably(path, IDENTITY, identity.encode())


def write_durably(path: Path, name: str, data: bytes) -> None:
    """Replace a file of the directory. After a crash it has the old or the new content. Raises OSError."""
    write_whole(path, name, data, synced=True)


def write_whole(path: Path, name: str, data: bytes, *, synced: bool) -> None:
    """Replace a file of the directory. Not synced: after a power cut it may have any content. Raises OSError."""
    temporary = path / (name + TEMPORARY)
    fd = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
    try:
        write_all(DiskCalls(), fd, [data], 0)
        if synced:
            os.fsync(fd)
    finally:
        os.close(fd)
    temporary.rename(path / name)
    if synced:
        sync_directory(path)
