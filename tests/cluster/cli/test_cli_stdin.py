"""Lines of a pipe: each is read as soon as it is complete, and the last one also without a newline."""

import os
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from oncelog.cli.produce.line_file import LineBlock
from oncelog.cli.produce.stdin_lines import lines_of_descriptor


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
