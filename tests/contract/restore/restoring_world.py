"""Three storage nodes on real sockets, and an empty ZooKeeper in memory, for tests of a restore."""

import asyncio
import json
from collections.abc import AsyncIterator, Coroutine, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

from crc32c import crc32c

from oncelog.core.era import FIRST_ERA, Era
from oncelog.core.formats.entry import EntryKind
from oncelog.core.formats.head import LedgerHead, encode_head
from oncelog.core.formats.note import Note, NoteOrder
from oncelog.core.ids import Incarnation, LedgerId, OwnerEpoch, Position, TopicId
from oncelog.core.ledger.member_status import AppendStatus
from oncelog.core.ledger.metadata import LedgerMetadata
from oncelog.core.ledger.writer import LedgerWriter
from oncelog.core.rebuild.restore_events import RestoreRequest
from oncelog.metadata.restore.performer import RestoreSources
from oncelog.metadata.restore.progress import RestoreProgress, RestoreState
from oncelog.metadata.restore.restoring import Restoring, Work
from oncelog.metadata_store.copies.copy_keys import CopyKey
from oncelog.metadata_store.records.cluster_store import ClusterRecord, encode_cluster
from oncelog.metadata_store.records.policies import Policies, encode_policies
from oncelog.metadata_store.records.registry import StorageCookie, encode_cookie
from oncelog.metadata_store.session import paths
from oncelog.rpc.channel import Channel
from oncelog.rpc.codecs.storage_codec import AppendFrame
from oncelog.runtime.credentials import PLAIN
from oncelog.runtime.observing.audit_log import AuditLog
from oncelog.runtime.observing.events import EventRing
from oncelog.storage_client.node_calls import add_once
from oncelog.storage_client.note_calls import put_notes
from tests.contract.node.directory.small_log import CLUSTER
from tests.contract.storage_client.ledger_world import DEADLINE_S, Node, adds_of, nodes
from tests.contract.stores.memory_store import MemorySession, MemoryTree

TOPIC = TopicId("0f" * 16)
NAME = "public/default/orders"
OWNER = Incarnation("e" * 32)
RESTORE_ID = "1" * 32


@dataclass
class RestoringWorld:
    nodes: list[Node]
    members: tuple[Incarnation, ...] = ()
    tree: MemoryTree = field(default_factory=MemoryTree)
    copy_keys: tuple[CopyKey, ...] = ()
    tasks: list[asyncio.Task[None]] = field(default_factory=list)

    def session(self) -> MemorySession:
        return MemorySession(self.tree, root="/oncelog")

    @asynccontextmanager
    async def stopped(self, some: Sequence[Node]) -> AsyncIterator[None]:
        for node in some:
            await node.stop()
        try:
            yield
        finally:
            for node in some:
                await node.start()

    def sources(self, session: MemorySession | None = None) -> RestoreSources:
        """Of a metadata service."""
        audit = AuditLog(EventRing("metadata"))
        return RestoreSources(session or self.session(), audit, copy_keys=lambda: self.copy_keys)

    def restoring(self, session: MemorySession | None = None) -> Restoring:
        def start(work: Coroutine[None, None, None]) -> asyncio.Task[None]:
            self.tasks.append(asyncio.create_task(work))
            return self.tasks[-1]

        return Restoring(self.sources(session), start)

    async def restore(
        self,
        restoring: Restoring | None = None,
        *,
        given: Sequence[Node] | None = None,
        also: Sequence[str] = (),
        **request: object,
    ) -> RestoreProgress:
        """One attempt, to its end. given, also: the nodes that are asked, and addresses."""
        restoring = restoring or self.restoring()
        asked = RestoreRequest(**{"restore_id": RESTORE_ID} | request)  # type: ignore[arg-type]
        addresses = [node.address for node in (self.nodes if given is None else given)] + [*also]
        progress = await restoring.begin(Work.RESTORE, asked, given=addresses, by="ann")
        async with asyncio.timeout(DEADLINE_S):
            await asyncio.gather(*self.tasks)
        assert progress.state is not RestoreState.RUNNING
        return progress

    async def write(
        self,
        ledger_id: int,
        messages: int,
        *,
        former: Position | None = None,
        to: Sequence[Node],
    ) -> LedgerMetadata:
        """A ledger of the topic's log: its head and one entry for each message, acknowledged by these nodes. Returns
        its record."""
        metadata = LedgerMetadata(LedgerId(ledger_id), TOPIC, self.members, 2)
        writer = LedgerWriter(metadata, owner_epoch=OwnerEpoch(1), checksum=crc32c)
        body = encode_head(LedgerHead(NAME, self.members, 2, 1, OWNER, LedgerId(0), former))
        first = writer.append(EntryKind.HEAD_LOG, body, base_index=0, skip_first=0, count=0, now_ms=0)
        adds = (first, *adds_of(writer, messages))
        for node in to:
            node.records[metadata.ledger_id] = metadata
            async with Channel(node.address) as channel:
                frame = AppendFrame(node.incarnation, False, [b"".join(each.parts) for each in adds])
                answers = await add_once(channel, [frame], timeout_ms=10_000)
                assert set(answers.values()) == {AppendStatus.OK}, answers
                assert len(answers) == len(adds)
        return metadata

    async def note(
        self,
        path: str,
        value: bytes,
        *,
        deleted: bool = False,
        version: int = 0,
        era: Era = FIRST_ERA,
        to: Sequence[Node] | None = None,
    ) -> None:
        """The record was written, or deleted, and these nodes have noted it."""
        note, credentials = Note(path, NoteOrder(era.number, 5, deleted, version), value), replace(PLAIN, era=era)
        for node in self.nodes if to is None else to:
            async with Channel(node.address, credentials=credentials) as channel:
                await put_notes(channel, node.incarnation, [note])

    async def note_cluster(self, some: Sequence[Node] | None = None) -> None:
        """The notes that every cluster has: its record, the cookies of these nodes, the default namespace with one
        grant."""
        record = replace(ClusterRecord(CLUSTER), ack_quorum=2)
        await self.note(paths.CLUSTER, encode_cluster(record), to=some)
        for node in self.nodes if some is None else some:
            await self.note_cookie(node, to=some)
        policies = Policies(permissions={"ann": ("produce",)})
        await self.note(f"{paths.NAMESPACES}/public", b"", to=some)
        await self.note(f"{paths.NAMESPACES}/public/default", encode_policies(policies), to=some)

    async def note_cookie(self, node: Node, *, to: Sequence[Node] | None = None) -> None:
        path = f"{paths.STORAGE_COOKIES}/{node.incarnation}"
        await self.note(path, encode_cookie(cookie_of(node)), to=to)

    def record(self, path: str) -> dict[str, object]:
        """The record at a path below the root of the cluster."""
        found = json.loads(self.tree.nodes[f"/oncelog{path}"].data)
        assert isinstance(found, dict)
        return found


def cookie_of(node: Node) -> StorageCookie:
    host, _, port = node.address.rpartition(":")
    return StorageCookie(node.incarnation, host, int(port))


@asynccontextmanager
async def restoring_world(tmp_path: Path, count: int = 3) -> AsyncIterator[RestoringWorld]:
    async with nodes(tmp_path, count) as started:
        yield RestoringWorld(started, tuple(node.incarnation for node in started))
