"""The process of a storage node. Its parts start in this order and stop in the reverse order.

start: health -> identity of the directory and replay, if it is formatted -> ZooKeeper and the cluster's record;
    until it is there, a node with data serves what a restore asks for (open_node) -> check of the mount
    -> comparison with its former starts (directory_starts)
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

from oncelog.core.errors import CorruptEntry, JournalFailed, StorageDirectoryRefused, StoreUnavailable
from oncelog.core.ids import LedgerId
from oncelog.log_storage.directory.directory_starts import DirectoryStarts, refuse_older_than_written
from oncelog.log_storage.directory.segment_writer import DiskCalls
from oncelog.log_storage.directory.storage_directory import cluster_of
from oncelog.log_storage.directory.volume_mount import has_own_filesystem, refuse_unmounted
from oncelog.log_storage.open_node import DESCRIBED_LEDGERS_MAX, OpenNode
from oncelog.log_storage.serve.node_registration import (
    NodeRegistration,
    refuse_decommissioned,
    refuse_older_zookeeper,
)
from oncelog.log_storage.serve.node_runner import NodeRunner
from oncelog.log_storage.serve.note_copying import JoinByNotes, refuse_older_than_notes
from oncelog.log_storage.serve.service import StorageService
from oncelog.log_storage.upkeep.compactor import Compactor
from oncelog.log_storage.upkeep.node_metrics import observe
from oncelog.log_storage.upkeep.readiness import Readiness, ReadinessSources
from oncelog.log_storage.upkeep.reviewer import LedgerReviewer, ListLedgers
from oncelog.log_storage.upkeep.scrubber import Scrubber
from oncelog.metadata_store.joining.joining import JoinedCluster, join_cluster
from oncelog.metadata_store.joining.starting import registered_level
from oncelog.metadata_store.records.cluster_store import ClusterStore
from oncelog.metadata_store.records.ledger_store import LedgerLookup, LedgerStore
from oncelog.metadata_store.records.registry import LiveStorageNode, Registry
from oncelog.metadata_store.records.repair_store import RepairStore
from oncelog.metadata_store.session.store_session import SessionAbsence, StoreSession
from oncelog.runtime.health import Health
from oncelog.runtime.logs import announce_serving
from oncelog.runtime.process import ExitCode, Shutdown, end_now
from oncelog.runtime.security import Security
from oncelog.runtime.settings import LogStorageSettings
from oncelog.runtime.telemetry import Telemetry
from oncelog.wire import storage_pb2 as pb

logger = logging.getLogger(__name__)

#: Pause between two looks at a ZooKeeper that is older than the data.
OLDER_PAUSE_S = 2.0
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
        security = Security.of(settings)
        sys.setswitchinterval(SWITCH_INTERVAL_S)
        async with AsyncExitStack() as stack:
            telemetry = Telemetry.from_environment("log_storage", str(settings.data_directory))
            stack.callback(telemetry.shut_down)
            security.observe(telemetry)
            health = Health(telemetry.metrics_text, security.open_to)
            health.ready_when("state", lambda: self._unready)
            belongs_to = cluster_of(settings.data_directory)
            opened: OpenNode | None = None
            health.serve_value("/directory", lambda: _directory_value(belongs_to, opened))
            health_port = await health.start(host=settings.listen_host, port=settings.health_port)
            stack.push_async_callback(health.stop)
            open_node = partial(OpenNode.open, settings, security, stack, on_failed=_end, disk=self._disk)
            if belongs_to:
                opened = await open_node(belongs_to)
            joined = await self._join(shutdown, opened)
            if joined is None:
                return
            session = joined.session
            self._unready = "starting"
            stack.push_async_callback(session.close)
            health.ready_when("zookeeper", _absence(session, settings).reason)
            await self._refuse_unmounted(Registry(session))
            if opened is None:
                belongs_to = joined.cluster.cluster_id
                opened = await open_node(belongs_to)
            node, directory, runner = opened, opened.directory, opened.runner
            incarnation = runner.incarnation
            await refuse_decommissioned(directory.path, incarnation, Registry(session))
            starts = DirectoryStarts(
                directory.path, incarnation, Registry(session), on_superseded=_superseded, era=joined.cluster.era
            )
            if self._address_is_chosen:
                waits_ms = ABSENT_SESSIONS_MAX * settings.session_timeout_ms
                await starts.wait_for_other(settings.grpc_address(settings.grpc_port), wait_ms=waits_ms)
            await starts.look()
            node.compare(starts)
            lookup = LedgerLookup(session, joined.cluster.era)
            stack.push_async_callback(_close_journal, runner, starts)
            await runner.begin(lookup, lookup.ledger_counter)
            await runner.join_era(joined.cluster.era)
            runner.on_newer_caller = joined.history.look_soon
            await starts.begin(runner.journal.synced_end)
            space = node.space
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
            scrubber = Scrubber(runner.journal, node.notes, interval_ms=settings.scrub_interval_ms)
            observe(telemetry, runner, space, compactor, scrubber)
            await self._serve(node, reviewer, compactor, scrubber, stack)

            address = node.address
            host, _, advertised_port = address.rpartition(":")
            live = LiveStorageNode(runner.incarnation, host, int(advertised_port), space.free_bytes, runner.read_only)
            mounted = has_own_filesystem(settings.data_directory)
            peers = security.in_era(joined.cluster.era, joined.history.heard_stale).peers
            joining = JoinByNotes(session, node.notes, runner.incarnation, peers)
            stack.push_async_callback(joining.close)

            async def refuse_older() -> None:
                await refuse_older_than_written(directory.path, incarnation, Registry(session), joined.cluster.era)
                await refuse_older_zookeeper(directory.path, runner, lookup)
                await refuse_older_than_notes(directory.path, session, node.notes)

            registration = NodeRegistration(
                Registry(session),
                live,
                address_is_chosen=self._address_is_chosen,
                own_filesystem=mounted,
                replace_delay_ms=settings.replace_delay_ms,
                events=runner.events,
                refuse_older=refuse_older,
                get_noted=joining.get_noted if joining.is_needed() else None,
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

    async def _join(self, shutdown: Shutdown, node: OpenNode | None) -> JoinedCluster | None:
        """A node with data waits without a deadline until ZooKeeper has its cluster, and is not older than the data."""
        while True:
            joined = await join_cluster(
                self._settings,
                shutdown,
                find=ClusterStore.require if node is None else node.find,
                on_waiting=self._waits,
                for_ever=node is not None,
                stays_while_restoring=True,
            )
            if joined is None or node is None:
                return joined
            lookup = LedgerLookup(joined.session, joined.cluster.era)
            try:
                path, registry = node.directory.path, Registry(joined.session)
                await refuse_older_than_written(path, node.runner.incarnation, registry, joined.cluster.era)
                await refuse_older_zookeeper(node.directory.path, node.runner, lookup)
                await refuse_older_than_notes(node.directory.path, joined.session, node.notes)
                node.refuses = None
                return joined
            except (StorageDirectoryRefused, StoreUnavailable, CorruptEntry) as error:
                await joined.session.close()
                node.refuses = None if isinstance(error, StoreUnavailable) else joined.cluster.era
                await node.wait()
                reason = f"waiting for the cluster's records: {error.message}"
                if reason != self._unready:
                    logger.warning("waiting for the cluster's records", extra={"fields": {"reason": error.message}})
                self._waits(reason)
            except BaseException:
                await joined.session.close()
                raise
            if await shutdown.or_result(_pause()) is None:
                return None

    async def _serve(
        self,
        node: OpenNode,
        reviewer: LedgerReviewer,
        compactor: Compactor,
        scrubber: Scrubber,
        stack: AsyncExitStack,
    ) -> None:
        """Serve all calls."""

        async def describe(request: pb.DescribeRequest) -> pb.DescribeAnswer:
            answer = await node.describe()
            answer.dead_bytes, answer.scrubbed_ms_ago = compactor.dead_bytes, scrubber.finished_ms_ago
            answer.verified_ms_ago.extend(map(scrubber.verified_ms_ago, request.ledger_ids[:DESCRIBED_LEDGERS_MAX]))
            return answer

        service = StorageService(
            node.runner,
            describe,
            queue_bytes_max=self._settings.queue_bytes_max,
            damage_known=lambda: reviewer.damage_known,
        )
        stack.callback(service.close)
        service.add_to(node.server)
        node.server.refuses_others = ""
        await node.listen()
        stack.push_async_callback(node.stop)


def _directory_value(cluster_id: str, node: OpenNode | None) -> dict[str, object]:
    """What GET /directory at the health port tells, also to those who know nothing of the cluster any more."""
    return {
        "cluster_id": cluster_id or None,
        "incarnation": None if node is None else node.runner.incarnation,
        "address": node.address if node is not None and node.listens else None,
        "era": None if node is None else node.runner.era.number,
    }


async def _pause() -> bool:
    await asyncio.sleep(OLDER_PAUSE_S)
    return True


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
