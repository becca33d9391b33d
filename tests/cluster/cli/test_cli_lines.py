"""What `oncelog produce` reads: a file as lines with byte offsets, and the offset at which a run resumes; the lines of
a pipe, each as soon as it is complete, and the last one also without a newline."""

import os
from collections.abc import AsyncIterator
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oncelog.cli.produce.line_file import IncompleteLine, LineBlock, LineFile
from oncelog.cli.produce.stdin_lines import lines_of_descriptor
from oncelog.core.errors import InvalidArgument

#: Few letters, so that newlines, empty lines and carriage returns are common.
contents = st.binary(max_size=60).map(lambda data: bytes(b"a\n\r\nb"[byte % 5] for byte in data))
block_sizes = st.integers(min_value=1, max_value=20)


def lines_of(data: bytes) -> dict[int, bytes]:
    """{offset: line}, by the definition: pieces between newlines, without an empty one at the end."""
    pieces = data.split(b"\n")
    if not pieces[-1]:
        pieces.pop()
    found, at = {}, 0
    for piece in pieces:
        found[at] = piece
        at += len(piece) + 1
    return found


def read(file: LineFile, start: int) -> dict[int, bytes]:
    found: dict[int, bytes] = {}
    for block in file.blocks(start):
        assert block.offsets is not None
        assert len(block.offsets) == len(block.values)
        found |= dict(zip(block.offsets, block.values, strict=True))
    return found


def written(directory: Path, data: bytes) -> Path:
    path = directory / "lines"
    path.write_bytes(data)
    return path


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("lines")


@given(data=contents, block_bytes=block_sizes)
def test_every_line_is_read_with_its_offset(directory: Path, data: bytes, block_bytes: int) -> None:
    """At any block boundary, with or without a final newline. Empty lines and carriage returns are kept."""
    with LineFile(written(directory, data), block_bytes, final=True) as file:
        assert read(file, 0) == lines_of(data)


@given(data=contents, block_bytes=block_sizes)
def test_line_after_each_line_is_its_successor(directory: Path, data: bytes, block_bytes: int) -> None:
    """A resumed run starts with the line after the last stored line; after the last line there is none."""
    offsets = list(lines_of(data))
    with LineFile(written(directory, data), block_bytes, final=True) as file:
        for offset, successor in pairwise(offsets):
            assert file.after(offset) == successor
        if offsets:
            end = file.after(offsets[-1])
            assert end == len(data)
            assert read(file, end) == {}


@given(data=contents, block_bytes=block_sizes, count=st.integers(min_value=0, max_value=9))
def test_offset_of_earlier_lines_is_found(directory: Path, data: bytes, block_bytes: int, count: int) -> None:
    """A replay of the last n lines begins n lines earlier, or at the start of the file."""
    offsets = [*lines_of(data), len(data)]
    with LineFile(written(directory, data), block_bytes, final=True) as file:
        for index, offset in enumerate(offsets):
            assert file.before(offset, count) == offsets[max(0, index - count)]


@given(data=contents, block_bytes=block_sizes)
def test_offset_inside_a_line_is_refused(directory: Path, data: bytes, block_bytes: int) -> None:
    """An id that is not the start of a line was not published from this file: continuing would mix two files."""
    offsets = lines_of(data)
    with LineFile(written(directory, data), block_bytes, final=True) as file:
        for offset in range(len(data) + 2):
            if offset not in offsets:
                with pytest.raises(InvalidArgument):
                    file.after(offset)


@given(data=contents, block_bytes=block_sizes, count=st.integers(min_value=1, max_value=9))
def test_split_blocks_have_the_same_lines(directory: Path, data: bytes, block_bytes: int, count: int) -> None:
    """A rate-limited run sends parts of blocks. Each part has the offset of the next one."""
    with LineFile(written(directory, data), block_bytes, final=True) as file:
        for block in file.blocks(0):
            if count < len(block):
                first, rest = block.cut(count)
                assert first.values + rest.values == block.values
                assert rest.offsets is not None
                assert first.end == rest.offsets[0]
                assert rest.end == block.end


@given(data=contents, block_bytes=block_sizes)
def test_only_complete_lines_are_read_if_the_file_may_grow(directory: Path, data: bytes, block_bytes: int) -> None:
    """A last line without a newline may be incomplete: it is reported with its offset, and not read."""
    complete = data[: data.rfind(b"\n") + 1]
    with LineFile(written(directory, data), block_bytes) as file:
        assert read(file, 0) == lines_of(complete)
        rest = None if complete == data else IncompleteLine(len(complete), len(data) - len(complete))
        assert file.incomplete == rest


@given(data=contents, cut=st.integers(min_value=0, max_value=60), block_bytes=block_sizes)
def test_growing_file_gives_all_lines(directory: Path, data: bytes, cut: int, block_bytes: int) -> None:
    """Wherever the file ended at the first run, also between a carriage return and its newline."""
    path = written(directory, data[:cut])
    with LineFile(path, block_bytes) as file:
        found = read(file, 0)
    path.write_bytes(data)
    with LineFile(path, block_bytes) as file:
        found |= read(file, file.after(max(found)) if found else 0)
    assert found == lines_of(data[: data.rfind(b"\n") + 1])


def test_file_truncated_within_its_last_published_line_is_refused(tmp_path: Path) -> None:
    """Text written after the cut would be taken for the rest of the stored line, and skipped."""
    with LineFile(written(tmp_path, b"one\ntw")) as file, pytest.raises(InvalidArgument, match="has no newline"):
        file.after(4)


def test_file_truncated_while_it_is_read_is_refused(tmp_path: Path) -> None:
    """A normal end of the run would hide that the file was replaced."""
    path = written(tmp_path, b"one\ntwo\n")
    with LineFile(path, block_bytes=4) as file:
        blocks = file.blocks(0)
        assert next(blocks).values == [b"one"]
        assert next(blocks).values == [b"two"]
        path.write_bytes(b"new\n")
        with pytest.raises(InvalidArgument, match="was truncated to 4 bytes"):
            next(blocks)


def test_missing_file_is_reported_by_name(tmp_path: Path) -> None:
    """The error must name the file."""
    with pytest.raises(FileNotFoundError) as caught:
        LineFile(tmp_path / "missing.csv")
    assert caught.value.filename == str(tmp_path / "missing.csv")


# --- a pipe -----------------------------------------------------------------------------------------------------------


async def values(blocks: AsyncIterator[LineBlock]) -> list[bytes]:
    return [value async for block in blocks for value in block.values]


@pytest.mark.asyncio
async def test_lines_of_a_pipe_equal_those_of_a_file() -> None:
    """Both sources split lines in the same way. Lines of a pipe have no offsets."""
    reading, writing = os.pipe()
    os.write(writing, b"a\r\n\nlast")
    os.close(writing)
    assert await values(lines_of_descriptor(reading)) == [b"a\r", b"", b"last"]
    os.close(reading)


@pytest.mark.asyncio
async def test_line_is_passed_on_before_the_pipe_ends() -> None:
    """`tail -F` never ends: a printed line must be sent at once."""
    reading, writing = os.pipe()
    lines = lines_of_descriptor(reading)
    os.write(writing, b"first\nsec")
    block = await anext(lines)
    assert (block.values, block.offsets) == ([b"first"], None)
    os.write(writing, b"ond\n")
    assert (await anext(lines)).values == [b"second"]
    os.close(writing)
    assert await values(lines) == []
    os.close(reading)


@pytest.mark.asyncio
async def test_input_that_cannot_be_read_is_an_error_that_names_it(tmp_path: Path) -> None:
    """A directory, or a closed descriptor: the thread that reads died, and the command waited for lines for ever."""
    directory = os.open(tmp_path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        with pytest.raises(IsADirectoryError, match="standard input"):
            await values(lines_of_descriptor(directory))
    finally:
        os.close(directory)
