"""`topics stats --watch`: a line for each look, also while an owner does not answer."""

import json
import signal
import subprocess
from collections.abc import Iterator

import pytest
from typer.testing import CliRunner

from oncelog.cli.admin.watching import TOPIC_TITLE, Pace, topic_line
from oncelog.cli.app import app
from tests.cluster.cli.recorded_rest import RecordingServer, served
from tests.cluster.commands import COMMAND_TIMEOUT_S, command, environment

TOPIC = "/admin/v2/persistent/public/default/orders"
STATS = {
    "message_count": 2_000,
    "connected_producer_count": 2,
    "publishing": "open",
    "subscriptions": {"billing": {"msg_backlog": 5}, "audit": {"msg_backlog": 1_700}},
}


@pytest.fixture
def rest() -> Iterator[RecordingServer]:
    with served() as server:
        server.answers[f"{TOPIC}/stats"] = (200, STATS)
        yield server


def test_line_of_a_topic_fits_its_title_and_the_terminal() -> None:
    """The largest backlog, and how many messages came each second since the last line."""
    pace = Pace()
    first, later = (
        topic_line(STATS | {"message_count": n}, pace, now_s) for n, now_s in ((1_000, 50.0), (2_000, 54.0))
    )
    assert first.split()[1:] == ["1,000", "-", "2", "1,700", "open"]
    assert later.split()[1:] == ["2,000", "250.0", "2", "1,700", "open"]
    assert len(TOPIC_TITLE) <= 80
    assert later.index("1,700") + len("1,700") == TOPIC_TITLE.index("backlog") + len("backlog")
    assert "no topic owner serves it now" in topic_line({"phase": "unowned"}, pace, 60.0)


def test_watch_follows_a_topic_until_ctrl_c(rest: RecordingServer) -> None:
    """Also while its owner does not answer, which it says; the exit code is that of an interrupted command."""
    words = [
        "admin",
        "topics",
        "stats",
        "orders",
        "--watch",
        "--interval",
        "0.1",
        "-o",
        "json",
        "--admin-url",
        rest.url,
    ]
    with subprocess.Popen(
        command(*words), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment()
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert [json.loads(process.stdout.readline()) for _ in range(2)] == [STATS, STATS]
        rest.answers[f"{TOPIC}/stats"] = (503, {"code": "topic_loading", "detail": "it moves"})
        assert process.stderr.readline() == "it moves; will retry\n"
        rest.answers[f"{TOPIC}/stats"] = (200, STATS | {"message_count": 7})
        while json.loads(process.stdout.readline())["message_count"] != 7:
            pass
        process.send_signal(signal.SIGINT)
        assert (process.wait(COMMAND_TIMEOUT_S), process.stderr.read()) == (130, "")
    missing = {"code": "topic_not_found", "detail": "there is none"}
    rest.answers[f"{TOPIC}/stats"] = (404, missing)
    result = CliRunner().invoke(app, ["admin", "topics", "stats", "orders", "--watch", "--admin-url", rest.url])
    assert (result.exit_code, result.stdout) == (1, "")
