"""A reserve of file descriptors for the journal: a segment roll must not fail when connections use up the limit.

Some descriptors are kept open on /dev/null. When the process has none left, one of them is closed so that the journal's
file can be opened. The reserve is refilled when descriptors are free again.
"""

import errno
import logging
import os
import time
from pathlib import Path

logger = logging.getLogger(__name__)

#: A roll opens the next segment and its directory, while the full segment is still open.
RESERVED = 4
#: Pause before another attempt: a connection may have taken the freed descriptor.
PAUSE_S = 0.05
#: How long a roll waits for a descriptor. All pending appends wait with it.
WAIT_S = 60.0
_NONE_LEFT = frozenset({errno.EMFILE, errno.ENFILE})


class DescriptorReserve:
    """The reserve of one directory. Used by one thread at a time."""

    def __init__(self) -> None:
        self._kept: list[int] = []
        self.refill()

    def refill(self) -> None:
        """Open reserve descriptors again, as far as the limit allows."""
        try:
            while len(self._kept) < RESERVED:
                self._kept.append(os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC))
        except OSError as error:
            if error.errno not in _NONE_LEFT:
                raise

    def open(self, path: Path, flags: int, mode: int = 0o644) -> int:
        """Like os.open, but uses a descriptor of the reserve if no other is free.

        Raises OSError; for lack of descriptors only after WAIT_S.
        """
        deadline = time.monotonic() + WAIT_S
        logged = False
        while True:
            try:
                return os.open(path, flags, mode)
            except OSError as error:
                if error.errno not in _NONE_LEFT or time.monotonic() > deadline:
                    raise
                if not logged:
                    logged = True
                    logger.error("no file descriptors left: the journal opens %s from its reserve", path)
            if self._kept:
                os.close(self._kept.pop())
            else:
                time.sleep(PAUSE_S)

    def close(self) -> None:
        while self._kept:
            os.close(self._kept.pop())
