"""`topics stats` and `subscriptions stats`: the figures that matter first; with `--watch` a line for each look, also
while an owner does not answer."""

import json
import signal
import subprocess
from collections.abc import Iterator

import pytest
from typer.testing import CliRunner

from oncelog.cli.admin.stats import TOPIC_TITLE, Pace, subscription_facts, topic_facts, topic_line
from oncelog.cli.app import app
from tests.cluster.cli.recorded_rest import RecordingServer, served
from tests.cluster.commands import COMMAND_TIMEOUT_S, command, environment

TOPIC = "/admin/v2/persistent/public/default/orders"
NOW_MS = 1_795_977_372_000
STATS = {
    "topic": "public/default/orders",
    "phase": "serving",
    "owner_address": "10.0.0.1:6652",
    "message_count": 2_000,
    "rate_in": 12.5,
    "rate_out": 3.0,
    "backlog_messages": 1_700,
    "backlog_subscription": "audit",
    "oldest_unacked_ms": NOW_MS,
    "bytes": 3 * 1024 * 1024,
    "connected_producer_count": 2,
    "publishing": "open",
    "subscriptions": {"billing": {"msg_backlog": 5}, "audit": {"msg_backlog": 1_700}},
}
SUBSCRIPTION = {
    "msg_backlog": 1_700, "backlog_size": 2_048, "oldest_unacked_ms": NOW_MS, "consumer_count": 2,
    "unacked_messages": 40, "mark_delete": 300, "blocked": None,
}  # fmt: skip


@pytest.fixture
def rest() -> Iterator[RecordingServer]:
    with served() as server:
        server.answers[f"{TOPIC}/stats"] = (200, STATS)
        server.answers[f"{TOPIC}/subscription/audit"] = (200, {"public/default/orders": SUBSCRIPTION})
        yield server


def admin(rest: RecordingServer, *words: str) -> str:
    result = CliRunner().invoke(app, ["admin", *words, "--admin-url", rest.url])
    assert result.exit_code == 0, (result.stdout, result.stderr, result.exception)
    return result.stdout


def shown(text: str) -> dict[str, str]:
    return {name: value.strip() for name, _, value in (line.partition("  ") for line in text.splitlines())}


def test_topic_has_its_state_and_four_figures(rest: RecordingServer) -> None:
    """All from the statistics of the topic, for which its own owner is asked: the list of topics, in which they were,
    is answered when each owner has, so it took 3 s while any of them was silent."""
    seen = shown(admin(rest, "topics", "stats", "orders"))
    assert rest.asked == [("GET", f"{TOPIC}/stats", None)]
    assert seen.pop("oldest_unacked").startswith("2026-11-29 ")
    assert seen == {
        "topic": "public/default/orders", "state": "serving at 10.0.0.1:6652",
        "rate": "12.5 in, 3.0 out (messages/s)", "backlog": "1,700 messages of audit", "stored": "3.0 MiB",
    }  # fmt: skip


def test_topic_without_an_owner_has_no_figures(rest: RecordingServer) -> None:
    """Its last figures would be those of an owner that is gone."""
    rest.answers[f"{TOPIC}/stats"] = (200, {"topic": "public/default/orders", "phase": "unowned"})
    assert shown(admin(rest, "topics", "stats", "orders")) == {
        "topic": "public/default/orders", "state": "no topic owner serves it now",
        "rate": "-", "backlog": "-", "oldest_unacked": "-", "stored": "-",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("stats", "state"),
    [
        ({"waiting": {"message": "1 node is away"}, "phase": "recovering"}, "recovering, waits: 1 node is away"),
        ({"publishing": "held", "held_by": "audit"}, "publishing is held: the backlog of audit exceeds the quota"),
        ({"unavailable": [{"ledger_id": 7}]}, "1 range of entries could not be read in the last minute"),
    ],
)
def test_state_says_in_words_what_stands_still(stats: dict[str, object], state: str) -> None:
    assert state in str(topic_facts(STATS | stats)["state"])


def test_subscription_has_its_state_and_four_figures(rest: RecordingServer) -> None:
    """Of a partitioned topic, a row for each partition."""
    seen = shown(admin(rest, "subscriptions", "stats", "orders", "audit"))
    assert seen.pop("oldest_unacked").startswith("2026-11-29 ")
    assert seen == {
        "topic": "public/default/orders", "subscription": "audit", "state": "open",
        "backlog": "1,700 messages, 2.0 KiB", "consumers": "2", "held": "40",
    }  # fmt: skip
    parts = {f"public/default/orders-partition-{part}": SUBSCRIPTION for part in range(2)}
    rest.answers[f"{TOPIC}/subscription/audit"] = (200, parts)
    seen_parts = admin(rest, "subscriptions", "stats", "orders", "audit", "-o", "wide").splitlines()
    assert [line.split()[0] for line in seen_parts] == ["topic", *parts]


@pytest.mark.parametrize(
    ("stats", "state"),
    [
        ({"consumer_count": 0}, "no consumer"),
        (
            {"blocked": {"reason": "too many holes", "lowest_hole": 7, "holder": ""}},
            "blocked: too many holes; message 7, which no consumer holds",
        ),
        ({"holds_publishing_since_ms": 1}, "its backlog exceeds the quota and holds publishing"),
    ],
)
def test_state_of_a_subscription_says_why_nothing_is_delivered(stats: dict[str, object], state: str) -> None:
    assert subscription_facts("orders", "audit", SUBSCRIPTION | stats)["state"] == state


@pytest.mark.parametrize(
    ("words", "answer"),
    [
        (("topics", "stats", "orders"), STATS),
        (("subscriptions", "stats", "orders", "audit"), {"public/default/orders": SUBSCRIPTION}),
    ],
)
def test_everything_is_in_json_and_behind_all(rest: RecordingServer, words: tuple[str, ...], answer: object) -> None:
    """JSON is REST's answer, with and without --all."""
    assert json.loads(admin(rest, *words, "-o", "json")) == answer
    assert json.loads(admin(rest, *words, "--all", "-o", "json")) == answer
    assert ("mark_delete" if "audit" in words else "message_count") in admin(rest, *words, "--all")


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
