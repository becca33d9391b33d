"""A storage node whose directory is open, and what it serves from the directory alone while it waits for its cluster.

    scanned --no usable record of the cluster--> WAITING: describe, inventory, notes, copies, the era
    WAITING --RaiseEra--> WAITING, and the era is durable
    scanned, WAITING --the cluster's record is there--> the ordinary start goes on (`storage_process`)

Rules
- ZooKeeper's data may be lost, and then this node has a part of what its records are rebuilt from. So the node does not
  end without them, whatever ZooKeeper says: it has no record, that of another cluster, that of a former era, records
  that are being restored, or records that are older than the data here.
- Nothing in the directory is changed by waiting, unless an era is raised. So the comparison with what the cluster has
  noted of the directory stays possible when its record is back (`DirectoryStarts`).
- Ordinary adds, fences and reads are not served: nothing shows that their senders are of this cluster.
"""

import asyncio
import logging
from contextlib import AsyncExitStack

from oncelog.core.era import Era
from oncelog.core.errors import CorruptEntry, NotFound, StorageDirectoryRefused
from oncelog.core.node import starts
from oncelog.core.node.starts import JournalEnd
from oncelog.core.placement.first_cluster import RESTORE
from oncelog.log_storage.directory.directory_starts import DirectoryStarts, read_start, read_written
from oncelog.log_storage.directory.metadata_copies import MetadataCopies
from oncelog.log_storage.directory.segment_writer import DiskCalls
from oncelog.log_storage.directory.storage_directory import StorageDirectory
from oncelog.log_storage.serve.copies import NodeCopies
from oncelog.log_storage.serve.inventory import InventoryService
from oncelog.log_storage.serve.node_runner import NodeRunner, OnFailed
from oncelog.log_storage.serve.notes import NodeNotes
from oncelog.log_storage.serve.raise_era import RaiseEraService
from oncelog.log_storage.upkeep.free_space import FreeSpace
from oncelog.metadata_store.records.cluster_store import ClusterRecord, ClusterState, ClusterStore
from oncelog.rpc.codecs.events_codec import serve_events
from oncelog.rpc.codecs.storage_codec import DESCRIBE
from oncelog.rpc.server import Server
from oncelog.runtime.security import Security
from oncelog.runtime.settings import LogStorageSettings
from oncelog.wire import storage_pb2 as pb

logger = logging.getLogger(__name__)

#: Streams of adds do not end by themselves. Received entries are synced and answered in much less time.
STOP_GRACE_MS = 200
#: Ledgers whose verification one description tells.
DESCRIBED_LEDGERS_MAX = 1024


class OpenNode:
    """A directory that is locked and scanned, with its runner. Created by `open`."""

    def __init__(
        self, directory: StorageDirectory, runner: NodeRunner, settings: LogStorageSettings, security: Security
    ) -> None:
        self.directory = directory
        self.runner = runner
        self.cluster_id = directory.identity.cluster_id
        self._settings = settings
        self.space = FreeSpace(
            directory.free_bytes, runner, free_bytes_min=settings.free_bytes_min, roll_bytes=directory.roll_bytes
        )
        self._copies = NodeCopies(runner.incarnation, MetadataCopies(directory.path), self.space.has_room)
        self.space.on_nearly_full = self._copies.make_room
        self.notes = NodeNotes(runner.incarnation, runner.journal)
        #: why the directory is one of the past, as far as it says so itself
        self._past = starts.why_past(read_start(directory.path), None)
        directory.compare(JournalEnd(0, 0), self._past)
        self.server = self._new_server(security)
        #: of gRPC; 0: it is not known yet
        self._port = settings.grpc_port
        #: the era of the cluster's record whose records were found to be older than the data; None: those of none
        self.refuses: Era | None = None
        #: whether it serves calls
        self.listens = False

    @classmethod
    async def open(
        cls,
        settings: LogStorageSettings,
        security: Security,
        stack: AsyncExitStack,
        cluster_id: str,
        *,
        on_failed: OnFailed,
        disk: DiskCalls | None,
    ) -> "OpenNode":
        """Open the directory, which is formatted for this cluster if it is absent or empty, and scan it. The stack
        closes all. Raises StorageDirectoryRefused."""
        path = settings.data_directory
        try:
            directory = await asyncio.to_thread(
                StorageDirectory.open, path, cluster_id, segment_bytes=settings.segment_bytes
            )
        except OSError as error:
            raise StorageDirectoryRefused(f"{path}: {error}; check the path, its permissions and the disk") from error
        stack.callback(directory.close)
        runner = await NodeRunner.read(directory, on_failed=on_failed, disk=disk)
        stack.push_async_callback(runner.close)
        node = cls(directory, runner, settings, security)
        stack.push_async_callback(node.stop)
        return node

    def compare(self, noted: DirectoryStarts) -> None:
        """With what the cluster has noted of the directory, unless an era was raised since the scan: of that one
        nothing was noted before."""
        if not self.runner.journal.begun:
            self.directory.compare(noted.known_end, "" if self._past else noted.past)

    @property
    def address(self) -> str:
        """host:port of the gRPC server as others see it; empty: it is not known yet."""
        return self._settings.grpc_address(self._port) if self._port else ""

    async def describe(self) -> pb.DescribeAnswer:
        """Without what work in the background finds out."""
        runner, directory = self.runner, self.directory
        written = await asyncio.to_thread(read_written, directory.path)
        return pb.DescribeAnswer(
            incarnation=runner.incarnation,
            cluster_id=self.cluster_id,
            ledger_count=runner.ledger_count,
            stored_bytes=sum(directory.header(number).file_bytes for number in directory.segment_ids),
            free_bytes=self.space.free_bytes,
            read_only=runner.read_only,
            limbo_ledgers=len(runner.core.ledgers.in_limbo),
            damaged_ledgers=len(runner.core.ledgers.damaged),
            erased_ledgers=len(runner.core.ledgers.tombstones),
            orphaned_ledgers=len(runner.counts.orphaned),
            era=runner.core.durable_era.number,
            written_era=0 if written is None else written.era,
            written_version=0 if written is None else written.version,
        )

    def _new_server(self, security: Security) -> Server:
        """With the calls that are served from the directory alone."""
        settings, runner = self._settings, self.runner

        async def describe(request: pb.DescribeRequest) -> pb.DescribeAnswer:
            answer = await self.describe()
            answer.scrubbed_ms_ago = -1
            answer.verified_ms_ago.extend(-1 for _ in request.ledger_ids[:DESCRIBED_LEDGERS_MAX])
            return answer

        server = Server(
            security,
            frame_bytes_max=settings.frame_bytes_max,
            connections_max=settings.connections_max,
            check_era=runner.refuse_era,
        )
        inventory = InventoryService(
            runner,
            self.cluster_id,
            lambda: runner.core.durable_era,
            joined=lambda: not server.refuses_others,
            refuses=lambda: self.refuses,
        )
        inventory.add_to(server)
        self.notes.add_to(server)
        self._copies.add_to(server)
        RaiseEraService(runner, self.cluster_id).add_to(server)
        serve_events(server, runner.events)
        server.unary(DESCRIBE, describe, any_era=True)
        server.refuses_others = "this storage node waits for the record of its cluster: retry"
        return server

    async def listen(self) -> None:
        """Serve what `server` has, unless it is served already. Raises InvalidArgument."""
        if not self.listens:
            self.listens = True
            self._port = await self.server.start(host=self._settings.listen_host, port=self._port)

    async def wait(self) -> None:
        """Serve what the directory alone gives, until the ordinary start goes on. Raises InvalidArgument."""
        if not self.listens:
            await self.listen()
            fields = {"address": self.address, "incarnation": self.runner.incarnation, "era": str(self.runner.era)}
            logger.warning("waiting for the cluster, and serving what a restore asks for", extra={"fields": fields})

    async def stop(self) -> None:
        """End the calls; repeated calls do nothing."""
        if self.listens:
            self.listens = False
            await self.server.stop(grace_ms=STOP_GRACE_MS)

    async def find(self, store: ClusterStore) -> ClusterRecord:
        """The part of a node with data in `join_cluster`: the record of its cluster. Raises NotFound with the reason to
        wait, or CorruptEntry, and serves meanwhile; StoreUnavailable, and WrongCluster for a format that only a newer
        version knows."""
        try:
            record = await store.read()
        except CorruptEntry:
            await self.wait()
            raise
        reason = self._reason_to_wait(record)
        if reason is not None or (record is not None and record.state is ClusterState.RESTORING):
            await self.wait()
        if record is None or reason is not None:
            raise NotFound(reason or "", cluster_id=self.cluster_id)
        return record

    def _reason_to_wait(self, record: ClusterRecord | None) -> str | None:
        path, mine = self.directory.path, self.cluster_id
        if record is None:
            return (
                f"cluster record missing: restore or rebuild it. ZooKeeper has no record of a cluster, but {path} has "
                f"data of cluster {mine}: ZooKeeper has lost its data, or its address or path is wrong; {RESTORE}"
            )
        if record.cluster_id != mine:
            return (
                f"{path} belongs to cluster {mine}, but ZooKeeper has cluster {record.cluster_id}: the address or path "
                "of ZooKeeper is wrong, or it has lost its data and another cluster was created; keep this directory, "
                f"and correct the address, or {RESTORE}"
            )
        if record.state is ClusterState.RESTORING:
            return None  # all that join wait for that
        return self.runner.core.ledgers.era.why_newer(record.era) or None
