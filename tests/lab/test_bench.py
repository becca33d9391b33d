"""`oncelog bench …` on real clusters with the smallest loads: every row has its figure.

No figure is compared with its target, because these machines are busy. A figure exists only if every message was
acknowledged.
"""

import json
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest

from tests.cluster.cluster_fixture import Cluster

DEADLINE_S = 240


def bench(*arguments: str) -> dict[str, Any]:
    """Run a benchmark. Returns {name: row}."""
    done = subprocess.run(
        [sys.executable, "-m", "oncelog.cli", "bench", *arguments, "-o", "json"],
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    shown = json.loads(done.stdout)
    return {row["what"]: row for row in shown["rows"]}


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """For benchmarks that take `--url`: a start of a cluster costs more than each of them."""
    with Cluster.running(tmp_path_factory.mktemp("bench"), owners=1) as cluster:
        yield cluster


def test_publish_measures_each_load_against_the_limits_path() -> None:
    """Four loads. Each has its own limit in the same run."""
    rows = bench("publish", "--seconds", "0.2", "--runs", "1", "--producers", "4")
    assert len(rows) == 4
    for row in rows.values():
        assert row["figure"] > 0
        assert row["ratio"] > 0
        assert set(row["detail"]["cores"]) >= {"client", "owner", "storage"}


def test_dedup_overhead_compares_two_namespaces(running: Cluster) -> None:
    """Deduplication is set over REST, and both halves of a pair publish."""
    words = ("--pairs", "1", "--seconds", "0.2", "--url", running.url, "--admin-url", running.admin_url)
    throughput, p99 = bench("dedup-overhead", *words).values()
    assert throughput["figure"] > 0
    assert p99["figure"] > 0


@pytest.mark.parametrize(
    "words",
    [
        ("consume", "--messages", "5000"),
        ("subscribe", "--messages", "5000"),
        ("ack", "--messages", "2000", "--seconds", "0.2"),
        ("end-to-end", "--seconds", "0.2"),
        ("effects", "--messages", "1000"),
        ("relay", "--messages", "1000", "--seconds", "2"),
    ],
    ids=lambda words: words[0],
)
def test_consuming_is_measured_against_publishing_and_reading(running: Cluster, words: tuple[str, ...]) -> None:
    """A message that is missing, not delivered or not acknowledged would fail the benchmark."""
    rows = bench(*words, "--runs", "1", "--url", running.url)
    assert rows
    assert all(row["figure"] > 0 for row in rows.values())


def test_small_messages_are_measured_by_their_cpu() -> None:
    """Six loads. A message without an acknowledgement would fail the benchmark."""
    rows = bench("small", "--seconds", "0.2", "--runs", "1")
    assert len(rows) == 6
    assert all(row["figure"] > 0 and row["detail"]["cpu_us"]["owner"] > 0 for row in rows.values())


def test_topics_are_created_left_alone_and_taken_over() -> None:
    """Every topic takes a message again after an owner's death."""
    rows = bench("topics", "--topics", "6", "--idle-seconds", "0.5")
    assert len(rows) == 5
    assert rows["topics created and written to"]["figure"] > 0
    assert rows["topics listed over REST"]["figure"] > 0
    assert rows["look-up over REST among so many topics"]["figure"] > 0
    assert rows["every topic written to after an owner's death"]["figure"] > 0


def test_many_producers_are_opened_and_taken_over() -> None:
    """A new owner that does not know all of them would fail the benchmark."""
    rows = bench("producers", "--producers", "100")
    assert len(rows) == 5
    assert all(row["figure"] > 0 for row in rows.values())


def test_takeover_measures_the_pauses_after_kills() -> None:
    """Each pause ends with an acknowledgement, and the new owner reports its phases."""
    options = {"kills": 1, "storage-kills": 1, "replays": 1, "replay-entries": 50, "restarts": 3, "freezes": 0}
    rows = bench("takeover", *(f"--{name}={value}" for name, value in options.items()))
    replayed = next(row for what, row in rows.items() if what.startswith("serving after ownership"))
    assert replayed["detail"]["replayed_entries"] == [pytest.approx(50, abs=2)]
    assert set(replayed["detail"]["phases_ms"]) == {"acquire", "recover", "load_snapshot", "replay", "open"}
    assert all(row["figure"] > 0 for row in rows.values())


def test_unreachable_cluster_is_one_sentence_and_an_exit_code() -> None:
    """Without a traceback."""
    command = [sys.executable, "-m", "oncelog.cli", "bench", "latency", "--url", "oncelog://nowhere.invalid:1"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=DEADLINE_S, check=False)
    assert done.returncode == 1
    assert "Traceback" not in done.stderr
    assert "error: " in done.stderr
