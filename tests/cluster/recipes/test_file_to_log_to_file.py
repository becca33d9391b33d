"""The recipe "File to log to file": both programs are killed while they work, and the files are equal."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from tests.cluster.programs import DEADLINE_S, running
from tests.cluster.recipes.recipe_programs import Programs, Watched
from tests.cluster.until import until

pytestmark = pytest.mark.asyncio

LINES = 12_000


async def test_copied_file_is_equal(
    programs: Programs, watched: Callable[[str], Awaitable[Watched]], tmp_path: Path
) -> None:
    """Also a line that is completed later, and bytes that a killed run has left behind its position."""
    source, copy = tmp_path / "source", tmp_path / "copy"
    source.write_bytes(b"".join(b"line %d\r\n" % number for number in range(LINES)) + b"incompl")
    copy.touch()
    topic = await watched("file-lines")

    async def publish() -> None:
        await programs.killed_often(lambda: programs.start("file_to_log.py", "source"), lambda: topic.count, LINES)
        both = [programs.start("file_to_log.py", "source") for _ in range(2)]
        await until(
            lambda: not any(each.runs() for each in both), DEADLINE_S, waiting_for="the end of two that run at once"
        )
        await programs.start("file_to_log.py", "source").ends()

    await asyncio.gather(
        publish(),
        programs.killed_often(
            lambda: programs.start("log_to_file.py", "copy"), lambda: copy.read_bytes().count(b"\n"), LINES
        ),
    )
    with copy.open("ab") as file:
        file.write(b"what a run wrote before it was killed")
    with source.open("ab") as file:
        file.write(b"ete no more\n")
    async with running(programs.start("log_to_file.py", "copy")) as copier:
        await programs.start("file_to_log.py", "source").ends()
        await copier.reaches(lambda: copy.read_bytes().endswith(b"no more\n"), "the last line")
        second = await programs.start("log_to_file.py", "copy").ends(1)
    assert copy.read_bytes() == source.read_bytes()
    assert topic.values == source.read_bytes().split(b"\n")[:-1]
    assert "BlockingIOError" in second  # two programs do not write one copy


async def test_wrong_file_is_refused(programs: Programs) -> None:
    """A shorter source is another file, and a shorter copy lacks lines."""
    source, copy = programs.directory / "rotated", programs.directory / "copy"
    source.write_bytes(b"one\ntwo\n")
    await programs.start("file_to_log.py", "rotated").ends()
    source.write_bytes(b"one\n")
    copy.write_bytes(b"")
    (programs.directory / "copy.position").write_text('{"index": 1, "bytes": 4}')
    rotated, shorter = programs.start("file_to_log.py", "rotated"), programs.start("log_to_file.py", "copy")
    assert "ends before byte 4" in await rotated.ends(1)
    assert "is shorter than" in await shorter.ends(1)
