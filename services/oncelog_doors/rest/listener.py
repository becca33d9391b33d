"""The REST port of a door: its application, its limits, and its errors as Pulsar has them.

Connections, request heads and bodies have the limits of the cluster's own REST port.
"""

import asyncio
import json
import logging
import secrets
from collections.abc import Mapping

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from starlette.datastructures import Headers, MutableHeaders
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from oncelog.core.errors import OncelogError
from oncelog.metadata.rest.port.body_limits import BodyLimit
from oncelog.metadata.rest.port.connections import ConnectionLimits
from oncelog.metadata.rest.port.server import RestServer
from oncelog.metadata.rest.problems import MEDIA_TYPE
from oncelog.runtime.observing.http_hosts import HttpHosts
from oncelog.runtime.security import Security, ServerCertificate
from oncelog_doors.core.rest.refusals import Refused, not_offered, refused_by, refused_field, refused_for
from oncelog_doors.core.rest.unoffered import unoffered
from oncelog_doors.rest import lookups, messages, namespaces, policies, schemas, subscriptions, tenants, topics
from oncelog_doors.rest.ports import LogPort, RestPort

logger = logging.getLogger(__name__)

#: Of requests that are answered when the door ends.
STOP_S = 5
_METHOD_NOT_ALLOWED = 405


def new_app(
    cluster: RestPort, log: LogPort, *, version: str, pulsar_ports: Mapping[str, int], security: Security
) -> ASGIApp:
    """version: of the door, as clients see it. pulsar_ports: {scheme: port of the listener for Pulsar's protocol}."""
    app = FastAPI(openapi_url=None, docs_url=None, redoc_url=None, redirect_slashes=False)
    app.state.cluster, app.state.version, app.state.pulsar_ports = cluster, version, pulsar_ports
    app.state.log, app.state.security = log, security
    for part in (tenants, namespaces, policies, topics, subscriptions, messages, schemas, lookups):
        # `include_router` would build each route a second time, when the first request comes.
        app.router.routes.extend(part.routes().routes)
    app.add_exception_handler(Refused, _refused)
    app.add_exception_handler(OncelogError, _failed)
    app.add_exception_handler(RequestValidationError, _invalid)
    app.add_exception_handler(HTTPException, _no_route)
    app.add_exception_handler(Exception, _bug)
    limited: ASGIApp = BodyLimit(app)
    if security.open_to is not None:
        limited = _OwnPages(limited, security.open_to)
    return _Reasons(limited)


class RestListener:
    """Between `listen` and `close`."""

    def __init__(self, app: ASGIApp, *, connections_max: int) -> None:
        """connections_max: of each listener; half of them for one address."""
        self._app = app
        self._limits = ConnectionLimits(connections_max, max(1, connections_max // 2))
        self._running: list[tuple[RestServer, asyncio.Task[None]]] = []

    def listen(self, host: str, port: int, certificate: ServerCertificate | None) -> int:
        """Serve, with TLS or without; port 0 takes a free one. Returns the port. Raises InvalidArgument."""
        server = RestServer(self._app, stop_timeout_s=STOP_S, certificate=certificate, limits=self._limits)
        found = server.start(host=host, port=port)
        self._running.append((server, asyncio.create_task(server.run())))
        return found

    async def close(self) -> None:
        """Return when the requests in progress have ended."""
        for server, _ in self._running:
            server.stop()
        await asyncio.gather(*(task for _, task in self._running))


def response_of(refused: Refused) -> JSONResponse:
    headers = {} if refused.retry_after_s is None else {"Retry-After": str(refused.retry_after_s)}
    if refused.status == 401:
        headers["WWW-Authenticate"] = "Bearer"
    return JSONResponse({"reason": refused.reason}, refused.status, headers)


async def _refused(_: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, Refused)
    return response_of(error)


async def _failed(_: Request, error: Exception) -> JSONResponse:
    """An error of the log."""
    assert isinstance(error, OncelogError)
    return response_of(refused_for(error))


async def _invalid(_: Request, error: Exception) -> JSONResponse:
    """A parameter of the query that is none of its kind."""
    assert isinstance(error, RequestValidationError)
    first = error.errors()[0]
    return response_of(refused_field(str(first["loc"][-1]), str(first["msg"])[:200]))


async def _no_route(request: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, HTTPException)
    if error.status_code == _METHOD_NOT_ALLOWED:
        what = f"{request.method} {request.url.path[:200]}"
        return response_of(Refused(_METHOD_NOT_ALLOWED, f"{what} is not offered here: docs/pulsar.md has the list"))
    return response_of(not_offered(*unoffered(request.url.path)))


async def _bug(request: Request, error: Exception) -> JSONResponse:
    request_id = secrets.token_hex(8)
    fields = {"method": request.method, "path": request.url.path[:200], "request_id": request_id}
    logger.error("a request failed", extra={"fields": fields}, exc_info=error)
    return response_of(Refused(500, f"the door failed; search its log for request {request_id}"))


class _OwnPages:
    """Without authentication: refuses requests that a page of another origin may have sent."""

    def __init__(self, app: ASGIApp, hosts: HttpHosts) -> None:
        self._app, self._hosts = app, hosts

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            try:
                self._hosts.check(scope["method"], Headers(scope=scope).get)
            except OncelogError as error:
                await response_of(refused_for(error))(scope, receive, send)
                return
        await self._app(scope, receive, send)


class _Reasons:
    """Turns the problem bodies of limits into Pulsar's."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        begun: list[Message] = []
        pieces: list[bytes] = []

        async def rewriting(message: Message) -> None:
            if message["type"] == "http.response.start":
                if Headers(raw=message["headers"]).get("content-type") == MEDIA_TYPE:
                    begun.append(message)
                    return
            elif begun:
                pieces.append(message.get("body", b""))
                if message.get("more_body", False):
                    return
                start = begun.pop()
                status = start["status"]
                refused = refused_by(status, json.loads(b"".join(pieces)))
                response = response_of(refused)
                headers = MutableHeaders(raw=list(start["headers"]))
                headers["content-type"], headers["content-length"] = "application/json", str(len(response.body))
                await send({**start, "status": refused.status, "headers": headers.raw})
                await send({"type": "http.response.body", "body": bytes(response.body)})
                return
            await send(message)

        await self._app(scope, receive, rewriting)
