"""Replicas that publish over HTTP into one fake cluster, with keys in one fake Redis: called as their senders do."""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from typing import Any, cast
from uuid import NAMESPACE_URL, uuid5

import httpx

from oncelog.client.client import AsyncClient
from oncelog.client.connecting import connect
from oncelog.core.errors import TopicNotFound
from oncelog.core.ids import TopicId
from oncelog.core.names import TopicName
from oncelog.metadata.http_publish.http_publish_service import HttpPublishService, Reaching
from oncelog.metadata.replica import Coordination
from oncelog.metadata.service import running_tasks
from oncelog.metadata.topics.topic_lookup import Located, TopicLookup
from oncelog.metadata_store.keys.idempotency_keys import DatasetStore, KeyStore
from oncelog.metadata_store.records.cluster_store import ClusterStore
from oncelog.metadata_store.records.policy_store import PolicyStore
from oncelog.metadata_store.records.topic_store import NameRecord
from oncelog.runtime.settings import MetadataSettings
from tests.contract.rest.lent_apps import lent_app
from tests.contract.sdk.fakes.fake_cluster import FakeCluster
from tests.contract.sdk.fakes.fake_topic import FakeTopic
from tests.contract.stores.memory_key_server import MemoryKeyServer
from tests.contract.stores.memory_store import MemorySession, MemoryTree

ORDERS = "/topics/persistent/public/default/orders"


class FakeLookup:
    """What a metadata service knows of the fake cluster's topics."""

    def __init__(self, cluster: FakeCluster, partitions: dict[str, list[int]]) -> None:
        """partitions: {topic: its numbers of partitions, the current one last}."""
        self._cluster = cluster
        self._partitions = partitions

    async def locate(self, name: TopicName, *, create: bool) -> Located:
        assert create
        counts = self._partitions.get(str(name))
        if counts:
            whole = TopicId(uuid5(NAMESPACE_URL, str(name)).hex)
            return Located(whole, counts[-1], former_partitions=tuple(counts[:-1]))
        topic = self._cluster.topics.get(str(name))
        if topic is None:
            topic = self._cluster.topics[str(name)] = FakeTopic(str(name))
            self._cluster.by_id[topic.topic_id] = topic
        return Located(topic.topic_id, 0)

    async def find(self, name: TopicName) -> NameRecord:
        if counts := self._partitions.get(str(name)):
            return NameRecord(TopicId(uuid5(NAMESPACE_URL, str(name)).hex), counts[-1])
        topic = self._cluster.topics.get(str(name))
        if topic is None:
            raise TopicNotFound
        return NameRecord(topic.topic_id, 0)


@dataclass
class Replica:
    http: httpx.AsyncClient
    publisher: HttpPublishService
    client: AsyncClient

    async def post(self, *values: str, key: str | None = None, path: str = ORDERS, **fields: Any) -> httpx.Response:
        """One request; fields beside the messages."""
        body = {"messages": [{"value": value} for value in values], **fields}
        return await self.http.post(path, json=body, headers={} if key is None else {"Idempotency-Key": key})

    async def stored(self, *values: str, **options: Any) -> list[dict[str, Any]]:
        """The messages of an answer that says that they are stored."""
        response = await self.post(*values, **options)
        assert response.status_code == 200, response.text
        messages: list[dict[str, Any]] = response.json()["messages"]
        return messages

    async def refused(self, status: int, code: str, *values: str, **options: Any) -> dict[str, Any]:
        response = await self.post(*values, **options)
        problem: dict[str, Any] = response.json()
        assert (response.status_code, problem["code"]) == (status, code), problem
        return problem

    async def vanish(self) -> None:
        """As a process that is killed: what it began is not finished, and its leases end."""
        for request in list(self.publisher._requests):
            request.cancel()
        await self.client.close(flush=False)


class PublishWorld:
    """keys: the fake Redis. now_ms: the clock of all replicas."""

    def __init__(self, cluster: FakeCluster, stack: AsyncExitStack) -> None:
        self.cluster = cluster
        self.keys = MemoryKeyServer()
        self.now_ms = 1_000_000
        #: {topic: its numbers of partitions, the current one last}
        self.partitions: dict[str, list[int]] = {}
        self.session = MemorySession(MemoryTree(), root="/oncelog")
        self._stack = stack

    @classmethod
    @asynccontextmanager
    async def running(cls) -> AsyncIterator["PublishWorld"]:
        async with AsyncExitStack() as stack:
            world = cls(await stack.enter_async_context(FakeCluster.running()), stack)
            await ClusterStore(world.session).establish("test-cluster")
            yield world

    async def replica(self, *, keys: bool = True, **settings: Any) -> Replica:
        start = await self._stack.enter_async_context(running_tasks())
        client = await connect(self.cluster.url, operation_timeout=30)
        self._stack.push_async_callback(client.close, flush=False)
        given = MetadataSettings(**settings)
        datasets = DatasetStore(self.session)
        store = KeyStore(self.keys, datasets, window_ms=60_000, now_ms=lambda: self.now_ms) if keys else None
        reaching = Reaching(
            client, cast("TopicLookup", FakeLookup(self.cluster, self.partitions)), PolicyStore(self.session)
        )
        publisher = HttpPublishService(reaching, given, store)
        self._stack.push_async_callback(publisher.close)
        start(publisher.run())
        app = self._stack.enter_context(lent_app(cast("Coordination", None), publisher=publisher))
        transport = httpx.ASGITransport(app=app, raise_app_exceptions=False)
        http = httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1", timeout=30)
        return Replica(await self._stack.enter_async_context(http), publisher, client)

    def values(self) -> list[str]:
        """Everything stored, in order."""
        return [value.decode() for value in self.cluster.topic("orders").values()]
