"""REST of a cluster that answers from a table and notes what it was asked; and a door in front of it."""

import json
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any

import httpx

from oncelog.core.errors import OncelogError
from oncelog.runtime.security import OPEN, Security
from oncelog_doors.rest.listener import new_app
from oncelog_doors.rest.ports import RestAnswer

STATS = {
    "phase": "serving",
    "owner_epoch": 3,
    "deduplication_enabled": True,
    "message_count": 5,
    "first_index": 0,
    "bytes": 500,
    "rate_in": 2.0,
    "rate_out": 1.0,
    "publishing": "open",
    "last_position": "7:4",
    "connected_producer_count": 0,
    "entries_in_flight": 0,
    "subscriptions": {},
}
#: {scheme: port} of a door that listens with and without TLS.
PULSAR_PORTS = {"pulsar": 6650, "pulsar+ssl": 6651}
PERMISSIONS = {"ops": ["admin", "produce"], "r1": ["produce"]}
MESSAGE = {
    "message_id": "3:7:0", "value": None, "value_base64": "/w==", "publish_time_ms": 1, "event_time_ms": None,
}  # fmt: skip
#: {end of a path: what GET answers}; the longest end counts.
ANSWERS: Mapping[str, Any] = {
    "/tenants": ["acme", "public"],
    "/namespaces/acme": ["acme/web"],
    "/clusters": ["6f2c"],
    "/policies": {
        "deduplication": {"value": True, "source": "namespace"},
        "message_ttl_s": {"value": 60, "source": "cluster"},
    },
    "/permissions": PERMISSIONS,
    "/persistent/acme/web": ["acme/web/one", "acme/web/parts", "acme/web/parts-partition-0"],
    "/partitioned": ["acme/web/parts"],
    "/one/partitions": {"partitions": 0},
    "/parts/partitions": {"partitions": 2},
    "/lookup/v2/topic/persistent/acme/web/one": {"partitions": 0},
    "/stats": STATS,
    "/internalStats": {"ledgers": [{"ledger_id": 7, "base_index": 0}]},
    "/subscriptions": ["s"],
    "/retention": {"retentionTimeInMinutes": 1, "retentionSizeInMB": 2},
    "/backlogQuota": None,
    "/deduplication": True,
    "/deduplicationEnabled": None,
    "/autoTopicCreation": True,
    "/dispatcherPauseOnAckStatePersistent": None,
    "/messageTTL": 60,
    "/properties": {"a": "b"},
    "/position/1": MESSAGE,
}


class FakeRest:
    """asked: (method, target, body) of each request."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, str, Any]] = []
        self.authorizations: set[str | None] = set()
        self.tags: list[str | None] = []
        #: {path: what GET answers instead of `ANSWERS`}
        self.answers: dict[str, Any] = {}
        #: called with (method, path) in front of each answer; it may give another one, or raise
        self.instead: Callable[[str, str], RestAnswer | OncelogError | None] = lambda _method, _path: None

    async def ask(
        self, method: str, target: str, body: bytes, *, headers: Mapping[str, str], authorization: str | None
    ) -> RestAnswer:
        self.asked.append((method, target, json.loads(body) if body else None))
        self.authorizations.add(authorization)
        self.tags.append(headers.get("if-match"))
        path = target.partition("?")[0]
        other = self.instead(method, path)
        if isinstance(other, OncelogError):
            raise other
        if other is not None:
            return other
        if method != "GET":
            return RestAnswer(204)
        return RestAnswer(200, json.dumps(self._answer(target, path)).encode(), {"etag": '"1"'})

    def _answer(self, target: str, path: str) -> Any:
        if path in self.answers:
            return self.answers[path]
        ends = [end for end in ANSWERS if path.endswith(end)]
        value = ANSWERS[max(ends, key=len)] if ends else {}
        return {"value": value, "source": "cluster"} if "applied=true" in target else value


def problem(status: int, detail: str) -> RestAnswer:
    body = {"type": "urn:oncelog:problem:x", "title": "x", "status": status, "detail": detail, "code": "x"}
    return RestAnswer(status, json.dumps(body).encode())


@asynccontextmanager
async def door_at(
    rest: FakeRest,
    *,
    security: Security = OPEN,
    url: str = "http://127.0.0.1:8080",
    pulsar_ports: Mapping[str, int] = PULSAR_PORTS,
) -> AsyncIterator[httpx.AsyncClient]:
    """A client of the door."""
    app = new_app(rest, version="Oncelog-test", pulsar_ports=pulsar_ports, security=security)
    transport = httpx.ASGITransport(app=app, raise_app_exceptions=False)
    async with httpx.AsyncClient(transport=transport, base_url=url) as client:
        yield client
