"""The console over a real topic owner with one storage node, all in this process."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx

from oncelog.core.records.records import ABSENT_VERSION
from oncelog.metadata.replica import Coordination
from oncelog.metadata.service import running_tasks
from oncelog.metadata_store.records.registry import LiveOwner, LiveStorageNode, Registry, StorageCookie
from oncelog.rpc.channel import Channel
from tests.contract.owner.owner_world import ME, OwnerWorld, owner_world
from tests.contract.rest.lent_apps import lent_app


@dataclass
class ServedConsole:
    """channel: to the owner, as a client has it."""

    world: OwnerWorld
    channel: Channel
    coordination: Coordination
    http: httpx.AsyncClient

    async def page(self, path: str, status: int = 200) -> str:
        answer = await self.http.get(path)
        assert answer.status_code == status, answer.text
        assert answer.headers["content-type"] == "text/html; charset=utf-8"
        return answer.text


@asynccontextmanager
async def served_console(tmp_path: Path) -> AsyncIterator[ServedConsole]:
    async with owner_world(tmp_path) as (world, channel), running_tasks() as start:
        registry, node = Registry(world.session), world.node
        host, _, port = node.address.rpartition(":")
        await registry.write_cookie(StorageCookie(node.incarnation, host, int(port)), version=ABSENT_VERSION)
        await registry.register_storage_node(LiveStorageNode(node.incarnation, host, int(port), 1 << 30)).establish()
        owner_port = int(channel.address.rpartition(":")[2])
        await registry.register_owner(LiveOwner(ME, "127.0.0.1", {"grpc": owner_port}, 0)).establish()
        coordination = Coordination.over(world.session, "test-cluster", start)
        await coordination.owners.refresh()
        try:
            with lent_app(coordination, console={}) as app:
                transport = httpx.ASGITransport(app=app)
                async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1") as http:
                    yield ServedConsole(world, channel, coordination, http)
        finally:
            await coordination.close()
