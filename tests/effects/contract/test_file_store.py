"""What a store of effects in a file does besides what every store does: crashes between its steps, changed files."""

import asyncio
import signal
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from oncelog.core.effect_errors import EffectMisuse, StoreBusy, StoreDiverged, StoreMissing
from oncelog.core.errors import InvalidArgument, StoreMismatch, StoreUnavailable
from oncelog_effects.core.effects.ordered import claimed as decide_claim
from oncelog_effects.core.effects.side_file import SIDE_BYTES_MAX, SideFile, SideHeader, SideLine, encoded, encoded_line
from oncelog_effects.file_store import APPEND_BYTES_MAX, FileAppend, FileEffects
from oncelog_effects.store import ClaimLost
from tests.core.delivery.bound_log import LOG
from tests.effects.contract.positions import FIRST, NAMES, SOURCE, at, claimed, stored

pytestmark = pytest.mark.asyncio

#: Holds the lock of a file, says so, and is stopped or killed by the test.
HOLD = (
    "from oncelog_effects.file_disk import *; l = FileDisk().locked(Path({!r}), 1); l.__enter__(); print(flush=True); "
)


def printing(line: str) -> Callable[[FileAppend], None]:
    return lambda append: print(line, file=append)


async def applied(path: Path, *lines: str) -> FileEffects:
    """A file with a batch for each line."""
    effects = FileEffects(path)
    await claimed(effects)
    for number, line in enumerate(lines):
        await effects.apply(SOURCE, at(number), at(number + 1), printing(line))
    return effects


@pytest.mark.hazard("data-without-its-line")
async def test_each_number_is_in_the_file_once_whichever_step_fails(tmp_path: Path) -> None:
    """`file_kills` kills it at each step, loses what was not synced, and fails steps of the disk."""
    command = [sys.executable, "-m", "tests.effects.contract.file_kills", str(tmp_path)]
    ran = await asyncio.to_thread(lambda: subprocess.run(command, check=False, capture_output=True, text=True))
    assert ran.returncode == 0, ran.stderr[-2000:]
    assert [line.split()[0] for line in ran.stdout.splitlines()] == ["kill", "kill", "error", "error"]
    assert all(int(line.split()[1]) > 20 for line in ran.stdout.splitlines())


@pytest.mark.hazard("stopped-process-holds-the-row")
async def test_stopped_process_is_named_and_a_killed_one_holds_nothing(tmp_path: Path) -> None:
    path = tmp_path / "numbers"
    await applied(path)
    program = HOLD.format(f"{path}.oncelog.lock") + "input()"
    holder = await asyncio.create_subprocess_exec(
        sys.executable, "-c", program, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert holder.stdout is not None
    try:
        await holder.stdout.readline()
        holder.send_signal(signal.SIGSTOP)
        with pytest.raises(StoreBusy, match=f"locked by process {holder.pid} "):
            await claimed(FileEffects(path, busy_timeout=0.1))
    finally:
        holder.kill()
        await holder.wait()
    await claimed(FileEffects(path, busy_timeout=0.1))


async def test_emptied_file_begins_anew(tmp_path: Path) -> None:
    """With the rank of the last claim, so that everything is delivered again to who has the claim only."""
    path = tmp_path / "numbers"
    await applied(path, "one", "two")
    path.write_bytes(b"")
    assert await stored(FileEffects(path)) == at(0)
    path.unlink()
    assert await stored(FileEffects(path)) == at(0)


async def test_older_copy_of_the_data_alone_counts(tmp_path: Path) -> None:
    path = tmp_path / "numbers"
    effects = await applied(path, "one")
    former = path.read_bytes()
    await effects.apply(SOURCE, at(1), at(2), printing("two"))
    path.write_bytes(former)
    with pytest.raises(ClaimLost):
        await effects.apply(SOURCE, at(1), at(2), lambda _: None)
    assert await stored(effects) == at(1)


async def test_other_content_is_refused_and_kept(tmp_path: Path) -> None:
    path = tmp_path / "numbers"
    path.write_text("what was there before the first claim is kept\n")
    await applied(path, "one")
    path.write_text("x" * 60)
    with pytest.raises(StoreDiverged, match="restore both files"):
        await stored(FileEffects(path))
    assert path.read_text() == "x" * 60


@pytest.mark.hazard("two-stores-take-turns")
async def test_file_of_other_effects_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "numbers"
    effects = await applied(path)
    with pytest.raises(StoreMismatch, match="use another path"):
        await claimed(effects, source=SOURCE._replace(partition=1))
    (tmp_path / "numbers.oncelog.id").write_text("0b" * 16)
    with pytest.raises(StoreMismatch, match="start the program again"):
        await claimed(effects)
    with pytest.raises(StoreMismatch, match="use another path"):
        await claimed(FileEffects(path))


@pytest.mark.hazard("effects-table-dropped")
async def test_missing_side_file_is_named(tmp_path: Path) -> None:
    """And the error names no command for databases, none of which could help."""
    path = tmp_path / "numbers"
    effects = await applied(path, "one")
    (tmp_path / "numbers.oncelog").unlink()
    store_id = await effects.store_id()
    log = replace(LOG, store_id=store_id)
    with pytest.raises(StoreMissing, match=r"numbers\.oncelog is missing") as error:
        await effects.claim(SOURCE, NAMES, lambda found: decide_claim(found, log, store_id, "c"))
    assert "oncelog effects" not in error.value.message
    assert path.read_text() == "one\n"


async def test_each_partition_has_its_file(tmp_path: Path) -> None:
    effects = FileEffects(tmp_path / "numbers-{partition}.txt")
    for partition in (0, 11):
        source = SOURCE._replace(partition=partition)
        await claimed(effects, source=source)
        await effects.apply(source, at(0), at(1), printing(str(partition)))
        assert (tmp_path / f"numbers-{partition}.txt").read_text() == f"{partition}\n"


async def test_side_file_stays_small(tmp_path: Path) -> None:
    """Of many batches the newest lines are kept, and the first one."""
    path, side_path = tmp_path / "numbers", tmp_path / "numbers.oncelog"
    effects = FileEffects(path)
    header = SideHeader(await effects.store_id(), SOURCE, NAMES.topic, NAMES.subscription)
    line = encoded_line(SideLine(FIRST, 0, 0))
    side_path.write_bytes(encoded(SideFile(header, ())) + line * (1 + SIDE_BYTES_MAX // len(line)))
    path.touch()
    await effects.apply(SOURCE, at(0), at(1), printing("one"))
    assert 0 < side_path.stat().st_size < SIDE_BYTES_MAX // 5
    assert (await stored(FileEffects(path)), path.read_text()) == (at(1), "one\n")


async def test_torn_line_is_never_continued(tmp_path: Path) -> None:
    """A batch without bytes leaves the length as it was, so the length does not show the torn line."""
    path, side_path = tmp_path / "numbers", tmp_path / "numbers.oncelog"
    await applied(path, "one")
    with side_path.open("ab") as side:
        side.write(b"0123")
    effects = FileEffects(path)
    with pytest.raises(ClaimLost):
        await effects.apply(SOURCE, at(1), at(2), lambda _: None)
    await claimed(effects, at(1))
    await effects.apply(SOURCE, at(1), at(2), lambda _: None)
    assert await stored(FileEffects(path)) == at(2)


async def test_function_appends_bytes_and_text_until_its_end(tmp_path: Path) -> None:
    path = tmp_path / "numbers"
    kept: list[FileAppend] = []

    async def run(append: FileAppend) -> None:
        kept.append(append)
        assert append.write("é\n") == 2
        append.write(b"b\n")
        with pytest.raises(TypeError):
            append.write(5)  # type: ignore[arg-type]

    def too_much(append: FileAppend) -> None:
        append.write(bytes(APPEND_BYTES_MAX + 1))

    effects = await applied(path)
    await effects.apply(SOURCE, at(0), at(1), run)
    assert path.read_bytes() == "é\nb\n".encode()
    with pytest.raises(EffectMisuse, match="has ended"):
        kept[0].write("late")
    with pytest.raises(EffectMisuse, match="smaller batches"):
        await effects.apply(SOURCE, at(1), at(2), too_much)
    assert path.read_bytes() == "é\nb\n".encode()


async def test_bad_paths_are_refused(tmp_path: Path) -> None:
    for path in ("", tmp_path / "missing" / "numbers"):
        with pytest.raises(InvalidArgument) as error:
            FileEffects(path)
        assert error.value.details["field"] == "path"
    (tmp_path / "numbers").mkdir()
    with pytest.raises(StoreUnavailable, match="Is a directory"):
        await claimed(FileEffects(tmp_path / "numbers"))
