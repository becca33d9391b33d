"""What a door does with each request beside its meaning: tokens, limits, errors, and changes of others meanwhile."""

import asyncio
import json
from collections.abc import AsyncIterator

import pytest

from oncelog.core.errors import (
    DeadlineExceeded,
    OncelogError,
    PermissionDenied,
    ServiceUnavailable,
    TooManyRequests,
    Unauthenticated,
)
from oncelog_doors.rest.ports import RestAnswer
from tests.doors.rest.fake_rest import FakeRest, door_at, problem

ONE = "/admin/v2/persistent/acme/web/one"
QUOTA = "/admin/v2/namespaces/acme/web/backlogQuota"
GRANT = "/admin/v2/namespaces/acme/web/permissions/ops"
HOLD = {"limitSize": 10, "policy": "producer_request_hold"}


@pytest.mark.asyncio
async def test_token_of_the_caller_goes_on_as_it_is() -> None:
    rest = FakeRest()
    async with door_at(rest) as door:
        await door.get(f"{ONE}/stats", headers={"Authorization": "Bearer abc"})
        assert rest.authorizations == {"Bearer abc"}
        rest.authorizations.clear()
        await door.get(f"{ONE}/stats")
    assert rest.authorizations == {None}


@pytest.mark.asyncio
@pytest.mark.parametrize(
    ("error", "status", "retry_after"),
    [
        (Unauthenticated("who?"), 401, None),
        (PermissionDenied("no"), 403, None),
        (ServiceUnavailable("no metadata service answers"), 503, "1"),
        (TooManyRequests("busy", retry_after_s=7), 429, "7"),
        (DeadlineExceeded("too slow"), 504, "1"),
    ],
)
async def test_call_that_does_not_reach_rest(error: OncelogError, status: int, retry_after: str | None) -> None:
    rest = FakeRest()
    rest.instead = lambda _method, _path: error
    async with door_at(rest) as door:
        answer = await door.get(f"{ONE}/stats")
    assert (answer.status_code, answer.json()) == (status, {"reason": error.message})
    assert answer.headers.get("retry-after") == retry_after
    assert answer.headers.get("www-authenticate") == ("Bearer" if status == 401 else None)


@pytest.mark.asyncio
@pytest.mark.parametrize(
    ("of_the_cluster", "of_the_door"),
    [(401, 401), (403, 403), (404, 404), (409, 409), (410, 404), (412, 412), (422, 400), (500, 500), (503, 503)],
)
async def test_problem_of_the_cluster_becomes_a_reason(of_the_cluster: int, of_the_door: int) -> None:
    rest = FakeRest()
    rest.instead = lambda _method, _path: problem(of_the_cluster, "it is so")
    async with door_at(rest) as door:
        answer = await door.put(ONE)
    assert (answer.status_code, answer.json()) == (of_the_door, {"reason": "it is so"})
    assert answer.headers.get("retry-after") == ("1" if of_the_door == 503 else None)


@pytest.mark.asyncio
@pytest.mark.parametrize("policy", ["producer_request_hold", "producer_exception"])
async def test_quota_of_one_type_keeps_that_of_the_other(policy: str) -> None:
    """Both have the same action here, so another one is refused."""
    rest = FakeRest()
    rest.answers[QUOTA] = {"limitSize": 7, "limitTime": 60, "policy": "producer_exception"}
    async with door_at(rest) as door:
        answer = await door.post(QUOTA, json=HOLD | {"policy": policy})
    if policy == "producer_exception":
        assert answer.status_code == 204
        assert rest.asked[-1][2] == {"limitSize": 10, "limitTime": 60, "policy": policy}
        assert rest.tags[-1] == '"1"'
    else:
        assert answer.status_code == 409
        assert [method for method, _, _ in rest.asked] == ["GET"]


@pytest.mark.asyncio
async def test_two_quotas_at_once_are_both_set() -> None:
    """The second change is made again on what the first one has left."""
    rest = FakeRest()
    rest.answers[QUOTA] = None
    version = 1

    def store(method: str, _path: str) -> RestAnswer | None:
        nonlocal version
        if method == "GET":
            return RestAnswer(200, json.dumps(rest.answers[QUOTA]).encode(), {"etag": str(version)})
        if rest.tags[-1] != str(version):
            return problem(412, "another request has changed it")
        version += 1
        rest.answers[QUOTA] = rest.asked[-1][2]
        return None

    rest.instead = store
    async with door_at(rest) as door:
        size = door.post(QUOTA, json=HOLD)
        age = door.post(f"{QUOTA}?backlogQuotaType=message_age", json={"limitTime": 5, "policy": HOLD["policy"]})
        answers = await asyncio.gather(size, age)
    assert [answer.status_code for answer in answers] == [204, 204]
    assert rest.answers[QUOTA] == {"limitSize": 10, "limitTime": 5, "policy": HOLD["policy"]}


@pytest.mark.asyncio
async def test_change_that_others_always_outrun_ends() -> None:
    rest = FakeRest()
    rest.instead = lambda method, _path: problem(412, "another request has changed it") if method == "POST" else None
    async with door_at(rest) as door:
        answer = await door.post(QUOTA, json=HOLD)
    assert answer.status_code == 412
    assert [method for method, _, _ in rest.asked] == ["GET", "POST"] * 5


@pytest.mark.asyncio
async def test_grant_keeps_the_right_that_the_tool_does_not_know() -> None:
    rest = FakeRest()
    async with door_at(rest) as door:
        await door.post(GRANT, json=["consume"])
    assert rest.asked[-1] == ("POST", GRANT, ["admin", "consume"])


@pytest.mark.asyncio
@pytest.mark.parametrize(
    "connected", [{"connected_producer_count": 1}, {"subscriptions": {"s": {"consumer_count": 1}}}]
)
async def test_topic_in_use_is_deleted_with_force_only(connected: dict[str, object]) -> None:
    rest = FakeRest()
    rest.answers[f"{ONE}/stats"] = connected
    async with door_at(rest) as door:
        answer = await door.delete(ONE)
        assert answer.status_code == 412
        assert "force" in answer.json()["reason"]
        assert "DELETE" not in {method for method, _, _ in rest.asked}
        assert (await door.delete(f"{ONE}?force=true")).status_code == 204
    assert rest.asked[-1] == ("DELETE", ONE, None)


@pytest.mark.asyncio
async def test_partition_that_was_never_used_is_left_out() -> None:
    """Of statistics, of an unload, and of what keeps a topic from being deleted."""
    rest = FakeRest()
    parts = ONE.replace("/one", "/parts")
    rest.instead = lambda _method, path: problem(404, "never used") if "partition-1" in path else None
    async with door_at(rest) as door:
        stats = (await door.get(f"{parts}/partitioned-stats")).json()
        assert [*stats["partitions"]] == ["persistent://acme/web/parts-partition-0"]
        assert stats["metadata"]["partitions"] == 2
        assert (await door.put(f"{parts}/unload")).status_code == 204
        assert (await door.delete(f"{parts}/partitions")).status_code == 204


@pytest.mark.asyncio
async def test_partition_that_was_never_used_is_there() -> None:
    """It has no partitions, and is in lists, as those that were used: Pulsar creates all of them with the topic."""
    rest = FakeRest()
    rest.instead = lambda _method, path: problem(404, "never used") if "-partition-" in path else None
    at = "/admin/v2/persistent/acme/web/parts"
    async with door_at(rest) as door:
        assert (await door.get(f"{at}-partition-1/partitions")).json()["partitions"] == 0
        assert (await door.get(f"{at}-partition-2/partitions")).status_code == 404
        assert (await door.get(f"{at}-partition-01/partitions")).status_code == 404
        listed = (await door.get("/admin/v2/namespaces/acme/web/topics")).json()
    assert "persistent://acme/web/parts-partition-1" in listed


@pytest.mark.asyncio
async def test_missing_topic_is_created_with_its_subscription() -> None:
    """If the look-up may create it; else its refusal is the answer."""
    rest = FakeRest()
    at, lookup = f"{ONE}/subscription/s", ("GET", "/lookup/v2/topic/persistent/acme/web/one?create=true", None)
    earliest = {"start": {"position": "earliest"}}
    missing = [True]

    def instead(method: str, path: str) -> RestAnswer | None:
        if path.startswith("/lookup"):
            missing.clear()
        return problem(404, "no topic") if missing else None

    rest.instead = instead
    async with door_at(rest) as door:
        assert (await door.put(at, content=b'"earliest"')).status_code == 204
        rest.instead = lambda _method, path: problem(
            *((403, "no") if path.startswith("/lookup") else (404, "no topic"))
        )
        assert (await door.put(at, content=b'"earliest"')).status_code == 403
    assert rest.asked[:3] == [("PUT", at, earliest), lookup, ("PUT", at, earliest)]


@pytest.mark.asyncio
async def test_caller_without_the_right_sees_statistics_without_producers() -> None:
    rest = FakeRest()
    rest.answers[f"{ONE}/stats"] = {"connected_producer_count": 1}
    producer = {"producer_id": 4, "name": "till", "connected": True, "connected_from": None}
    rest.answers[f"{ONE}/producers"] = {"producers": [producer, producer | {"connected": False}]}
    async with door_at(rest) as door:
        [publisher] = (await door.get(f"{ONE}/stats")).json()["publishers"]
        assert publisher["producerName"] == "till"
        rest.instead = lambda _method, path: problem(403, "no") if path.endswith("producers") else None
        answer = await door.get(f"{ONE}/stats")
    assert (answer.status_code, answer.json()["publishers"]) == (200, [])


@pytest.mark.asyncio
async def test_missing_topic_is_created_for_a_client_that_asks_for_its_partitions() -> None:
    rest = FakeRest()
    rest.answers["/lookup/v2/topic/persistent/acme/web/new"] = {"partitions": 0}
    async with door_at(rest) as door:
        at = "/admin/v2/persistent/acme/web/new/partitions"
        assert (await door.get(f"{at}?checkAllowAutoCreation=true")).json()["partitions"] == 0
    assert rest.asked == [("GET", "/lookup/v2/topic/persistent/acme/web/new?create=true", None)]


@pytest.mark.asyncio
async def test_addresses_are_those_that_the_caller_has_used() -> None:
    async with door_at(FakeRest(), url="https://[::1]") as door:
        found = (await door.get("/lookup/v2/topic/persistent/acme/web/one")).json()
    assert found == {
        "brokerUrl": "pulsar://[::1]:6650",
        "brokerUrlTls": "pulsar+ssl://[::1]:6651",
        "httpUrlTls": "https://[::1]:443",
        "nativeUrl": "pulsar://[::1]:6650",
    }


@pytest.mark.asyncio
@pytest.mark.parametrize(("port", "missing"), [("pulsar", "brokerUrlTls"), ("pulsar+ssl", "brokerUrl")])
async def test_look_up_names_both_kinds_of_address(port: str, missing: str) -> None:
    """The C++ library and those upon it read both, and crash if one is missing. Where the door does not listen, it is
    empty."""
    async with door_at(FakeRest(), pulsar_ports={port: 6650}) as door:
        found = (await door.get("/lookup/v2/topic/persistent/acme/web/one")).json()
    there = {"brokerUrl", "brokerUrlTls"} - {missing}
    assert found.pop(missing) == ""
    assert found[there.pop()] == found["nativeUrl"] == f"{port}://127.0.0.1:6650"


@pytest.mark.asyncio
async def test_names_with_other_characters_stay_one_part_of_the_path() -> None:
    rest = FakeRest()
    async with door_at(rest) as door:
        await door.get("/admin/v2/persistent/acme/web/a%3Fb%23c%25/subscription/%3Fx/properties")
        await door.get("/lookup/v2/topic/persistent/acme/web/a%3Fb")
    assert [target for _, target, _ in rest.asked] == [
        "/admin/v2/persistent/acme/web/a%3Fb%23c%25/subscription/%3Fx/properties",
        "/lookup/v2/topic/persistent/acme/web/a%3Fb?create=true",
    ]


@pytest.mark.asyncio
@pytest.mark.parametrize(
    ("method", "path", "body", "reason"),
    [
        ("POST", "/admin/v2/namespaces/acme/web/retention", b"{", "body: it is not valid JSON"),
        ("POST", "/admin/v2/namespaces/acme/web/retention", b"[" * 40 + b"]" * 40, "nested deeper"),
        ("POST", "/admin/v2/namespaces/acme/web/messageTTL", b"true", "messageTTL: must be a whole number, not True"),
        ("POST", f"{ONE}/messageTTL?messageTTL=-1", b"", "messageTTL: must be a whole number of seconds"),
        ("POST", f"{QUOTA}?backlogQuotaType=x", b"{}", "backlogQuotaType: 'x' is neither"),
        ("GET", f"{ONE}/retention?applied=x", b"", "applied: "),
        ("PUT", f"{ONE}/partitions", b"", "partitions: must be a whole number, not None"),
    ],
)
async def test_wrong_request_is_refused_and_named(method: str, path: str, body: bytes, reason: str) -> None:
    rest = FakeRest()
    async with door_at(rest) as door:
        answer = await door.request(method, path, content=body)
    assert answer.status_code == 400
    assert reason in answer.json()["reason"]
    assert "POST" not in {each for each, _, _ in rest.asked}


@pytest.mark.asyncio
async def test_body_has_a_limit() -> None:
    rest = FakeRest()
    async with door_at(rest) as door:
        answer = await door.put(ONE, content=b"x" * ((1 << 20) + 1))
        assert (answer.status_code, [*answer.json()]) == (413, ["reason"])
        assert answer.headers["content-type"] == "application/json"

        async def never() -> AsyncIterator[bytes]:
            yield b"{}"

        answer = await door.put(ONE, content=never(), headers={"content-encoding": "gzip"})
        assert (answer.status_code, [*answer.json()]) == (415, ["reason"])
    assert rest.asked == []


@pytest.mark.asyncio
async def test_page_of_another_site_is_refused_without_authentication() -> None:
    rest = FakeRest()
    async with door_at(rest, url="http://evil.example:8080") as door:
        answer = await door.put(ONE)
    assert (answer.status_code, rest.asked) == (403, [])
    assert "authentication is off" in answer.json()["reason"]


@pytest.mark.asyncio
async def test_failure_of_the_door_is_logged_and_named(caplog: pytest.LogCaptureFixture) -> None:
    rest = FakeRest()
    rest.answers[f"{ONE}/stats"] = {"subscriptions": {"s": {}}}
    async with door_at(rest) as door:
        answer = await door.get(f"{ONE}/stats")
    assert answer.status_code == 500
    [record] = [each for each in caplog.records if each.name.startswith("oncelog_doors")]
    assert record.fields["request_id"] in answer.json()["reason"]  # type: ignore[attr-defined]
