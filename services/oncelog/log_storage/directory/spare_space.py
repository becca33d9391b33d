"""The space of one segment that is kept free for compaction and for what a recovery must write (hazard
reserve-used-by-repair).

On a full disk nothing could be erased any more: a tombstone and the copies of a compaction need space, too.
"""

import errno
import logging
import os
from pathlib import Path

from oncelog.log_storage.directory.descriptor_reserve import DescriptorReserve
from oncelog.log_storage.directory.segment_writer import DiskCalls

logger = logging.getLogger(__name__)

SPARE = "spare"
DISK_FULL = frozenset({errno.ENOSPC, errno.EDQUOT})


def allocate(fd: int, file_bytes: int, spare: Path, disk: DiskCalls) -> None:
    """Give a file its full size; on a full disk, from the space that is kept for this. Raises OSError."""
    try:
        disk.allocate(fd, 0, file_bytes)
    except OSError as error:
        if error.errno not in DISK_FULL or not spare.exists():
            raise
        logger.warning("disk full: the space that was kept for compaction is used now")
        spare.unlink()
        disk.allocate(fd, 0, file_bytes)


def keep_spare(spare: Path, size: int, reserve: DescriptorReserve, disk: DiskCalls) -> None:
    """Reserve that many bytes under this name, if the disk has them. Raises OSError, but not for lack of space."""
    if spare.exists():
        return
    try:
        fd = reserve.open(spare, os.O_RDWR | os.O_CREAT | os.O_TRUNC)
        try:
            disk.allocate(fd, 0, size)
        finally:
            os.close(fd)
    except OSError as error:
        spare.unlink(missing_ok=True)
        if error.errno not in DISK_FULL:
            raise
