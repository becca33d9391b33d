"""The caller learns who it is and what it may do, and gets no guess when nothing is known."""

from pathlib import Path

import pytest

from oncelog.core.access import Right
from oncelog.core.names import parse_namespace
from oncelog.metadata_store.records.policies import Policies
from tests.contract.process.security_world import ROOT, bearer, secured
from tests.contract.rest.admin.admin_world import Admin, serving

pytestmark = pytest.mark.asyncio

ME = "/admin/v2/me"
ALL = [right.value for right in Right]


async def grant(admin: Admin, namespace: str, **granted: tuple[str, ...]) -> None:
    name = parse_namespace(namespace)
    await admin.replica.coordination.namespaces.create_tenant(name.tenant)
    await admin.replica.coordination.namespaces.create_namespace(name, Policies(permissions=granted))


async def test_role_sees_its_rights_and_no_namespace_without_one(tmp_path: Path) -> None:
    """Names of other namespaces are not for it."""
    async with serving(secured(tmp_path)) as admin:
        await grant(admin, "shop/orders", checkout=("produce", "admin"), other=("consume",))
        await grant(admin, "shop/stock", other=("produce",))
        await grant(admin, "shop/late", checkout=("fly",))
        seen = await admin.get(ME, headers=bearer("checkout"))
        assert (seen["role"], seen["superuser"], seen["authentication"]) == ("checkout", False, True)
        assert seen["namespaces"] == {"shop/orders": ["admin", "produce"]}
        stranger = await admin.get(ME, headers=bearer("stranger"))
        assert (stranger["namespaces"], stranger["next_after"]) == ({}, None)


async def test_superuser_has_every_right_page_by_page(tmp_path: Path) -> None:
    """Each namespace is on exactly one page."""
    async with serving(secured(tmp_path)) as admin:
        names = [f"shop/n{number}" for number in range(5)]
        for name in names:
            await grant(admin, name)
        found, query = dict[str, list[str]](), "?limit=2"
        for _ in range(4):
            seen = await admin.get(f"{ME}{query}", headers=bearer(ROOT))
            assert len(seen["namespaces"]) <= 2
            found |= seen["namespaces"]
            query = f"?limit=2&after={seen['next_after']}"
            if seen["next_after"] is None:
                break
        assert found == dict.fromkeys(["public/default", *names], ALL)
        for bad in ("limit=0", "limit=1001", "limit=x", f"after={'x' * 1001}"):
            problem = await admin.refused("GET", f"{ME}?{bad}", 422, "invalid_argument", headers=bearer(ROOT))
            assert problem["field"] == bad.partition("=")[0]


async def test_without_authentication_there_is_no_role() -> None:
    """Everybody may do everything, and the answer says so."""
    async with serving() as admin:
        seen = await admin.get(ME)
        assert (seen["role"], seen["superuser"], seen["authentication"]) == (None, True, False)
        assert seen["namespaces"]["public/default"] == ALL


async def test_rights_that_were_never_read_are_not_shown_as_none() -> None:
    """Without an answer of ZooKeeper since the start, the request is refused after a second, not after its timeout."""
    async with serving() as admin:
        admin.replica.session.faults.suspend()
        problem = await admin.refused("GET", ME, 503, "service_unavailable")
        assert "no answer" in problem["detail"]
        admin.replica.session.faults.resume()
