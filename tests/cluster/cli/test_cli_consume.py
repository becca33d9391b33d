"""`oncelog consume` against a real cluster: positions survive the command, its output's reader, and SIGKILL."""

import json
import os
import pty
import signal
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.cluster.cluster_fixture import Cluster
from tests.cluster.commands import command, environment
from tests.cluster.kills import just_seen, kill_sync
from tests.cluster.until import until_sync

_DEADLINE_S = 60.0


def produced(cluster: Cluster, topic: str, path: Path, count: int) -> None:
    path.write_text("".join(f"line {number}\n" for number in range(count)))
    done = cluster.run("produce", topic, "--from-file", str(path), "--producer-name", "importer")
    assert done.returncode == 0, done.stderr


def consumed(cluster: Cluster, topic: str, *options: str) -> list[str]:
    done = cluster.run("consume", topic, "-s", "billing", *options)
    assert done.returncode == 0, done.stderr
    return done.stdout.decode().splitlines()


def lines(first: int, last: int) -> list[str]:
    return [f"line {number}" for number in range(first, last + 1)]


def test_subscription_goes_on_where_it_was(cluster: Cluster, tmp_path: Path) -> None:
    """What was printed is acknowledged, with --no-ack it is not; --from counts for a new subscription only."""
    produced(cluster, "printed", tmp_path / "lines", 10)
    assert consumed(cluster, "printed", "--from", "earliest", "--limit", "4") == lines(0, 3)
    assert consumed(cluster, "printed", "--no-ack", "--limit", "2") == lines(4, 5)
    rows = [json.loads(row) for row in consumed(cluster, "printed", "-o", "json", "--limit", "6")]
    assert [row["value"] for row in rows] == lines(4, 9)
    assert [row["index"] for row in rows] == list(range(4, 10))
    assert consumed(cluster, "printed", "--idle", "0.5") == []
    other = cluster.run("consume", "printed", "-s", "audit", "--from-index", "8", "--limit", "1")
    assert other.stdout == b"line 8\n"


def test_what_a_full_output_lost_is_not_acknowledged(cluster: Cluster, tmp_path: Path) -> None:
    """Once the disk has space again, the next run begins with the same message."""
    produced(cluster, "full", tmp_path / "lines", 3)
    words = command("consume", "full", "-s", "billing", "--from", "earliest", "--limit", "3", "--url", cluster.url)
    with Path("/dev/full").open("wb") as full:
        done = subprocess.run(words, stdout=full, stderr=subprocess.PIPE, env=environment(), check=False)
    assert done.stderr == b"error: No space left on device: standard output\n"
    assert done.returncode == 1
    assert consumed(cluster, "full", "--limit", "3") == lines(0, 2)


def test_killed_consumer_repeats_and_leaves_nothing_out(cluster: Cluster, tmp_path: Path) -> None:
    """The next run begins with the first message that was not acknowledged. There are more lines than a pipe holds, so
    that the command is still at work when it is killed."""
    produced(cluster, "killed", tmp_path / "lines", 30_000)
    words = command("consume", "killed", "-s", "billing", "--from", "earliest", "--url", cluster.url)
    with subprocess.Popen(words, stdout=subprocess.PIPE, env=environment()) as process:
        assert process.stdout is not None
        head = [process.stdout.readline().decode().rstrip("\n") for _ in range(1_500)]
        kill_sync(process, once=just_seen)
        head += process.stdout.read().decode().splitlines()
    assert head[:-1] == lines(0, len(head) - 2)  # the last one may be cut off
    rest = consumed(cluster, "killed", "--type", "failover", "--limit", "1000")
    first = int(rest[0].removeprefix("line "))
    assert first <= len(head) < 29_000
    assert rest == lines(first, first + 999)


def test_interrupted_command_acknowledges_what_it_printed(cluster: Cluster, tmp_path: Path) -> None:
    """Ctrl-C ends a waiting command in order."""
    produced(cluster, "waits", tmp_path / "lines", 5)
    words = command("consume", "waits", "-s", "billing", "--from", "earliest", "--url", cluster.url)
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment()) as process:
        assert process.stdout is not None
        assert [process.stdout.readline() for _ in range(5)][4] == b"line 4\n"
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=_DEADLINE_S)
    assert (process.returncode, errors) == (130, b"")
    assert consumed(cluster, "waits", "--idle", "0.5") == []


def test_administrator_moves_a_subscription(cluster: Cluster, tmp_path: Path) -> None:
    """Create, skip, look, seek, and delete, over REST; the consumer follows."""

    def admin(*words: str) -> Any:
        done = cluster.run("admin", "subscriptions", *words, "-o", "json")
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout) if done.stdout else None

    produced(cluster, "moved", tmp_path / "lines", 10)
    admin("create", "moved", "billing", "--from", "earliest", "--property", "team=payments")
    assert admin("list", "moved") == ["billing"]
    assert admin("properties", "moved", "billing") == {"team": "payments"}
    admin("skip", "moved", "billing", "--count", "3", "--yes")
    assert admin("peek", "moved", "billing")["value"] == "line 3"
    assert admin("stats", "moved", "billing")["public/default/moved"]["msg_backlog"] == 7
    assert consumed(cluster, "moved", "--limit", "2") == lines(3, 4)
    wrong = cluster.run("admin", "subscriptions", "seek", "moved", "billing", "--to", "earlyest", "--yes")
    assert b"--to must be earliest, latest, " in wrong.stderr
    admin("seek", "moved", "billing", "--to-index", "1", "--yes")
    assert consumed(cluster, "moved", "--limit", "2") == lines(1, 2)
    refused = cluster.run("admin", "subscriptions", "skip", "moved", "billing", "--all")
    assert b"would acknowledge the whole backlog of billing, 7 messages" in refused.stderr
    patient = ("--timeout", "60")
    behind = json.loads(cluster.run("lag", *patient, "public/default", "-n", "10000", "-o", "json").stdout)[
        "subscriptions"
    ]
    assert [row["msg_backlog"] for row in behind if row["topic"].endswith("/moved")] == [7]
    assert "public/default/moved" in cluster.run("top", *patient, "--sort", "messages", "-n", "100").stdout.decode()
    admin("skip", "moved", "billing", "--all", "--yes")

    def unused() -> bool:
        """The owner may see later that the last command has ended."""
        return bool(admin("stats", "moved", "billing")["public/default/moved"]["consumer_count"] == 0)

    until_sync(unused, _DEADLINE_S)
    admin("delete", "moved", "billing", "--yes")
    assert admin("list", "moved") == []
    table = cluster.run("admin", "topics", "stats", "moved").stdout.decode()
    assert max(map(len, table.splitlines())) <= 80


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (["--from", "earliest", "--from-index", "1"], "cannot be combined"),
        (["--type", "unknown"], "unknown"),
        # It would be acknowledged, and an empty line would stand for it.
        (["--on-encrypted", "pass"], "needs -o json"),
        (["--from", "yesterday"], "--from must be"),
        (["-s", "a/b"], "subscription"),
        (["--dead-letter-topic", "dlq"], "max_deliveries"),
    ],
)
def test_bad_options_are_named(cluster: Cluster, options: list[str], sentence: str) -> None:
    """Before anything is created."""
    done = cluster.run("consume", "bad", "-s", "billing", "--idle", "0.5", *options)
    assert done.returncode not in (0, 130)
    assert sentence in done.stderr.decode()


def test_what_a_command_waits_for_is_told_on_standard_error(cluster: Cluster) -> None:
    """A mistyped topic, and a new subscription that skips what is stored, look like a cluster without messages.
    Standard output stays free of it."""
    told = cluster.run("consume", "mistyped", "-s", "billing", "--idle", "0.2", "-o", "json")
    assert (told.returncode, told.stdout) == (0, b"")
    assert told.stderr.startswith(b"topic mistyped did not exist and was created: check the name")
    new = cluster.run("consume", "mistyped", "-s", "audit", "--idle", "0.2")
    assert new.stderr.startswith(b"subscription audit is new and begins at the latest message")
    assert b"oncelog admin subscriptions seek mistyped audit --to earliest" in new.stderr
    for options in (["-s", "audit"], ["-s", "whole", "--from", "earliest"]):
        known = cluster.run("consume", "mistyped", *options, "--idle", "0.2")
        assert (known.returncode, known.stderr) == (0, b"")
    missing = cluster.run("read", "unknown")
    assert (missing.returncode, missing.stdout) == (1, b"")
    assert b"topic public/default/unknown does not exist [topic_not_found]\n  check the name: " in missing.stderr


@pytest.mark.parametrize("words", [["consume", "quiet", "-s", "billing"], ["read", "quiet", "--follow"]])
def test_waiting_command_shows_on_a_terminal_that_it_waits(cluster: Cluster, words: list[str]) -> None:
    """Once, after a second of silence, and only there."""
    shown, terminal = pty.openpty()
    with subprocess.Popen(
        command(*words, "--url", cluster.url), stdout=subprocess.PIPE, stderr=terminal, env=environment()
    ) as process:
        os.close(terminal)
        text = b""
        while b"waiting for messages of quiet; Ctrl-C ends" not in text:
            text += os.read(shown, 1_024)
        process.send_signal(signal.SIGINT)
        assert process.communicate(timeout=_DEADLINE_S)[0] == b""
    os.close(shown)
