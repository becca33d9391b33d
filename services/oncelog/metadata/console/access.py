"""Who may see the console: a middleware around the whole application, for what is below /console only.

    Welcome -> ConsoleAccess -> Authentication -> BodyLimit -> routes

It exchanges the cookie for the header `Authorization`, so authentication and the rules of routes are those of REST. It
sets the headers that keep other origins out, and turns errors into pages. Without authentication the console is for
this machine only: the client's address and the name in `Host` must both be loopback, because a page of another origin
can make a browser send requests to 127.0.0.1, but under its own name.
"""

import json
from collections.abc import Awaitable, Callable
from urllib.parse import quote

from starlette.datastructures import Headers, MutableHeaders
from starlette.exceptions import HTTPException
from starlette.responses import HTMLResponse, RedirectResponse, Response
from starlette.routing import Match, Route, Router
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from oncelog.core.errors import OncelogError, PermissionDenied
from oncelog.metadata.console import login
from oncelog.metadata.console.rendering import Rendering
from oncelog.metadata.console.static_files import PREFIX as STATIC
from oncelog.metadata.console.static_files import serve_static
from oncelog.metadata.gateway.inner_request import note_via
from oncelog.metadata.rest.port.body_limits import BodyLimit
from oncelog.metadata.rest.problems import MEDIA_TYPE, http_problem, note_code, problem
from oncelog.runtime.observing.http_hosts import is_loopback, name_in
from oncelog.runtime.security import Security

ROOT = "/console"
_LOGIN_BYTES_MAX = 8 << 10
_CSP = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
    "form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
_HEADERS = {
    "content-security-policy": _CSP,
    "x-content-type-options": "nosniff",
    # With no-referrer, browsers would send forms with `Origin: null`, which `forms` refuses.
    "referrer-policy": "same-origin",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
}
_Answering = Callable[[Scope, Receive, Send], Awaitable[None]]


class ConsoleAccess:
    """The middleware."""

    def __init__(self, app: ASGIApp, *, security: Security, rendering: Rendering) -> None:
        self._app = app
        self._security = security
        self._rendering = rendering
        entry = login.Login(security, rendering)
        self._routes = [
            Route(login.PATH, entry.show, methods=["GET"]),
            Route(login.PATH, entry.log_in, methods=["POST"]),
            Route(login.LOGOUT, entry.log_out, methods=["POST"]),
            Route(STATIC + "{digest}/{name}", serve_static, methods=["GET"]),
        ]
        self._open = BodyLimit(Router(self._routes), bytes_max=_LOGIN_BYTES_MAX)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or not (scope["path"] == ROOT or scope["path"].startswith(ROOT + "/")):
            await self._app(scope, receive, send)
            return
        note_via(scope, "console")
        shown = _AsPages(scope, send, self._rendering)
        try:
            answer = await self._admitted(scope, receive, shown.send)
        except OncelogError as error:
            answer = problem(error)
        except HTTPException as error:  # of the paths without a login: no such path, or another method
            text = f"{scope['path'][:200]} does not exist, or does not support {scope['method']}"
            answer = http_problem(error.status_code, text, error.headers)
        if answer is not None:
            await answer(scope, receive, shown.send)

    async def _admitted(self, scope: Scope, receive: Receive, send: Send) -> Response | None:
        """None: the application has answered. Raises PermissionDenied, and what login raises."""
        if scope["server"] is None:
            return http_problem(404, "the console is not served over the gRPC port: use the REST port")
        if scope["path"] == ROOT:
            return RedirectResponse(login.HOME, 308)
        if self._security.authenticator is None:
            _require_loopback(scope)
        if scope["path"] in {login.PATH, login.LOGOUT} or scope["path"].startswith(STATIC):
            # As the framework does for the other routes, for the audit log.
            scope["route"] = next((each for each in self._routes if each.matches(scope)[0] is Match.FULL), None)
            await self._open(scope, receive, send)
            return None
        token = login.token_of(Headers(scope=scope), scheme=scope["scheme"])
        if token is not None:
            headers = [(name, value) for name, value in scope["headers"] if name != b"authorization"]
            # In this scope and not in a copy: the audit log reads from it who the caller was, and which route.
            scope["headers"] = [*headers, (b"authorization", f"Bearer {token}".encode())]
        await self._app(scope, receive, send)
        return None


def _require_loopback(scope: Scope) -> None:
    """Raises PermissionDenied."""
    client, _ = scope["client"] or ("", 0)
    name = name_in(Headers(scope=scope).get("host", ""))
    if not (is_loopback(client) and is_loopback(name)):
        raise PermissionDenied(
            "authentication is off, so the console can be opened only on the machine of the metadata service, as "
            "http://127.0.0.1:PORT/console/: to open it from elsewhere, turn authentication on (ONCELOG_AUTH_KEY_FILE)"
        )


class _AsPages:
    """Sends an answer with the console's headers. A problem becomes a page; 401 leads to the login."""

    def __init__(self, scope: Scope, send: Send, rendering: Rendering) -> None:
        self._scope = scope
        self._send = send
        self._rendering = rendering
        #: of a problem, until it is whole
        self._start: Message | None = None
        self._pieces: list[bytes] = []

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            headers = MutableHeaders(scope=message)
            headers.update(_HEADERS)
            headers.setdefault("cache-control", "no-store")
            if headers.get("content-type") == MEDIA_TYPE:
                self._start = message
                return
        if self._start is None:
            await self._send(message)
            return
        self._pieces.append(message.get("body", b""))
        if not message.get("more_body", False):
            start, self._start = self._start, None
            await self._page(start, json.loads(b"".join(self._pieces)))

    async def _page(self, start: Message, body: dict[str, object]) -> None:
        path, query = self._scope["path"], self._scope["query_string"].decode("latin-1")
        note_code(self._scope, str(body["code"]))
        answer: Response
        if body["status"] == 401 and self._scope["method"] == "GET":
            wanted = f"{quote(path)}?{query}" if query else quote(path)
            answer = RedirectResponse(f"{login.PATH}?next={quote(wanted, safe='/')}", 303)
        else:
            html = self._rendering.text("error.html", title=body["title"], problem=body)
            answer = HTMLResponse(html, start["status"])
        for name, value in MutableHeaders(scope=start).items():
            if name not in {"content-type", "content-length"}:
                answer.headers[name] = value
        await self._send({"type": "http.response.start", "status": answer.status_code, "headers": answer.raw_headers})
        await self._send({"type": "http.response.body", "body": answer.body})
