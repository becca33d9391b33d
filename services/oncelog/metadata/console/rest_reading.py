"""How pages read: each figure is the answer of a REST call, asked inside the process with the rights of the viewer.

Rules
- An answer is shared for 1 s by all viewers of the same role, and at most one request for it is in progress.
- A page never waits for a dead process: 1.5 s after a request began, its readers get the last good answer, with its
  time and the reason why there is no newer one. The request goes on to its end, for the next readers. A page that asks
  in several steps waits so long for all of them together, and then shortly for each.
- A refusal (403, 404, …) is an answer: no older value is shown in its place.
"""

import asyncio
import json
import shlex
import time
from collections import OrderedDict
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote, urlencode

from starlette.types import ASGIApp

from oncelog.core.access import Caller
from oncelog.core.errors import NamespaceNotFound, NotFound, TopicNotFound
from oncelog.metadata.gateway.inner_request import InnerAnswer, InnerRequest, answer
from oncelog.metadata.rest.problems import MEDIA_TYPE

FRESH_S = 1.0
DEADLINE_S = 1.5
#: How long a page that has waited for its whole time waits for each further answer: for those that come at once.
FURTHER_S = 0.2
AT_ONCE_MAX = 64
KEPT_MAX = 1_000
#: Of JSON text; the values in memory take several times as much.
KEPT_BYTES_MAX = 16 << 20


@dataclass(frozen=True, slots=True)
class Asker:
    """A viewer: what its requests carry. authorization: the header, empty without authentication. base: scheme and
    host as the viewer's browser names them, for the lines with curl."""

    app: ASGIApp
    caller: Caller
    authorization: str
    peer: str
    base: str

    async def ask(self, method: str, target: str, body: object = None) -> InnerAnswer:
        """One request, and its whole answer. body: sent as JSON; None: no body."""
        headers = [(b"content-type", b"application/json")] if body is not None else []
        if self.authorization:
            headers.append((b"authorization", self.authorization.encode("latin-1")))
        sent = b"" if body is None else json.dumps(body).encode()
        request = InnerRequest(method, target, headers, sent, self.peer, "console")
        return await answer(self.app, request, asyncio.Event())

    def curl(self, target: str, method: str = "GET", body: object = None) -> str:
        """The same request as a command line."""
        words = ["curl"]
        if method != "GET":
            words += ["-X", method]
        if self.authorization:
            words += ["-H", '"Authorization: Bearer $(cat token)"']
        if body is not None:
            words += ["-H", "'Content-Type: application/json'", "-d", shlex.quote(json.dumps(body))]
        return " ".join([*words, shlex.quote(self.base + target)])


@dataclass(frozen=True, slots=True)
class Problem:
    """Why an answer is not there. status 0: there was no answer in time."""

    status: int
    code: str
    detail: str

    @property
    def passes(self) -> bool:
        """Whether the request may succeed later without a change."""
        return self.status in {0, 429} or self.status >= 500


@dataclass(frozen=True, slots=True)
class Block:
    """What one call has answered. value: its JSON; None: unknown. problem: why `value` is unknown, or old. as_of_ms:
    when `value` was read; None: never."""

    value: Any
    problem: Problem | None
    as_of_ms: int | None
    curl: str

    @property
    def known(self) -> bool:
        return self.as_of_ms is not None  # a value may be null

    def require_place(self) -> None:
        """Of the page's own topic, namespace or cluster. Raises NotFound, for a page of one sentence instead of empty
        blocks."""
        for kind in (TopicNotFound, NamespaceNotFound, NotFound):
            if self.problem is not None and self.problem.code == kind("").code:
                raise kind(self.problem.detail)


def rest_path(form: str, *parts: str, **query: object) -> str:
    """A path with its parts and query quoted: rest_path("/admin/v2/persistent/{}/{}/{}", tenant, namespace, topic,
    limit=50). A query parameter that is None or empty is left out."""
    path = form.format(*(quote(part, safe="") for part in parts))
    given = {name: _text(value) for name, value in query.items() if value is not None and value != ""}
    return f"{path}?{urlencode(given)}" if given else path


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


class _Kept:
    """One answer. read_s, began_s: by the loop's clock."""

    __slots__ = ("as_of_ms", "began_s", "flight", "problem", "read_s", "size", "value")

    def __init__(self) -> None:
        self.value: Any = None
        self.problem: Problem | None = None
        self.as_of_ms: int | None = None
        self.read_s = float("-inf")
        self.began_s = 0.0
        self.flight: asyncio.Task[None] | None = None
        self.size = 0


_Key = tuple[str, bool, str]


class Reading:
    """Shared by all viewers of a replica."""

    def __init__(self, *, fresh_s: float = FRESH_S, deadline_s: float = DEADLINE_S) -> None:
        self._fresh_s = fresh_s
        self._deadline_s = deadline_s
        self._kept: OrderedDict[_Key, _Kept] = OrderedDict()
        self._kept_bytes = 0
        self._free = asyncio.Semaphore(AT_ONCE_MAX)
        self._flights: set[asyncio.Task[None]] = set()

    def close(self) -> None:
        """End the requests in progress, and forget the answers."""
        for flight in self._flights:
            flight.cancel()
        self._kept.clear()
        self._kept_bytes = 0

    async def get(self, asker: Asker, target: str, *, fresh: bool = False, until_s: float = float("inf")) -> Block:
        """Never raises because of the answer. fresh: the request begins now, for pages that ask before an action.
        until_s: when the page has waited long enough, by the loop's clock."""
        key = asker.caller.role, asker.caller.superuser, target
        kept = self._kept.get(key)
        if kept is None or fresh:
            self._drop(key)
            kept = self._kept[key] = _Kept()
        self._kept.move_to_end(key)
        now_s = asyncio.get_running_loop().time()
        if kept.flight is None and now_s - kept.read_s >= self._fresh_s:
            kept.began_s = now_s
            kept.flight = asyncio.create_task(self._fly(key, asker, kept))
            self._flights.add(kept.flight)
            kept.flight.add_done_callback(self._flights.discard)
        if kept.flight is not None:
            waits_s = min(kept.began_s + self._deadline_s - now_s, max(until_s - now_s, FURTHER_S))
            await asyncio.wait([kept.flight], timeout=max(0.0, waits_s))
        problem = kept.problem
        if kept.flight is not None:
            problem = Problem(0, "no_answer", f"no answer within {self._deadline_s:g} s")
        return Block(kept.value, problem, kept.as_of_ms, asker.curl(target))

    async def _fly(self, key: _Key, asker: Asker, kept: _Kept) -> None:
        try:
            async with self._free:
                result = await asker.ask("GET", key[2])
            self._keep(kept, result)
            if self._kept.get(key) is kept:
                self._account(kept, len(result.body))
        finally:
            kept.flight = None
            kept.read_s = asyncio.get_running_loop().time()

    def _keep(self, kept: _Kept, result: InnerAnswer) -> None:
        kept.problem = problem_of(result)
        if kept.problem is None:
            try:
                kept.value, kept.as_of_ms = json.loads(result.body), time.time_ns() // 1_000_000
            except ValueError:
                kept.problem = Problem(500, "error", "the answer of this call is not JSON: this is a bug of the server")
        elif not kept.problem.passes:
            kept.value = kept.as_of_ms = None

    def _account(self, kept: _Kept, size: int) -> None:
        """Forget the answers that were asked for longest ago, if there are too many."""
        self._kept_bytes += size - kept.size
        kept.size = size
        for key, one in list(self._kept.items()):
            if len(self._kept) <= KEPT_MAX and self._kept_bytes <= KEPT_BYTES_MAX:
                return
            if one.flight is None:
                self._drop(key)

    def _drop(self, key: _Key) -> None:
        gone = self._kept.pop(key, None)
        if gone is not None:
            self._kept_bytes -= gone.size
            gone.size = 0


def problem_of(result: InnerAnswer) -> Problem | None:
    """None: the answer is a success."""
    if result.status < 400:
        return None
    if dict(result.headers).get("content-type") == MEDIA_TYPE:
        body = json.loads(result.body)
        return Problem(result.status, body["code"], body["detail"])
    return Problem(result.status, "error", f"the request failed with status {result.status}")
