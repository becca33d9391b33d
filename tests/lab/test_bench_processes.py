"""Children of a bench: one that does not come up ends the bench with the reason, not with a trace."""

import sys
from pathlib import Path

import pytest

from oncelog.lab.bench.cluster import Cluster, bench_directory
from oncelog.lab.bench.limits import limits_cluster
from oncelog.lab.bench.processes import BenchFailed, Child

DEADLINE_S = 30.0


async def _start(tmp_path: Path, code: str, *, deadline_s: float = DEADLINE_S) -> Child:
    return await Child.start(
        "the child",
        (sys.executable, "-c", code),
        log=tmp_path / "child.log",
        announces="serving",
        deadline_s=deadline_s,
    )


@pytest.mark.asyncio
async def test_child_that_ends_at_once_is_named_with_its_last_words(tmp_path: Path) -> None:
    """Whoever runs a bench should see what the process itself had to say."""
    with pytest.raises(BenchFailed, match=r"(?s)the child does not start: exit code 3.*no such disk"):
        await _start(tmp_path, "import sys; print('no such disk', file=sys.stderr); sys.exit(3)")


@pytest.mark.asyncio
async def test_child_that_says_nothing_is_given_up_at_the_deadline(tmp_path: Path) -> None:
    """Every wait is bounded."""
    with pytest.raises(BenchFailed, match="did not serve within"):
        await _start(tmp_path, "import sys; sys.stdin.read(); import select; select.select([], [], [])", deadline_s=0.5)


@pytest.mark.asyncio
async def test_child_may_print_other_lines_before_it_serves(tmp_path: Path) -> None:
    """Only the object with the key counts, on one line or on several."""
    code = "print('hello'); print('{}'); print('{\"serving\":\\n {\"address\": \"a:1\"}}', flush=True); input()"
    code = f"{code.removesuffix('; input()')}; import select; select.select([], [], [])"
    child = await _start(tmp_path, code)
    try:
        assert child.announced["serving"] == {"address": "a:1"}
        child.check_alive()
    finally:
        await child.stop()
    with pytest.raises(BenchFailed, match="the child has ended"):
        child.check_alive()


@pytest.mark.asyncio
async def test_bare_path_answers_every_frame(tmp_path: Path) -> None:
    """The measuring instrument itself: a storage node less, an answer at one sync or a lost frame would show here."""
    async with limits_cluster(tmp_path) as path:
        load = await path.publish(frame_bytes=4096, window=4, seconds=0.2)
        assert load.bytes_per_s > 0
        latencies = await path.latencies(frame_bytes=100, per_second=100, seconds=0.2)
        assert latencies.count == 20


def test_bench_that_kills_refuses_a_cluster_that_is_not_its_own() -> None:
    """Nobody's running cluster loses a process to a bench."""
    with pytest.raises(BenchFailed, match="leave --url out"):
        Cluster("oncelog://127.0.0.1:1", "").processes()


def test_directory_of_a_bench_is_gone_at_its_end(tmp_path: Path) -> None:
    """Gigabytes are written."""
    with bench_directory(tmp_path / "disk") as directory:
        (directory / "segment").write_bytes(b"x")
    assert not directory.exists()
