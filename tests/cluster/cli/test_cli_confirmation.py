"""Commands that lose something say what is lost, and want a typed name or --yes."""

import json
import os
import pty
import subprocess
from collections.abc import Iterator
from typing import Any

import pytest
from typer.testing import CliRunner

from oncelog.cli.app import app
from oncelog.core.process_version import PROCESS_VERSION
from tests.cluster.cli.recorded_rest import RecordingServer, admin, served
from tests.cluster.commands import COMMAND_TIMEOUT_S, command, environment

TOPIC = "/admin/v2/persistent/public/default/orders"
BILLING = f"{TOPIC}/subscription/billing"
LEDGER = "/admin/v2/storage/ledgers/7"
STATS = {
    "message_count": 1_250,
    "first_index": 50,
    "subscriptions": {f"s{number}": {"msg_backlog": number} for number in range(7)},
}


@pytest.fixture
def rest() -> Iterator[RecordingServer]:
    with served() as server:
        server.answers |= {
            TOPIC: (200, {"partitions": 0}),
            f"{TOPIC}/stats": (200, STATS),
            BILLING: (200, {"public/default/orders": {"msg_backlog": 7}}),
            "/admin/v2/namespaces/public/shop": (200, {"namespace": "public/shop"}),
            "/admin/v2/namespaces/public/shop/permissions": (200, {"importer": ["produce"], "billing": ["consume"]}),
            LEDGER: (200, {"topic": "public/default/orders", "copies": [{"incarnation": "a" * 32, "state": "lost"}]}),
            f"{LEDGER}/end?confirm=true": (200, {"gone": ["a" * 32], "survivors": []}),
        }
        yield server


def changes(rest: RecordingServer) -> list[str]:
    """What was asked, except by GET."""
    return [f"{method} {path}" for method, path, _ in rest.asked if method != "GET"]


def typed(rest: RecordingServer, words: str, answer: str) -> "subprocess.CompletedProcess[str]":
    """The command at a terminal, where the user types `answer` and Enter."""
    keyboard, terminal = pty.openpty()
    try:
        os.write(keyboard, answer.encode() + b"\n")
        return subprocess.run(
            command("admin", *words.split(), "--admin-url", rest.url),
            stdin=terminal,
            capture_output=True,
            text=True,
            env=environment(),
            timeout=COMMAND_TIMEOUT_S,
            check=False,
        )
    finally:
        os.close(keyboard)
        os.close(terminal)


NAMED = (
    "1,200 messages and 7 subscriptions: s6 (backlog 6), s5 (backlog 5), s4 (backlog 4), s3 (backlog 3), s2 (backlog 2)"
)
LOSING = [
    ("topics delete orders", f"DELETE {TOPIC}", NAMED),
    ("topics truncate orders", f"DELETE {TOPIC}/truncate", NAMED),
    ("topics update orders -p 8", f"POST {TOPIC}/partitions", "8 partitions for ever"),
    ("subscriptions delete orders billing", f"DELETE {BILLING}", "its backlog of 7 messages"),
    ("subscriptions skip orders billing --count 3", f"POST {BILLING}/skip/3", "the oldest 3 of 7 messages"),
    ("subscriptions skip orders billing --all", f"POST {BILLING}/skip_all", "backlog of billing, 7 messages"),
    (
        "subscriptions skip orders billing --older-than 604800",
        f"POST {BILLING}/expireMessages/604800",
        "billing (7 messages)",
    ),
    ("subscriptions skip orders --older-than 604800", f"POST {TOPIC}/all_subscription/expireMessages/604800", NAMED),
    ("subscriptions seek orders billing --to latest", f"POST {BILLING}/resetcursor", "its backlog (7 messages)"),
    ("namespaces delete shop", "DELETE /admin/v2/namespaces/public/shop", "the rights of 2 roles: billing, importer"),
    ("ledger end 7", f"POST {LEDGER}/end?confirm=true", f"missing nodes: {'a' * 32}"),
]


@pytest.mark.parametrize(("words", "request_", "loss"), LOSING)
def test_losing_command_without_a_terminal_wants_yes(
    rest: RecordingServer, words: str, request_: str, loss: str
) -> None:
    """One sentence says what would be lost, and nothing is changed, also with -o json. With --yes nothing is looked
    up: a script sends one request, whether or not the statistics can be read."""
    code, shown, errors = admin(rest, *words.split(), "-o", "json")
    assert (code, shown, changes(rest)) == (1, "", [])
    assert errors.startswith("error: nothing was done: this would ")
    assert loss in errors
    assert "give --yes to do it [invalid_argument]" in errors
    rest.asked.clear()
    assert admin(rest, *words.split(), "--yes", "-o", "json")[:2] == (0, "")
    asked = [f"{method} {path}" for method, path, _ in rest.asked]
    # Whether a topic has partitions is in its record.
    assert asked == [f"GET {TOPIC}", request_] if words.startswith("topics delete") else [request_]


def test_redrive_says_what_it_does_and_goes_on_until_nothing_is_left(rest: RecordingServer) -> None:
    """A request ends after some time. Letters that stay make the exit code 1: a script notices them."""
    path, done = (
        f"{BILLING}/redrive",
        {"dead_letter_topic": "shop/orders/dead", "already": 0, "kept_count": 0, "kept": []},
    )
    rest.answers[path] = (200, done | {"waiting": 7})
    code, shown, errors = admin(rest, "subscriptions", "redrive", "orders", "billing", "--max", "5")
    assert (code, shown, changes(rest)) == (1, "", [])
    assert "publish at most 5 of the dead letters of billing to orders again (7 messages of shop/orders/dead)" in errors
    kept = {"kept_count": 1, "kept": [{"index": 2, "reason": "it is too large"}]}
    rest.answers[path] = (200, done | {"redriven": 3, "left": 4})
    rest.later[path] = [(200, done | kept | {"redriven": 2, "already": 1, "left": 0})]
    rest.asked.clear()
    code, shown, _ = admin(rest, "subscriptions", "redrive", "orders", "billing", "--max", "6", "--yes", "-o", "json")
    assert (code, json.loads(shown)) == (1, done | kept | {"redriven": 5, "already": 1, "left": 0})
    assert rest.asked == [("POST", path, {"max": 6}), ("POST", path, {"max": 3})]


def test_losing_command_at_a_terminal_wants_the_name(rest: RecordingServer) -> None:
    """The question goes to standard error, so standard output is as with --yes."""
    wrong = typed(rest, "topics delete orders", "yes")
    assert (wrong.returncode, wrong.stdout, changes(rest)) == (1, "", [])
    assert f"This will delete topic orders for ever, with {NAMED} and 2 more." in wrong.stderr
    assert "nothing was done: 'yes' was typed, not orders" in wrong.stderr
    right = typed(rest, "topics delete orders", "orders")
    assert (right.returncode, right.stdout) == (0, "deleted topic orders\n")
    assert changes(rest) == [f"DELETE {TOPIC}"]


def test_loss_of_a_partitioned_topic_is_the_sum_of_its_partitions(rest: RecordingServer) -> None:
    """A partition that was never used has nothing."""
    rest.answers[TOPIC] = (200, {"partitions": 3})
    for number, backlog in ((0, 3), (2, 4)):
        stats = {"message_count": 10, "first_index": 0, "subscriptions": {"billing": {"msg_backlog": backlog}}}
        rest.answers[f"{TOPIC}-partition-{number}/stats"] = (200, stats)
    rest.answers[f"{TOPIC}-partition-1/stats"] = (404, {"code": "topic_not_found", "detail": "none"})
    errors = admin(rest, "topics", "truncate", "orders")[2]
    assert "20 messages and 1 subscription: billing (backlog 7);" in errors
    errors = admin(rest, "topics", "delete", "orders")[2]
    assert "delete topic orders with all its 3 partitions for ever, with 20 messages" in errors
    assert admin(rest, "topics", "delete", "orders", "--yes")[0] == 0
    assert changes(rest) == [f"DELETE {TOPIC}/partitions"]


@pytest.mark.parametrize(
    ("status", "answer", "why"),
    [
        (503, {"code": "topic_loading", "detail": "it moves"}, "an unknown number of messages (it moves)"),
        (200, {"phase": "unowned"}, "an unknown number of messages (no topic owner serves it now)"),
    ],
)
def test_loss_that_cannot_be_read_is_unknown(rest: RecordingServer, status: int, answer: object, why: str) -> None:
    """Unknown is not none: the question is asked all the same."""
    rest.answers[f"{TOPIC}/stats"] = (status, answer)
    code, _, errors = admin(rest, "topics", "delete", "orders")
    assert (code, changes(rest)) == (1, [])
    assert why in errors


@pytest.mark.parametrize("kind", ["topic", "subscription"])
def test_losing_what_does_not_exist_says_so(rest: RecordingServer, kind: str) -> None:
    """No question about nothing: a script that deletes twice gets the same error with and without --yes."""
    missing = {"code": f"{kind}_not_found", "detail": "there is none"}
    rest.answers |= dict.fromkeys((TOPIC, f"{TOPIC}/partitions", BILLING), (404, missing))
    words = ["topics", "delete", "orders"] if kind == "topic" else ["subscriptions", "delete", "orders", "billing"]
    for more in ([], ["--yes"]):
        code, _, errors = admin(rest, *words, *more)
        assert code == 1
        assert errors.startswith(f"error: there is none [{kind}_not_found]")


def run(rest: RecordingServer, words: str) -> Any:
    return CliRunner().invoke(app, ["admin", *words.split(), "--admin-url", rest.url])


RAISABLE = {"level": 8, "announced": 0, "target": 9, "behind": [], "processes": []}
BEHIND = {"kind": "storage node", "address": "s-2:6660", "version": 8, "away": True}


def test_end_of_an_upgrade_wants_the_level_typed(rest: RecordingServer) -> None:
    """Behind it there is no way back. `--dry-run` asks nothing; its exit code says whether something is in the way."""
    rest.answers["/admin/v2/cluster/level"] = (200, RAISABLE)
    rest.answers["/admin/v2/cluster/finalize"] = (200, {**RAISABLE, "level": 9})
    refused = run(rest, "cluster finalize")
    assert refused.exit_code == 1
    assert "nothing was done: this would raise the level from 8 to 9: there is no way back" in refused.stderr
    assert run(rest, "cluster finalize --dry-run").exit_code == 0
    rest.answers["/admin/v2/cluster/level"] = (200, {**RAISABLE, "behind": [BEHIND], "processes": [BEHIND]})
    in_the_way = run(rest, "cluster finalize --dry-run")
    assert in_the_way.exit_code == 1
    assert "s-2:6660" in in_the_way.stdout
    assert not [call for call in rest.asked if call[0] == "POST"]
    assert run(rest, "cluster finalize --yes").exit_code == 0
    assert [call for call in rest.asked if call[0] == "POST"]


@pytest.mark.parametrize(
    ("answer", "code"),
    [
        ((200, {**RAISABLE, "level": PROCESS_VERSION}), 0),
        ((200, {**RAISABLE, "level": PROCESS_VERSION + 1}), 1),
        ((200, {**RAISABLE, "announced": PROCESS_VERSION + 1}), 1),
    ],
)
def test_program_asks_whether_it_may_take_part(rest: RecordingServer, answer: tuple[int, object], code: int) -> None:
    """Before a roll-out and a roll-back."""
    rest.answers["/admin/v2/cluster/level"] = answer
    assert run(rest, "cluster level --require-known").exit_code == code
