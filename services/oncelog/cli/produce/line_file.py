"""Reads a file as lines with their byte offsets. The offset of a line is its sequence id, so no other state is needed.

A line ends with a newline, which is not part of it; a carriage return is, and an empty line counts. So the offsets
ascend, with gaps, and the line after the one at offset L begins after the next newline: the last published id shows
where to continue.

The bytes after the last newline are an incomplete line, which may still be being written. Once published, the line
could never be completed, because its id would be used. So it counts as a line only if the caller declares the file
final.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path
from typing import Self

from oncelog.core.errors import InvalidArgument

BLOCK_BYTES = 512 * 1024
#: Far above the maximum message size; protects the memory from a file without newlines.
LINE_BYTES_MAX = 64 * 1024 * 1024


class LineBlock:
    """Consecutive lines. values: without newlines. offsets: of the first byte of each; None: not from a file. end: the
    offset after the last line; -1: not from a file.
    """

    __slots__ = ("end", "offsets", "values")

    def __init__(self, values: list[bytes], offsets: list[int] | None, end: int) -> None:
        self.values = values
        self.offsets = offsets
        self.end = end

    def cut(self, count: int) -> tuple["LineBlock", "LineBlock"]:
        """The first `count` lines (at most all but one), and the rest."""
        assert 0 < count < len(self.values)
        ids = self.offsets
        middle = self.end if ids is None else ids[count]
        return (
            LineBlock(self.values[:count], None if ids is None else ids[:count], middle),
            LineBlock(self.values[count:], None if ids is None else ids[count:], self.end),
        )

    def __len__(self) -> int:
        return len(self.values)


def split_lines(data: bytes, start: int) -> LineBlock:
    """The lines of `data`, which ends with a newline and begins at byte `start` of its file."""
    values = data.split(b"\n")
    values.pop()
    ends = accumulate((len(value) + 1 for value in values), initial=start)
    offsets = list(ends)
    end = offsets.pop()
    return LineBlock(values, offsets, end)


@dataclass(frozen=True, slots=True)
class IncompleteLine:
    """The bytes after the last newline. offset: of the first byte. size_bytes: at least 1."""

    offset: int
    size_bytes: int


class LineFile:
    """An open file; a context manager.

    final: the file will not grow, so the bytes after its last newline are a line, too.
    """

    def __init__(self, path: Path, block_bytes: int = BLOCK_BYTES, *, final: bool = False) -> None:
        self.path = path
        self.final = final
        #: set by `blocks` at the end of a file that is not final; None if there is none
        self.incomplete: IncompleteLine | None = None
        self._file = path.open("rb")
        self._block_bytes = block_bytes
        self.size_bytes = self._file.seek(0, 2)

    def blocks(self, start: int) -> Iterator[LineBlock]:
        """The lines from byte `start` on, with the contents that the file has when each block is read.

        Raises InvalidArgument if a line is too long, or if the file was truncated meanwhile.
        """
        self.incomplete = None
        rest, at = b"", start
        while True:
            self._file.seek(at)
            data = self._file.read(self._block_bytes)
            at += len(data)
            cut = data.rfind(b"\n") + 1
            if cut:
                block = split_lines(rest + data[:cut], start)
                rest, start = data[cut:], block.end
                yield block
            elif data:
                rest += data
                if len(rest) > LINE_BYTES_MAX:
                    raise InvalidArgument(
                        f"the line at byte {start} of {self.path} exceeds {LINE_BYTES_MAX} bytes, the maximum",
                        field="line",
                    )
            else:
                break
        size_bytes = self._file.seek(0, 2)
        if size_bytes < at:
            raise InvalidArgument(
                f"{self.path} was truncated to {size_bytes} bytes after {at} bytes were read: the published lines may "
                "differ from the current file",
                field="from_file",
            )
        if rest and self.final:
            yield LineBlock([rest], [start], start + len(rest))
        elif rest:
            self.incomplete = IncompleteLine(start, len(rest))

    def after(self, offset: int) -> int:
        """The offset of the line after the one at `offset`; the end of the file after the last line.

        Raises InvalidArgument if no line begins at `offset`: another file was published. Also if the line has no
        newline and the file is not final: either the line was published with --final, or the file was truncated within
        the line, and these cannot be distinguished.
        """
        self._check_beginning(offset)
        self._file.seek(offset)
        at = offset
        while data := self._file.read(self._block_bytes):
            found = data.find(b"\n")
            if found >= 0:
                return at + found + 1
            at += len(data)
        if not self.final:
            raise InvalidArgument(
                f"the last published line, at byte {offset} of {self.path}, has no newline: it was published with "
                "--final, or the file was truncated; use --final again if the file is complete and will not grow",
                field="from_file",
            )
        return at

    def before(self, offset: int, line_count: int) -> int:
        """The offset of the line that is `line_count` lines before the one at `offset`; 0 if there are fewer."""
        if line_count == 0:
            return offset
        # The newline at offset - 1 ends the previous line.
        end, wanted = offset - 1, line_count
        while end > 0:
            start = max(0, end - self._block_bytes)
            self._file.seek(start)
            data = self._file.read(end - start)
            found = len(data)
            while (found := data.rfind(b"\n", 0, found)) >= 0:
                wanted -= 1
                if wanted == 0:
                    return start + found + 1
            end = start
        return 0

    def _check_beginning(self, offset: int) -> None:
        if offset >= self.size_bytes:
            raise InvalidArgument(
                f"the last published sequence id is {offset}, but {self.path} has only {self.size_bytes} bytes: "
                "the file was truncated, or the producer name was used for another file",
                field="from_file",
                limit=self.size_bytes,
            )
        if offset == 0:
            return
        self._file.seek(offset - 1)
        if self._file.read(1) != b"\n":
            raise InvalidArgument(
                f"the last published sequence id is {offset}, but no line of {self.path} begins at that byte: "
                "the file is a different one, or the producer name was used for another file",
                field="from_file",
            )

    def close(self) -> None:
        self._file.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_details: object) -> None:
        self.close()
