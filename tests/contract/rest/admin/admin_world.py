"""The admin REST interface on a real port, over a metadata replica whose store is in memory."""

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, cast

import httpx

from oncelog.client.client import AsyncClient
from oncelog.core.process_version import PROCESS_VERSION
from oncelog.core.records.records import ABSENT_VERSION
from oncelog.metadata.dead_letters.redrive import Redrive
from oncelog.metadata.rest.port.server import RestServer
from oncelog.metadata.rest.problems import MEDIA_TYPE
from oncelog.metadata.service import running_tasks
from oncelog.metadata_store.records.registry import LiveStorageNode, StorageCookie
from oncelog.runtime.observing.audit_log import AuditLog
from oncelog.runtime.security import OPEN, Security
from tests.cluster.metadata.metadata_world import FakeOwner, Replica, World
from tests.contract.rest.lent_apps import lent_app
from tests.contract.storage_client.ledger_world import Node

FLIGHTS = "/admin/v2/persistent/public/default/flights"


@dataclass
class Admin:
    world: World
    replica: Replica
    http: httpx.AsyncClient
    port: int
    audit: AuditLog

    async def owner(self) -> FakeOwner:
        owner = await self.world.owner(self.replica)
        await self.replica.sees(owner)
        return owner

    async def join(self, node: Node, *, version: int = PROCESS_VERSION) -> None:
        """Register a storage node that serves."""
        registry = self.replica.coordination.registry
        host, _, port = node.address.rpartition(":")
        live = LiveStorageNode(node.incarnation, host, int(port), 10**12, version=version)
        await registry.register_storage_node(live).establish()
        await registry.write_cookie(StorageCookie(node.incarnation, host, int(port)), version=ABSENT_VERSION)

    async def get(self, path: str, **options: Any) -> Any:
        """The body of a successful answer."""
        response = await self.http.get(path, **options)
        assert response.status_code == 200, response.text
        return response.json()

    async def change(self, method: str, path: str, **options: Any) -> None:
        """Make a change: 204 and no body."""
        response = await self.http.request(method, path, **options)
        assert (response.status_code, response.content) == (204, b""), response.text

    async def refused(self, method: str, path: str, status: int, code: str, **options: Any) -> dict[str, Any]:
        """The problem that the request is answered with."""
        response = await self.http.request(method, path, **options)
        body: dict[str, Any] = response.json()
        assert (response.status_code, body["code"]) == (status, code), body
        assert response.headers["content-type"] == MEDIA_TYPE
        assert body["status"] == status
        assert body["type"] == f"urn:oncelog:problem:{code}"
        assert body["title"]
        assert body["detail"]
        return body


@asynccontextmanager
async def serving(security: Security = OPEN, *, console: Mapping[str, Any] | None = None) -> AsyncIterator[Admin]:
    """console: the options of a console; None: without it."""
    async with World.running() as world, running_tasks() as start:
        replica = await world.replica()
        coordination = replica.coordination
        # No topic of this world has dead letters.
        redrive = Redrive(cast("AsyncClient", None), coordination.lookup, coordination.subscriptions)
        audit = AuditLog(coordination.events)
        with lent_app(coordination, security, redrive=redrive, console=console, audit=audit) as app:
            server = RestServer(app, stop_timeout_s=1)
            port = server.start(host="127.0.0.1", port=0)
            running = start(server.run())
            async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}", timeout=30, verify=False) as http:
                yield Admin(world, replica, http, port, audit)
            server.stop()
            await running
