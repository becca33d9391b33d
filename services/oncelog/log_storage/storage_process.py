"""The process of a storage node. Its parts start in this order and stop in the reverse order.

start: health -> ZooKeeper and the cluster's record -> check of the mount -> identity of the directory
    -> comparison with its former starts (directory_starts) -> replay
    -> serve -> register -> announce -> ready once what the node owes is paid (start_debt)
SIGTERM: deregister -> end the calls -> sync, write the durability marker, close
journal failure: end at once, because durability is unknown after it
"""

import asyncio
import logging
import sys
from collections.abc import Collection
from contextlib import AsyncExitStack
from functools import partial

from oncelog.core.errors import JournalFailed, StorageDirectoryRefused
from oncelog.core.ids import Incarnation, LedgerId
from oncelog.log_storage.directory.directory_starts import DirectoryStarts
from oncelog.log_storage.directory.metadata_copies import MetadataCopies
from oncelog.log_storage.directory.segment_writer import DiskCalls
from oncelog.log_storage.directory.storage_directory import StorageDirectory, cluster_of
from oncelog.log_storage.directory.volume_mount import has_own_filesystem, refuse_unmounted
from oncelog.log_storage.serve.copies import NodeCopies
from oncelog.log_storage.serve.inventory import InventoryService
from oncelog.log_storage.serve.node_registration import (
    NodeRegistration,
    find_cluster_of,
    refuse_decommissioned,
    refuse_older_zookeeper,
)
from oncelog.log_storage.serve.node_runner import NodeRunner
from oncelog.log_storage.serve.notes import NodeNotes
from oncelog.log_storage.serve.raise_era import RaiseEraService
from oncelog.log_storage.serve.service import StorageService
from oncelog.log_storage.upkeep.compactor import Compactor
from oncelog.log_storage.upkeep.free_space import FreeSpace
from oncelog.log_storage.upkeep.node_metrics import observe
from oncelog.log_storage.upkeep.readiness import Readiness, ReadinessSources
from oncelog.log_storage.upkeep.reviewer import LedgerReviewer, ListLedgers
from oncelog.log_storage.upkeep.scrubber import Scrubber
from oncelog.metadata_store.joining.joining import join_cluster
from oncelog.metadata_store.joining.starting import registered_level
from oncelog.metadata_store.records.cluster_store import ClusterStore
from oncelog.metadata_store.records.ledger_store import LedgerLookup, LedgerStore
from oncelog.metadata_store.records.registry import LiveStorageNode, Registry
from oncelog.metadata_store.records.repair_store import RepairStore
from oncelog.metadata_store.session.store_session import SessionAbsence, StoreSession
from oncelog.rpc.codecs.events_codec import serve_events
from oncelog.rpc.server import Server
from oncelog.runtime.health import Health
from oncelog.runtime.logs import announce_serving
from oncelog.runtime.process import ExitCode, Shutdown, end_now
from oncelog.runtime.security import Security
from oncelog.runtime.settings import LogStorageSettings
from oncelog.runtime.telemetry import Telemetry
from oncelog.wire import storage_pb2 as pb

logger = logging.getLogger(__name__)

#: Ledgers whose verification one description tells.
DESCRIBED_LEDGERS_MAX = 1024

#: Streams of adds do not end by themselves. Received entries are synced and answered in much less time.
STOP_GRACE_MS = 200
#: The journal's thread needs the interpreter for microseconds before and after each write and sync. With Python's
#: default of 5 ms it would wait for the event loop longer than for the disk.
SWITCH_INTERVAL_S = 0.0002
#: A node serves the open ledgers without ZooKeeper, so it stays ready during an election, which affects all nodes at
#: once. A node that is away for longer than two sessions is not found by new owners, and no rollout may rely on it.
ABSENT_SESSIONS_MAX = 2


class StorageProcess:
    """`run` returns when the process is to end."""

    def __init__(self, settings: LogStorageSettings, disk: DiskCalls | None = None) -> None:
        self._settings = settings
        self._disk = disk
        #: why this node gets no new work; None while it serves
        self._unready: str | None = "starting"

    async def run(self, shutdown: Shutdown) -> None:
        settings = self._settings
        security = Security.of(settings, calls_others=False)
        sys.setswitchinterval(SWITCH_INTERVAL_S)
        async with AsyncExitStack() as stack:
            telemetry = Telemetry.from_environment("log_storage", str(settings.data_directory))
            stack.callback(telemetry.shut_down)
            security.observe(telemetry)
            health = Health(telemetry.metrics_text)
            health.ready_when("state", lambda: self._unready)
            belongs_to = cluster_of(settings.data_directory)
            health.serve_value("/directory", lambda: {"cluster_id": belongs_to or None})
            health_port = await health.start(host=settings.listen_host, port=settings.health_port)
            stack.push_async_callback(health.stop)
            find = partial(find_cluster_of, settings.data_directory, belongs_to) if belongs_to else ClusterStore.require
            joined = await join_cluster(settings, shutdown, find=find, on_waiting=self._waits)
            if joined is None:
                return
            session = joined.session
            self._unready = "starting"
            stack.push_async_callback(session.close)
            health.ready_when("zookeeper", _absence(session, settings).reason)
            await self._refuse_unmounted(Registry(session))
            directory = await self._open_directory(joined.cluster.cluster_id, stack)
            belongs_to = directory.identity.cluster_id
            incarnation = Incarnation(directory.identity.incarnation)
            await refuse_decommissioned(directory.path, incarnation, Registry(session))
            starts = DirectoryStarts(directory.path, incarnation, Registry(session), on_superseded=_superseded)
            if self._address_is_chosen:
                waits_ms = ABSENT_SESSIONS_MAX * settings.session_timeout_ms
                await starts.wait_for_other(settings.grpc_address(settings.grpc_port), wait_ms=waits_ms)
            await starts.look()
            directory.known_end, directory.past = starts.known_end, starts.past
            lookup = LedgerLookup(session)
            runner = await NodeRunner.open(
                directory, lookup, on_failed=_end, disk=self._disk, ledger_counter=lookup.ledger_counter
            )
            stack.push_async_callback(_close_journal, runner, starts)
            await starts.begin(runner.journal.synced_end)
            space = FreeSpace(
                directory.free_bytes,
                runner,
                free_bytes_min=settings.free_bytes_min,
                roll_bytes=directory.roll_bytes,
            )
            listed = _ledger_lister(session, directory.identity.cluster_id)
            read_unsynced = LedgerStore(session).read_unsynced
            reviewer = LedgerReviewer(runner, listed, read_unsynced, interval_ms=settings.collect_interval_ms)
            compactor = Compactor(
                directory,
                runner.journal,
                disk_full=lambda: runner.read_only,
                holes_settled=lambda: reviewer.all_whole,
                forgotten=runner.core.forget_deleted,
                disk=self._disk,
            )
            scrubber = Scrubber(runner.journal, interval_ms=settings.scrub_interval_ms)
            observe(telemetry, runner, space, compactor, scrubber)
            port = await self._serve(directory, runner, reviewer, space, compactor, scrubber, security, stack)

            address = settings.grpc_address(port)
            host, _, advertised_port = address.rpartition(":")
            live = LiveStorageNode(runner.incarnation, host, int(advertised_port), space.free_bytes, runner.read_only)
            mounted = has_own_filesystem(settings.data_directory)
            registration = NodeRegistration(
                Registry(session),
                live,
                address_is_chosen=self._address_is_chosen,
                own_filesystem=mounted,
                replace_delay_ms=settings.replace_delay_ms,
                events=runner.events,
                refuse_older=partial(
                    refuse_older_zookeeper, directory.path, runner.newest_ledger, lookup.ledger_counter
                ),
            )
            debt = Readiness(
                runner.incarnation,
                ReadinessSources(Registry(session), RepairStore(session), listed, read_unsynced),
                limbo=lambda: runner.core.ledgers.limbo,
                takes_copies=lambda: not runner.read_only,
                now_ms=_now_ms,
            )
            health.ready_when("joining", registration.reason)
            health.ready_when("repair", debt.reason)
            await registration.join()
            if not await registered_level(settings, shutdown, session):
                return
            if not registration.joining:
                await debt.look_first()
            async with asyncio.TaskGroup() as tasks:
                works = (
                    registration.keep(),
                    starts.watch(lambda: runner.journal.synced_end),
                    registration.follow_read_only_requests(),
                    space.watch(registration.update_space),
                    reviewer.watch(),
                    compactor.watch(),
                    scrubber.watch(),
                    _become_ready(registration, debt),
                )
                lasting = [tasks.create_task(work) for work in works]
                self._unready = None
                facts = {"address": address, "health": settings.address(health_port), "incarnation": runner.incarnation}
                announce_serving(logger, facts)
                await shutdown.wait()
                self._unready = "draining"
                for task in lasting:
                    task.cancel()
            await registration.leave()

    def _waits(self, reason: str) -> None:
        self._unready = reason

    @property
    def _address_is_chosen(self) -> bool:
        """Whether the port was configured; otherwise another node may have had it before."""
        return bool(self._settings.grpc_port or self._settings.advertised_port)

    async def _refuse_unmounted(self, registry: Registry) -> None:
        """Raises StorageDirectoryRefused."""
        settings = self._settings
        if settings.mount_check and self._address_is_chosen:
            host, _, port = settings.grpc_address(settings.grpc_port).rpartition(":")
            cookies = await registry.cookies()
            refuse_unmounted(settings.data_directory, cookies.values(), host=host, port=int(port))

    async def _open_directory(self, cluster_id: str, stack: AsyncExitStack) -> StorageDirectory:
        """Raises StorageDirectoryRefused."""
        settings = self._settings
        path = settings.data_directory
        try:
            directory = await asyncio.to_thread(
                StorageDirectory.open, path, cluster_id, segment_bytes=settings.segment_bytes
            )
        except OSError as error:
            raise StorageDirectoryRefused(f"{path}: {error}; check the path, its permissions and the disk") from error
        stack.callback(directory.close)
        return directory

    async def _serve(
        self,
        directory: StorageDirectory,
        runner: NodeRunner,
        reviewer: LedgerReviewer,
        space: FreeSpace,
        compactor: Compactor,
        scrubber: Scrubber,
        security: Security,
        stack: AsyncExitStack,
    ) -> int:
        """Returns the port."""
        settings = self._settings
        cluster_id = directory.identity.cluster_id

        async def describe(request: pb.DescribeRequest) -> pb.DescribeAnswer:
            return pb.DescribeAnswer(
                incarnation=runner.incarnation,
                cluster_id=cluster_id,
                ledger_count=runner.ledger_count,
                stored_bytes=sum(directory.header(number).file_bytes for number in directory.segment_ids),
                free_bytes=space.free_bytes,
                read_only=runner.read_only,
                limbo_ledgers=len(runner.core.ledgers.in_limbo),
                damaged_ledgers=len(runner.core.ledgers.damaged),
                erased_ledgers=len(runner.core.ledgers.tombstones),
                orphaned_ledgers=len(runner.counts.orphaned),
                dead_bytes=compactor.dead_bytes,
                scrubbed_ms_ago=scrubber.finished_ms_ago,
                verified_ms_ago=map(scrubber.verified_ms_ago, request.ledger_ids[:DESCRIBED_LEDGERS_MAX]),
            )

        service = StorageService(
            runner,
            describe,
            queue_bytes_max=settings.queue_bytes_max,
            damage_known=lambda: reviewer.damage_known,
        )
        stack.callback(service.close)
        server = Server(
            security,
            frame_bytes_max=settings.frame_bytes_max,
            connections_max=settings.connections_max,
            check_era=runner.refuse_era,
        )
        service.add_to(server)
        InventoryService(runner, cluster_id, lambda: runner.core.durable_era).add_to(server)
        NodeNotes(runner.incarnation, runner.journal).add_to(server)
        copies = NodeCopies(runner.incarnation, MetadataCopies(directory.path), space.has_room)
        space.on_nearly_full = copies.make_room
        copies.add_to(server)
        RaiseEraService(runner, cluster_id).add_to(server)
        serve_events(server, runner.events)
        port = await server.start(host=settings.listen_host, port=settings.grpc_port)
        stack.push_async_callback(lambda: server.stop(grace_ms=STOP_GRACE_MS))
        return port


def _absence(session: StoreSession, settings: LogStorageSettings) -> SessionAbsence:
    allowed_ms = ABSENT_SESSIONS_MAX * settings.session_timeout_ms
    return SessionAbsence(session, allowed_ms=allowed_ms, now_ms=_now_ms)


async def _become_ready(registration: NodeRegistration, debt: Readiness) -> None:
    """What the node owes is known once it has replaced its predecessor."""
    await registration.replace_former(_now_ms)
    await debt.watch()


def _now_ms() -> int:
    return int(asyncio.get_running_loop().time() * 1000)


def _ledger_lister(session: StoreSession, cluster_id: str) -> ListLedgers:
    async def list_ledgers() -> Collection[LedgerId]:
        await ClusterStore(session).require(cluster_id)
        return await LedgerStore(session).ids()

    return list_ledgers


async def _close_journal(runner: NodeRunner, starts: DirectoryStarts) -> None:
    """Then note its end."""
    await runner.close()
    await starts.note(runner.journal.synced_end)


def _superseded(message: str) -> None:
    logger.critical(message)
    end_now(ExitCode.FAILED)


def _end(error: JournalFailed) -> None:
    logger.critical(error.message, extra={"fields": {"code": error.code}})
    end_now(ExitCode.FAILED)
