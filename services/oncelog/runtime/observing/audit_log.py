"""The audit log: one JSON line for each administrative change and each refusal, in the log of the process, and in a
file of its own if one is configured.

    audit = AuditLog(events, Path("/audit/metadata-0.log"))
    await audit.write("administrative change", {"role": "ann", "method": "PUT", ...})

Rules
- Lines are of logger `oncelog.audit`, at every log level.
- A line is in the file, and synced, before `write` returns; a disk that takes longer than WRITE_WAIT_S delays nothing
  more, and the line follows.
- A line that cannot be written to the file (its disk is full) is in the log of the process all the same. That is logged
  as an error, an event and a count; what the line is about was done already, and is answered as it is.
- The file is renamed at FILE_BYTES_MAX to NAME.1, the others move on, and the tenth goes. One process writes a file.
"""

import asyncio
import fcntl
import logging
import os
from collections import Counter, OrderedDict
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from pathlib import Path

from oncelog.core.errors import InvalidArgument
from oncelog.runtime.logs import JsonFormatter
from oncelog.runtime.observing.events import EventKind, EventRing
from oncelog.runtime.settings import variable

logger = logging.getLogger(__name__)
_lines = logging.getLogger("oncelog.audit")

FILE_BYTES_MAX = 10 << 20
FILES_MAX = 10
WRITE_WAIT_S = 2.0
#: Lines that wait for the disk; one that comes then is not in the file.
WAITING_MAX = 1_000
#: Between two lines about refusals of one role or host; and of so many of these the time is known.
REFUSALS_MS = 1_000
REFUSED_MAX = 1_000
_FLAGS = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC
_MODE = 0o640


class AuditLog:
    """For one event loop. `counts`: lines by what became of them: logged, missing_in_file, left_out."""

    def __init__(self, events: EventRing, path: Path | None = None, *, write_wait_s: float = WRITE_WAIT_S) -> None:
        """path: of the file; None: none. write_wait_s: how long the disk may delay `write`. Raises InvalidArgument."""
        self.counts: Counter[str] = Counter()
        self.events = events
        self._write_wait_s = write_wait_s
        self._file = None if path is None else _AuditFile(path)
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="audit")
        self._waiting: set[asyncio.Future[None]] = set()
        #: {role or host: (when a refusal got a line, how many got none since)}, the latest last
        self._refusals: OrderedDict[str, tuple[int, int]] = OrderedDict()

    def begin(self, message: str, fields: Mapping[str, object]) -> None:
        """Log a line, and begin to write it to the file."""
        record = _lines.makeRecord(
            _lines.name, logging.INFO, __file__, 0, message, (), None, extra={"fields": dict(fields)}
        )
        _lines.handle(record)  # whatever the log level
        self.counts["logged"] += 1
        if self._file is None:
            return
        if len(self._waiting) >= WAITING_MAX:
            self._missing(f"{WAITING_MAX} lines wait for the disk")
            return
        line = JsonFormatter().format(record).encode(errors="replace") + b"\n"
        writing = asyncio.get_running_loop().run_in_executor(self._thread, self._file.write, line)
        self._waiting.add(writing)
        writing.add_done_callback(self._written)

    async def write(self, message: str, fields: Mapping[str, object]) -> None:
        """As `begin`; return when the line, and those before it, are written."""
        self.begin(message, fields)
        if self._waiting:
            await asyncio.wait(set(self._waiting), timeout=self._write_wait_s)

    def refused(self, who: str) -> int | None:
        """Whether a refusal of this role or host gets a line: how many before it got none; None: it gets none."""
        now_ms = self.events.now_ms()
        at_ms, left_out = self._refusals.pop(who, (now_ms - REFUSALS_MS, 0))
        due = now_ms - at_ms >= REFUSALS_MS
        self._refusals[who] = (now_ms, 0) if due else (at_ms, left_out + 1)
        if len(self._refusals) > REFUSED_MAX:
            self._refusals.popitem(last=False)
        if due:
            return left_out
        self.counts["left_out"] += 1
        return None

    def _written(self, writing: asyncio.Future[None]) -> None:
        self._waiting.discard(writing)
        if not writing.cancelled() and (error := writing.exception()) is not None:
            self._missing(str(error))

    def _missing(self, reason: str) -> None:
        self.counts["missing_in_file"] += 1
        self.events.note(
            EventKind.AUDIT_FAILED, logger, "a line is missing in the audit file; the log of the process has it",
            level="error", repeats=True, reason=reason,
        )  # fmt: skip

    async def close(self) -> None:
        """Wait for the lines in progress, as long as `write` does."""
        if self._waiting:
            await asyncio.wait(set(self._waiting), timeout=self._write_wait_s)
        self._thread.shutdown(wait=False, cancel_futures=True)
        if self._file is not None and not self._waiting:
            self._file.close()


class _AuditFile:
    """Used by one thread."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._lock: int | None = None
        try:
            self._lock = os.open(f"{path}.lock", _FLAGS, _MODE)
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            self._descriptor = os.open(path, _FLAGS, _MODE)
        except OSError as error:
            if self._lock is not None:
                os.close(self._lock)
            taken = "another process writes it: give each process a file of its own"
            reason = taken if isinstance(error, BlockingIOError) else error.strerror
            message = f"{variable('audit_file')}: cannot write {path}: {reason}"
            raise InvalidArgument(message, field="audit_file") from error

        self._size = os.fstat(self._descriptor).st_size
        #: whether the file may end inside a line, as after a crash or on a full disk
        self._torn = self._size > 0

    def write(self, line: bytes) -> None:
        """Append and sync. Raises OSError: the line is not there, or not whole."""
        if self._size and self._size + len(line) > FILE_BYTES_MAX:
            self._rotate()
        data = b"\n" + line if self._torn else line
        self._torn = True
        written = os.write(self._descriptor, data)
        self._size += written
        if written < len(data):
            raise OSError(f"{self._path}: only {written} of {len(data)} bytes were written: is the disk full?")
        os.fsync(self._descriptor)
        self._torn = False

    def _rotate(self) -> None:
        """The new file is there before a former one goes: a full disk must not shift all of them away."""
        fresh = Path(f"{self._path}.new")
        descriptor = os.open(fresh, _FLAGS, _MODE)
        try:
            names = [self._path, *(Path(f"{self._path}.{number}") for number in range(1, FILES_MAX))]
            for former, later in reversed([*pairwise(names)]):
                if former.exists():
                    former.replace(later)
            fresh.replace(self._path)
        except OSError:
            os.close(descriptor)
            raise
        os.close(self._descriptor)
        self._descriptor, self._size, self._torn = descriptor, 0, False

    def close(self) -> None:
        os.close(self._descriptor)
        if self._lock is not None:
            os.close(self._lock)
