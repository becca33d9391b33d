"""The demo itself, with a small file: all its kills, its comparison and its last line."""

import json
import subprocess
from pathlib import Path

import pytest

from oncelog.lab.demo.publisher import DemoFailed, Publisher
from tests.cluster.standalone_process import COMMAND_TIMEOUT_S, command, environment


def test_demo_proves_its_zeros(tmp_path: Path) -> None:
    """Everything that the demo claims about the flights, about a file that takes ten seconds."""
    path = tmp_path / "lines.csv"
    path.write_text("".join(f"{number},{number * number}\n" for number in range(20_000)))
    words = command("demo", "--file", str(path), "--seconds", "10")
    done = subprocess.run(
        words, capture_output=True, env=environment(), timeout=2 * COMMAND_TIMEOUT_S, check=False, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr
    outcome = json.loads(done.stdout.splitlines()[-1])
    assert [outcome[name] for name in ("lines", "stored", "lost", "duplicated", "out_of_order")] == [
        20_000,
        20_000,
        0,
        0,
        0,
    ]
    assert outcome["duplicates_refused"] >= 2 * 600
    assert len(outcome["takeovers"]) == 3
    for takeover in outcome["takeovers"]:
        assert sorted(takeover) == ["client_gap_ms", "ms", "replayed_entries"]
        assert takeover["client_gap_ms"] > 0
    assert done.stdout.count("kill -9") == 7
    for text in ("out of order", "duplicates refused", "entries replayed", "File against topic"):
        assert text in done.stdout


@pytest.mark.asyncio
async def test_producer_that_has_just_ended_may_be_killed(tmp_path: Path) -> None:
    """On a busy machine it publishes its last lines while something else is restarted; that was told as a bug."""
    publisher = Publisher(("topic", "--from-file", str(tmp_path / "missing")), tmp_path / "log")
    await publisher.start()
    with pytest.raises(DemoFailed, match="exit code 2"):
        await publisher.finish(COMMAND_TIMEOUT_S)
    await publisher.kill()
