"""`oncelog produce` and `oncelog read` against a real cluster, through crashes of the producer and of the cluster."""

import json
import signal
import subprocess
from pathlib import Path
from typing import Any

from tests.cluster.cluster_fixture import Cluster
from tests.cluster.commands import command, environment
from tests.cluster.kills import just_seen, kill_sync
from tests.cluster.until import until_sync

_DEADLINE_S = 60.0


def produce(cluster: Cluster, topic: str, path: Path, *options: str) -> dict[str, Any]:
    """The summary of a run that succeeded."""
    words = ("produce", topic, "--from-file", str(path), "--producer-name", "importer", "-o", "json", *options)
    done = cluster.run(*words)
    assert done.returncode == 0, done.stderr
    summary: dict[str, Any] = json.loads(done.stdout)
    return summary


def raw(cluster: Cluster, topic: str, *options: str) -> bytes:
    done = cluster.run("read", topic, *options)
    assert done.returncode == 0, done.stderr
    return done.stdout


def rows(cluster: Cluster, topic: str, *options: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in raw(cluster, topic, "-o", "json", *options).splitlines()]


def numbered(path: Path, count: int) -> Path:
    path.write_text("".join(f"line {number}\n" for number in range(count)))
    return path


def test_topic_that_did_not_exist_is_told(cluster: Cluster) -> None:
    """Its name may be mistyped, and every line is acknowledged all the same. A topic that exists is not told."""
    first, second = (cluster.run("produce", "ordesr", "-m", "hi") for _ in range(2))
    assert (first.returncode, second.returncode) == (0, 0), (first.stderr, second.stderr)
    sentence = b"topic ordesr did not exist and was created: check the name (oncelog admin topics list)\n"
    assert (first.stderr, second.stderr) == (sentence, b"")
    assert first.stdout.startswith(b"1 line acknowledged")


def test_file_is_published_once_by_repeated_runs(cluster: Cluster, tmp_path: Path) -> None:
    """A second run resumes, and a replay is refused line by line. Of a file that was changed, the command says so."""
    path = tmp_path / "lines"
    path.write_bytes(b"a\r\n\n\xff\nlast\n")
    first = produce(cluster, "once", path)
    assert (first["stored"], first["duplicates"], first["resumed_from"]) == (4, 0, None)
    again = produce(cluster, "once", path)
    assert (again["sent"], again["resumed_from"], again["position"]) == (0, 11, 11)
    replayed = produce(cluster, "once", path, "--replay", "2")
    assert (replayed["stored"], replayed["duplicates"], replayed["resumed_from"]) == (0, 2, 4)
    whole = produce(cluster, "once", path, "--from-start")
    assert (whole["stored"], whole["duplicates"], whole["differing"]) == (0, 4, 0)
    path.write_bytes(b"b\r\n\n\xff\nlast\n")
    words = ("produce", "once", "--from-file", str(path), "--producer-name", "importer", "--from-start")
    changed = cluster.run(*words, "-o", "json")
    summary = json.loads(changed.stdout)
    assert (changed.returncode, summary["stored"], summary["duplicates"], summary["differing"]) == (0, 0, 4, 4)
    assert b"not stored: 4 lines in batches that differ from what the log stores" in changed.stderr
    assert raw(cluster, "once") == b"a\r\n\n\xff\nlast\n"
    messages = rows(cluster, "once")
    assert [message["sequence_id"] for message in messages] == [0, 3, 4, 6]
    assert [message["index"] for message in messages] == [0, 1, 2, 3]
    assert [message.get("value", message.get("value_base64")) for message in messages] == ["a\r", "", "/w==", "last"]
    assert {message["producer_name"] for message in messages} == {"importer"}


def test_run_on_a_grown_file_continues_after_the_last_line(cluster: Cluster, tmp_path: Path) -> None:
    """A growing log file is published by running the command again. Each run may compress in another way."""
    path = numbered(tmp_path / "lines", 3)
    produce(cluster, "grows", path, "--compression", "zstd")
    with path.open("a") as file:
        file.write("more\n")
    assert produce(cluster, "grows", path, "--compression", "lz4")["stored"] == 1
    assert raw(cluster, "grows") == path.read_bytes()


def test_incomplete_last_line_is_published_once_it_is_complete(cluster: Cluster, tmp_path: Path) -> None:
    """An incomplete line must not use the id of the complete line, or its rest would be lost."""
    path = tmp_path / "lines"
    path.write_bytes(b"one\ntw")
    words = ("produce", "halves", "--from-file", str(path), "--producer-name", "importer")
    done = cluster.run(*words, "-o", "json")
    assert done.returncode == 0
    summary = json.loads(done.stdout)
    assert (summary["stored"], summary["position"], summary["incomplete"]) == (1, 4, {"offset": 4, "bytes": 2})
    assert b"2 bytes without a newline at byte 4" in done.stderr
    assert b"--final" in done.stderr
    path.write_bytes(b"one\ntwo\nthree")
    assert produce(cluster, "halves", path)["stored"] == 1
    final = produce(cluster, "halves", path, "--final")
    assert (final["stored"], final["position"], final["incomplete"]) == (1, 13, None)
    assert raw(cluster, "halves") == b"one\ntwo\nthree\n"
    assert produce(cluster, "halves", path, "--final")["sent"] == 0
    again = cluster.run(*words)
    assert again.returncode == 1
    assert b"has no newline" in again.stderr


def test_another_file_under_the_same_name_is_refused(cluster: Cluster, tmp_path: Path) -> None:
    """Offsets of another file would look like a resumed run, and its first lines would be lost."""
    produce(cluster, "other", numbered(tmp_path / "lines", 3))
    other = tmp_path / "others"
    other.write_text("one line that is longer than all of the other file\n")
    words = ("produce", "other", "--from-file", str(other), "--producer-name", "importer")
    done = cluster.run(*words)
    assert done.returncode == 1
    assert b"no line of" in done.stderr
    assert b"begins at that byte" in done.stderr


def test_killed_producer_and_owner_lose_and_duplicate_nothing(cluster: Cluster, tmp_path: Path) -> None:
    """A small version of the demo: kill -9 of the producer, then of the owner. Every line is stored once."""
    path = numbered(tmp_path / "lines", 6000)
    words = ("produce", "crashes", "--from-file", str(path), "--producer-name", "importer", "--progress", "json")
    own = environment() | {"ONCELOG_URL": cluster.url}
    # The whole file would take 20 s.
    with subprocess.Popen(command(*words, "--rate", "300"), stdout=subprocess.PIPE, env=own) as first:
        assert first.stdout is not None
        for line in first.stdout:
            if json.loads(line).get("acked", 0) >= 300:
                break
        kill_sync(first, once=just_seen)
    # Asked before there is something to kill: the answer takes a second, and the second run is over soon.
    stats = json.loads(cluster.run("admin", "topics", "stats", "crashes", "-o", "json").stdout)
    owner = next(p for p in cluster.processes.values() if p["serving"].get("incarnation") == stats["owner"])
    with subprocess.Popen(command(*words, "--rate", "1500", "-o", "json"), stdout=subprocess.PIPE, env=own) as second:
        assert second.stdout is not None
        opened = json.loads(second.stdout.readline())["opened"]
        assert opened["last_sequence_id"] >= 299
        for line in second.stdout:
            if json.loads(line).get("acked", 0) >= 1000:
                break
        kill_sync(owner["pid"], once=just_seen)
        summary = json.loads(second.stdout.read().splitlines()[-1])
        assert second.wait(_DEADLINE_S) == 0
    assert summary["position"] == path.stat().st_size
    assert raw(cluster, "crashes") == path.read_bytes()


def test_interrupted_run_reports_its_progress(cluster: Cluster, tmp_path: Path) -> None:
    """Ctrl-C: exit code 130 and a correct summary. The next run completes the file."""
    path = numbered(tmp_path / "lines", 3000)
    words = ("produce", "stops", "--from-file", str(path), "--producer-name", "importer", "-o", "json")
    own = environment() | {"ONCELOG_URL": cluster.url}
    with subprocess.Popen(
        command(*words, "--rate", "500", "--progress", "json"), stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=own
    ) as process:
        assert process.stdout is not None
        for line in process.stdout:
            if json.loads(line).get("acked", 0) >= 100:
                break
        process.send_signal(signal.SIGINT)
        output, errors = process.communicate(timeout=_DEADLINE_S)
        assert process.returncode == 130
    summary = json.loads(output.splitlines()[-1])
    assert summary["interrupted"]
    assert summary["lines"] == summary["sent"] < 3000
    assert f"up to byte {summary['position']}".encode() in errors
    assert produce(cluster, "stops", path)["resumed_from"] == summary["position"]
    assert raw(cluster, "stops") == path.read_bytes()


def test_read_starts_and_ends_at_the_given_positions(cluster: Cluster, tmp_path: Path) -> None:
    """--from with a message id (inclusive or exclusive) or a time, and --limit."""
    produce(cluster, "places", numbered(tmp_path / "lines", 10))
    messages = rows(cluster, "places")
    assert len(messages) == 10
    third = messages[2]["message_id"]
    assert [row["index"] for row in rows(cluster, "places", "--from", third, "--limit", "2")] == [3, 4]
    assert [row["index"] for row in rows(cluster, "places", "--from", third, "--inclusive", "--limit", "1")] == [2]
    assert rows(cluster, "places", "--from", "latest") == []
    assert rows(cluster, "places", "--from", "2099-01-01T00:00:00Z") == []
    assert len(rows(cluster, "places", "--from", "2001-01-01T00:00:00Z")) == 10
    wrong = cluster.run("read", "places", "--from", "yesterday")
    assert wrong.returncode == 1
    assert b"--from must be earliest, latest, a message id" in wrong.stderr
    missing = cluster.run("read", "palces")
    assert missing.returncode == 1
    assert b"topic public/default/palces does not exist" in missing.stderr


def test_follow_prints_new_messages(cluster: Cluster) -> None:
    """--follow waits, prints each new message, and ends with Ctrl-C."""
    own = environment() | {"ONCELOG_URL": cluster.url}
    words = command("read", "tail", "--follow")
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=own) as follower:
        assert follower.stdout is not None
        for value in (b"one\n", b"two\n"):
            done = cluster.run("produce", "tail", "--stdin", given=value)
            assert done.returncode == 0, done.stderr
            assert b"ids are automatic" in done.stderr
            assert follower.stdout.readline() == value
        texts = cluster.run("produce", "tail", "-m", "", "-m", "grüße", "-o", "json")
        assert (json.loads(texts.stdout)["stored"], texts.stderr) == (2, b"")
        assert [follower.stdout.readline() for _ in range(2)] == [b"\n", "grüße\n".encode()]
        both = cluster.run("produce", "tail", "-m", "text", "--stdin")
        assert (both.returncode, b"use one of --from-file FILE, --stdin and -m TEXT" in both.stderr) == (2, True)
        follower.send_signal(signal.SIGINT)
        assert follower.wait(_DEADLINE_S) == 130


def test_unreachable_cluster_is_reported_with_advice(tmp_path: Path) -> None:
    """A common first mistake. Exit code 4 means that a retry may help."""
    path = numbered(tmp_path / "lines", 1)
    words = ("produce", "t", "--from-file", str(path), "--producer-name", "n", "--timeout", "0.5")
    nowhere = ("--url", "oncelog://127.0.0.1:1")
    done = subprocess.run(command(*words, *nowhere), capture_output=True, env=environment(), timeout=60, check=False)
    assert done.returncode == 4
    assert b"cannot reach 127.0.0.1:1 (a metadata service): connection refused" in done.stderr
    assert b"check the URL" in done.stderr


def test_closed_output_ends_the_read(cluster: Cluster, tmp_path: Path) -> None:
    """`oncelog read … | head` is not an error."""
    produce(cluster, "piped", numbered(tmp_path / "lines", 50_000))
    own = environment() | {"ONCELOG_URL": cluster.url}
    with subprocess.Popen(command("read", "piped"), stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=own) as reading:
        assert reading.stdout is not None
        assert reading.stderr is not None
        assert reading.stdout.readline() == b"line 0\n"
        reading.stdout.close()
        until_sync(lambda: reading.poll() is not None, _DEADLINE_S, waiting_for="the read to end")
        assert reading.returncode == 0
        assert reading.stderr.read() == b""
