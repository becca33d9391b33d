"""Copies of ZooKeeper's records over REST: made on demand and before what cannot be undone, and downloaded."""

import io
import os
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from oncelog.metadata_store.copies.copy_file import read_copy
from tests.contract.rest.admin.admin_world import Admin, serving
from tests.contract.storage_client.ledger_world import Node, nodes

pytestmark = pytest.mark.asyncio
BACKUPS = "/admin/v2/backups"


@pytest_asyncio.fixture
async def node(tmp_path: Path) -> AsyncIterator[Node]:
    """A storage node that serves."""
    async with nodes(tmp_path, 1) as (node,):
        yield node


@pytest_asyncio.fixture
async def admin(node: Node) -> AsyncIterator[Admin]:
    async with serving() as admin:
        await admin.join(node)
        yield admin


async def test_download_is_the_whole_file_or_a_part_of_it(admin: Admin) -> None:
    """Of several parts of the storage node, whose names do not compress."""
    for number in range(1_200):
        path = f"/tombstones/{number:032x}"
        await admin.replica.session.create(path, os.urandom(1_000))
    made = (await admin.http.post(BACKUPS)).json()
    path = f"{BACKUPS}/{made['name']}"
    whole = await admin.http.get(path)
    assert whole.headers["content-type"] == "application/octet-stream"
    assert len(whole.content) == made["bytes"] > 1_000_000
    assert read_copy(io.BytesIO(whole.content)).manifest.records == made["records"]
    part = await admin.http.get(path, params={"offset": 5, "bytes_max": 900_000})
    assert part.content == whole.content[5:900_005]
    assert int(part.headers["oncelog-bytes"]) == made["bytes"]
    assert (await admin.http.get(path, params={"offset": made["bytes"]})).content == b""


async def test_copy_that_is_not_there_or_has_no_name_of_a_copy(admin: Admin) -> None:
    await admin.refused("GET", f"{BACKUPS}/2026-11-27t06-00-00z-era1-00000000", 404, "not_found")
    for name in ("identity.json", "2026-99-27t06-00-00z-era1-00000000", "x" * 300):
        problem = await admin.refused("GET", f"{BACKUPS}/{name}", 422, "invalid_argument")
        assert "list the copies" in problem["detail"]
    for query in ("offset=-1", "offset=x", "bytes_max=0"):
        path = f"{BACKUPS}/2026-11-27t06-00-00z-era1-00000000?{query}"
        await admin.refused("GET", path, 422, "invalid_argument")


async def test_records_are_copied_before_a_namespace_is_deleted(admin: Admin) -> None:
    """With its policies and rights; once in ten minutes."""
    for name in ("shop", "other"):
        await admin.change("PUT", f"/admin/v2/namespaces/public/{name}")
    for name in ("shop", "other"):
        await admin.change("DELETE", f"/admin/v2/namespaces/public/{name}")
    (made,) = (await admin.get(BACKUPS))["backups"]
    copy = read_copy(io.BytesIO((await admin.http.get(f"{BACKUPS}/{made['name']}")).content))
    assert "/policies/namespaces/public/shop" in copy.records


async def test_records_are_copied_before_a_storage_node_is_decommissioned(admin: Admin, node: Node) -> None:
    path = f"/admin/v2/storage/nodes/{node.incarnation}/decommission"
    await admin.refused("POST", path, 409, "conflict")
    assert len((await admin.get(BACKUPS))["backups"]) == 1
