"""docs/rest.md has an example of every request, and the checker of its examples finds wrong responses."""

import re
from functools import cache
from typing import cast

import pytest
from starlette.routing import compile_path

from oncelog.metadata.replica import Coordination
from tests.contract.rest.lent_apps import lent_app
from tests.contract.rest.rest_guide import Answer, Example, call_of, differences, examples, read_json
from tests.contract.rest.rest_story import PAGE, page
from tests.tidy.documents import anchor_of, rest_calls

NAMES = dict.fromkeys(
    [
        "CLUSTER",
        "COPY",
        "LEDGER",
        "NODE",
        "TAG",
        "NEXT",
        "SESSION",
        "ESPRESSO",
        "TEAS",
        "LEASED",
        "ANOTHER_LEASED",
        "INDEX",
    ],
    "x",
) | {
    "REST": "http://rest",
    "HEALTH": "http://health",
}
HEALTH = ("/livez", "/readyz", "/metrics")


@cache
def described() -> dict[str, set[str]]:
    """{path: its methods} of the application."""
    with lent_app(cast("Coordination", None)) as app:
        paths = app.openapi()["paths"]
    return {path: {method.upper() for method in methods} for path, methods in paths.items()}


#: Policies whose requests are the same at every level: the page shows each of them at one level, and one of the
#: switches of doors.
LEVELS = re.compile(
    r"^/admin/v2/(?:clusters|namespaces|persistent)/.*/"
    r"(retention|messageTTL|backlogQuota|dispatcherPauseOnAckStatePersistent|maxUnackedRangesToPersist|ackStateBytesMax"
    r"|assignedProducerExpiry|chosenProducerExpiry|producerLeaseExpiry"
    r"|maxKnownProducersPerTopic|maxKnownProducersPerNamespace"
    r"|)(?:pulsar(?:NewInstanceFences|AcceptStale|AcceptOtherContent|RefuseUnverified|AckUndecodable)|kafkaCompact)?$"
)


def at_one_level(calls: set[tuple[str, str]]) -> set[tuple[str, str]]:
    return {(method, LEVELS.sub(r"POLICY/\1", path)) for method, path in calls}


def calls_there_are() -> set[tuple[str, str]]:
    of_app = {(method, path) for path, methods in described().items() for method in methods}
    return at_one_level(of_app) | {("GET", path) for path in (*HEALTH, "/", "/docs", "/openapi.json")}


#: Requests whose success needs more storage nodes than the guide's cluster has, a loss, damage, or a program with a
#: database. The page shows how they are refused.
REFUSED = {
    ("PUT", "/admin/v2/backups/{name}"),
    ("POST", "/admin/v2/cluster/records/rebuild"),
    ("POST", "/admin/v2/storage/nodes/{incarnation}/decommission"),
    ("POST", "/admin/v2/storage/ledgers/{ledger_id}/end"),
    ("PUT", "/admin/v2/persistent/{tenant}/{namespace}/{topic}/subscription/{subscription}/store"),
}


def calls_answered(told: list[Example]) -> set[tuple[str, str]]:
    """(method, documented path) of every successful example."""
    found = set()
    for example in told:
        call = call_of(example.command, NAMES)
        path = "/" + call.url.removeprefix("http://").partition("/")[2].partition("?")[0]
        matching = (one for one, ms in described().items() if call.method in ms and compile_path(one)[0].match(path))
        documented = (call.method, next(matching, path))
        if example.status < 300 or documented in REFUSED:
            found.add(documented)
    return at_one_level(found)


def test_every_request_has_an_example() -> None:
    """Each request has a successful example, and no example shows a request that does not exist."""
    assert calls_answered(page()) == calls_there_are()


def test_request_without_an_example_is_found() -> None:
    """The control."""
    left = [example for example in page() if "/unload" not in example.command]
    unload = ("PUT", "/admin/v2/persistent/{tenant}/{namespace}/{topic}/unload")
    assert calls_there_are() - calls_answered(left) == {unload}


def sections() -> dict[str, str]:
    """{anchor: what stands below the heading, up to the next one}."""
    parts = re.split(r"^##+ (.*)\n", PAGE.read_text(), flags=re.MULTILINE)
    return dict(zip(map(anchor_of, parts[1::2]), parts[2::2], strict=True))


def test_table_of_calls_leads_to_their_examples() -> None:
    """The section that a row links to shows its call. A policy is shown at one level."""
    shown = {anchor: calls_answered(examples(text)) for anchor, text in sections().items()}
    missing = [
        call for call in rest_calls() if not at_one_level({(call.method, call.path)}) <= shown.get(call.anchor, set())
    ]
    assert missing == []


def test_errors_of_the_table_are_shown_on_the_page() -> None:
    """Errors that every interface has are shown below it."""
    shown = {read_json(example.body)["code"] for example in page() if example.status >= 400}
    rows = PAGE.read_text().partition("## Errors")[2].partition("\n\n")[2].partition("\n\n")[0].splitlines()[2:]
    listed = {code for row in rows for code in re.findall(r"`(\w+)`", row.split("|")[2])}
    assert len(listed) > 10
    assert shown - listed == {"invalid_name", "method_not_allowed"}
    # Reaching such a limit takes hundreds of requests.
    assert listed - shown == {"limit_reached"}


# --- the reader -------------------------------------------------------------------------------------------------------

WRITTEN = '{"id": "$ID", "at": …, "name": "a…z", "all": ["$ID", …], "more": {"x": 1, …}}'


def verdict(written: str, said: str, variables: dict[str, str] | None = None, *, status: int = 200) -> list[str]:
    """The differences of a JSON response."""
    example = Example(1, "", 200, {}, written)
    answer = Answer(status, {"content-type": "application/json"}, said)
    return differences(example, answer, {} if variables is None else variables)


def test_name_without_quotes_stands_for_a_number() -> None:
    """Ledger ids are numbers, and later commands name them."""
    variables: dict[str, str] = {}
    assert verdict('{"id": $ID, "next": null}', '{"id": 17, "next": null}', variables) == []
    assert variables == {"ID": "17"}
    assert len(verdict('{"id": $ID}', '{"id": 18}', variables)) == 1
    assert len(verdict('{"id": $NEW}', '{"id": true}')) == 1


def test_response_as_written_is_accepted() -> None:
    """Any value matches where the page has an ellipsis. Names are kept for later examples."""
    variables: dict[str, str] = {}
    said = '{"id": "7", "at": [3], "name": "a to z", "all": ["7", "8", "9"], "more": {"x": 1, "y": 2}}'
    assert verdict(WRITTEN, said, variables) == []
    assert variables == {"ID": "7"}
    assert verdict('["public", …]', '["public"]') == []
    assert verdict("[…]", "[]") == verdict("{…}", "{}") == verdict("null", "null") == verdict("…", "3") == []


@pytest.mark.parametrize(
    ("written", "said", "wrong"),
    [
        (WRITTEN, '{"id": "7", "at": 1, "name": "a", "all": ["7"], "more": {"x": 1}}', "body.name is 'a'"),
        (WRITTEN, '{"id": "7", "at": 1, "name": "az", "all": ["8"], "more": {"x": 1}}', "body.all[0] is '8'"),
        (WRITTEN, '{"id": "7", "at": 1, "name": "az", "all": ["7"], "more": {"y": 1}}', "body.more has no x"),
        (WRITTEN, '{"id": "7", "at": 1, "name": "az", "all": ["7"], "more": {"x": 1}, "new": 1}', "new is not written"),
        ('["public"]', '["public", "shop"]', "body has 2 elements"),
        ('[{"a": 1}, …]', '[{"a": 1}, {"b": 1}]', "body[1] has no a"),
        ("[]", "{}", "body is {}"),
        ("true", "1", "body is 1"),
        ('{"a": null}', '{"a": 0}', "body.a is 0"),
        ("", "{}", "a body that the page does not show"),
    ],
)
def test_response_that_differs_is_reported(written: str, said: str, wrong: str) -> None:
    """With the place and the difference."""
    assert wrong in verdict(written, said)[0]


def test_status_headers_and_text_are_compared() -> None:
    """Lines of text are compared in order; without an ellipsis there must be no others."""
    assert verdict("{}", "{}", status=201) == ["status 201, written is 200"]
    example = Example(1, "", 200, {"retry-after": "1"}, "…\none …\n…\nthree")
    assert differences(example, Answer(200, {"retry-after": "1"}, "zero\none 1\ntwo\nthree"), {}) == []
    assert differences(example, Answer(200, {"retry-after": "2"}, "one 1\nthree"), {}) != []
    assert differences(example, Answer(200, {"retry-after": "1"}, "three\none 1"), {}) == ["no line is 'three'"]
    assert differences(Example(1, "", 204, {}, ""), Answer(204, {}, "x"), {}) != []


def test_commands_are_parsed_as_curl_parses_them() -> None:
    """Variables in double quotes only, continued lines, and a body that makes the request a POST."""
    command = """curl -K a.curl -H "X: $REST" "$REST/x?y=1" \\\n  --json '{"a": "$REST"}'"""
    (example,) = examples(f"text\n```console\n$ {command}\nHTTP/1.1 200 OK\nx-y: 1\n[\n  1\n]\n```\n")
    assert (example.line, example.status, example.headers, example.body) == (3, 200, {"x-y": "1"}, "[\n  1\n]")
    call = call_of(example.command, {"REST": "http://r"})
    assert (call.method, call.url, call.config, call.body) == ("POST", "http://r/x?y=1", "a.curl", '{"a": "$REST"}')
    assert call.headers["X"] == "http://r"
    assert call.headers["Content-Type"] == "application/json"
    for wrong in ("wget x", "curl --fail x", "curl", "curl a b", "curl -X STEAL a"):
        with pytest.raises(ValueError):
            call_of(wrong, {})
    with pytest.raises(ValueError, match="line 2"):
        examples("```console\n$ curl x\n```\n")
