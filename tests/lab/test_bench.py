"""`oncelog bench …` with the smallest loads: every row has its figure.

No figure is compared with its target, because these machines are busy. A figure exists only if every message was
acknowledged. All but one share this process and one cluster: a start of either costs more than most of them.
"""

import asyncio
import json
import subprocess
import sys
from collections.abc import Coroutine, Iterator
from contextlib import aclosing
from pathlib import Path
from typing import Any, TypeVar

import pytest
from typer.testing import CliRunner

from oncelog_lab.bench.commands import app
from oncelog_lab.bench.door.door import door_rows
from oncelog_lab.bench.effects.measurements import EFFECTS_MEASUREMENTS
from oncelog_lab.bench.figures import BenchRow
from oncelog_lab.bench.measurements import MEASUREMENTS
from oncelog_lab.bench.running import BenchStack
from oncelog_lab.bench.settings import BenchSettings
from oncelog_lab.cluster import LabCluster
from oncelog_lab.peer_bench.loads import SHAPES, PeerLoad, Run
from oncelog_lab.peer_bench.own_client import runs_of

DEADLINE_S = 240
T = TypeVar("T")
#: {benchmark: its smallest settings}
CONSUMING: dict[str, dict[str, Any]] = {
    "consume": {"messages": 5000},
    "subscribe": {"messages": 5000},
    "ack": {"messages": 2000, "seconds": 0.2},
    "end-to-end": {"latency_seconds": 0.2},
    "effects": {"messages": 300},
    "relay": {"messages": 1000, "latency_seconds": 2.0},
}


class Benches:
    """Runs benchmarks one after the other on one cluster."""

    def __init__(self, directory: Path, runner: asyncio.Runner) -> None:
        self._runner = runner
        self._stack = BenchStack(directory, None, "")
        self.cluster: LabCluster = runner.run(self._stack.cluster(owners=2))

    def rows(self, name: str, **settings: Any) -> dict[str, BenchRow]:
        """Returns {name: row}."""
        measurement = {**MEASUREMENTS, **EFFECTS_MEASUREMENTS, "door": door_rows}[name]
        measured = measurement(self._stack, BenchSettings(**settings), lambda _: None)
        return {row.what: row for row in self._runner.run(asyncio.wait_for(measured, DEADLINE_S))}

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        return self._runner.run(asyncio.wait_for(work, DEADLINE_S))

    def end(self) -> None:
        self._runner.run(self._stack.end())


@pytest.fixture(scope="module")
def benches(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Benches]:
    with asyncio.Runner() as runner:
        benches = Benches(tmp_path_factory.mktemp("bench"), runner)
        try:
            yield benches
        finally:
            benches.end()


def command(*arguments: str) -> "subprocess.CompletedProcess[str]":
    words = [sys.executable, "-m", "oncelog.cli", "bench", *arguments]
    return subprocess.run(words, capture_output=True, text=True, timeout=DEADLINE_S, check=False)


def test_many_producers_are_opened_and_taken_over(benches: Benches) -> None:
    """A new owner that does not know all of them would fail the benchmark. First here: an owner that has served other
    topics may have memory left, which would not grow."""
    rows = benches.rows("producers", producer_count=100)
    assert len(rows) == 5
    assert all(row.figure > 0 for row in rows.values())


def test_command_measures_a_running_cluster(benches: Benches) -> None:
    """Two namespaces: deduplication is set over REST, and both halves of a pair publish."""
    place = ("--url", benches.cluster.url, "--admin-url", benches.cluster.admin_url)
    done = command("dedup-overhead", "--pairs", "1", "--seconds", "0.2", *place, "-o", "json")
    assert done.returncode == 0, done.stderr[-3000:]
    throughput, p99 = json.loads(done.stdout)["rows"]
    assert throughput["figure"] > 0
    assert p99["figure"] > 0


@pytest.fixture(scope="module")
def published(benches: Benches) -> dict[str, BenchRow]:
    """It starts the processes of the limits' path, which serve later benchmarks, too."""
    return benches.rows("publish", seconds=0.2, runs=1, producers=4)


@pytest.mark.usefixtures("published")
def test_limits_are_those_of_the_machine_with_our_shares(benches: Benches) -> None:
    """Five rows of the limits path, four of the machine; of each load, a share of each limit that it uses."""
    rows = benches.rows("limits", seconds=0.2, runs=1)
    shares = {what: row for what, row in rows.items() if what.startswith("share: ")}
    assert (len(rows), len(shares)) == (5 + 4 + 11, 4 + 4 + 3)
    assert all(row.figure > 0 for row in rows.values())
    assert all((row.ratio or 0) > 0 for row in shares.values())


@pytest.mark.parametrize("load", list(PeerLoad))
def test_own_client_of_the_comparison_runs_each_load(benches: Benches, load: PeerLoad) -> None:
    """Two runs, as many figures as the load has."""
    shape = SHAPES[load]

    async def first_two() -> list[Run]:
        messages = 2000 if shape.messages else 0
        async with await benches.cluster.connect() as client, aclosing(runs_of(client, load, 0.2, messages)) as runs:
            return [await anext(runs), await anext(runs)]

    for run in benches.run(first_two()):
        assert len(run) == len(shape.figures)
        assert all(figure > 0 for figure in run)


def test_publish_measures_each_load_against_the_limits_path(published: dict[str, BenchRow]) -> None:
    """Four loads. Each has its own limit in the same run."""
    assert len(published) == 4
    for row in published.values():
        assert row.figure > 0
        assert row.ratio is not None
        assert row.ratio > 0
        for used in ("cores", "cpu_us", "faults", "peak_mib"):
            assert set(row.detail[used]) >= {"client", "owner", "storage"}  # type: ignore[call-overload]
        assert all(row.detail["peak_mib"].values())  # type: ignore[attr-defined]


@pytest.mark.parametrize("name", CONSUMING)
def test_consuming_is_measured_against_publishing_and_reading(benches: Benches, name: str) -> None:
    """A message that is missing, not delivered or not acknowledged would fail the benchmark."""
    rows = benches.rows(name, runs=1, **CONSUMING[name])
    assert rows
    assert all(row.figure > 0 for row in rows.values())


def test_small_messages_are_measured_by_their_cpu(benches: Benches) -> None:
    """Six loads. A message without an acknowledgement would fail the benchmark. The kernel counts CPU in hundredths of
    a second, which the owner does not need for each of these small loads."""
    rows = benches.rows("small", seconds=0.2, runs=1, rate=2000.0)
    assert len(rows) == 6
    assert all(row.figure > 0 for row in rows.values())
    assert sum(row.detail["cpu_us"]["owner"] for row in rows.values()) > 0  # type: ignore[index]


def test_door_is_measured_with_clients_of_pulsar_and_kafka(benches: Benches) -> None:
    """Its cluster has a door. A message that is not stored, not delivered or not acknowledged would fail the benchmark.
    The kernel counts CPU in hundredths of a second, which these small loads may not need."""
    rows = benches.rows("door", messages=5000, seconds=0.2, idle_seconds=0.2, runs=1)
    assert len(rows) == 20
    assert all(row.figure > 0 for row in rows.values() if row.unit not in ("us", "% CPU"))
    assert sum(row.detail["cpu_us"]["door"] for row in rows.values() if "cpu_us" in row.detail) > 0  # type: ignore[index]


def test_topics_are_created_left_alone_and_taken_over(benches: Benches) -> None:
    """Every topic takes a message again after an owner's death."""
    rows = benches.rows("topics", topics=6, idle_seconds=0.5)
    assert len(rows) == 5
    assert rows["topics created and written to"].figure > 0
    assert rows["topics listed over REST"].figure > 0
    assert rows["look-up over REST among so many topics"].figure > 0
    assert rows["every topic written to after an owner's death"].figure > 0


def test_takeover_measures_the_pauses_after_kills(benches: Benches) -> None:
    """Each pause ends with an acknowledgement, and the new owner reports its phases."""
    settings = {"kills": 1, "storage_kills": 1, "replays": 1, "replay_entries": 50, "restarts": 3, "freezes": 0}
    rows = benches.rows("takeover", rate=200.0, **settings)
    replayed = next(row for what, row in rows.items() if what.startswith("serving after ownership"))
    assert replayed.detail["replayed_entries"] == [pytest.approx(50, abs=2)]
    assert set(replayed.detail["phases_ms"]) == {"acquire", "recover", "load_snapshot", "replay", "open"}  # type: ignore[call-overload]
    assert all(row.figure > 0 for row in rows.values())


def test_unreachable_cluster_is_one_sentence_and_an_exit_code() -> None:
    """Without a traceback."""
    done = CliRunner().invoke(app, ["latency", "--url", "oncelog://nowhere.invalid:1"])
    assert done.exit_code == 1
    assert isinstance(done.exception, SystemExit)
    assert "error: " in done.stderr


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ("nothing", "is none of limits, publish"),
        ("limits --kills 3", "limits does not take --kills; it takes --message-bytes, --batch-kib, --window"),
        ("limits --url oncelog://a:1", "limits does not take it"),
        ("publish --producers 1001", "1001 is not in 1 to 1000"),
    ],
)
def test_measurement_refuses_what_it_does_not_take(words: str, told: str) -> None:
    """Before anything is started. Two measurements may have other limits of one option."""
    done = CliRunner().invoke(app, words.split(), env={"COLUMNS": "200"})
    assert done.exit_code == 2
    assert told in " ".join(done.stderr.replace("│", " ").split())
