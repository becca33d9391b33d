"""REST and log of a cluster that answer from tables and note what they were asked; and a door in front of them."""

import json
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any

import httpx

from oncelog.core.access import Caller
from oncelog.core.errors import OncelogError
from oncelog.core.ids import EntryId, LedgerId, Position
from oncelog.core.names import TopicName
from oncelog.runtime.security import OPEN, Security
from oncelog_doors.core.pulsar.deliveries import Delivery, RawBatch, delivery_of, last_id_of
from oncelog_doors.core.pulsar.message_ids import DeliveredId
from oncelog_doors.rest.listener import new_app
from oncelog_doors.rest.ports import RestAnswer
from tests.doors.core.pulsar.stored_batches import columns, stored
from tests.doors.pulsar.fake_schemas import FakeSchemas

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
#: Of `ENTRY`.
MESSAGE = {"index": 100, "message_id": "3:7:0"}
#: A message of the SDK.
ENTRY = stored(columns([b"\xff"], [4], keys=[b"k"], times_ms=[77], properties=[{"a": "b"}]), ledger_id=3, entry_id=7)
PAGE = {"messages": [MESSAGE], "unreadable": None, "first_index": 99, "end_index": 101}
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
    "/messages": PAGE,
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


class FakeEntries:
    """Has the form of `EntriesPort`. error: raised by each call. callers: of all calls."""

    def __init__(self, *batches: RawBatch) -> None:
        self.batches = {each.entry.position: each for each in batches}
        self.error: OncelogError | None = None
        self.callers: list[Caller] = []

    async def at(self, topic: TopicName, caller: Caller, position: Position) -> Delivery | None:
        self._called(caller)
        found = self.batches.get(position)
        return None if found is None else delivery_of(found, 5 << 20)

    async def last_id(self, topic: TopicName, caller: Caller) -> DeliveredId | None:
        self._called(caller)
        return last_id_of(self.batches[max(self.batches)]) if self.batches else None

    def _called(self, caller: Caller) -> None:
        self.callers.append(caller)
        if self.error is not None:
            raise self.error


class FakeRestLog:
    """Has the form of `LogPort`."""

    def __init__(self, *batches: RawBatch) -> None:
        self.entries = FakeEntries(*batches)
        self.schemas = FakeSchemas()


def place(ledger: int, entry: int) -> Position:
    return Position(LedgerId(ledger), EntryId(entry))


def problem(status: int, detail: str) -> RestAnswer:
    body = {"type": "urn:oncelog:problem:x", "title": "x", "status": status, "detail": detail, "code": "x"}
    return RestAnswer(status, json.dumps(body).encode())


@asynccontextmanager
async def door_at(
    rest: FakeRest,
    *,
    log: FakeRestLog | None = None,
    security: Security = OPEN,
    url: str = "http://127.0.0.1:8080",
    pulsar_ports: Mapping[str, int] = PULSAR_PORTS,
) -> AsyncIterator[httpx.AsyncClient]:
    """A client of the door. log: None: it has `ENTRY`."""
    log = log or FakeRestLog(ENTRY)
    app = new_app(rest, log, version="Oncelog-test", pulsar_ports=pulsar_ports, security=security)
    transport = httpx.ASGITransport(app=app, raise_app_exceptions=False)
    async with httpx.AsyncClient(transport=transport, base_url=url) as client:
        yield client
