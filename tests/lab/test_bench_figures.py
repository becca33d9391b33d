"""Rows, targets and tables of the benchmarks."""

import io
import json
import math
import mmap
import os
from pathlib import Path

import pytest
from rich.console import Console

from oncelog_lab.access import ClusterAccess
from oncelog_lab.bench.cpu import CpuMeter
from oncelog_lab.bench.figures import BenchRow, FigureTarget, Latencies, percentile
from oncelog_lab.bench.limits import (
    DISK,
    SOCKET,
    Use,
    appended_bytes_per_s,
    appended_files,
    loopback_bytes_per_s,
    machine_rows,
    share_rows,
)
from oncelog_lab.bench.plot import plot
from oncelog_lab.bench.table import print_table, to_json
from oncelog_lab.cluster import LabCluster
from oncelog_lab.failures import LabFailed


def test_percentile_is_the_smallest_value_that_covers_its_share() -> None:
    """Of 100 values the 99th percentile is the 99th, not the highest."""
    assert percentile(list(range(1, 101)), 0.99) == 99
    assert percentile(list(range(1, 101)), 0.50) == 50
    assert percentile([7.0], 0.99) == 7.0


def test_latencies_are_in_ms_and_need_no_order() -> None:
    """Loads give seconds in the order of the answers."""
    latencies = Latencies.of([0.003, 0.001, 0.002])
    assert (latencies.p50_ms, latencies.max_ms, latencies.count) == (2.0, 3.0, 3)


@pytest.mark.parametrize(
    ("target", "figure", "limit", "ok"),
    [
        (FigureTarget(0.65, of_ratio=True), 65.0, 100.0, True),
        (FigureTarget(0.65, of_ratio=True), 64.0, 100.0, False),
        (FigureTarget(2.0, at_most=True, of_ratio=True), 3.0, 1.5, True),
        (FigureTarget(2.0, at_most=True, of_ratio=True), 3.1, 1.5, False),
        (FigureTarget(10, at_most=True), 10.0, None, True),
        (FigureTarget(10), 9.0, None, False),
        (FigureTarget(0.5, of_ratio=True), 9.0, None, False),
        (FigureTarget(10), math.nan, None, False),
    ],
)
def test_row_is_ok_when_its_target_is_met(target: FigureTarget, figure: float, limit: float | None, ok: bool) -> None:
    """At least or at most, of the ratio or of the figure; what was not measured is never connected."""
    assert BenchRow("x", figure, "u", limit, target).ok is ok


def test_row_without_a_target_is_neither_ok_nor_not() -> None:
    """For example the limits."""
    assert BenchRow("limits", 1.0, "MB/s").ok is None


def test_json_has_every_row_and_no_nan() -> None:
    """JSON has no NaN."""
    shown = json.loads(
        json.dumps(to_json([BenchRow("x", math.nan, "ms", target=FigureTarget(1)), BenchRow("y", 2.0, "ms", 4.0)]))
    )
    assert [row["figure"] for row in shown["rows"]] == [None, 2.0]
    assert [row["ratio"] for row in shown["rows"]] == [None, 0.5]
    assert shown["machine"]["cores"]


def test_table_shows_figure_ratio_target_and_result() -> None:
    """In one line."""
    out = io.StringIO()
    rows = [BenchRow("publish", 600.0, "msg/s", 1000.0, FigureTarget(0.65, of_ratio=True, of="limits"))]
    print_table(rows, Console(file=out, width=120))
    shown = " ".join(out.getvalue().split())
    assert "publish 600 msg/s 0.60 >= 0.65 x limits no" in shown
    assert "0 of 1 rows" in shown


def test_share_divides_all_bytes_that_a_load_moves_by_each_limit() -> None:
    """A published byte is written three times and moves four times; what is read is written nowhere."""
    limits = {DISK: [400e6, 300e6, 500e6], SOCKET: [2000e6]}
    uses = [Use("publish", [90e6, 100e6, 110e6], 3, 4), Use("read", [500e6], 0, 1)]
    rows = {row.what: (row.figure, row.ratio) for row in share_rows(limits, uses)}
    assert rows == {
        f"share: publish, of {DISK}": (300, 0.75),
        f"share: publish, of {SOCKET}": (400, 0.2),
        f"share: read, of {SOCKET}": (500, 0.25),
    }
    assert [(row.what, row.figure) for row in machine_rows(limits)] == [
        (f"limits: {DISK}", 400), (f"limits: {SOCKET}", 2000)
    ]  # fmt: skip


def test_disk_and_loopback_are_measured(tmp_path: Path) -> None:
    """Each byte is appended and received."""
    with appended_files(tmp_path, 4 * 1024 * 1024) as files:
        assert appended_bytes_per_s(files, 0.01) > 0
    assert [path.stat().st_size for path in tmp_path.iterdir()] == [4 * 1024 * 1024] * 3
    assert loopback_bytes_per_s(0.01) > 0


def test_use_of_memory_is_that_of_the_measured_time() -> None:
    """Each page of a new mapping is a fault, and all of them are gone after it. What was there before counts for the
    peak, and not for the faults. Where the kernel does not forget a peak, it is the highest one so far."""
    cluster = LabCluster(ClusterAccess("oncelog://elsewhere.invalid:6650", "http://elsewhere.invalid:8080"))
    large, small = CpuMeter(cluster), CpuMeter(cluster)
    mib = 64
    with large, mmap.mmap(-1, mib * 1024**2) as mapping:
        mapping.madvise(mmap.MADV_NOHUGEPAGE)
        for at in range(0, len(mapping), mmap.PAGESIZE):
            mapping[at] = 1
    with small:
        bytearray(1024)
    assert large.cores().keys() == {"client"}
    faults, peak = large.detail(1)["faults"], large.detail(1)["peak_mib"]
    assert faults["client"] >= mib * 1024**2 // mmap.PAGESIZE  # type: ignore[index]
    assert peak["client"] > mib  # type: ignore[index]
    assert small.detail(1)["faults"]["client"] < faults["client"] / 2  # type: ignore[index]
    if os.access("/proc/self/clear_refs", os.W_OK):
        assert small.detail(1)["peak_mib"]["client"] < peak["client"] - mib / 2  # type: ignore[index]


def _file(directory: Path, name: str, *rows: BenchRow) -> Path:
    path = directory / name
    path.write_text(json.dumps(to_json(rows)))
    return path


def test_rows_of_one_name_become_one_curve_over_their_counts(tmp_path: Path) -> None:
    """Two runs at one count are averaged; rows without a count, and figures of 0, are left out."""
    runs = ((1000, 9.0), (10, 1.0), (10, 3.0), (100, 0.0))
    rows = [BenchRow("idle", figure, "%", at={"topics": count}) for count, figure in runs]
    files = [_file(tmp_path, f"{number}.json", row, BenchRow("other", 5.0, "s")) for number, row in enumerate(rows)]
    curves = plot(files, tmp_path / "cost.svg")
    assert curves == [("idle", "%", "topics", ((10, 2.0), (1000, 9.0)))]
    assert "idle" in (tmp_path / "cost.svg").read_text()


@pytest.mark.parametrize(
    ("content", "error"),
    [
        ("not JSON", "is not the output"),
        ("[]", "is not the output"),
        ('{"rows": [1]}', "is not the output"),
        ('{"rows": [{"what": "x"}]}', "is not the output"),
        ('{"rows": []}', "no row of these files"),
    ],
)
def test_what_is_not_the_output_of_a_benchmark_is_refused(tmp_path: Path, content: str, error: str) -> None:
    """With the name of the file, and no picture is written."""
    path = tmp_path / "wrong.json"
    path.write_text(content)
    with pytest.raises(LabFailed, match=error):
        plot([path], tmp_path / "cost.svg")
    assert not (tmp_path / "cost.svg").exists()
