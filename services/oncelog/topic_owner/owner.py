"""One topic owner process: its parts, started in order and stopped in the reverse."""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from functools import partial
from uuid import uuid4

from crc32c import crc32c

from oncelog.core.era import Era
from oncelog.core.errors import OncelogError
from oncelog.core.formats.batch import Checksum
from oncelog.core.ids import Incarnation, SessionNumber, TopicId
from oncelog.core.ledger.member_selection import StorageNodesUpdated
from oncelog.core.placement.level import Level
from oncelog.core.process_version import FIRST_VERSION
from oncelog.core.records.id_claim import Counter, IdClaim
from oncelog.core.snapshots.snapshot_writer import SnapshotSettings
from oncelog.core.topic.serving import TopicSettings
from oncelog.metadata_store.joining.directories import directories_in
from oncelog.metadata_store.joining.joining import join_cluster
from oncelog.metadata_store.joining.node_proofs import NodeProofs
from oncelog.metadata_store.joining.starting import registered_level, until_answered
from oncelog.metadata_store.notes.note_holders import NoteHolders
from oncelog.metadata_store.notes.noting_session import NotingSession
from oncelog.metadata_store.records.cluster_store import ClusterStore
from oncelog.metadata_store.records.counter_store import CounterStore
from oncelog.metadata_store.records.cursor_store import CursorStore
from oncelog.metadata_store.records.ledger_store import LedgerStore
from oncelog.metadata_store.records.policy_store import PolicyStore
from oncelog.metadata_store.records.registry import LiveOwner, Registry
from oncelog.metadata_store.records.topic_store import TopicStore
from oncelog.metadata_store.session import paths
from oncelog.metadata_store.session.store_session import SessionState, StoreSession
from oncelog.metadata_store.session.zookeeper import SESSION_TIMEOUT_MS
from oncelog.rpc.channels import Channels
from oncelog.rpc.server import Server
from oncelog.runtime.health import Health
from oncelog.runtime.logs import announce_serving
from oncelog.runtime.process import Shutdown
from oncelog.runtime.security import OPEN, Security
from oncelog.runtime.settings import TopicOwnerSettings
from oncelog.runtime.telemetry import Telemetry
from oncelog.storage_client.client import StorageClient
from oncelog.topic_owner.calls import serve_calls
from oncelog.topic_owner.cluster_stability import until_stable
from oncelog.topic_owner.metadata_streams import MetadataStreams
from oncelog.topic_owner.metrics_export import observe, observe_offers, observe_reads
from oncelog.topic_owner.observe.rates import OwnerRates
from oncelog.topic_owner.shell.effect_executor import OwnerParts
from oncelog.topic_owner.shell.entry_cache import CacheBudget
from oncelog.topic_owner.shell.id_source import PREFETCH_BELOW, IdSource
from oncelog.topic_owner.shell.ledger_routes import LedgerRoutes
from oncelog.topic_owner.shell.owner_metrics import OwnerMetrics
from oncelog.topic_owner.shell.ownership_watch import OwnershipWatch
from oncelog.topic_owner.shell.store_clock import StoreClock
from oncelog.topic_owner.shell.topic_registry import Finished, TopicRegistry
from oncelog.topic_owner.shell.topic_runner import TopicRunner
from oncelog.topic_owner.storage_view import StorageView
from oncelog.topic_owner.streams.publish_service import PublishService
from oncelog.topic_owner.streams.read_service import OFFER_AFTER_BYTES, ReadService
from oncelog.topic_owner.streams.stream_rooms import StreamRooms

logger = logging.getLogger(__name__)

#: Bytes of received batches of one stream without an answer; the window of a client is half of it.
UNANSWERED_BYTES_MAX = 128 * 1024 * 1024
STOP_GRACE_MS = 500
#: Share of the drain timeout for each of four steps; the rest is for the topics. Two steps look for other owners, one
#: reports that this owner drains, and one waits after a hand-over: clients that still send requests here are told to
#: look the topic up again, and the takeovers elsewhere get CPU time before this process ends and the next one starts.
STEP = 1 / 16


def topic_settings(settings: TopicOwnerSettings) -> TopicSettings:
    """The settings of the process that the core of a topic needs."""
    return TopicSettings(
        write_quorum=settings.write_quorum,
        ack_quorum=settings.ack_quorum,
        ledger_bytes_max=settings.ledger_bytes_max,
        ledger_entries_max=settings.ledger_entries_max,
        ledger_age_max_ms=settings.ledger_age_max_ms,
        add_timeout_ms=settings.add_timeout_ms,
        snapshot=SnapshotSettings(
            entries_max=settings.snapshot_entries_max,
            interval_ms=settings.snapshot_interval_ms,
            recent_bytes_max=settings.dedup_batches_bytes_max,
        ),
    )


class Owner:
    """The parts of one owner; `run` runs until the process ends."""

    def __init__(
        self, settings: TopicOwnerSettings, *, until_stable: Callable[..., Awaitable[bool]] = until_stable
    ) -> None:
        self.settings = settings
        self._until_stable = until_stable
        #: new at each start: this process does not own the topics of an earlier one
        self.incarnation = Incarnation(uuid4().hex)
        self.checksum: Checksum = crc32c
        self.security = OPEN
        self.topics = TopicRegistry(self._new_runner)
        self.metrics = OwnerMetrics(Telemetry.from_environment("topic_owner", self.incarnation), self.incarnation)
        observe(self.metrics, self.topics)
        self.rates = OwnerRates(self.topics, self.metrics)
        self._parts: OwnerParts | None = None
        self._cache_budget = CacheBudget(settings.entry_cache_bytes_max)
        self._rooms = StreamRooms(bytes_max=settings.stream_bytes_max, caller_streams_max=settings.caller_streams_max)
        self._rooms.observe(self.metrics.telemetry)
        self._topic_settings = topic_settings(settings)
        #: of the cluster, as it was read last
        self._level = FIRST_VERSION
        #: why this owner gets no new work; None once it serves
        self._unready: str | None = "starting"

    def _new_runner(
        self, topic_id: TopicId, nodes: StorageNodesUpdated, first_session: SessionNumber, finished: Finished
    ) -> TopicRunner:
        assert self._parts is not None, "no topic is assigned before the parts are there"
        return TopicRunner(
            topic_id,
            self.incarnation,
            self._topic_settings,
            self.checksum,
            self._parts,
            nodes=nodes,
            first_session=first_session,
            cache_budget=self._cache_budget,
            finished=finished,
        )

    async def run(self, shutdown: Shutdown) -> None:
        """Start, report that on standard output, serve until `shutdown`, drain, stop."""
        settings = self.settings
        self.security = Security.of(settings)
        self.security.observe(self.metrics.telemetry)
        async with AsyncExitStack() as stack:
            stack.callback(self.metrics.telemetry.shut_down)
            health = Health(self.metrics.telemetry.metrics_text, self.security.open_to)
            health.ready_when("state", lambda: self._unready)
            stack.push_async_callback(health.stop)
            health_port = await health.start(host=settings.listen_host, port=settings.health_port)
            proofs = NodeProofs(self.security.peers, partial(directories_in, settings.new_cluster_nodes_file))
            stack.push_async_callback(proofs.close)
            joined = await join_cluster(
                settings,
                shutdown,
                on_waiting=self._waits,
                on_level=self._read_level,
                proved_older=proofs.fault,
            )
            if joined is None:
                return
            session, cluster = joined.session, joined.cluster
            self.security = self.security.in_era(cluster.era, joined.history.heard_stale)
            self._unready = "starting"
            stack.push_async_callback(session.close)
            health.ready_when("zookeeper", lambda: _why_not_connected(session))
            registry = Registry(session)
            self._parts = self._connect(session, cluster.era, stack)
            self._follow_session(session)
            tasks = await stack.enter_async_context(asyncio.TaskGroup())
            view = StorageView(
                session, registry, self._parts.links, self.topics, quorums=(settings.write_quorum, settings.ack_quorum)
            )
            if not await until_answered(settings, shutdown, "the storage nodes", view.first):
                return
            health.ready_when("storage", lambda: view.shortage)
            running = [tasks.create_task(view.follow())]
            watch = OwnershipWatch(self.topics, self._parts.links, doubt_after_ms=SESSION_TIMEOUT_MS)
            running.append(tasks.create_task(watch.run()))
            running.append(tasks.create_task(self.rates.run()))

            server = Server(
                self.security, frame_bytes_max=settings.frame_bytes_max, connections_max=settings.connections_max
            )
            self._serve(server)
            port = await server.start(host=settings.listen_host, port=settings.grpc_port)
            stack.push_async_callback(lambda: server.stop(grace_ms=STOP_GRACE_MS))

            address = settings.internal_address(port)
            registration = registry.register_owner(self._record(port, health_port))
            holders = NoteHolders(session, self.security.peers)
            stack.push_async_callback(holders.close)
            noted = ClusterStore(NotingSession(session, holders.store))
            lower = partial(noted.lower_ack_quorum, settings.ack_quorum)
            if not await until_answered(settings, shutdown, "the lowest ack quorum", lower):
                await _end(running)
                return
            if not await until_answered(settings, shutdown, "the registration of this owner", registration.establish):
                await _end(running)
                return
            if not await registered_level(settings, shutdown, session):
                await _end(running)
                return
            running.append(tasks.create_task(registration.keep()))
            channels = Channels(self.security.peers)
            stack.push_async_callback(channels.close)
            streams = MetadataStreams(
                registry,
                self.topics,
                channels.channel,
                cluster_id=cluster.cluster_id,
                incarnation=self.incarnation,
                address=address,
            )
            running.append(tasks.create_task(streams.run()))
            self._parts.metadata.addresses, self._parts.metadata.new_channel = (
                lambda: streams.addresses,
                channels.channel,
            )
            self._unready = None
            self._report_serving(settings.grpc_address(port), settings.address(health_port))
            await shutdown.wait()
            self._unready = "draining"
            handed_over = await self._hand_over(registry, streams, view)
            logger.info("draining", extra={"fields": {"topics": len(self.topics), "handed_over": handed_over}})
            moved = await self.topics.hand_over(patience_ms=settings.drain_timeout_ms // 4) if handed_over else 0
            await self.topics.drain(deadline_ms=settings.drain_timeout_ms * 7 // 16)
            if moved:
                await asyncio.sleep(settings.drain_timeout_ms / 1000 * STEP)
            await _end(running)
            await registration.leave()

    def _read_level(self, level: Level) -> None:
        self._level = level.stored

    def _waits(self, reason: str) -> None:
        self._unready = reason

    def _record(self, port: int, health_port: int) -> LiveOwner:
        """The registration of this owner, which listens on these ports."""
        host, _, grpc_port = self.settings.internal_address(port).rpartition(":")
        return LiveOwner(
            self.incarnation,
            host,
            {"grpc": int(grpc_port), "health": health_port},
            time.time_ns() // 1_000_000,
            self.settings.ack_quorum,
            self.settings.grpc_address(port),
            write_quorum=self.settings.write_quorum,
        )

    async def _hand_over(self, registry: Registry, streams: MetadataStreams, view: StorageView) -> bool:
        """Have the metadata services move the topics, which are served meanwhile. Returns whether one can do that.

        While ZooKeeper elects a leader it could not record new owners, and each topic that is closed here would have no
        owner. An upgrade restarts all services at once. So this waits until the other services have restarted.
        """
        settings, patience_s = self.settings, self.settings.drain_timeout_ms / 1000 * STEP
        if await _only_one(registry, patience_s):
            return False
        if len(self.topics):
            timeout_ms = settings.stability_timeout_ms
            if not await self._until_stable(view.stability, settings.zookeeper_hosts, timeout_ms=timeout_ms):
                logger.info("cluster not stable yet; moving topics anyway")
            if await _only_one(registry, patience_s):
                return False
        self.topics.draining = True
        try:
            async with asyncio.timeout(patience_s):
                return await streams.report_draining() > 0
        except TimeoutError:
            return False

    def _follow_session(self, session: StoreSession) -> None:
        """After a session has ended, another owner may have any topic. A topic that is only read would not notice."""
        known = session.session_id

        def changed(_state: SessionState) -> None:
            nonlocal known
            if session.session_id not in (None, known):
                known = session.session_id
                logger.warning("the ZooKeeper session has ended; reading the records of all topics of this owner again")
                self.topics.look_again()

        session.add_listener(changed)

    def _connect(self, session: StoreSession, era: Era, stack: AsyncExitStack) -> OwnerParts:
        routes = LedgerRoutes()
        links = StorageClient(routes.answered, routes.lost, credentials=self.security.peers)
        stack.push_async_callback(links.close)
        observe_reads(self.metrics.telemetry, links.watch)
        ledger_ids = IdSource(
            IdClaim(self.incarnation, block=1, for_all_waiting=True),
            CounterStore(session, Counter.LEDGER, era),
        )
        claim = IdClaim(self.incarnation, block=self.settings.producer_id_block, prefetch_below=PREFETCH_BELOW)
        producer_ids = IdSource(claim, CounterStore(session, Counter.PRODUCER, era))
        stack.callback(ledger_ids.close)
        stack.callback(producer_ids.close)
        return OwnerParts(
            TopicStore(session),
            CursorStore(session),
            LedgerStore(session),
            links,
            routes,
            ledger_ids,
            producer_ids,
            PolicyStore(session),
            self.metrics,
            StoreClock(session, f"{paths.OWNERS}/{self.incarnation}"),
        )

    def _serve(self, server: Server) -> None:
        publish = PublishService(
            self.topics,
            self.checksum,
            self.metrics,
            message_bytes_max=self.settings.message_bytes_max,
            unanswered_bytes_max=UNANSWERED_BYTES_MAX,
            level=lambda: self._level,
        )
        offer_after = OFFER_AFTER_BYTES if self.settings.storage_reads else None
        reads = ReadService(self.topics, self._rooms, offer_after_bytes=offer_after)
        observe_offers(self.metrics.telemetry, reads.offers)
        serve_calls(
            server, self.topics, self.incarnation, publish, reads, self._rooms, self.rates, self.metrics.events,
            level=lambda: self._level,
        )  # fmt: skip

    def _report_serving(self, address: str, health: str) -> None:
        announce_serving(logger, {"address": address, "health": health, "incarnation": self.incarnation})


async def _end(running: list[asyncio.Task[None]]) -> None:
    for task in running:
        task.cancel()
    await asyncio.wait(running)


async def _only_one(registry: Registry, patience_s: float) -> bool:
    """Whether no other owner can take the topics. Also False when ZooKeeper does not answer, because it may soon."""
    try:
        async with asyncio.timeout(patience_s):
            return len(await registry.owners.live()) < 2
    except (OncelogError, TimeoutError) as error:
        logger.info("cannot list the other owners: %s", error)
        return False


def _why_not_connected(session: StoreSession) -> str | None:
    return None if session.state is SessionState.CONNECTED else session.state.value
