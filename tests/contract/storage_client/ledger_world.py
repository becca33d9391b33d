"""Ledgers for tests of the ledger client: entries with real checksums, storage nodes in this process, scripted
nodes."""

from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

from crc32c import crc32c

from oncelog.core.chain.managed_ledger import SendAdds
from oncelog.core.chain.next_ledger import LedgerPurpose
from oncelog.core.errors import JournalFailed, StoreUnavailable
from oncelog.core.formats.batch import encode_batch
from oncelog.core.formats.entry import EntryKind
from oncelog.core.ids import EntryId, Generation, Incarnation, LedgerId, OwnerEpoch, ProducerId, TopicId
from oncelog.core.ledger.member_status import AppendStatus
from oncelog.core.ledger.metadata import LedgerMetadata
from oncelog.core.ledger.writer import Add, LedgerWriter
from oncelog.core.node.node_ledger import LedgerOrigin
from oncelog.core.records.status import WriteStatus
from oncelog.log_storage.directory.metadata_copies import MetadataCopies
from oncelog.log_storage.directory.segment_writer import DiskCalls
from oncelog.log_storage.directory.storage_directory import StorageDirectory
from oncelog.log_storage.serve.copies import NodeCopies
from oncelog.log_storage.serve.inventory import InventoryService
from oncelog.log_storage.serve.node_runner import NodeRunner
from oncelog.log_storage.serve.notes import NodeNotes
from oncelog.log_storage.serve.raise_era import RaiseEraService
from oncelog.log_storage.serve.service import StorageService
from oncelog.metadata_store.session.store_session import Versioned, WriteResult
from oncelog.rpc.server import Server
from oncelog.runtime.security import OPEN
from oncelog.storage_client.client import UNANSWERED_BYTES_MAX, StorageClient
from oncelog.wire import storage_pb2 as pb
from tests.contract.node.directory.small_log import CLUSTER

TOPIC = TopicId("0f" * 16)
DEADLINE_S = 30.0
QUEUE_BYTES_MAX = 16 * 1024 * 1024
A, B, C = Incarnation("a" * 32), Incarnation("b" * 32), Incarnation("c" * 32)


def ledger(ledger_id: int, members: Sequence[Incarnation]) -> LedgerMetadata:
    """An OPEN ledger with an ack quorum of two of its three members."""
    return LedgerMetadata(LedgerId(ledger_id), TOPIC, tuple(members), len(members) // 2 + 1)


def writer_of(metadata: LedgerMetadata) -> LedgerWriter:
    return LedgerWriter(metadata, owner_epoch=OwnerEpoch(1), checksum=crc32c)


def adds_of(writer: LedgerWriter, count: int, *, size: int = 100) -> tuple[Add, ...]:
    """The next entries, each of one batch with one message of `size` bytes."""
    return tuple(
        writer.append(
            EntryKind.MESSAGES, _batch(writer.next_entry, size), base_index=0, skip_first=0, count=1, now_ms=0
        )
        for _ in range(count)
    )


def _batch(number: int, size: int) -> bytes:
    payload = (number.to_bytes(4, "little") * (size // 4 + 1))[:size]
    return encode_batch(
        payload,
        producer_id=ProducerId(1),
        generation=Generation(1),
        first=number,
        last=number,
        count=1,
        publish_time_ms=0,
        checksum=crc32c,
    )


def sending(writer: LedgerWriter, adds: Sequence[Add]) -> SendAdds:
    return SendAdds(LedgerPurpose.LOG, writer.ledger_id, tuple(writer.present), tuple(adds))


def whole(adds: Iterable[Add]) -> dict[EntryId, bytes]:
    """{entry id: its bytes}"""
    return {add.entry_id: b"".join(add.parts) for add in adds}


@dataclass
class Heard:
    """The reports of the links."""

    #: [(member, ledger, entry, status)]
    answers: list[tuple[Incarnation, LedgerId, EntryId, AppendStatus]] = field(default_factory=list)
    lost: list[tuple[Incarnation, LedgerId]] = field(default_factory=list)

    def answered(
        self, member: Incarnation, ledger_id: LedgerId, entry_ids: list[EntryId], status: AppendStatus
    ) -> None:
        self.answers += [(member, ledger_id, entry_id, status) for entry_id in entry_ids]

    def lose(self, member: Incarnation, ledger_ids: list[LedgerId]) -> None:
        self.lost += [(member, ledger_id) for ledger_id in ledger_ids]

    def of(self, member: Incarnation) -> list[EntryId]:
        """Entries that the member reported as durable."""
        return [entry_id for who, _, entry_id, status in self.answers if who == member and status is AppendStatus.OK]


@asynccontextmanager
async def linked(
    addresses: dict[Incarnation, str], *, unanswered_bytes_max: int = UNANSWERED_BYTES_MAX
) -> AsyncIterator[tuple[StorageClient, Heard]]:
    heard = Heard()
    links = StorageClient(heard.answered, heard.lose, unanswered_bytes_max=unanswered_bytes_max)
    links.update_addresses(addresses)
    try:
        yield links, heard
    finally:
        await links.close()


@asynccontextmanager
async def scripted(*setups: Callable[[Server], None], port: int = 0) -> AsyncIterator[str]:
    """A server with scripted answers. Returns its address."""
    server = Server()
    for setup in setups:
        setup(server)
    port = await server.start(port=port)
    try:
        yield f"127.0.0.1:{port}"
    finally:
        await server.stop(grace_ms=0)


class Node:
    """A storage node in this process, without ZooKeeper. records: the result of a synced read."""

    def __init__(self, path: Path) -> None:
        self.path = path
        #: {ledger: its record}; an error is raised instead
        self.records: dict[LedgerId, LedgerMetadata | StoreUnavailable] = {}
        #: ledgers that ZooKeeper proves to be deleted
        self.deleted: set[LedgerId] = set()
        #: the floor of every chain
        self.trimmed_below = LedgerId(0)
        self.failures: list[JournalFailed] = []
        self.address = ""
        self.security = OPEN
        #: bytes of one part of a copy that the disk has room for
        self.copies_room = 1 << 20
        self.disk = DiskCalls()
        #: whether it serves with the ZooKeeper that it sees
        self.joined = True
        self._parts: tuple[Server, StorageService, NodeRunner, StorageDirectory] | None = None

    @property
    def running(self) -> bool:
        return self._parts is not None

    @property
    def runner(self) -> NodeRunner:
        assert self._parts is not None
        return self._parts[2]

    @property
    def directory(self) -> StorageDirectory:
        assert self._parts is not None
        return self._parts[3]

    @property
    def incarnation(self) -> Incarnation:
        return self.runner.incarnation

    async def start(self) -> None:
        directory = StorageDirectory.open(self.path, CLUSTER, segment_bytes=1 << 20)
        runner = await NodeRunner.read(directory, on_failed=self.failures.append, disk=self.disk)
        await runner.begin(self, self.ledger_counter)
        service = StorageService(runner, _describer(runner.incarnation), queue_bytes_max=QUEUE_BYTES_MAX)
        server = Server(self.security, check_era=runner.refuse_era)
        service.add_to(server)
        InventoryService(runner, CLUSTER, lambda: runner.core.durable_era, joined=lambda: self.joined).add_to(server)
        NodeNotes(runner.incarnation, runner.journal).add_to(server)
        NodeCopies(runner.incarnation, MetadataCopies(self.path), lambda size: size <= self.copies_room).add_to(server)
        RaiseEraService(runner, CLUSTER).add_to(server)
        self.address = f"127.0.0.1:{await server.start()}"
        self._parts = (server, service, runner, directory)

    async def stop(self) -> None:
        assert self._parts is not None
        (server, service, runner, directory), self._parts = self._parts, None
        await server.stop(grace_ms=0)
        service.close()
        await runner.close()
        directory.close()

    async def read(self, ledger_id: LedgerId) -> Versioned[LedgerMetadata] | None:
        record = self.records.get(ledger_id)
        if isinstance(record, StoreUnavailable):
            raise record
        return None if record is None else Versioned(record, 1)

    async def ledger_counter(self) -> LedgerId:
        return LedgerId(1)

    async def has_snapshots(self, _ledger_id: LedgerId, _topic_id: TopicId) -> bool:
        return False

    async def was_deleted(self, ledger_id: LedgerId, _: LedgerOrigin) -> bool:
        return ledger_id in self.deleted

    async def floor(self, _: LedgerOrigin) -> LedgerId:
        return self.trimmed_below

    async def write(self, metadata: LedgerMetadata, *, version: int) -> WriteResult:
        unchanged = self.records.get(metadata.ledger_id) == metadata and version == 1
        return WriteResult(WriteStatus.OK if unchanged else WriteStatus.CONFLICT)


def _describer(incarnation: Incarnation) -> Callable[[pb.DescribeRequest], Awaitable[pb.DescribeAnswer]]:
    async def describe(_request: pb.DescribeRequest) -> pb.DescribeAnswer:
        return pb.DescribeAnswer(incarnation=incarnation, cluster_id=CLUSTER)

    return describe


@asynccontextmanager
async def nodes(tmp_path: Path, count: int) -> AsyncIterator[list[Node]]:
    started: list[Node] = []
    try:
        for number in range(count):
            node = Node(tmp_path / f"node-{number}")
            await node.start()
            started.append(node)
        yield started
    finally:
        for node in started:
            await node.stop()


def addresses_of(members: Iterable[Node]) -> dict[Incarnation, str]:
    return {node.incarnation: node.address for node in members}
