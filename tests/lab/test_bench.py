"""`oncelog bench …` on real clusters, with the smallest loads: every row comes out, with its figure and its verdict.

No figure is judged here: these machines are busy. That there is one means that every message of it was acknowledged.
"""

import json
import subprocess
import sys
from typing import Any

import pytest

DEADLINE_S = 240


def bench(*arguments: str) -> dict[str, Any]:
    """Run one bench and return its object by the row's name."""
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


def test_publish_measures_each_load_against_the_bare_path() -> None:
    """Four loads; each has its own limit in the same run."""
    rows = bench("publish", "--seconds", "0.2", "--runs", "1", "--producers", "4")
    assert len(rows) == 4
    for row in rows.values():
        assert row["figure"] > 0
        assert row["ratio"] > 0
        assert set(row["detail"]["cores"]) >= {"client", "owner", "storage"}


def test_dedup_overhead_compares_two_namespaces() -> None:
    """The switch is set over REST, and both halves of the pair publish."""
    throughput, p99 = bench("dedup-overhead", "--pairs", "1", "--seconds", "0.2").values()
    assert throughput["figure"] > 0
    assert p99["figure"] > 0


def test_consume_reads_every_message_that_it_published() -> None:
    """A message less would fail the bench itself."""
    assert all(row["figure"] > 0 for row in bench("consume", "--runs", "1", "--messages", "20000").values())


def test_takeover_kills_owners_and_storage_nodes_and_times_the_gaps() -> None:
    """Each death is survived: a gap ends by an acknowledgement, and the new owner reports its phases."""
    options = {"kills": 1, "storage-kills": 1, "replays": 1, "replay-entries": 50, "restarts": 3, "freezes": 0}
    rows = bench("takeover", *(f"--{name}={value}" for name, value in options.items()))
    replayed = next(row for what, row in rows.items() if what.startswith("serving after ownership"))
    assert replayed["detail"]["replayed_entries"] == [pytest.approx(50, abs=2)]
    assert set(replayed["detail"]["phases_ms"]) == {"acquire", "recover", "load_snapshot", "replay", "open"}
    assert all(row["figure"] > 0 for row in rows.values())


def test_unreachable_cluster_is_one_sentence_and_an_exit_code() -> None:
    """Nobody should have to read a trace to learn that a url is wrong."""
    command = [sys.executable, "-m", "oncelog.cli", "bench", "latency", "--url", "oncelog://nowhere.invalid:1"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=DEADLINE_S, check=False)
    assert done.returncode == 1
    assert "Traceback" not in done.stderr
    assert "error: " in done.stderr
