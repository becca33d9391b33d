"""`oncelog admin` against a REST interface that records requests: paths, bodies, responses, problems."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from oncelog.cli.app import app
from tests.cluster.cli.recorded_rest import Asked, RecordingServer, admin, served

NAMESPACE = "/admin/v2/namespaces/public/orders"
TOPIC = "/admin/v2/persistent/public/default/new"
NODE = "0a1b" * 8


@pytest.mark.parametrize(
    ("words", "asked"),
    [
        ("namespaces list", ("GET", "/admin/v2/namespaces/public", None)),
        ("namespaces create orders", ("PUT", NAMESPACE, None)),
        ("namespaces create orders --deduplication", ("PUT", NAMESPACE, {"deduplication": True})),
        ("namespaces show public/orders", ("GET", NAMESPACE, None)),
        ("namespaces delete orders --yes", ("DELETE", NAMESPACE, None)),
        ("topics list --state held", ("GET", "/admin/v2/topics?state=held&limit=20", None)),
        ("topics list orders --top 5", ("GET", "/admin/v2/topics/public/orders?limit=5", None)),
        ("topics create new", ("PUT", TOPIC, None)),
        ("topics create new -p 4", ("PUT", f"{TOPIC}/partitions", 4)),
        ("topics update new -p 8 --yes", ("POST", f"{TOPIC}/partitions", 8)),
        ("topics list orders --partitioned", ("GET", "/admin/v2/persistent/public/orders/partitioned", None)),
        ("topics stats new --all", ("GET", f"{TOPIC}/stats", None)),
        ("topics stats persistent://public/default/new --internal", ("GET", f"{TOPIC}/internalStats", None)),
        ("topics truncate new --yes", ("DELETE", f"{TOPIC}/truncate", None)),
        ("topics deduplication new", ("GET", f"{TOPIC}/deduplication", None)),
        ("topics deduplication new --snapshot", ("POST", f"{TOPIC}/deduplication/snapshot", None)),
        ("topics unload new", ("PUT", f"{TOPIC}/unload", None)),
        (
            "producers lease new orders-partition-1 --expires 1h --request-id r",
            (
                "POST",
                "/admin/v2/producers/lease",
                {
                    "leases": [
                        {"topic": "public/default/new", "expire_ms": 3_600_000},
                        {"topic": "public/default/orders-partition-1", "expire_ms": 3_600_000},
                    ],
                    "request_id": "r",
                },
            ),
        ),
        (
            "producers lease new --producer-id 7 --generation 2 --request-id r",
            (
                "POST",
                "/admin/v2/producers/lease",
                {"leases": [{"topic": "public/default/new", "producer_id": 7, "generation": 2}], "request_id": "r"},
            ),
        ),
        ("topics show new --lookup", ("GET", "/lookup/v2/topic/persistent/public/default/new", None)),
        ("tenants create acme", ("PUT", "/admin/v2/tenants/acme", None)),
        ("namespaces list acme", ("GET", "/admin/v2/namespaces/acme", None)),
        ("namespaces show orders --permissions", ("GET", f"{NAMESPACE}/permissions", None)),
        ("tenants delete acme", ("DELETE", "/admin/v2/tenants/acme", None)),
        (f"storage nodes {NODE}", ("GET", f"/admin/v2/storage-nodes/{NODE}", None)),
        ("cluster health", ("GET", "/admin/v2/brokers/health", None)),
        ("cluster level", ("GET", "/admin/v2/cluster/level", None)),
        ("storage nodes --all", ("GET", "/admin/v2/storage/nodes?all=true", None)),
        (f"storage read-only {NODE}", ("PUT", f"/admin/v2/storage-nodes/{NODE}/read-only", None)),
        ("storage nodes", ("GET", "/admin/v2/storage/nodes", None)),
        ("storage ledgers 7", ("GET", "/admin/v2/storage/ledgers/7", None)),
        ("storage repair", ("GET", "/admin/v2/storage/repair", None)),
        ("storage repair 7", ("POST", "/admin/v2/storage/repair/7", None)),
        (f"storage decommission {NODE}", ("POST", f"/admin/v2/storage/nodes/{NODE}/decommission", None)),
        (f"storage decommission {NODE} --cancel", ("DELETE", f"/admin/v2/storage/nodes/{NODE}/decommission", None)),
        (f"storage read-only {NODE} --clear", ("DELETE", f"/admin/v2/storage-nodes/{NODE}/read-only", None)),
    ],
)
def test_command_sends_its_request(rest: RecordingServer, words: str, asked: Asked) -> None:
    """Each command is one REST call, at the path that Pulsar uses."""
    code, _, errors = admin(rest, *words.split())
    assert (code, errors) == (0, "")
    assert rest.asked == [asked]


def test_list_of_topics_names_damaged_records(rest: RecordingServer) -> None:
    """On standard error, with the command that mends them. An older server answers the second question with names."""
    names, path = ["public/orders/one", "public/orders/two"], "/names/public/orders/two"
    rest.answers["/admin/v2/persistent/public/orders"] = (200, names)
    rest.answers["/admin/v2/persistent/public/orders?unreadable=true"] = (200, [path])
    code, output, errors = admin(rest, "topics", "list", "orders", "-o", "json")
    assert (code, json.loads(output)) == (0, names)
    assert f"oncelog admin backup rebuild {path}" in errors
    rest.answers["/admin/v2/persistent/public/orders?unreadable=true"] = (200, names)
    assert admin(rest, "topics", "list", "orders")[2] == ""


def test_unique_prefix_selects_a_storage_node(rest: RecordingServer) -> None:
    """Tables show short names, and commands accept them. An ambiguous prefix is an error."""
    others = ["0a2c" * 8, "ffff" * 8]
    rest.answers["/admin/v2/storage-nodes?all=true"] = (200, [{"incarnation": one} for one in (NODE, *others)])
    assert admin(rest, "storage", "read-only", "0a1b0a1b")[0] == 0
    assert rest.asked[-1] == ("PUT", f"/admin/v2/storage-nodes/{NODE}/read-only", None)
    code, _, errors = admin(rest, "storage", "read-only", "0a")
    assert code == 1
    assert "matches 2 storage nodes" in errors
    assert admin(rest, "storage", "nodes", "bbbb")[0] == 0
    assert rest.asked[-1] == ("GET", "/admin/v2/storage-nodes/bbbb", None)


def test_json_output_is_the_rest_response(rest: RecordingServer) -> None:
    """A program gets the REST response unchanged."""
    answer = {"topic": "public/default/new", "takeovers": [{"ms": 1.5}], "owner": None}
    rest.answers[f"{TOPIC}/stats"] = (200, answer)
    _, output, _ = admin(rest, "topics", "stats", "new", "-o", "json")
    assert json.loads(output) == answer


def test_table_shows_every_value(rest: RecordingServer) -> None:
    """Nested values are shown with dotted names, and lists as separate tables."""
    answer = {"owner": None, "verdicts": {"stored": 7}, "takeovers": [{"ms": 1.5, "marks": {"A": 0.5}}]}
    rest.answers[f"{TOPIC}/stats"] = (200, answer)
    _, output, _ = admin(rest, "topics", "stats", "new", "--all")
    for text in ("owner", "-", "verdicts.stored", "7", "takeovers", "marks.A", "0.5", "1.5"):
        assert text in output


def test_change_prints_nothing_with_json_output(rest: RecordingServer) -> None:
    """A confirmation in words would not be JSON."""
    words = ("policy", "set", "public/orders", "deduplication", "on")
    assert admin(rest, *words)[1] == "deduplication of public/orders: on\n"
    assert admin(rest, *words, "-o", "json")[1] == ""


@pytest.mark.parametrize(
    ("status", "code", "exit_code"),
    [(404, "topic_not_found", 1), (409, "conflict", 1), (503, "topic_loading", 4), (504, "deadline_exceeded", 4)],
)
def test_error_is_printed_with_its_code(rest: RecordingServer, status: int, code: str, exit_code: int) -> None:
    """The exit code shows whether a retry can help; the text is that of the problem."""
    rest.answers[f"{TOPIC}/stats"] = (status, {"code": code, "detail": "that is why", "status": status})
    got, output, errors = admin(rest, "topics", "stats", "new")
    assert (got, output) == (exit_code, "")
    assert errors.startswith(f"error: that is why [{code}]")


def test_invalid_name_is_refused_without_a_request(rest: RecordingServer) -> None:
    """An additional slash must not become another path."""
    code, _, errors = admin(rest, "topics", "stats", "a/b/c/d")
    assert code == 1
    assert "[invalid_name]" in errors
    assert rest.asked == []


def test_server_that_is_not_oncelog_is_recognised(rest: RecordingServer) -> None:
    """A wrong --admin-url that responds must not cause a traceback."""
    rest.answers[f"{TOPIC}/stats"] = (500, "oops")
    code, _, errors = admin(rest, "topics", "stats", "new")
    assert code == 1
    assert "without a problem body" in errors


def test_unreachable_server_is_a_retriable_error() -> None:
    """Exit code 4, and the message names the option to check."""
    with served() as gone:
        url = gone.url
    result = CliRunner().invoke(app, ["admin", "tenants", "list", "--admin-url", url])
    assert result.exit_code == 4
    assert "check --admin-url" in result.stderr


@pytest.mark.parametrize(("failed", "exit_code"), [(False, 0), (True, 1)])
def test_lease_that_failed_is_shown_beside_the_others(rest: RecordingServer, failed: bool, exit_code: int) -> None:
    """The exit code says whether there is one; -o json is the response."""
    error = {"code": "producer_expired", "detail": "lease a new one", "status": 410}
    lease = {
        "topic": "a/b/c",
        "error": None,
        "producer_id": 7,
        "generation": 1,
        "sequence_number": -1,
        "expire_ms": 9_999,
    }
    answer = {"leases": [lease, lease | {"error": error, "producer_id": None} if failed else lease]}
    rest.answers["/admin/v2/producers/lease"] = (200, answer)
    code, output, _ = admin(rest, "producers", "lease", "a/b/c", "a/b/d", "-o", "json")
    assert (code, json.loads(output)) == (exit_code, answer)
    code, output, _ = admin(rest, "producers", "lease", "a/b/c", "a/b/d")
    assert code == exit_code
    assert ("producer_expired: lease a new one" in output) is failed


def test_lease_without_an_answer_can_be_repeated(rest: RecordingServer) -> None:
    """The error has the request id that was sent, so the repeated command leases nothing twice."""
    problem = {"code": "deadline_exceeded", "detail": "no answer", "status": 504}
    rest.answers["/admin/v2/producers/lease"] = (504, problem)
    code, _, errors = admin(rest, "producers", "lease", "orders")
    [(_, _, body)] = rest.asked
    assert isinstance(body, dict)
    assert code == 4
    assert f"--request-id {body['request_id']}" in " ".join(errors.split())


@pytest.mark.parametrize(
    ("words", "field"),
    [
        ("a b --producer-id 7", "producer-id"),
        ("a --generation 7", "generation"),
        ("a --expires 9s", "expires"),
        ("a --expires -1", "expires"),
        ("a --expires 367d", "expires"),
    ],
)
def test_invalid_lease_is_refused_before_anything_is_sent(rest: RecordingServer, words: str, field: str) -> None:
    """With the option to correct."""
    code, _, errors = admin(rest, "producers", "lease", *words.split())
    assert code == 1
    assert "[invalid_argument]" in errors
    assert field.replace("-", " ") in errors.replace("-", " ")
    assert rest.asked == []


LEDGERS = "/admin/v2/storage/ledgers"


def test_ledgers_are_listed_page_by_page(rest: RecordingServer) -> None:
    """Up to --limit, with the selection in every request."""
    first = [{"ledger_id": number} for number in range(500)]
    rest.answers[f"{LEDGERS}?limit=500&state=under-replicated"] = (200, {"ledgers": first, "next_after": 499})
    last = {"ledgers": [{"ledger_id": 700}], "next_after": None}
    rest.answers[f"{LEDGERS}?after=499&limit=500&state=under-replicated"] = (200, last)
    code, output, _ = admin(rest, "storage", "ledgers", "--state", "under-replicated", "-o", "json")
    assert code == 0
    assert [one["ledger_id"] for one in json.loads(output)] == [*range(500), 700]
    rest.answers[f"{LEDGERS}?limit=2&topic=public%2Fdefault%2Fnew"] = (200, {"ledgers": first[:2], "next_after": 1})
    code, output, _ = admin(rest, "storage", "ledgers", "--topic", "new", "--limit", "2", "-o", "json")
    assert (code, len(json.loads(output))) == (0, 2)


@pytest.mark.parametrize(("missing", "exit_code"), [(0, 0), (1, 1)])
def test_verification_goes_on_until_the_last_entry(rest: RecordingServer, missing: int, exit_code: int) -> None:
    """The counts of all parts are added up; a copy that lacks an entry is a failure."""

    def part(first: int, beyond: int, lacks: int) -> dict[str, object]:
        copy = {"incarnation": NODE, "answered": True, "erased": False, "sound": beyond - first - lacks}
        copies = [{**copy, "missing": lacks, "unreadable": 0}]
        sums = {"ledger_id": 7, "first_entry": first, "next_entry": beyond, "last_entry": 29, "done": beyond == 30}
        return {**sums, "verified_ms": 1, "differing_entry": None, "copies": copies}

    rest.answers[f"{LEDGERS}/7/verify?first_entry=0"] = (200, part(0, 20, missing))
    rest.answers[f"{LEDGERS}/7/verify?first_entry=20"] = (200, part(20, 30, 0))
    code, output, errors = admin(rest, "storage", "verify", "7", "-o", "json")
    assert code == exit_code
    shown = json.loads(output)
    assert (shown["first_entry"], shown["next_entry"], shown["done"]) == (0, 30, True)
    assert [(copy["sound"], copy["missing"]) for copy in shown["copies"]] == [(30 - missing, missing)]
    assert "20 of 30 entries" in errors


def test_repair_with_wait_returns_when_the_ledger_is_whole(rest: RecordingServer) -> None:
    """Progress goes to standard error, so that standard output is the answer."""
    rest.answers[f"{LEDGERS}/7"] = (200, {"ledger_id": 7, "health": "ok", "whole": True})
    rest.answers["/admin/v2/storage/repair"] = (200, {"running": []})
    code, output, errors = admin(rest, "storage", "repair", "7", "--wait", "-o", "json")
    assert (code, json.loads(output)["health"], errors.strip()) == (0, "ok", "ledger 7: ok")
    rest.answers[f"{LEDGERS}/7"] = (200, {"ledger_id": 7, "health": "unavailable", "whole": False})
    running = {"ledger_id": 7, "step": "COPY", "entries_done": 3, "entries_total": 9}
    rest.answers["/admin/v2/storage/repair"] = (200, {"running": [running]})
    code, _, errors = admin(rest, "storage", "repair", "7", "--wait", "--wait-seconds", "1", "-o", "json")
    assert code == 1
    assert "unavailable, COPY, 3 of 9 entries" in errors


def test_wait_goes_on_while_no_metadata_service_answers(rest: RecordingServer) -> None:
    """One may be restarted meanwhile. At the end of the wait the exit code says that a retry may help."""
    rest.answers[f"{LEDGERS}/7"] = (503, {"code": "service_unavailable", "detail": "not connected"})
    code, _, errors = admin(rest, "storage", "repair", "7", "--wait", "--wait-seconds", "1")
    assert (code, "not connected; will retry" in errors) == (4, True)


def test_apply_waits_for_a_cluster_that_does_not_answer(rest: RecordingServer, tmp_path: Path) -> None:
    """The Job of the chart may run before a metadata service is ready. Without a wait, and at its end, the exit code
    says that a retry may help."""
    file = tmp_path / "cluster.yaml"
    file.write_text("tenants: [public]")
    rest.answers["/admin/v2/tenants"] = (503, {"code": "service_unavailable", "detail": "not connected"})
    code, _, errors = admin(rest, "apply", "-f", str(file), "--yes")
    assert (code, len(rest.asked), "will retry" in errors) == (4, 1, False)
    code, _, errors = admin(rest, "apply", "-f", str(file), "--yes", "--wait-seconds", "1")
    assert (code, "not connected; will retry" in errors) == (4, True)
    assert len(rest.asked) >= 3
    rest.answers["/admin/v2/tenants"] = (200, ["public"])
    assert admin(rest, "apply", "-f", str(file), "--yes", "--wait-seconds", "1") == (0, "nothing to change\n", "")


@pytest.mark.parametrize("partitions", [("orders",), ("orders-partition-0", "orders-partition-1")])
def test_statistics_of_a_subscription_have_one_shape_as_json(
    rest: RecordingServer, partitions: tuple[str, ...]
) -> None:
    """By topic, with one entry or several, so that a program reads both alike. One entry is shown without it."""
    answer = {f"public/default/{name}": {"msg_backlog": 7} for name in partitions}
    rest.answers["/admin/v2/persistent/public/default/orders/subscription/billing"] = (200, answer)
    code, output, _ = admin(rest, "subscriptions", "stats", "orders", "billing", "-o", "json")
    assert (code, json.loads(output)) == (0, answer)
    shown = admin(rest, "subscriptions", "stats", "orders", "billing", "--all")[1]
    assert ("public/default/" in shown) == (len(partitions) > 1)
