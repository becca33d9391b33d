"""Effects in a file: what a function appends, and beside it how far the file is. `core.effects.side_file` has the
rules."""

import asyncio
import logging
import os
import uuid
import zlib
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from oncelog.client.values.arguments import check_seconds
from oncelog.core.effect_errors import EffectMisuse, StoreDiverged, StoreMissing
from oncelog.core.errors import InvalidArgument, StoreMismatch, StoreUnavailable
from oncelog_effects.core.effects.ordered import Source, StoredPosition, is_expected
from oncelog_effects.core.effects.side_file import (
    SIDE_BYTES_MAX,
    SideFile,
    SideHeader,
    SideLine,
    check_source,
    decoded,
    encoded,
    encoded_line,
    fitting,
    shortened,
    tail_range,
)
from oncelog_effects.file_disk import FileDisk, FileState
from oncelog_effects.functions import call
from oncelog_effects.store import ClaimLost, SourceNames

logger = logging.getLogger(__name__)

PARTITION = "{partition}"
BUSY_TIMEOUT_S = 10.0
#: What a function may append for the messages of one call.
APPEND_BYTES_MAX = 64 << 20


class FileAppend:
    """What an application's function gets: the bytes that it writes are appended to the file when it returns.

    `print(…, file=append)` and `csv.writer(append)` work, too.
    """

    def __init__(self) -> None:
        self._parts: list[bytes] = []
        self._bytes = 0
        self._ended = False

    def write(self, data: bytes | memoryview | str) -> int:
        """data: text is encoded as UTF-8. Returns its length. Raises EffectMisuse after the function's end, and for
        more than 64 MiB in one call of the function."""
        if self._ended:
            raise EffectMisuse("the function has ended: what it appends must be written before it returns")
        part = data.encode() if isinstance(data, str) else bytes(memoryview(data))
        self._bytes += len(part)
        if self._bytes > APPEND_BYTES_MAX:
            raise EffectMisuse(
                f"the function has appended more than {APPEND_BYTES_MAX} bytes at once: append less for each message, "
                "or take smaller batches"
            )
        self._parts.append(part)
        return len(data)

    def end(self) -> bytes:
        self._ended = True
        return b"".join(self._parts)


@dataclass(slots=True)
class _Known:
    """The last line of the side file while it is in this state."""

    state: FileState
    last: SideLine


class FileEffects:
    """A store of effects in a file on a local disk, to which the function appends.

        @oncelog.process("orders", subscription="export", effects=FileEffects("orders-{partition}.csv"))
        def export(message, append):
            append.write(message.value + b"\\n")

    The file must be written by this store only; reading it is free. Beside it are PATH.oncelog, PATH.oncelog.lock and
    PATH.oncelog.id, which belong to it: move and copy them together. To have every effect again, empty the file while
    no program runs.

    Args:
        path: a topic with partitions needs {partition} in it, for the number of the partition, and has a file for each.
            The directory must exist.
        busy_timeout: seconds to wait for another process that is writing.

    Raises InvalidArgument.
    """

    def __init__(self, path: str | os.PathLike[str], *, busy_timeout: float = BUSY_TIMEOUT_S) -> None:
        check_seconds("busy_timeout", busy_timeout)
        self._path = os.fspath(path)
        if not Path(self._path).name:
            raise InvalidArgument("path must name a file", field="path")
        self._busy_timeout_s = busy_timeout
        self._disk = FileDisk()
        self._id = ""
        #: {side file: what was read of it}
        self._known: dict[Path, _Known] = {}
        directory = self._id_path.parent
        if PARTITION not in str(Path(self._path).parent) and not directory.is_dir():
            raise InvalidArgument(f"there is no directory {directory}", field="path")

    @property
    def place(self) -> str:
        return self._path

    @property
    def _id_path(self) -> Path:
        """Of the whole store, so that a subscription has the same one for all partitions."""
        return Path(f"{self._path.replace(PARTITION, 'all')}.oncelog.id")

    def path_of(self, partition: int) -> Path:
        """Of the file of this partition; -1: of a topic without partitions."""
        return Path(self._path.replace(PARTITION, "all" if partition < 0 else str(partition)))

    # --- EffectsStore -------------------------------------------------------------------------------------------------

    async def store_id(self) -> str:
        return await asyncio.to_thread(self._store_id)

    async def claim(
        self, source: Source, names: SourceNames, decide: Callable[[StoredPosition | None], StoredPosition]
    ) -> StoredPosition:
        return await asyncio.to_thread(self._claim, source, names, decide)

    async def apply(
        self,
        source: Source,
        claimed: StoredPosition,
        following: StoredPosition,
        run: Callable[[FileAppend], Awaitable[None] | None] | None,
    ) -> None:
        """The function runs without the lock: a claim that comes meanwhile voids it."""
        append = FileAppend()
        if run is not None:
            await call(run, append)
        await asyncio.to_thread(self._append, source, claimed, following, append.end())

    # --- under the lock, in a thread ----------------------------------------------------------------------------------

    def _store_id(self) -> str:
        with self._locked(self._id_path):
            found = self._disk.read(self._id_path)
            if not self._id:
                found = found or uuid.uuid4().hex.encode()
                # Also if it is there: the process that wrote it perhaps could not sync it.
                self._disk.replace(self._id_path, found)
        if len(found) != 32:
            raise StoreDiverged(f"{self._id_path} is damaged: restore it from a backup")
        known, self._id = self._id, found.decode()
        if known and known != self._id:
            # hazard store-replaced-while-running
            raise StoreMismatch(
                f"{self.place} was store {known} when this program began, and is store {self._id} now: the files were "
                "replaced; start the program again"
            )
        return self._id

    def _claim(
        self, source: Source, names: SourceNames, decide: Callable[[StoredPosition | None], StoredPosition]
    ) -> StoredPosition:
        path, side_path = self._paths(source)
        wanted = SideHeader(self._store_id(), source, names.topic, names.subscription)
        with self._locked(side_path):
            side = decoded(self._disk.read(side_path), str(side_path))
            state = self._disk.state(path)
            size = 0 if state is None else state.length
            lines: tuple[SideLine, ...] = ()
            stored, length = None, size
            if side is not None and side.lines:
                check_source(side.header, wanted, str(side_path))
                line = fitting(side, size, partial(self._tail_crc, path), str(path))
                lines, stored, length = side.lines, line.stored, line.length
            try:
                decided = decide(stored)
            except StoreMissing as error:
                raise StoreMissing(
                    f"{side_path} is missing, which says how far {path} is, and the log knows that messages have taken "
                    f"effect in store {wanted.store_id}: restore both from one backup; or, to have every effect again, "
                    "take another path and another subscription"
                ) from error
            self._disk.create(path)
            if size > length:
                logger.warning("%s: %d bytes without their line are cut from the end", path, size - length)
                self._disk.cut(path, length)
            line = SideLine(decided, length, self._tail_crc(path, length))
            self._disk.replace(side_path, encoded(SideFile(wanted, shortened((*lines, line)))))
            self._remember(side_path, line)
        return decided

    def _append(self, source: Source, claimed: StoredPosition, following: StoredPosition, data: bytes) -> None:
        path, side_path = self._paths(source)
        with self._locked(side_path):
            known = self._read_last(side_path)
            last = known.last
            state = self._disk.state(path)
            if not is_expected(last.stored, claimed):
                raise ClaimLost
            if state is None or state.length != last.length:
                raise ClaimLost  # bytes of a batch without its line, or a file that was changed: the next claim decides
            if data:
                self._disk.write(path, last.length, data)
            length = last.length + len(data)
            line = SideLine(following, length, self._tail_crc(path, length))
            self._disk.write(side_path, known.state.length, encoded_line(line))
            if known.state.length > SIDE_BYTES_MAX:
                side = decoded(self._disk.read(side_path), str(side_path))
                assert side is not None
                self._disk.replace(side_path, encoded(side._replace(lines=shortened(side.lines))))
            self._remember(side_path, line)

    def _read_last(self, side_path: Path) -> _Known:
        """From memory, if nothing has changed the side file since. Raises ClaimLost, if there is no line, or a part of
        one at the end: nothing may be appended to that."""
        state = self._disk.state(side_path)
        known = self._known.get(side_path)
        if known is not None and known.state == state:
            return known
        data = self._disk.read(side_path)
        side = decoded(data, str(side_path))
        if state is None or side is None or not side.lines or not data.endswith(b"\n"):
            raise ClaimLost
        return _Known(state, side.lines[-1])

    def _remember(self, side_path: Path, last: SideLine) -> None:
        state = self._disk.state(side_path)
        assert state is not None
        self._known[side_path] = _Known(state, last)

    def _tail_crc(self, path: Path, length: int) -> int:
        return zlib.crc32(self._disk.read(path, *tail_range(length)))

    def _paths(self, source: Source) -> tuple[Path, Path]:
        path = self.path_of(source.partition)
        return path, path.with_name(f"{path.name}.oncelog")

    @contextmanager
    def _locked(self, path: Path) -> Iterator[None]:
        """Raises StoreUnavailable, StoreBusy."""
        try:
            with self._disk.locked(path.with_name(f"{path.name}.lock"), self._busy_timeout_s):
                yield
        except OSError as error:
            self._known.pop(path, None)
            raise StoreUnavailable(f"{path}: {error}") from error
