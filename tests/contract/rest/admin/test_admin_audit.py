"""The audit log of REST: a line for each change and each refusal, with who and from where, and with no secret."""

import asyncio
import json
import threading
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from oncelog.core.access import Right
from oncelog.core.names import parse_namespace
from oncelog.metadata.gateway.inner_request import InnerRequest, answer
from oncelog.metadata_store.records.policies import Policies
from oncelog.runtime.observing.audit_log import AuditLog
from oncelog.runtime.observing.events import EventFilter, EventKind, EventRing
from tests.cluster.until import until
from tests.contract.noted import noted
from tests.contract.process.security_world import ROOT, bearer, secured, token
from tests.contract.process.test_audit_log import lines, on_full_disk
from tests.contract.rest.admin.admin_world import FLIGHTS, Admin, serving
from tests.contract.rest.lent_apps import lent_app

pytestmark = pytest.mark.asyncio
NAMESPACE = "/admin/v2/namespaces/public/default"
LATE_MS = 10_000


class Audited:
    """What the audit log has got."""

    def __init__(self, admin: Admin, caplog: pytest.LogCaptureFixture) -> None:
        self.admin = admin
        self.events = admin.replica.coordination.events
        self.ms = 1_000_000
        self.events.now_ms = lambda: self.ms
        self._caplog = caplog

    def lines(self) -> list[dict[str, Any]]:
        """New ones: their fields, with the message."""
        found = [record for record in self._caplog.records if record.name == "oncelog.audit"]
        self._caplog.clear()
        self.ms += LATE_MS  # the next refusal of any role is written
        return [{"msg": record.getMessage(), **vars(record)["fields"]} for record in found]

    async def line(self, method: str, path: str, status: int, **options: Any) -> dict[str, Any]:
        """The only line about a request."""
        response = await self.admin.http.request(method, path, **options)
        assert response.status_code == status, response.text
        (line,) = self.lines()
        assert (line["method"], line["status"]) == (method, status)
        return line


@pytest_asyncio.fixture
async def audited(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> AsyncIterator[Audited]:
    async with serving(secured(tmp_path)) as admin:
        granted = {"keeper": (Right.ADMIN.value,), "importer": (Right.PRODUCE.value,)}
        await admin.replica.coordination.policies.change(
            parse_namespace("public/default"), lambda _: Policies(permissions=granted)
        )
        yield Audited(admin, caplog)


async def test_each_kind_of_change_is_a_line_and_an_event(audited: Audited) -> None:
    """Whoever made it, and through which route; what only looks is none."""
    root, keeper = bearer(ROOT), bearer("keeper")
    created = await audited.line("PUT", FLIGHTS, 204, headers=root)
    assert created["msg"] == "administrative change"
    assert (created["role"], created["superuser"], created["via"]) == (ROOT, True, "rest")
    assert created["peer"].startswith("127.0.0.1:")
    assert created["route"] == "/admin/v2/persistent/{tenant}/{namespace}/{topic}"
    assert created["path_parameters"] == {"tenant": "public", "namespace": "default", "topic": "flights"}
    granted = await audited.line(
        "POST", f"{NAMESPACE}/permissions/ann", 204, headers=keeper, json=["consume"], params={}
    )
    assert (granted["role"], granted["superuser"], granted["body"]) == ("keeper", False, '["consume"]')
    retention = {"retentionTimeInMinutes": 5, "retentionSizeInMB": -1}
    changed = await audited.line("POST", f"{FLIGHTS}/retention", 204, headers=keeper, json=retention)
    assert json.loads(changed["body"]) == retention
    unset = await audited.line("DELETE", f"{FLIGHTS}/retention", 204, headers=keeper)
    assert "body" not in unset
    for path in (FLIGHTS, f"{NAMESPACE}/permissions", "/admin/v2/events"):
        assert (await audited.admin.http.get(path, headers=root)).status_code == 200
    assert audited.lines() == []
    events = audited.events.newest(EventFilter(), limit=10)[::-1]
    assert [(event.kind, event.topic) for event in events] == [
        ("administration", "public/default/flights"), ("rights_changed", "public/default"),
        ("policy_changed", "public/default/flights"), ("policy_changed", "public/default/flights"),
    ]  # fmt: skip
    assert {"role": "keeper", "method": "DELETE", "status": 204}.items() <= events[-1].fields.items()


async def test_change_that_fails_is_a_line_and_no_event(audited: Audited) -> None:
    """With the stable name of its error."""
    missing = await audited.line("DELETE", FLIGHTS, 404, headers=bearer(ROOT))
    policies = f"{NAMESPACE}/retention"
    assert (missing["msg"], missing["code"]) == ("administrative change failed", "topic_not_found")
    invalid = await audited.line("POST", policies, 422, headers=bearer(ROOT), json={"x": 1})
    assert (invalid["code"], invalid["body"]) == ("invalid_argument", '{"x": 1}')
    assert audited.events.newest(EventFilter(), limit=1) == []


async def test_each_kind_of_refusal_is_a_line_and_an_event(audited: Audited) -> None:
    """Also of what only looks, and of data. Those of one caller are one event."""
    anonymous = await audited.line("GET", FLIGHTS, 401)
    assert (anonymous["msg"], anonymous["role"], anonymous["code"]) == ("request refused", None, "unauthenticated")
    assert (anonymous["route"], anonymous["path"]) == (None, FLIGHTS)
    stranger = await audited.line("PUT", FLIGHTS, 403, headers=bearer("stranger"), params={"partitions": 3})
    assert (stranger["role"], stranger["code"], stranger["query"]) == (
        "stranger", "permission_denied", {"partitions": "3"},
    )  # fmt: skip
    message = {"messages": [{"value": "a payload"}]}
    headers = bearer("stranger") | {"Idempotency-Key": "k"}
    data = await audited.line("POST", "/topics/persistent/public/default/flights", 403, headers=headers, json=message)
    assert "payload" not in json.dumps(data)
    assert [event.count for event in noted(audited.events, EventKind.REFUSED)] == [1, 2]


async def test_refusals_of_one_role_are_one_line_a_second_with_their_number(audited: Audited) -> None:
    """A wrong client would fill the disk; another role is not hidden behind it."""
    http, at_ms = audited.admin.http, audited.ms
    for _ in range(5):
        assert (await http.get("/admin/v2/tenants", headers=bearer("stranger"))).status_code == 403
    assert (await http.get("/admin/v2/tenants", headers=bearer("other"))).status_code == 403
    assert [line["role"] for line in audited.lines()] == ["stranger", "other"]
    audited.ms = at_ms + 1_000
    later = await audited.line("GET", "/admin/v2/tenants", 403, headers=bearer("stranger"))
    assert later["left_out"] == 4
    assert audited.admin.audit.counts == {"logged": 3, "left_out": 4}
    counts = {event.fields["role"]: event.count for event in noted(audited.events, EventKind.REFUSED)}
    assert counts == {"stranger": 6, "other": 1}
    assert {event.fields["host"] for event in noted(audited.events, EventKind.REFUSED)} == {"127.0.0.1"}


async def test_no_secret_is_in_a_line(audited: Audited) -> None:
    """By the name of its field, or because it looks like a token; in bodies, queries and paths."""
    jwt = token("somebody")
    body = {
        "token": "s3cret", "nested": [{"Password": "s3cret", "apiKey": {"x": "s3cret"}}], "note": f"take {jwt} for it",
        "pem": "-----BEGIN PRIVATE KEY-----s3cret", "kept": "a fact",
    }  # fmt: skip
    path = f"{NAMESPACE}/retention"
    query = {"access_token": "s3cret", "q": jwt, "z": "1"}
    line = await audited.line("POST", path, 422, headers=bearer(ROOT), json=body, params=query)
    written = json.dumps(line)
    assert "s3cret" not in written
    assert jwt not in written
    assert jwt.partition(".")[2] not in written
    assert json.loads(line["body"])["kept"] == "a fact"
    assert line["query"] == {"access_token": "(hidden)", "q": "(hidden)", "z": "1"}
    line = await audited.line("POST", f"{NAMESPACE}/permissions/{jwt}", 422, headers=bearer(ROOT), json=["x"])
    assert jwt not in json.dumps(line)
    cut = await audited.line("POST", path, 422, headers=bearer(ROOT), json={"a": "é" * 400, "b": "é" * 400})
    assert len(cut["body"].encode()) <= 512 + len("…".encode())
    large = await audited.line("POST", path, 422, headers=bearer(ROOT), json={"token": "s" * 9_000})
    assert large["body"] == "(9012 bytes)"
    for content in (b"token=s3cret", b"\xff\xfe", b"{"):
        raw = await audited.line("POST", path, 422, headers=bearer(ROOT), content=content)
        assert raw["body"] == f"({len(content)} bytes)"


async def test_requests_over_grpc_and_of_the_console_say_so(audited: Audited, tmp_path: Path) -> None:
    """A page of the console that may not read a figure is no refusal: it shows which right is missing."""
    coordination, audit = audited.admin.replica.coordination, audited.admin.audit
    with lent_app(coordination, secured(tmp_path), audit=audit) as app:
        headers = [(b"authorization", bearer("stranger")["Authorization"].encode())]
        for method, via, status in (("GET", "console", 403), ("PUT", "console", 403), ("GET", "grpc", 403)):
            request = InnerRequest(method, FLIGHTS, headers, b"", "ipv4:10.0.0.1:77", via)
            assert (await answer(app, request, asyncio.Event())).status == status
        found = [(line["method"], line["via"], line["peer"]) for line in audited.lines()]
    assert found == [("PUT", "console", "ipv4:10.0.0.1:77")], "the last one is a refusal of the same second"


async def test_change_is_answered_if_the_disk_of_the_audit_file_is_full(audited: Audited, tmp_path: Path) -> None:
    """It was made already: an error would say that it was not. That the file lacks a line is an error in the log, an
    event and a count, and the line is in the log of the process."""
    log = AuditLog(EventRing("metadata"), on_full_disk(tmp_path))
    with lent_app(audited.admin.replica.coordination, audit=log) as app:
        made = await answer(app, InnerRequest("PUT", FLIGHTS), asyncio.Event())
    await log.close()
    assert made.status == 204
    assert [(line["role"], line["status"]) for line in audited.lines()] == [("unauthenticated", 204)]
    (failed,) = noted(log.events, EventKind.AUDIT_FAILED)
    assert (failed.level, log.counts["missing_in_file"]) == ("error", 1)


async def test_answer_of_a_change_leaves_after_its_line_is_in_the_file(audited: Audited, tmp_path: Path) -> None:
    """Or else a process that is killed then has made a change that no audit shows."""
    log = AuditLog(EventRing("metadata"), tmp_path / "audit.log", write_wait_s=30)
    with lent_app(audited.admin.replica.coordination, audit=log) as app:
        disk = threading.Event()
        log._thread.submit(disk.wait)
        answering = asyncio.ensure_future(answer(app, InnerRequest("PUT", FLIGHTS), asyncio.Event()))
        await until(lambda: bool(log._waiting), 30, waiting_for="the line to be written")
        # A later request that needs no line overtakes it: the answer waits for nothing but the line.
        assert (await answer(app, InnerRequest("GET", FLIGHTS), asyncio.Event())).status == 200
        assert not answering.done()
        disk.set()
        assert (await answering).status == 204
        assert [line["status"] for line in lines(tmp_path / "audit.log")] == [204]
    await log.close()


async def test_topics_that_a_role_invents_fill_no_list(audited: Audited) -> None:
    """Its refusals are one event, which names the first, and their number."""
    for number in range(20):
        await audited.admin.http.get(
            f"/admin/v2/persistent/public/default/invented-{number}", headers=bearer("stranger")
        )
    [event] = [each for each in noted(audited.events, EventKind.REFUSED) if each.fields["role"] == "stranger"]
    assert (event.topic, event.count) == ("public/default/invented-0", 20)
