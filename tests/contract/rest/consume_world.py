"""Replicas that consume over HTTP from one fake cluster, with the subscriptions core of the product: real HTTP and gRPC
between them, as their clients reach them."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any, cast

import httpx

import oncelog
from oncelog.client.connecting import connect
from oncelog.core.http_consume.delivery_id import home_of
from oncelog.metadata.gateway.rest_over_grpc import RestOverGrpc
from oncelog.metadata.http_consume.http_consume_service import HttpConsumeService
from oncelog.metadata.http_consume.replicas import Replicas
from oncelog.metadata.replica import Coordination
from oncelog.metadata.rest.port.server import RestServer
from oncelog.metadata.service import running_tasks
from oncelog.metadata.topics.topic_lookup import TopicLookup
from oncelog.metadata_store.records.cluster_store import ClusterStore
from oncelog.metadata_store.records.policy_store import PolicyStore
from oncelog.metadata_store.records.registry import LiveMetadata, Registry
from oncelog.rpc.server import Server
from oncelog.runtime.security import OPEN, Security
from tests.contract.rest.lent_apps import lent_app
from tests.contract.rest.publish_world import FakeLookup
from tests.contract.sdk.fakes.fake_cluster import FakeCluster
from tests.contract.stores.memory_store import MemorySession, MemoryTree

DEADLINE_S = 30.0
SESSIONS = "/topics/persistent/public/default/orders/subscription/billing/session"


@dataclass
class ConsumeReplica:
    """leave: ends its registration. stop: as a process that gets SIGTERM."""

    http: httpx.AsyncClient
    service: HttpConsumeService
    rest: RestServer
    registration: Any

    async def stop(self) -> None:
        await self.registration.leave()
        await self.service.close()
        self.rest.stop()

    async def opened(self, *, path: str = SESSIONS, **body: Any) -> "HttpSession":
        """A session at this replica."""
        answer = await self.http.post(path, json={"ack_timeout": 30, "start": "earliest"} | body)
        assert answer.status_code == 200, answer.text
        return HttpSession(self.http, f"{path}/{answer.json()['session']}")


@dataclass
class HttpSession:
    """A client of one session, through the replica of `http`."""

    http: httpx.AsyncClient
    path: str

    def through(self, replica: ConsumeReplica) -> "HttpSession":
        """The same session, through another replica."""
        return HttpSession(replica.http, self.path)

    async def take(self, most: int = 100, wait: int = 20, last: str | None = None) -> list[dict[str, Any]]:
        headers = {} if last is None else {"Last-Event-ID": last}
        answer = await self.http.get(f"{self.path}/messages?max={most}&wait={wait}", headers=headers)
        assert answer.status_code == 200, answer.text
        messages: list[dict[str, Any]] = answer.json()["messages"]
        return messages

    async def take_all(self, count: int) -> list[dict[str, Any]]:
        """So many messages, with as many requests as it takes."""
        found: list[dict[str, Any]] = []
        async with asyncio.timeout(DEADLINE_S):
            while len(found) < count:
                found += await self.take()
        return found

    async def settled(self, what: str, ids: list[str], **more: Any) -> list[tuple[bool | None, str | None]]:
        """The outcomes of acks or nacks."""
        answer = await self.http.post(f"{self.path}/{what}", json={"ids": ids} | more)
        assert answer.status_code == 200, answer.text
        rows = answer.json()["ids"]
        assert [row["id"] for row in rows] == ids
        return [(row["durable"], row["code"]) for row in rows]

    async def refused(self, status: int, code: str, method: str = "GET", part: str = "/messages", **kw: Any) -> str:
        """The detail of a problem."""
        answer = await self.http.request(method, self.path + part, **kw)
        problem = answer.json()
        assert (answer.status_code, problem["code"]) == (status, code), problem
        assert "stored" not in problem, "that is a field of publishing"
        return str(problem["detail"])

    @asynccontextmanager
    async def stream(self, last: str | None = None) -> AsyncIterator["Events"]:
        headers = {"Accept": "text/event-stream"} | ({} if last is None else {"Last-Event-ID": last})
        async with self.http.stream("GET", f"{self.path}/messages", headers=headers) as response:
            assert response.status_code == 200, await response.aread()
            assert response.headers["content-type"].startswith("text/event-stream")
            yield Events(response.aiter_lines())


@dataclass
class Events:
    """What an EventSource makes of a stream."""

    lines: AsyncIterator[str]

    async def next(self) -> tuple[str, str, dict[str, Any]]:
        """(type, id, data) of the next event."""
        fields: dict[str, str] = {}
        async for line in self.lines:
            if not line and "data" in fields:
                return fields.get("event", "message"), fields.get("id", ""), json.loads(fields["data"])
            name, _, value = line.partition(": ")
            if name:
                fields[name] = value
        raise EOFError

    async def messages(self, count: int) -> list[dict[str, Any]]:
        """The next ones. A stream that sends nothing but comments would go on for ever."""
        async with asyncio.timeout(DEADLINE_S):
            return [(await self.next())[2] for _ in range(count)]


class ConsumeWorld:
    """One fake cluster, and replicas."""

    def __init__(self, cluster: FakeCluster, client: oncelog.AsyncClient, stack: AsyncExitStack) -> None:
        self.cluster = cluster
        self.client = client
        self.tree = MemoryTree()
        self.session = MemorySession(self.tree, root="/oncelog")
        self._stack = stack

    @classmethod
    @asynccontextmanager
    async def running(cls) -> AsyncIterator["ConsumeWorld"]:
        async with AsyncExitStack() as stack:
            cluster = await stack.enter_async_context(FakeCluster.running())
            client = await connect(cluster.url, operation_timeout=DEADLINE_S)
            stack.push_async_callback(client.close, flush=False)
            world = cls(cluster, client, stack)
            await ClusterStore(world.session).establish("test-cluster")
            await (await client.create_producer("orders")).close()  # creates the topic
            yield world

    async def replica(
        self, *, sessions_max: int = 20, bytes_max: int = 64 << 20, security: Security = OPEN
    ) -> ConsumeReplica:
        stack = self._stack
        start = await stack.enter_async_context(running_tasks())
        client = await connect(self.cluster.url, operation_timeout=DEADLINE_S)
        stack.push_async_callback(client.close, flush=False)
        server = Server(security)
        stack.push_async_callback(lambda: server.stop(grace_ms=0))
        port = await server.start()
        # Of its own session: a second numbered record of a session replaces the first.
        registry = Registry(MemorySession(self.tree, root="/oncelog"))
        replicas = Replicas(registry, home_of("127.0.0.1", port))
        lookup = cast("TopicLookup", FakeLookup(self.cluster, {"public/default/split": [2]}))
        service = HttpConsumeService(client, lookup, replicas, sessions_max=sessions_max, bytes_max=bytes_max)
        start(service.run())
        coordination = cast("Coordination", SimpleNamespace(policies=PolicyStore(self.session)))
        app = stack.enter_context(lent_app(coordination, security, None, service))
        RestOverGrpc(app).serve(server)
        rest = RestServer(app, stop_timeout_s=1)
        address = f"http://127.0.0.1:{rest.start(host='127.0.0.1', port=0)}"
        serving = start(rest.run())
        stack.push_async_callback(_stopped, rest, serving)
        stack.push_async_callback(service.close)
        registration = registry.register_metadata(LiveMetadata("127.0.0.1", {"grpc": port}))
        await registration.establish()
        http = await stack.enter_async_context(
            httpx.AsyncClient(base_url=address, timeout=DEADLINE_S, trust_env=False, verify=False)
        )
        return ConsumeReplica(http, service, rest, registration)

    async def publish(self, *values: bytes | str, topic: str = "orders", **columns: Any) -> None:
        """As one batch."""
        producer = await self.client.create_producer(topic)
        await producer.send_many([v.encode() if isinstance(v, str) else v for v in values], **columns)
        await producer.close()


async def _stopped(rest: RestServer, serving: "asyncio.Task[None]") -> None:
    """A server that is cancelled goes on to accept connections."""
    rest.stop()
    await serving
