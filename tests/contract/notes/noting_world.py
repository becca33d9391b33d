"""A cluster's records in memory, storage nodes in this process, and sessions that note what they change."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

from oncelog.core.formats.note import Note
from oncelog.core.ids import Incarnation
from oncelog.core.process_version import PROCESS_VERSION
from oncelog.core.records.records import ABSENT_VERSION
from oncelog.metadata_store.notes.note_holders import RETRY_PAUSE_S, NoteHolders
from oncelog.metadata_store.notes.noting_session import CollectNotes, NotingSession
from oncelog.metadata_store.records.cluster_store import ClusterStore
from oncelog.metadata_store.records.registry import LiveStorageNode, Registry, StorageCookie
from oncelog.rpc.channel import Channel
from oncelog.storage_client.note_calls import read_notes
from tests.contract.storage_client.ledger_world import Node, nodes
from tests.contract.stores.memory_store import MemorySession, MemoryTree

CLUSTER_ID = "test-cluster"


class NotingWorld:
    """One cluster. session: of an administrator's tools, which notes nothing."""

    def __init__(self, members: Sequence[Node], version: int = PROCESS_VERSION) -> None:
        self.members = members
        self.version = version
        self.tree = MemoryTree()
        self.session = self.open()
        self.registry = Registry(self.session)

    def open(self) -> MemorySession:
        return MemorySession(self.tree, root="/oncelog")

    async def change_cluster(self, *, ack_quorum: int) -> None:
        store = ClusterStore(self.session)
        found = await store.find()
        assert found is not None
        await store.write(replace(found.value, ack_quorum=ack_quorum), version=found.version)

    async def join(self, node: Node, *, cookie: bool = True, joining: bool = False) -> None:
        """Write the records of a storage node."""
        host, _, port = node.address.rpartition(":")
        if cookie:
            await self.registry.write_cookie(StorageCookie(node.incarnation, host, int(port)), version=ABSENT_VERSION)
        live = LiveStorageNode(node.incarnation, host, int(port), 0, joining=joining, version=self.version)
        await self.registry.register_storage_node(live).establish()

    async def leave(self, incarnation: Incarnation) -> None:
        """Its live record ends; the cookie stays."""
        live = await self.session.read(f"/storage/{incarnation}")
        assert live is not None
        await self.session.delete(f"/storage/{incarnation}", version=live.version)

    async def held(self, node: Node) -> dict[str, Note]:
        async with Channel(node.address) as channel:
            return {note.path: note async for note in read_notes(channel, node.incarnation)}


@asynccontextmanager
async def noting_world(
    tmp_path: Path, count: int, *, ack_quorum: int = 2, version: int = PROCESS_VERSION
) -> AsyncIterator[NotingWorld]:
    """With this many storage nodes of this version, which have joined."""
    async with nodes(tmp_path, count) as members:
        world = NotingWorld(members, version)
        await ClusterStore(world.session).establish(CLUSTER_ID)
        await world.change_cluster(ack_quorum=ack_quorum)
        for node in members:
            await world.join(node)
        yield world


@asynccontextmanager
async def noting(world: NotingWorld, *, once: bool = False) -> AsyncIterator[NotingSession]:
    """The session of a metadata service. once: it asks each node once, in place of ten seconds long."""
    session = world.open()
    holders = NoteHolders(session, timeout_s=10, pause_s=10 if once else RETRY_PAUSE_S)
    try:
        yield NotingSession(session, holders.store)
    finally:
        await holders.close()


class Stored:
    """Takes the place of the storage nodes: remembers what was sent."""

    def __init__(self) -> None:
        self.notes: list[Note] = []

    async def store(self, collect: CollectNotes) -> None:
        self.notes += (await collect())[0]
