"""ETag and If-Match: a conditional change of policies succeeds only if the policies have not changed since."""

import asyncio
from dataclasses import replace
from typing import Any

import pytest

from oncelog.core.errors import PreconditionFailed
from oncelog.core.names import DEFAULT_TENANT, NamespaceName
from oncelog.metadata_store.records.namespace_store import NamespaceStore
from oncelog.metadata_store.records.policies import Policies
from oncelog.metadata_store.records.policy_store import CLUSTER, PolicyStore, Scope, tag_of
from tests.contract.rest.admin.admin_world import FLIGHTS, Admin, serving
from tests.contract.rest.admin.test_admin_policies import DEFAULT, SWITCHES
from tests.contract.stores.store_backends import MemoryBackend, new_cluster

pytestmark = pytest.mark.asyncio

#: (where the policies are read, a change, its body)
CHANGES: list[tuple[str, str, str, Any]] = [
    *((path, method, path, json) for path, _ in SWITCHES for method, json in (("POST", False), ("DELETE", None))),
    (f"{DEFAULT}/permissions", "POST", f"{DEFAULT}/permissions/checkout", ["produce"]),
    (f"{DEFAULT}/permissions", "DELETE", f"{DEFAULT}/permissions/checkout", None),
]
ORDERS = NamespaceName(DEFAULT_TENANT, "orders")


async def tag(admin: Admin, path: str) -> str:
    """The ETag of the current policies."""
    answer = await admin.http.get(path)
    assert answer.status_code == 200, answer.text
    return answer.headers["etag"]


def resting_on(*tags: str) -> dict[str, str]:
    return {"If-Match": ", ".join(tags)}


async def other(admin: Admin, where: str) -> None:
    """A change by another client at the same level."""
    path = where if not where.endswith("/permissions") else f"{where}/somebody"
    value: Any = True if path == where else ["consume"]
    await admin.change("POST", path, json=value)


async def test_change_with_current_etag_succeeds_and_returns_the_next_etag() -> None:
    """At each level, for set and unset: so several changes need no read in between."""
    async with serving() as admin:
        await admin.change("PUT", FLIGHTS)
        for where, method, path, json in CHANGES:
            await other(admin, where)
            before = await tag(admin, where)
            answer = await admin.http.request(method, path, json=json, headers=resting_on('"stray"', before))
            assert answer.status_code == 204, answer.text
            assert answer.headers["etag"] == await tag(admin, where) != before


async def test_change_with_outdated_etag_is_refused() -> None:
    """If two users read the same version, the second change fails."""
    async with serving() as admin:
        await admin.change("PUT", FLIGHTS)
        for where, method, path, json in CHANGES:
            stale = await tag(admin, where)
            await other(admin, where)
            now = await tag(admin, where)
            for given in (stale, f"W/{now}", '""'):
                problem = await admin.refused(
                    method, path, 412, "precondition_failed", json=json, headers=resting_on(given)
                )
                assert now.strip('"') in problem["detail"]
            assert await tag(admin, where) == now
            await admin.change("DELETE", where if path == where else f"{where}/somebody")


async def test_one_of_concurrent_conditional_changes_succeeds() -> None:
    """All of them name the same version."""
    path = f"{DEFAULT}/permissions"
    async with serving() as admin:
        headers = resting_on(await tag(admin, path))
        asked = (
            admin.http.post(f"{path}/role-{number}", json=["produce"], headers=headers, timeout=60)
            for number in range(8)
        )
        answers = await asyncio.gather(*asked)
        assert sorted(answer.status_code for answer in answers) == [204] + [412] * 7
        assert len(await admin.get(path)) == 1


async def test_change_without_if_match_is_unconditional() -> None:
    """`*` means the same as no header."""
    path = f"{DEFAULT}/deduplication"
    async with serving() as admin:
        for headers in ({}, {"If-Match": "*"}):
            for value in (True, False):
                await admin.change("POST", path, json=value, headers=headers)
                assert await admin.get(path) is value


async def test_malformed_etag_is_refused() -> None:
    """An invalid condition must not be treated as none."""
    path = f"{DEFAULT}/deduplication"
    async with serving() as admin:
        bare = (await tag(admin, path)).strip('"')
        for given in (bare, "3", f'"{bare}', f'"{bare}" "x"', f'"{bare}",', "", ","):
            problem = await admin.refused("POST", path, 422, "invalid_argument", json=True, headers=resting_on(given))
            assert problem["field"] == "If-Match"
        assert await admin.get(path) is None


async def test_routes_without_if_match_support_refuse_the_header() -> None:
    """A client must not believe that its condition was checked. Queries may have the header."""
    async with serving() as admin:
        for method, path in (("PUT", FLIGHTS), ("DELETE", DEFAULT), ("PUT", "/admin/v2/tenants/acme")):
            problem = await admin.refused(method, path, 422, "invalid_argument", headers=resting_on('"0-00000000"'))
            assert problem["field"] == "If-Match"
        assert await admin.get("/admin/v2/tenants", headers=resting_on('"x"')) == ["public"]


async def test_etag_belongs_to_the_level_not_to_the_effective_value() -> None:
    """All policies of a level are one record; the effective value may come from another level."""
    async with serving() as admin:
        tags = {await tag(admin, path) for path in (DEFAULT, f"{DEFAULT}/deduplication", f"{DEFAULT}/permissions")}
        assert len(tags) == 1
        answer = await admin.http.get(f"{DEFAULT}/deduplication?applied=true")
        assert "etag" not in answer.headers


async def test_lost_reply_is_not_mistaken_for_a_concurrent_change() -> None:
    """The change was applied by the same request, so it must not fail with 412."""
    backend = MemoryBackend()
    session = await new_cluster(backend)
    policies = PolicyStore(session)
    for value in (False, True, None):
        mark = tag_of(await policies.read(CLUSTER))
        backend.lose_next_reply(session)
        stored = await policies.change(CLUSTER, lambda p: replace(p, deduplication=value), tags=[mark])  # noqa: B023
        assert stored == await policies.read(CLUSTER)
        assert stored.value.deduplication is value
        backend.lose_next_request(session)
        assert tag_of(await policies.change(CLUSTER, lambda p: replace(p, auto_create_topics=value))) != mark  # noqa: B023


@pytest.mark.parametrize("scope", [CLUSTER, ORDERS])
async def test_recreated_namespace_has_another_etag(scope: Scope) -> None:
    """Record versions start again (hazard recreated-topic), so the ETag must not depend on them alone."""
    session = await new_cluster(MemoryBackend())
    namespaces, policies = NamespaceStore(session), PolicyStore(session)
    await namespaces.create_namespace(ORDERS)
    read = await policies.change(scope, lambda p: replace(p, deduplication=True))
    if scope == ORDERS:
        await namespaces.delete_namespace(ORDERS)
        await namespaces.create_namespace(ORDERS, Policies(auto_create_topics=False))
    now = await policies.change(scope, lambda p: replace(p, deduplication=False))
    assert now.version == read.version + (scope == CLUSTER)
    with pytest.raises(PreconditionFailed):
        await policies.change(scope, lambda p: replace(p, deduplication=None), tags=[tag_of(read)])
