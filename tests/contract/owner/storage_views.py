"""A view of the storage nodes over a registry in memory, with links that the test controls."""

from collections.abc import Callable, Mapping
from typing import cast

from oncelog.core.ids import Incarnation
from oncelog.core.ledger.member_selection import StorageNodesUpdated
from oncelog.metadata_store.records.cluster_store import ClusterStore
from oncelog.metadata_store.records.registry import LiveStorageNode, Registry, StorageCookie
from oncelog.storage_client.client import StorageClient
from oncelog.topic_owner.shell.topic_registry import TopicRegistry
from oncelog.topic_owner.storage_view import StorageView
from tests.contract.stores.memory_store import MemorySession, MemoryTree


async def session_with_a_cluster() -> MemorySession:
    session = MemorySession(MemoryTree(), root="/oncelog")
    await ClusterStore(session).establish()
    return session


class SeenLinks:
    """Links that never connect: the test decides which nodes are unreachable."""

    def __init__(self) -> None:
        self.reachability = self
        self.unreachable: frozenset[Incarnation] = frozenset()
        self._listeners: list[Callable[[], None]] = []

    def add_listener(self, listener: Callable[[], None]) -> None:
        self._listeners.append(listener)

    def update_addresses(self, addresses: Mapping[Incarnation, str], *, ahead: bool) -> None:
        assert ahead, addresses

    def lose(self, *members: Incarnation) -> None:
        self.unreachable = frozenset(members)
        for listener in self._listeners:
            listener()


class SeeingTopics:
    """Records the lists of storage nodes that its topics would get."""

    def __init__(self, seen: list[StorageNodesUpdated]) -> None:
        self.update_nodes = seen.append


async def storage_view(
    session: MemorySession,
    seen: list[StorageNodesUpdated],
    nodes: list[LiveStorageNode],
    *cookies: StorageCookie,
    links: SeenLinks | None = None,
) -> StorageView:
    """An owner with three copies, two of them durable, after its first look at the nodes."""
    registry = Registry(session)
    for node in nodes:
        await registry.register_storage_node(node).establish()
    for cookie in cookies:
        await registry.write_cookie(cookie, version=-1)
    found = cast("StorageClient", links or SeenLinks())
    view = StorageView(session, registry, found, cast("TopicRegistry", SeeingTopics(seen)), quorums=(3, 2))
    await view.first()
    return view


def node_of(incarnation: Incarnation, port: int = 1, *, read_only: bool = False) -> LiveStorageNode:
    return LiveStorageNode(incarnation, "127.0.0.1", port, 1, read_only)
