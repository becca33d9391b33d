"""`oncelog top`: topics, subscriptions and producers in one look, live at a terminal, and once elsewhere."""

import fcntl
import json
import os
import pty
import signal
import struct
import subprocess
import termios
from collections.abc import Iterator
from typing import Any

import pytest
from typer.testing import CliRunner

from oncelog.cli.app import app
from oncelog.cli.live.screen import ENTER, HOME, LEAVE
from tests.cluster.cli.recorded_rest import RecordingServer, served
from tests.cluster.commands import COMMAND_TIMEOUT_S, command, environment
from tests.contract.process.cli.test_lag import PATIENT

LIST, LAGS = "/admin/v2/topics", "/admin/v2/subscriptions"
TOPIC = "public/default/orders"
ROW = {
    "topic": TOPIC, "rate_in": 12.5, "rate_out": 3.0, "backlog_messages": 90, "backlog_subscription": "billing",
    "oldest_unacked_ms": 1_000, "refused": 5,
}  # fmt: skip
SAMPLE = {
    "at_ms": 1, "interval_ms": 10_000, "stored": 125, "delivered": 30, "acknowledged": 20, "duplicates": 40, "stale": 5,
    "unverified": 5,
}  # fmt: skip
SUBSCRIPTION = {"topic": TOPIC, "name": "billing", "msg_backlog": 90, "oldest_unacked_ms": 1_000, "consumer_count": 2}


def producer(name: str, duplicates: int, stale: int = 0) -> dict[str, object]:
    return {"topic": TOPIC, "name": name, "duplicates": duplicates, "stale": stale, "unverified": 0}


def page(*rows: dict[str, object], name: str = "topics") -> tuple[int, object]:
    return 200, {name: list(rows), "next_after": None, "silent_owners": []}


@pytest.fixture
def rest() -> Iterator[RecordingServer]:
    with served() as server:
        quiet = ROW | {"topic": "public/default/quiet", "refused": 0}
        for count in (2, 3, 10):
            for path in (LIST, f"{LIST}/public/default"):
                server.answers[f"{path}?sort=rate_in&limit={count}"] = page(ROW, quiet)
                server.answers[f"{path}?sort=refused&limit={count}"] = page(ROW, quiet)
        for path in (LAGS, f"{LAGS}/public/default"):
            server.answers[f"{path}?state=backlog&limit=1000"] = page(SUBSCRIPTION, name="subscriptions")
        old = SAMPLE | {"stored": 7_000_000}
        server.answers["/admin/v2/rates?seconds=20"] = (200, {"owners": [{"samples": [old, SAMPLE]}] * 2})
        server.answers[f"/admin/v2/persistent/{TOPIC}/producers?limit=1000"] = page(
            producer("till-1", 1, 9), producer("till-2", 40), producer("sound", 0), name="producers"
        )
        yield server


def top(rest: RecordingServer, *words: str, code: int = 0) -> Any:
    """The object of -o json, or what standard error says."""
    result = CliRunner().invoke(app, ["top", *PATIENT, *words, "-o", "json", "--admin-url", rest.url])
    assert result.exit_code == code, (result.stdout, result.stderr, result.exception)
    return json.loads(result.stdout) if not code else result.stderr


def test_one_look_has_rates_topics_subscriptions_and_producers(rest: RecordingServer) -> None:
    """The rates are those of the newest sample of each owner. Of topics without refusals no producer is asked for."""
    seen = top(rest)
    assert (seen["rates"]["stored"], seen["rates"]["duplicates"]) == (25.0, 8.0)
    assert [row["topic"] for row in seen["topics"]] == [TOPIC, "public/default/quiet"]
    assert [(row["subscription"], row["consumer_count"]) for row in seen["subscriptions"]] == [("billing", 2)]
    assert [row["name"] for row in seen["producers"]] == ["till-2", "till-1"]
    assert [path for _, path, _ in rest.asked if "/quiet/producers" in path] == []


def test_without_a_terminal_it_is_shown_once(rest: RecordingServer) -> None:
    """Plain lines, which a script can read."""
    result = CliRunner().invoke(app, ["top", *PATIENT, "--admin-url", rest.url])
    assert result.exit_code == 0
    assert "\x1b" not in result.stdout
    lines = result.stdout.splitlines()
    assert "in 25.0, out 6.0, acknowledged 4.0" in lines[0]
    assert lines[1].startswith("refused messages/s: 10.0")
    assert [line.split()[0] for line in lines if TOPIC in line] == [TOPIC, TOPIC, "till-2", "till-1"]


def test_namespace_needs_no_superuser(rest: RecordingServer) -> None:
    """Rates are those of the cluster, and are not asked for; subscriptions and producers need rights of their own."""
    denied = (403, {"code": "permission_denied", "detail": "no right to admin"})
    rest.answers[f"/admin/v2/persistent/{TOPIC}/producers?limit=1000"] = denied
    seen = top(rest, "public/default", "-n", "2")
    assert (seen["rates"], seen["producers"], len(seen["topics"]), len(seen["subscriptions"])) == (None, None, 2, 1)
    assert [path for _, path, _ in rest.asked if "rates" in path] == []
    result = CliRunner().invoke(app, ["top", *PATIENT, "public/default", "-n", "2", "--admin-url", rest.url])
    assert "producers need the right admin" in result.stdout
    rest.answers[f"{LAGS}/public/default?state=backlog&limit=1000"] = denied
    assert top(rest, "public/default", "-n", "2")["subscriptions"] is None
    result = CliRunner().invoke(app, ["top", *PATIENT, "public/default", "-n", "2", "--admin-url", rest.url])
    assert "subscriptions need the right admin or consume" in result.stdout


@pytest.mark.parametrize("words", ["-n 0", "-n 101", "--interval -2", "--interval inf", "--sort colour"])
def test_wrong_options_are_refused(rest: RecordingServer, words: str) -> None:
    top(rest, *words.split(), code=2)
    assert rest.asked == []


def test_errors_are_told_with_their_codes(rest: RecordingServer) -> None:
    """Of the first look; a namespace that is none is no request."""
    assert "[invalid_name]" in top(rest, "a/b/c", code=1)
    assert rest.asked == []
    rest.answers[f"{LIST}?sort=rate_in&limit=10"] = (403, {"code": "permission_denied", "detail": "is not a superuser"})
    assert "[permission_denied]" in top(rest, code=1)


def test_terminal_shows_frame_after_frame_and_is_given_back(rest: RecordingServer) -> None:
    """Ctrl-C ends it, as it ends all commands, and the former screen is there again. No line wraps."""
    rest.later[f"{LIST}?sort=rate_in&limit=3"] = [page(ROW | {"topic": "public/default/" + "z" * 90})]
    screen, terminal = pty.openpty()
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 20, 80, 0, 0))
    words = ["top", *PATIENT, "--interval", "0.1", "--admin-url", rest.url]
    with subprocess.Popen(
        command(*words), stdout=terminal, stderr=subprocess.PIPE, env=environment() | {"TERM": "xterm"}
    ) as process:
        os.close(terminal)
        seen = b""
        while b"zzz" not in seen:
            seen += os.read(screen, 65_536)
        process.send_signal(signal.SIGINT)
        try:
            while more := os.read(screen, 65_536):
                seen += more
        except OSError:
            pass  # the last process that had the terminal has ended
        assert process.stderr is not None
        assert (process.wait(COMMAND_TIMEOUT_S), process.stderr.read()) == (130, b"")
    os.close(screen)
    text = seen.decode()
    assert text.startswith(ENTER + HOME)
    assert text.endswith(LEAVE)
    assert text.count(HOME) >= 2
    lines = [line.replace("\x1b[K", "").strip() for frame in text.split(HOME)[1:] for line in frame.split("\r\n")]
    assert max(len(line) for line in lines if not line.startswith("\x1b")) <= 80
