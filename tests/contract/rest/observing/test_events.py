"""Events of all processes over REST: merged, in pages, and with the names of those that did not answer."""

import logging
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import pytest
import pytest_asyncio

from oncelog.core.errors import DeadlineExceeded
from oncelog.core.ids import Incarnation
from oncelog.metadata_store.records.registry import LiveMetadata, LiveStorageNode, Registry
from oncelog.rpc.codecs.events_codec import LIST_EVENTS, serve_events
from oncelog.rpc.server import Server
from oncelog.runtime.observing.events import EventKind, EventRing
from oncelog.wire import events_pb2 as pb
from tests.cluster.until import until
from tests.contract.rest.admin.admin_world import Admin, serving

pytestmark = pytest.mark.asyncio
LIST = "/admin/v2/events"
NODE = Incarnation("5e" * 16)
OLDER = Incarnation("01" * 16)
logger = logging.getLogger(__name__)


class Clock:
    """Of all processes here."""

    def __init__(self) -> None:
        self.ms = 1_000

    def __call__(self) -> int:
        return self.ms


@pytest_asyncio.fixture
async def admin() -> AsyncIterator[Admin]:
    async with serving() as served:
        yield served


@asynccontextmanager
async def listening(ring: EventRing | None) -> AsyncIterator[int]:
    """The port of a process that answers for its events; None: it never does."""

    async def hang(_request: pb.ListEventsRequest) -> pb.ListEventsAnswer:
        raise DeadlineExceeded("the process does not answer in time")

    server = Server()
    if ring is None:
        server.unary(LIST_EVENTS, hang)
    else:
        serve_events(server, ring)
    port = await server.start()
    try:
        yield port
    finally:
        await server.stop(grace_ms=0)


@asynccontextmanager
async def older() -> AsyncIterator[int]:
    """The port of a process of a version without this call."""
    server = Server()
    try:
        yield await server.start()
    finally:
        await server.stop(grace_ms=0)


def messages(page: Any) -> list[str]:
    return [event["message"] for event in page["events"]]


async def test_events_of_all_services_are_one_list_in_pages(admin: Admin) -> None:
    """Each once, also those of one millisecond. This replica is asked as the others are, and listed once."""
    clock, registry = Clock(), Registry(admin.replica.session)
    own, node = admin.replica.coordination.events, EventRing("log_storage", NODE, now_ms=clock)
    own.now_ms, own.name = clock, "this:1"
    owner = await admin.owner()
    owner.events.now_ms = clock
    async with AsyncExitStack() as stack:
        port = await stack.enter_async_context(listening(node))
        await registry.register_storage_node(LiveStorageNode(NODE, "127.0.0.1", port, 1)).establish()
        grpc = {"grpc": int(admin.replica.address.rpartition(":")[2])}
        await registry.register_metadata(LiveMetadata("127.0.0.1", grpc)).establish()
        for number in range(30):
            clock.ms += number % 4 == 0
            ring = (own, node, owner.events)[number % 3]
            ring.note(EventKind.NODE, logger, f"event {number}", topic=f"public/default/t{number % 2}", number=number)
        expected = [f"event {number}" for number in range(30)]
        whole = await admin.get(LIST, params={"limit": 30})
        assert sorted(messages(whole)) == sorted(expected)
        times = [event["at_ms"] for event in whole["events"]]
        assert times == sorted(times, reverse=True)
        assert {(event["service"], event["process"]) for event in whole["events"]} == {
            ("metadata", "this:1"), ("log_storage", NODE), ("topic_owner", owner.incarnation),
        }  # fmt: skip
        found, query = list[str](), dict[str, Any](limit=4, kind="node")
        while True:
            page = await admin.get(LIST, params=query)
            assert page["silent"] == []
            found += messages(page)
            if page["next_before"] is None:
                break
            query["before"] = page["next_before"]
        assert found == messages(whole)
        odd = await admin.get(LIST, params={"topic": "t1", "node": NODE})
        assert [event["fields"]["number"] for event in odd["events"]] == [25, 19, 13, 7, 1]
        (one,) = (await admin.get(f"{LIST}/public/default", params={"topic": "t0", "limit": 1}))["events"]
        assert (one["topic"], one["kind"], one["level"], one["count"]) == ("public/default/t0", "node", "info", 1)
        assert messages(await admin.get(f"{LIST}/public/orders")) == []


async def test_process_that_does_not_answer_is_named_and_the_rest_is_shown(admin: Admin) -> None:
    """An operator looks at this page when something is wrong."""
    owner, dead = await admin.owner(), await admin.world.owner(admin.replica)
    await admin.replica.sees(owner, dead)
    owner.events.note(EventKind.TAKEOVER, logger, "topic taken over")
    await dead.stop_listening()
    registry = Registry(admin.replica.session)
    async with listening(None) as port, older() as older_port:
        await registry.register_storage_node(LiveStorageNode(NODE, "127.0.0.1", port, 1)).establish()
        await registry.register_storage_node(LiveStorageNode(OLDER, "127.0.0.1", older_port, 1)).establish()
        page = await admin.get(LIST, params={"kind": "takeover"})
        assert messages(page) == ["topic taken over"]
        silent = {(one["service"], one["process"]): one["reason"] for one in page["silent"]}
        assert silent.keys() == {("topic_owner", dead.incarnation), ("log_storage", NODE), ("log_storage", OLDER)}
        assert "is of another version; upgrade all processes" in silent["log_storage", OLDER]
        assert "does not answer in time" in silent["log_storage", NODE]

        admin.replica.session.faults.suspend()

        async def named() -> bool:
            """The list of processes is a second old at most. Those that were registered before are asked, and one that
            a busy machine slows may be silent in one page."""
            page = await admin.get(LIST, params={"kind": "takeover"})
            silent = {one["service"] for one in page["silent"]}
            return messages(page) == ["topic taken over"] and silent == {"topic_owner", "log_storage", "zookeeper"}

        await until(named, 30, waiting_for="ZooKeeper to be named")
        admin.replica.session.faults.resume()


async def test_wrong_parameters_are_refused_by_name(admin: Admin) -> None:
    for query, field, status, code in (
        ({"kind": "weather"}, "kind.0", 422, "invalid_argument"), ({"limit": 0}, "limit", 422, "invalid_argument"),
        ({"limit": 1_001}, "limit", 422, "invalid_argument"), ({"before": "5"}, "before", 422, "invalid_argument"),
        ({"before": f"{'9' * 40}:{'0' * 8}:1"}, "before", 422, "invalid_argument"),
        ({"topic": "a/b"}, "topic", 412, "invalid_name"),
    ):  # fmt: skip
        problem = await admin.refused("GET", LIST, status, code, params=query)
        assert problem["field"] == field, query
    await admin.refused("GET", f"{LIST}/public/default", 412, "invalid_name", params={"topic": "a/b"})
