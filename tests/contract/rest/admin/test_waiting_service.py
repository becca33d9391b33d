"""A metadata service without a cluster serves the routes of a restore, for superusers, and says of all others why."""

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import httpx
import pytest

from oncelog.core.era import FIRST_ERA
from oncelog.log_storage.directory.metadata_copies import FOLDER
from oncelog.metadata.rest.recovering.waiting_app import EarlyRest
from oncelog.metadata.service import running_tasks
from oncelog.metadata_store.copies.copy_file import CopiedRecord, CopyHeader, CopyWriter
from oncelog.metadata_store.copies.copy_folder import name_by_content
from oncelog.metadata_store.records.cluster_store import ClusterRecord, ClusterState, ClusterStore
from oncelog.runtime.observing.audit_log import AuditLog
from oncelog.runtime.observing.events import EventRing
from oncelog.runtime.settings import MetadataSettings
from tests.cluster.until import until
from tests.contract.node.directory.small_log import CLUSTER
from tests.contract.process.security_world import ROOT, bearer, secured
from tests.contract.rest.admin.test_admin_access import ROLES
from tests.contract.storage_client.ledger_world import nodes
from tests.contract.stores.memory_store import MemorySession, MemoryTree

pytestmark = pytest.mark.asyncio

RESTORE, DRILL = "/admin/v2/cluster/restore", "/admin/v2/cluster/drill"
REASON = "waiting for the cluster's record: it is missing"


@asynccontextmanager
async def waiting(tmp_path: Path) -> AsyncIterator[tuple[EarlyRest, httpx.AsyncClient]]:
    settings = MetadataSettings(rest_port=0, listen_host="127.0.0.1")
    async with running_tasks() as start:
        rest = EarlyRest(settings, secured(tmp_path), AuditLog(EventRing("metadata")), start, reason=lambda: REASON)
        port = rest.open()
        async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}", trust_env=False, verify=False) as http:
            yield rest, http
        await rest.close()


async def test_restore_is_served_to_superusers_alone(tmp_path: Path) -> None:
    """It writes every record of the cluster, and whoever holds a grant held it in records that are lost."""
    async with waiting(tmp_path) as (rest, http):
        rest.reached(MemorySession(MemoryTree(), root="/oncelog"))
        for method, path in (("GET", RESTORE), ("POST", RESTORE), ("GET", DRILL), ("POST", DRILL)):
            assert (await http.request(method, path)).status_code == 401
            for role in ROLES:
                assert (await http.request(method, path, headers=bearer(role))).status_code == 403
        begun = await http.post(RESTORE, headers=bearer(ROOT))
        assert (begun.status_code, begun.json()["by"]) == (202, ROOT)

        async def refused() -> bool:
            shown = (await http.get(RESTORE, headers=bearer(ROOT))).json()
            return bool(shown["state"] == "refused" and "--nodes HOST:PORT" in shown["message"])

        await until(refused, 60)


async def test_copy_from_outside_is_taken_from_superusers_alone(tmp_path: Path) -> None:
    """It is larger than any other body, and is read only when the caller's rights are known."""
    header = CopyHeader(CLUSTER, FIRST_ERA, 8, 1_764_200_000_000)
    parts: list[bytes] = []
    writer = CopyWriter(header, None, parts.append)
    writer.add(CopiedRecord(f"/tombstones/{number}", os.urandom(700_000)) for number in range(3))
    writer.finish()
    file = b"".join(parts)
    path = f"/admin/v2/backups/{name_by_content(header, file)}"
    async with nodes(tmp_path / "nodes", 1) as (node,), waiting(tmp_path) as (rest, http):
        rest.reached(MemorySession(MemoryTree(), root="/oncelog"))
        assert (await http.put(path, content=file)).status_code == 401
        for role in ROLES:
            assert (await http.put(path, content=file, headers=bearer(role))).status_code == 403
        unreached = await http.put(path, content=file, headers=bearer(ROOT))
        assert unreached.status_code == 503
        assert "--nodes HOST:PORT" in unreached.json()["detail"]
        for given, body, field in (("n1", file, "nodes"), (node.address, file[:-1], "copy")):
            answer = await http.put(path, params={"nodes": given}, content=body, headers=bearer(ROOT))
            assert (answer.status_code, answer.json()["field"]) == (422, field)
        for _ in range(2):
            stored = await http.put(path, params={"nodes": node.address}, content=file, headers=bearer(ROOT))
            assert (stored.status_code, stored.json()["nodes"]) == (200, [node.incarnation])
        (kept,) = (tmp_path / "nodes").glob(f"*/{FOLDER}/*")
        assert kept.read_bytes() == file


async def test_every_other_request_says_why_the_service_waits(tmp_path: Path) -> None:
    """A load balancer or a client retries; an operator reads it."""
    async with waiting(tmp_path) as (_, http):
        for method, path in (("GET", "/admin/v2/tenants"), ("PUT", "/admin/v2/tenants/a"), ("GET", "/x")):
            answer = await http.request(method, path, headers=bearer(ROOT))
            assert (answer.status_code, answer.json()["code"]) == (503, "service_unavailable")
            assert REASON in answer.json()["detail"]
        unreached = await http.post(RESTORE, headers=bearer(ROOT))
        assert unreached.status_code == 503
        assert "has not reached ZooKeeper" in unreached.json()["detail"]


async def test_wrong_input_names_the_field(tmp_path: Path) -> None:
    """Also where no cluster is."""
    async with waiting(tmp_path) as (rest, http):
        rest.reached(MemorySession(MemoryTree(), root="/oncelog"))
        for body, field in (
            ({"nodes": ["nowhere"]}, "nodes"),
            ({"nodes": ["n1:99999"]}, "nodes"),
            ({"absent": ["n1"]}, "absent"),
            ({"absent": ["2e60d17"]}, "absent"),
            ({"take_over": True, "ends_era": "3"}, "ends_era"),
            ({"force": True}, "force"),
            ({"take_over": "yes"}, "take_over"),
        ):
            answer = await http.post(RESTORE, json=body, headers=bearer(ROOT))
            assert answer.status_code == 422, body
            assert field in answer.json()["detail"]


async def test_claimed_restore_that_nobody_performs_is_shown_as_interrupted(tmp_path: Path) -> None:
    """By each metadata service, with the command that goes on with it."""
    session = MemorySession(MemoryTree(), root="/oncelog")
    await session.ensure_path("")
    record = ClusterRecord("c" * 32, state=ClusterState.RESTORING)
    await ClusterStore(session).write(record, version=-1)
    async with waiting(tmp_path) as (rest, http):
        rest.reached(session)
        shown = (await http.get(RESTORE, headers=bearer(ROOT))).json()
        assert (shown["state"], shown["era"]) == ("interrupted", 1)
        assert "oncelog admin backup restore" in shown["message"]
