"""REST with authentication: each route is refused by default, and allowed for exactly its rights."""

import asyncio
import ssl
from collections.abc import AsyncIterator
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path
from typing import cast

import httpx
import pytest
import pytest_asyncio

from oncelog.core.access import Right
from oncelog.core.names import parse_namespace
from oncelog.metadata.replica import Coordination
from oncelog.metadata.rest.port.server import RestServer
from oncelog.metadata_store.records.policies import Policies
from oncelog.runtime.observing.events import EventFilter, EventKind
from oncelog.runtime.tls.certificates import new_ca
from tests.contract.process.security_world import ROOT, bearer, renew, secured, with_tls
from tests.contract.rest.admin.admin_world import FLIGHTS, Admin, serving
from tests.contract.rest.lent_apps import lent_app

pytestmark = pytest.mark.asyncio

NAMESPACE = "/admin/v2/namespaces/public/default"
ROLES = {"keeper": Right.ADMIN, "importer": Right.PRODUCE, "auditor": Right.CONSUME}
#: Paths and who but superusers may call them: a = admin, p = produce, c = consume, * = every role.
RULES = {
    "GET /admin/v2/tenants": "",
    "PUT /admin/v2/tenants/t": "",
    "GET /admin/v2/namespaces/public": "",
    f"GET {NAMESPACE}": "a",
    "PUT /admin/v2/namespaces/public/new": "",
    f"DELETE {NAMESPACE}": "",
    f"GET {NAMESPACE}/deduplication": "a",
    f"GET {NAMESPACE}/permissions": "a",
    f"POST {NAMESPACE}/permissions/somebody": "a",
    f"DELETE {NAMESPACE}/permissions/somebody": "a",
    f"GET {FLIGHTS}/deduplicationEnabled": "a",
    "GET /admin/v2/clusters/x/deduplication": "",
    "GET /admin/v2/clusters/x/policies": "",
    f"GET {NAMESPACE}/policies": "a",
    "GET /admin/v2/persistent/public/default": "apc",
    f"GET {FLIGHTS}": "apc",
    f"GET {FLIGHTS}/stats": "apc",
    f"GET {FLIGHTS}/internalStats": "a",
    f"GET {FLIGHTS}/ledgers": "a",
    f"GET {FLIGHTS}/policies": "a",
    f"GET {FLIGHTS}/producers": "a",
    f"GET {FLIGHTS}/producers/p": "a",
    f"GET {FLIGHTS}/messages": "c",
    f"GET {FLIGHTS}/messages/find": "ac",
    f"DELETE {FLIGHTS}/producers/1": "a",
    f"POST {FLIGHTS}/producers/1/expire": "a",
    f"PUT {FLIGHTS}/unload": "a",
    f"POST {FLIGHTS}/producers/lease": "p",
    "POST /admin/v2/producers/lease": "*",
    f"GET {FLIGHTS}/deduplication": "a",
    f"POST {FLIGHTS}/deduplication/snapshot": "a",
    f"POST {FLIGHTS}/deduplication/verify": "a",
    f"DELETE {FLIGHTS}/deduplication/verify": "a",
    f"GET {FLIGHTS}/subscriptions": "ac",
    f"GET {FLIGHTS}/subscription/s": "ac",
    f"GET {FLIGHTS}/subscriptionStats": "ac",
    f"GET {FLIGHTS}/subscription/s/ackState": "ac",
    f"GET {FLIGHTS}/subscription/s/place?index=0": "ac",
    f"DELETE {FLIGHTS}/subscription/s": "ac",
    f"POST {FLIGHTS}/subscription/s/skip/0": "ac",
    f"POST {FLIGHTS}/subscription/s/resetcursor": "ac",
    f"GET {FLIGHTS}/subscription/s/redrive": "c",
    f"POST {FLIGHTS}/subscription/s/redrive": "",  # two rights
    "PUT /admin/v2/persistent/public/default/new": "ap",
    "GET /lookup/v2/topic/persistent/public/default/flights": "pc",
    "POST /topics/persistent/public/default/flights": "p",
    "GET /admin/v2/clusters": "*",
    "GET /admin/v2/brokers/health": "*",
    "GET /admin/v2/me": "*",
    "GET /admin/v2/history": "",
    f"GET {FLIGHTS}/history": "apc",
    f"GET {FLIGHTS}/subscription/s/history": "ac",
    "GET /admin/v2/subscriptions": "",
    "GET /admin/v2/subscriptions/public/default": "ac",
    "GET /admin/v2/topics": "",
    "GET /admin/v2/topics/public/default": "apc",
    "GET /admin/v2/brokers": "",
    "GET /admin/v2/dependencies": "",
    "GET /admin/v2/backups": "",
    "POST /admin/v2/backups": "",
    "GET /admin/v2/backups/2026-11-27t06-00-00z-era1-00000000": "",
    "PUT /admin/v2/backups/2026-11-27t06-00-00z-era1-00000000": "",
    "GET /admin/v2/events": "",
    "GET /admin/v2/events/public/default": "a",
    "GET /admin/v2/rates": "",
    "GET /admin/v2/proofs": "",
    f"GET {FLIGHTS}/proof": "a",
    "POST /admin/v2/persistent/public/default/missing/proof": "a",
    f"DELETE {FLIGHTS}/proof": "a",
    "GET /admin/v2/cluster/level": "",
    "POST /admin/v2/cluster/finalize": "",
    "GET /admin/v2/cluster/restore": "",
    "POST /admin/v2/cluster/restore": "",
    "GET /admin/v2/cluster/drill": "",
    "POST /admin/v2/cluster/drill": "",
    "GET /admin/v2/cluster/rights": "",
    "POST /admin/v2/cluster/rights/confirm": "",
    "POST /admin/v2/cluster/records/rebuild": "",
    "GET /admin/v2/storage-nodes": "",
    "GET /admin/v2/storage/nodes": "",
    "GET /admin/v2/storage/ledgers": "",
    "GET /admin/v2/storage/ledgers/1": "",
    "GET /admin/v2/storage/repair": "",
    "POST /admin/v2/storage/repair/1": "",
    "POST /admin/v2/storage/ledgers/1/verify": "",
    f"POST /admin/v2/storage/nodes/{'0' * 32}/decommission": "",
    f"DELETE /admin/v2/storage/nodes/{'0' * 32}/decommission": "",
}


@pytest_asyncio.fixture
async def admin(tmp_path: Path) -> AsyncIterator[Admin]:
    async with serving(secured(tmp_path)) as served:
        await served.owner()
        await served.change("PUT", FLIGHTS, headers=bearer(ROOT))
        granted = {role: (right.value,) for role, right in ROLES.items()}
        await served.replica.coordination.policies.change(
            parse_namespace("public/default"), lambda _: Policies(permissions=granted)
        )
        yield served


async def test_every_request_without_a_token_is_refused(admin: Admin) -> None:
    """Also an unknown path: the response must not disclose that it is unknown."""
    for call in [*RULES, "GET /nowhere", "GET /openapi.json", "GET /docs", "POST /", "GET /%2F"]:
        method, path = call.split()
        await admin.refused(method, path, 401, "unauthenticated")
    answer = await admin.http.get("/admin/v2/tenants")
    assert answer.headers["www-authenticate"] == "Bearer"


async def test_role_for_copies_makes_them_and_does_nothing_else(admin: Admin) -> None:
    """The token of a job that copies ZooKeeper's records lies beside the copies: it must open nothing else."""
    copies = admin.replica.coordination.copies
    copies.settings = replace(copies.settings, roles=frozenset({"copier"}))
    for call, rule in RULES.items():
        method, path = call.split()
        answer = await admin.http.request(method, path, headers=bearer("copier"))
        allowed = path.startswith("/admin/v2/backups") and method != "PUT"
        assert (answer.status_code == 403) == (not allowed and rule != "*"), call


async def test_start_page_needs_no_token_and_discloses_nothing(admin: Admin) -> None:
    """It is returned also with an invalid token, and has nothing about this cluster."""
    answers = [await admin.http.get("/", headers=headers) for headers in ({}, bearer(ROOT), {"authorization": "x"})]
    assert {answer.status_code for answer in answers} == {200}
    [page] = {answer.text for answer in answers}
    for link in ("/docs", "/openapi.json"):
        assert f'href="{link}"' in page
    assert "/readyz" in page
    for secret in (admin.replica.coordination.cluster_id, version("oncelog"), str(admin.port)):
        assert secret not in page
    assert "default-src 'none'" in answers[0].headers["content-security-policy"]
    head = await admin.http.head("/")
    assert (head.status_code, head.content) == (200, b"")


async def test_docs_page_lists_every_request_and_loads_nothing(admin: Admin) -> None:
    """For every role with a token; without scripts and without resources of other hosts."""
    page = (await admin.http.get("/docs", headers=bearer("stranger"))).text
    paths = (await admin.get("/openapi.json", headers=bearer("stranger")))["paths"]
    for path, methods in paths.items():
        assert f"<code>{path}</code>" in page
        for method, operation in methods.items():
            assert f"<code>{method.upper()}</code>" in page
            assert operation["summary"] in page
    for foreign in ("<script", "http://", "https://", "src="):
        assert foreign not in page


async def test_each_route_allows_its_rights_only(admin: Admin) -> None:
    """Refused is 403; every other status means allowed. Superusers come last, because they delete."""
    for role in [*ROLES, "stranger", ROOT]:
        for call, allowed in RULES.items():
            method, path = call.split()
            if role == ROOT or "*" in allowed or (role in ROLES and ROLES[role].value[0] in allowed):
                answer = await admin.http.request(method, path, headers=bearer(role))
                assert answer.status_code not in {401, 403}, (role, call, answer.text)
            else:
                await admin.refused(method, path, 403, "permission_denied", headers=bearer(role))


async def test_every_route_has_a_known_rule(admin: Admin) -> None:
    """A new route is for superusers until it is listed here."""
    paths = (await admin.get("/openapi.json", headers=bearer("stranger")))["paths"]
    calls = [f"{method.upper()} {path}" for path, methods in paths.items() for method in methods]

    async def status(call: str) -> int:
        method, path = call.split()
        for name, value in {"tenant": "public", "namespace": "default", "topic": "flights", "role": "somebody"}.items():
            path = path.replace(f"{{{name}}}", value)
        return (await admin.http.request(method, path, headers=bearer("stranger"))).status_code

    answers = await asyncio.gather(*map(status, calls))
    found = {call for call, answer in zip(calls, answers, strict=True) if answer != 403}
    # The rights for leases of several topics are checked for each element.
    assert found == {
        "GET /admin/v2/clusters",
        "GET /admin/v2/brokers/health",
        "GET /admin/v2/me",
        "POST /admin/v2/producers/lease",
    }


async def test_redrive_needs_the_rights_of_both_topics(admin: Admin) -> None:
    """It reads the dead letters, and publishes them."""
    path = f"{FLIGHTS}/subscription/s/redrive"
    policies = admin.replica.coordination.policies
    both = (Right.PRODUCE.value, Right.CONSUME.value)
    await policies.change(parse_namespace("public/default"), lambda _: Policies(permissions={"clerk": both}))
    await admin.refused("POST", path, 404, "topic_not_found", headers=bearer("clerk"))
    elsewhere = {"dead_letter_topic": "public/secret/letters"}
    await admin.refused("POST", path, 403, "permission_denied", json=elsewhere, headers=bearer("clerk"))


async def test_malformed_element_of_leases_is_refused_alone(admin: Admin) -> None:
    """The others have answers of their own, in their order. So is an id that stands in the request twice."""
    twice = {"topic": "public/default/new", "producer_id": 7}
    wanted = {
        "leases": [
            {"topic": "public/default/new"}, {"topic": "public/default/new", "producer_id": "7"}, {"topic": 5}, "x",
            {"topic": "public/default/new", "expire_mss": 1}, twice, twice,
        ]
    }  # fmt: skip
    answer = await admin.http.post("/admin/v2/producers/lease", json=wanted, headers=bearer("nobody"))
    assert answer.status_code == 200
    errors = [each["error"] for each in answer.json()["leases"]]
    assert [each["code"] for each in errors] == ["permission_denied", *["invalid_argument"] * 6]
    assert [each["detail"].partition(":")[0] for each in errors[1:5]] == [
        "producer_id",
        "topic",
        "leases",
        "expire_mss",
    ]
    assert "stands in several elements" in errors[5]["detail"]
    assert [each["topic"] for each in answer.json()["leases"]][1:4] == ["public/default/new", "", ""]
    none = await admin.http.post("/admin/v2/producers/lease", json={"leases": []}, headers=bearer("nobody"))
    assert none.status_code == 422


async def test_lease_without_the_right_to_produce_creates_no_topic(admin: Admin) -> None:
    """The rights for leases of several topics are checked for each element, before its topic is looked up."""
    wanted = {"leases": [{"topic": "public/default/new"}]}
    for role in ("keeper", "stranger"):
        answer = await admin.http.post("/admin/v2/producers/lease", json=wanted, headers=bearer(role))
        [lease] = answer.json()["leases"]
        assert lease["error"]["code"] == "permission_denied"
    await admin.refused("GET", "/admin/v2/persistent/public/default/new", 404, "topic_not_found", headers=bearer(ROOT))


async def test_missing_namespace_is_refused_like_one_without_rights(admin: Admin) -> None:
    """Otherwise names could be discovered by requests."""
    await admin.refused("GET", "/admin/v2/namespaces/public/x", 403, "permission_denied", headers=bearer("keeper"))
    await admin.refused("GET", "/admin/v2/namespaces/public/x", 404, "namespace_not_found", headers=bearer(ROOT))


async def test_look_up_creates_a_topic_for_producers_only(admin: Admin) -> None:
    """A look-up by a consumer finds existing topics only."""
    path = "/lookup/v2/topic/persistent/public/default/fresh?create=true"
    await admin.refused("GET", path, 403, "permission_denied", headers=bearer("auditor"))
    assert (await admin.get(path, headers=bearer("importer")))["owner_address"]
    assert (await admin.get(path, headers=bearer("auditor")))["owner_address"]


async def test_rights_are_granted_replaced_and_revoked(admin: Admin) -> None:
    """By an administrator of the namespace; effective with the next request."""
    keeper, newcomer = bearer("keeper"), bearer("newcomer")
    path = f"{NAMESPACE}/permissions"
    await admin.refused("GET", FLIGHTS, 403, "permission_denied", headers=newcomer)
    await admin.change("POST", f"{path}/newcomer", json=["consume", "produce", "consume"], headers=keeper)
    assert (await admin.get(path, headers=keeper))["newcomer"] == ["consume", "produce"]
    assert await admin.get(FLIGHTS, headers=newcomer)
    await admin.change("POST", f"{path}/newcomer", json=["admin"], headers=keeper)
    assert (await admin.get(path, headers=newcomer))["newcomer"] == ["admin"]
    for _ in range(2):
        await admin.change("DELETE", f"{path}/newcomer", headers=keeper)
    assert "newcomer" not in await admin.get(path, headers=keeper)
    await admin.refused("GET", path, 403, "permission_denied", headers=newcomer)


@pytest.mark.parametrize("body", [[], ["read"], "produce", {"produce": True}])
async def test_rights_that_do_not_exist_are_refused(admin: Admin, body: object) -> None:
    """The error names the field, also for a list element."""
    problem = await admin.refused(
        "POST", f"{NAMESPACE}/permissions/x", 422, "invalid_argument", json=body, headers=bearer("keeper")
    )
    assert problem["field"] == ("body.0" if body == ["read"] else "body")
    await admin.refused(
        "POST", f"{NAMESPACE}/permissions/a b", 412, "invalid_name", json=["produce"], headers=bearer("keeper")
    )


async def test_rest_uses_the_current_certificate_file_for_tls(tmp_path: Path) -> None:
    """It is reloaded like that of gRPC, without a restart. Plain HTTP is refused."""
    security = with_tls(tmp_path, names=["127.0.0.1"])
    with lent_app(cast("Coordination", None)) as app:
        server = RestServer(app, stop_timeout_s=1, certificate=security.certificate)
        async with asyncio.TaskGroup() as tasks:
            port = server.start(host="127.0.0.1", port=0)
            tasks.create_task(server.run())
            try:
                assert await status_of(port, tmp_path / "ca.crt") == 200
                other = new_ca()
                renew(tmp_path, other, names=["127.0.0.1"])
                (tmp_path / "other.crt").write_bytes(other.certificate)
                assert await status_of(port, tmp_path / "other.crt") == 200
                with pytest.raises(httpx.TransportError):
                    await status_of(port, tmp_path / "ca.crt")
                with pytest.raises(httpx.TransportError):
                    await status_of(port, None)
            finally:
                server.stop()


async def status_of(port: int, ca: Path | None) -> int:
    """Status of a request for the OpenAPI document. ca None: plain HTTP."""
    context = True if ca is None else ssl.create_default_context(cafile=str(ca))
    scheme = "http" if ca is None else "https"
    async with httpx.AsyncClient(verify=context, trust_env=False) as client:
        return (await client.get(f"{scheme}://127.0.0.1:{port}/openapi.json")).status_code


@pytest.mark.hazard("forged-form")
async def test_page_of_another_origin_changes_nothing_without_authentication(tmp_path: Path) -> None:
    """By a name that it has made point here, or by a POST that needs no body. The refusal is in the audit log."""
    async with serving() as admin:
        host = f"127.0.0.1:{admin.port}"
        await admin.change("PUT", FLIGHTS)
        for headers in (
            {"Host": "attacker.example"},
            {"Host": f"attacker.example:{admin.port}", "Origin": f"http://attacker.example:{admin.port}"},
            {"Host": host, "Sec-Fetch-Site": "cross-site"},
            {"Host": host, "Origin": "https://attacker.example"},
        ):
            for method, path in (("DELETE", FLIGHTS), ("PUT", f"{FLIGHTS}/unload"), ("GET", "/admin/v2/brokers")):
                problem = await admin.refused(method, path, 403, "permission_denied", headers=headers)
                assert "ONCELOG_AUTH_KEY_FILE" in problem["detail"]
        await admin.get(FLIGHTS)
        refused = admin.audit.events.newest(EventFilter(kinds=[EventKind.REFUSED]), limit=100)
        assert {event.fields["host"] for event in refused} == {"127.0.0.1"}
    async with serving(secured(tmp_path)) as admin:
        named = {"Host": "log.example"} | bearer(ROOT)
        assert (await admin.http.get("/admin/v2/brokers", headers=named)).status_code == 200
