"""The REST application of a metadata service that waits for a cluster: it serves the routes of a restore only.

waiting: /admin/v2/cluster/restore and drill, PUT /admin/v2/backups/{name}; all others 503, with the reason
    --joined--> the whole application
"""

import asyncio
from collections.abc import Callable, Coroutine
from functools import partial
from pathlib import Path

from fastapi import FastAPI
from starlette.types import ASGIApp, Receive, Scope, Send

from oncelog.core.errors import ServiceUnavailable
from oncelog.metadata.rest import problems
from oncelog.metadata.rest.access import Authentication
from oncelog.metadata.rest.port.audit import Audit
from oncelog.metadata.rest.port.body_limits import BodyLimit
from oncelog.metadata.rest.port.connections import ConnectionLimits
from oncelog.metadata.rest.port.server import RestServer
from oncelog.metadata.rest.recovering.restore import restore_routes
from oncelog.metadata.rest.recovering.uploads import upload_routes
from oncelog.metadata.rest.routers import add_routes
from oncelog.metadata.restore.performer import RestoreSources
from oncelog.metadata.restore.restoring import Restoring
from oncelog.metadata_store.copies.copy_keys import read_keys
from oncelog.metadata_store.joining.directories import nodes_in
from oncelog.metadata_store.session.store_session import StoreSession
from oncelog.runtime.descriptors import connections_within
from oncelog.runtime.observing.audit_log import AuditLog
from oncelog.runtime.security import Security
from oncelog.runtime.settings import MetadataSettings

REST_STOP_S = 3


def waiting_app(
    restoring: Callable[[], Restoring | None], reason: Callable[[], str | None], security: Security, audit: AuditLog
) -> FastAPI:
    """restoring: None while ZooKeeper is not reached. reason: why the service waits."""
    app = FastAPI(openapi_url=None, docs_url=None, redoc_url=None, redirect_slashes=False)

    def known() -> Restoring:
        found = restoring()
        if found is None:
            raise ServiceUnavailable(f"this metadata service has not reached ZooKeeper: {reason() or 'starting'}")
        return found

    for router in (restore_routes(known), upload_routes(known)):
        add_routes(app, router)

    @app.api_route("/{path:path}", methods=["GET", "HEAD", "POST", "PUT", "DELETE", "PATCH"])
    async def refuse(path: str) -> None:
        """Until the service has joined its cluster."""
        raise ServiceUnavailable(
            f"this metadata service serves nothing but restores now: {reason() or 'starting'}", path=path[:200]
        )

    problems.install(app)
    app.add_middleware(BodyLimit)
    app.add_middleware(Authentication, security=security)
    app.add_middleware(Audit, log=audit)
    return app


class EarlyRest:
    """The REST port of a metadata service, from its start on: first for a restore only, then for everything."""

    def __init__(
        self,
        settings: MetadataSettings,
        security: Security,
        audit: AuditLog,
        start: Callable[[Coroutine[None, None, None]], asyncio.Task[None]],
        *,
        reason: Callable[[], str | None],
    ) -> None:
        """start: runs background tasks, also the restore itself. reason: why the service waits."""
        self.restoring: Restoring | None = None
        self._settings = settings
        self._security = security
        self._audit = audit
        self._start = start
        self._app: ASGIApp = waiting_app(lambda: self.restoring, reason, security, audit)
        limits = ConnectionLimits(
            connections_within(settings.rest_connections_max), settings.rest_connections_per_peer_max
        )
        self._server = RestServer(
            self._serve, stop_timeout_s=REST_STOP_S, certificate=security.certificate, limits=limits
        )
        self._serving: asyncio.Task[None] | None = None

    def open(self) -> int:
        """Returns the port. Raises InvalidArgument if it cannot be used."""
        port = self._server.start(host=self._settings.listen_host, port=self._settings.rest_port)
        self._serving = self._start(self._server.run())
        return port

    def reached(self, session: StoreSession) -> None:
        """ZooKeeper is reached. session: at the root of the cluster."""
        nodes = partial(nodes_in, self._settings.new_cluster_nodes_file)
        key_file = self._settings.backup_key_file
        copy_keys = partial(read_keys, Path(key_file) if key_file else None)
        sources = RestoreSources(session, self._audit, nodes, copy_keys, self._security.peers)
        self.restoring = Restoring(sources, self._start)

    def serve(self, app: ASGIApp) -> None:
        """From now on every request is one of this application."""
        self._app = app

    async def close(self) -> None:
        """Return when the requests in progress have ended."""
        self._server.stop()
        if self._serving is not None:
            await self._serving

    async def _serve(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self._app(scope, receive, send)
