"""`oncelog admin topics deduplication --verify`: its verdict is its exit code, and a topic may move meanwhile."""

import json

import pytest
from typer.testing import CliRunner

from oncelog.cli.app import app
from tests.cluster.cli.recorded_rest import RecordingServer

PATH = "/admin/v2/persistent/public/default/orders/deduplication/verify"
DIFFERENCE = {"producer": "importer", "producer_id": 7, "field": "persisted", "expected": "9", "found": "8"}


def job(number: str, state: str, **fields: object) -> tuple[int, object]:
    """A response about a verification."""
    seen = {"id": number, "state": state, "entries_read": 5, "producers_compared": 1, "producer_count": 2}
    return 200, {**seen, "differences_count": 0, "differences": [], "waiting": None, "error": None, **fields}


def verify(rest: RecordingServer, *words: str) -> tuple[int, str, str]:
    """(exit code, standard output, standard error)."""
    command = ["admin", "topics", "deduplication", "orders", "--verify", *words, "--admin-url", rest.url]
    result = CliRunner().invoke(app, command)
    return result.exit_code, result.stdout, result.stderr


def test_equal_fold_is_a_success(rest: RecordingServer) -> None:
    """Progress goes to standard error."""
    rest.answers[PATH] = job("a", "equal")
    code, out, errors = verify(rest, "--bytes-per-second", "1048576", "-o", "json")
    assert (code, json.loads(out)["state"]) == (0, "equal")
    assert "1 of 2 producers compared" in errors
    assert rest.asked == [("POST", PATH, {"bytes_per_second": 1048576}), ("GET", PATH, None)]


@pytest.mark.parametrize(
    ("state", "fields", "told"),
    [
        ("different", {"differences_count": 1, "differences": [DIFFERENCE]}, "importer"),
        ("failed", {"error": "entry 3:4 cannot be read"}, "entry 3:4"),
        ("cancelled", {}, "cancelled"),
    ],
)
def test_any_other_end_is_a_failure(rest: RecordingServer, state: str, fields: dict[str, object], told: str) -> None:
    """A script must not take "nothing was proved" for "equal"."""
    rest.answers[PATH] = job("a", state, **fields)
    code, out, _ = verify(rest)
    assert code == 1
    assert told in out


def test_topic_that_moves_is_verified_again_at_its_new_owner(rest: RecordingServer) -> None:
    """The new owner knows nothing of the former one's proof, and the user is told."""
    rest.answers[PATH] = job("a", "running")
    rest.later[PATH] = [(200, None), job("b", "running"), job("b", "equal")]
    code, out, errors = verify(rest)
    assert (code, "equal" in out) == (0, True)
    assert "has moved to another owner" in errors
    assert [asked[0] for asked in rest.asked] == ["POST", "GET", "POST", "GET"]


def test_verification_is_cancelled(rest: RecordingServer) -> None:
    """By whoever may begin it."""
    rest.answers[PATH] = job("a", "cancelled")
    assert verify(rest, "--cancel")[0] == 0
    assert [asked[0] for asked in rest.asked] == ["DELETE"]
    for answer, told in ((job("a", "equal"), "has ended, as equal"), ((200, None), "knows of none")):
        rest.answers[PATH] = answer
        code, out, _ = verify(rest, "--cancel")
        assert (code, "no verification" in out, told in out, "is cancelled" in out) == (0, True, True, False)


def test_time_limit_leaves_the_proof_running(rest: RecordingServer) -> None:
    """The exit code is no success."""
    rest.answers[PATH] = job("a", "running")
    assert verify(rest, "--wait-seconds", "0")[0] == 1
    assert [asked[0] for asked in rest.asked] == ["POST", "GET"]
