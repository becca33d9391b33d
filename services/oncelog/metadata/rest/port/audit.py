"""Middleware that writes the audit log: every administrative change, whatever became of it, and every refusal.

    Welcome -> Audit -> ConsoleAccess -> Authentication -> BodyLimit -> routes

Rules
- A change is a request below /admin that is not a GET; renewals of leased producers are data. Its answer leaves after
  its line. A request that ends without an answer has a line with status null: what became of it is unknown.
- A refusal is an answer 401 or 403 to any request. Of one role, or without one of one host, one line a second is
  written, with the number of those before it that were left out: otherwise a wrong client fills the disk.
- Successful changes and refusals are events, too. The refusals of one role, or without one of one host, within a
  minute are one event, with their number and the first of them.
- No token and no payload: bodies are those of changes only, without the values of fields that are named like a secret,
  and without texts that look like a token.
- A page of the console that may not read something is no refusal: it asks for what every viewer could see.
"""

import json
import re
from collections.abc import Mapping
from typing import Any
from urllib.parse import parse_qsl

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from oncelog.core.access import NO_ROLE
from oncelog.metadata.gateway.inner_request import via_of
from oncelog.metadata.rest.access import caller_in
from oncelog.metadata.rest.problems import noted_code
from oncelog.runtime.observing.audit_log import AuditLog
from oncelog.runtime.observing.events import EventKind

#: Of a body in a line, and of one that is looked into; of a larger one the size is written.
BODY_SHOWN_BYTES = 512
BODY_READ_BYTES = 8 << 10
_HIDDEN = "(hidden)"
_SECRET = re.compile(r"token|passw|secret|credential|authorization|private|api_?key", re.IGNORECASE)
_TOKEN = re.compile(r"eyJ[\w-]{8,}\.[\w-]+\.[\w-]*|-----BEGIN .*", re.ASCII | re.DOTALL)
_CHANGED = {EventKind.POLICY_CHANGED: "policies were changed", EventKind.RIGHTS_CHANGED: "rights were changed"}
_SAFE = frozenset({"GET", "HEAD", "OPTIONS"})
#: A program renews its producer every few minutes.
_DATA = re.compile(r"/producers/lease$")


class Audit:
    """The middleware."""

    def __init__(self, app: ASGIApp, *, log: AuditLog) -> None:
        self._app = app
        self._log = log

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        request = _Request(scope, receive)
        start: Message | None = None
        answered = False

        async def watched(message: Message) -> None:
            nonlocal start, answered
            if message["type"] == "http.response.start":
                if request.changes or (message["status"] in (401, 403) and not request.looks_for_a_page):
                    start = message
                    return
            elif start is not None:
                answered, first, start = True, start, None
                line = self._line(request, first["status"], message.get("body", b""))
                if line is not None:
                    await self._log.write(*line)
                await send(first)
            await send(message)

        status: int | None = None
        try:
            await self._app(scope, request.receive if request.changes else receive, watched)
        except Exception:
            status = 500  # that is how a bug is answered, outside of this middleware
            raise
        finally:
            if request.changes and not answered:
                self._log.begin(*self._outcome(request, status, {}))

    def _line(self, request: "_Request", status: int, body: bytes) -> tuple[str, dict[str, object]] | None:
        """What to write; None: it is left out."""
        message, fields = self._outcome(request, status, _problem(status, body))
        if status not in (401, 403):
            if status < 400:
                facts = _without(fields, "superuser", "route", "path_parameters")
                kind = _kind_of(request.scope)
                self._log.events.note(kind, None, _CHANGED.get(kind, message), topic=request.about, **facts)
            return message, fields
        names = ("role", "via", "method", "route", "status", "code")
        refused: dict[str, Any] = {name: fields.get(name) for name in names} | {"host": request.host}
        who = str(fields["role"] or request.host)
        # What is refused is the caller's choice, also a topic that nobody has: one event for all of it.
        self._log.events.note(
            EventKind.REFUSED, None, message, level="warning", topic=request.about, repeats=True, as_one=who, **refused
        )
        left_out = self._log.refused(who)
        if left_out is None:
            return None
        return message, fields | ({"left_out": left_out} if left_out else {})

    def _outcome(
        self, request: "_Request", status: int | None, problem: Mapping[str, Any]
    ) -> tuple[str, dict[str, object]]:
        scope = request.scope
        caller, route = caller_in(scope), scope.get("route")
        refused = status in (401, 403)
        message = "request refused" if refused else "administrative change"
        if status is None:
            message = "administrative change without an answer"
        elif status >= 400 and not refused:
            message = "administrative change failed"
        fields: dict[str, object] = {
            "role": None if caller is None else caller.role or NO_ROLE,
            "superuser": caller is not None and caller.superuser,
            "peer": request.peer,
            "via": via_of(scope),
            "method": scope["method"],
            "route": None if route is None else route.path,
            "path": _shown(scope["path"][:500]),
            "path_parameters": _redacted(scope.get("path_params") or {}),
            "query": _redacted(_query(scope)),
            "body": request.body_shown() if request.changes else None,
            "status": status,
            "code": problem.get("code") or noted_code(scope),
            "request_id": problem.get("request_id"),
        }
        left = {"role", "route", "status"}
        return message, {name: value for name, value in fields.items() if name in left or value not in (None, {}, "")}


class _Request:
    """One request, and the beginning of its body."""

    def __init__(self, scope: Scope, receive: Receive) -> None:
        self.scope = scope
        self._receive = receive
        self._body = b""
        self._body_bytes = 0
        path, safe = scope["path"], scope["method"] in _SAFE
        self.changes = path.startswith("/admin/") and not safe and _DATA.search(path) is None
        #: a page of the console asks for one of its figures
        self.looks_for_a_page = safe and via_of(scope) == "console" and scope["server"] is None

    async def receive(self) -> Message:
        message = await self._receive()
        if message["type"] == "http.request":
            piece = message.get("body", b"")
            self._body_bytes += len(piece)
            self._body += piece[: BODY_READ_BYTES + 1 - len(self._body)]
        return message

    @property
    def host(self) -> str:
        return self.peer.rpartition(":")[0] or self.peer

    @property
    def peer(self) -> str:
        """host:port; over gRPC as gRPC names it."""
        host, port = self.scope.get("client") or ("", 0)
        return f"{host}:{port}" if port else host

    @property
    def about(self) -> str:
        """The topic, or else the namespace, of the path."""
        parts = self.scope.get("path_params") or {}
        given = [parts.get(name) for name in ("tenant", "namespace", "topic")]
        known = given[: given.index(None)] if None in given else given
        return "/".join(map(str, known)) if len(known) >= 2 else ""

    def body_shown(self) -> object:
        """As JSON, cut; of a body that is none, or is large, the size."""
        if not self._body_bytes:
            return None
        size = f"({self._body_bytes} bytes)"
        if self._body_bytes > BODY_READ_BYTES:
            return size
        try:
            value = json.loads(self._body)
        except (ValueError, RecursionError):
            return size
        text = json.dumps(_redacted(value), ensure_ascii=False)
        shown = text.encode(errors="replace")[:BODY_SHOWN_BYTES].decode(errors="ignore")
        return shown if shown == text else f"{shown}…"


def _kind_of(scope: Scope) -> EventKind:
    route = scope.get("route")
    if route is not None and "policies" in (route.tags or ()):
        return EventKind.POLICY_CHANGED
    if route is not None and "/permissions" in route.path:
        return EventKind.RIGHTS_CHANGED
    return EventKind.ADMINISTRATION


def _problem(status: int, body: bytes) -> Mapping[str, Any]:
    """The body of a problem; empty if it is none."""
    if status < 400:
        return {}
    try:
        problem = json.loads(body)
    except ValueError:
        return {}
    return problem if isinstance(problem, dict) else {}


def _query(scope: Scope) -> dict[str, str]:
    return dict(parse_qsl(scope["query_string"].decode("latin-1")[:2_000], keep_blank_values=True))


def _redacted(value: Any) -> Any:
    """Without secrets; texts are cut."""
    if isinstance(value, Mapping):
        return {
            _shown(str(name)): _HIDDEN if _SECRET.search(str(name)) else _redacted(each) for name, each in value.items()
        }
    if isinstance(value, list):
        return [_redacted(each) for each in value]
    return _shown(value) if isinstance(value, str) else value


def _shown(text: str) -> str:
    return _TOKEN.sub(_HIDDEN, text)[:500]


def _without(fields: Mapping[str, object], *names: str) -> dict[str, Any]:
    return {name: value for name, value in fields.items() if name not in names}
