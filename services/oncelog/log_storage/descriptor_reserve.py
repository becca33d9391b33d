"""Descriptors that the journal always gets: a segment roll must not fail because connections have taken all others.

A few descriptors are kept open on nothing. When the process has none left, one of them is closed for the file that is
to be opened, and taken back as soon as there are descriptors again.
"""

import errno
import logging
import os
import time
from pathlib import Path

logger = logging.getLogger(__name__)

#: A roll has the next segment and its directory open at the same time, beside the full segment.
RESERVED = 4
#: Somebody else may have taken what was freed; connections come and go.
PAUSE_S = 0.05
#: How long a roll waits for a descriptor. Everything that is being appended waits as long.
WAIT_S = 60.0
_NONE_LEFT = frozenset({errno.EMFILE, errno.ENFILE})


class DescriptorReserve:
    """Of one directory; used by one thread at a time."""

    def __init__(self) -> None:
        self._kept: list[int] = []
        self.refill()

    def refill(self) -> None:
        """Take back what was given away, as far as there are descriptors."""
        try:
            while len(self._kept) < RESERVED:
                self._kept.append(os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC))
        except OSError as error:
            if error.errno not in _NONE_LEFT:
                raise

    def open(self, path: Path, flags: int, mode: int = 0o644) -> int:
        """os.open, with a descriptor of the reserve when there is no other. Raises OSError, for want of descriptors
        only after WAIT_S."""
        deadline = time.monotonic() + WAIT_S
        told = False
        while True:
            try:
                return os.open(path, flags, mode)
            except OSError as error:
                if error.errno not in _NONE_LEFT or time.monotonic() > deadline:
                    raise
                if not told:
                    told = True
                    logger.error("no file descriptors are left: the journal uses its reserve for %s", path)
            if self._kept:
                os.close(self._kept.pop())
            else:
                time.sleep(PAUSE_S)

    def close(self) -> None:
        while self._kept:
            os.close(self._kept.pop())
