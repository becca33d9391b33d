"""Child processes of the lab: a failed start ends the command with the reason."""

import sys
from pathlib import Path

import pytest

from oncelog_lab.access import ClusterAccess
from oncelog_lab.bench.baseline import bare_pair, baseline_cluster
from oncelog_lab.bench.running import BenchStack, bench_directory
from oncelog_lab.child_process import LabChild
from oncelog_lab.cluster import LabCluster
from oncelog_lab.failures import LabFailed

DEADLINE_S = 30.0
_WAIT = "import select; select.select([], [], [])"


async def start(tmp_path: Path, code: str, *, deadline_s: float = DEADLINE_S) -> LabChild:
    command = (sys.executable, "-c", code)
    return await LabChild.start(
        "the child", command, log=tmp_path / "child.log", announces="serving", deadline_s=deadline_s
    )


@pytest.mark.asyncio
async def test_failed_start_quotes_the_log(tmp_path: Path) -> None:
    """The user sees the reason that the process printed."""
    with pytest.raises(LabFailed, match=r"(?s)the child did not start: exit code 3.*no such disk"):
        await start(tmp_path, "import sys; print('no such disk', file=sys.stderr); sys.exit(3)")


@pytest.mark.asyncio
async def test_silent_child_is_killed_at_the_deadline(tmp_path: Path) -> None:
    """Every wait has a limit."""
    with pytest.raises(LabFailed, match="was not ready within"):
        await start(tmp_path, _WAIT, deadline_s=0.5)


@pytest.mark.asyncio
async def test_child_may_print_other_lines_before_it_is_ready(tmp_path: Path) -> None:
    """Only the object with the key is the announcement. After its end the child is reported with its exit code."""
    child = await start(tmp_path, f"print('hello'); print({{}}); print('{{\"serving\": 1}}', flush=True); {_WAIT}")
    assert child.announced == {"serving": 1}
    child.check_running()
    await child.stop()
    with pytest.raises(LabFailed, match="the child has ended"):
        child.check_running()


@pytest.mark.asyncio
async def test_limits_path_answers_every_frame(tmp_path: Path) -> None:
    """A missing storage node, an answer after one sync or a lost frame would fail here."""
    async with baseline_cluster(tmp_path) as path:
        load = await path.publish(frame_bytes=4096, window=4, seconds=0.2)
        assert load.bytes_per_s > 0
        latencies = await path.latencies(frame_bytes=100, per_second=100, seconds=0.2)
        assert latencies.count == 20


@pytest.mark.asyncio
async def test_bare_pair_answers_every_frame(tmp_path: Path) -> None:
    """Also the largest frames that the limits run sends."""
    async with bare_pair(tmp_path) as pair:
        assert (await pair.publish(frame_bytes=1024 * 1024, window=8, seconds=0.05)).bytes_per_s > 0


def test_processes_of_a_running_cluster_are_not_killed() -> None:
    """Only a cluster that the lab has started has processes to kill."""
    with pytest.raises(LabFailed, match="leave out --url"):
        LabCluster(ClusterAccess("oncelog://127.0.0.1:1", "")).processes()


def test_directory_of_a_benchmark_is_deleted(tmp_path: Path) -> None:
    """A benchmark writes gigabytes."""
    with bench_directory(tmp_path / "disk") as directory:
        (directory / "segment").write_bytes(b"x")
    assert not directory.exists()


@pytest.mark.asyncio
async def test_benchmark_starts_nothing_on_a_disk_that_is_too_small(tmp_path: Path) -> None:
    """It would fill the disk of its user. A running cluster has disks of its own."""
    more_than_any_disk = 2**62
    stack = BenchStack(tmp_path, None, "", free_bytes=more_than_any_disk)
    with pytest.raises(LabFailed, match=r"GB free and a benchmark needs .* name another directory with --data"):
        await stack.cluster()
    with pytest.raises(LabFailed, match="--data"):
        await stack.path()
    with pytest.raises(LabFailed, match="--data"):
        stack.new_directory()
    running = BenchStack(tmp_path, "oncelog://127.0.0.1:1", "", free_bytes=more_than_any_disk)
    assert (await running.cluster()).access.url == "oncelog://127.0.0.1:1"
