"""One metadata service process. It keeps no state of its own, so any number of replicas run side by side."""

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Coroutine
from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path
from uuid import uuid4

from oncelog.client.client import AsyncClient
from oncelog.core.http_consume.delivery_id import home_of
from oncelog.core.placement.level import Level
from oncelog.core.process_version import FIRST_VERSION
from oncelog.metadata import metrics
from oncelog.metadata.app import new_app
from oncelog.metadata.cluster.new_cluster import finder
from oncelog.metadata.console.login import HOME
from oncelog.metadata.console.routes import Console
from oncelog.metadata.dead_letters.dead_letter_service import DeadLetterService
from oncelog.metadata.dead_letters.redrive import Redrive
from oncelog.metadata.gateway.owner_gateway import Gateway, GatewayLimits
from oncelog.metadata.gateway.rest_over_grpc import RestOverGrpc
from oncelog.metadata.http_consume.http_consume_service import HttpConsumeService
from oncelog.metadata.http_consume.replicas import Replicas
from oncelog.metadata.http_publish.http_publish_service import HttpPublishService, Reaching, own_client
from oncelog.metadata.observing.served_certificates import ServedCertificates, places_of
from oncelog.metadata.owners.owners import Start
from oncelog.metadata.placement.balancer import Balancer
from oncelog.metadata.repair.repair import RepairPace
from oncelog.metadata.replica import Coordination
from oncelog.metadata.rest.recovering.waiting_app import EarlyRest
from oncelog.metadata.restore.record_copies import CopySettings
from oncelog.metadata_store.copies.copy_keys import read_keys
from oncelog.metadata_store.joining.directories import directories_in
from oncelog.metadata_store.joining.joining import join_cluster
from oncelog.metadata_store.joining.node_proofs import NodeProofs
from oncelog.metadata_store.joining.starting import registered_level, until_answered
from oncelog.metadata_store.keys.key_server import key_store
from oncelog.metadata_store.notes.note_comparison import NoteComparison
from oncelog.metadata_store.notes.note_holders import NoteHolders
from oncelog.metadata_store.notes.noting_session import NotingSession
from oncelog.metadata_store.records.json_records import observe_damaged
from oncelog.metadata_store.records.registry import LiveMetadata
from oncelog.metadata_store.session import paths
from oncelog.metadata_store.session.ephemerals import Registration
from oncelog.metadata_store.session.store_session import SessionState, StoreSession
from oncelog.metadata_store.session.zookeeper import ZooKeeperSession
from oncelog.rpc.codecs import metadata_codec
from oncelog.rpc.server import Server
from oncelog.runtime.health import Health
from oncelog.runtime.logs import announce_serving
from oncelog.runtime.observing.audit_log import AuditLog
from oncelog.runtime.observing.events import EventRing
from oncelog.runtime.process import Shutdown
from oncelog.runtime.security import Security, roles_in
from oncelog.runtime.settings import MetadataSettings
from oncelog.runtime.telemetry import Telemetry

logger = logging.getLogger(__name__)

STOP_GRACE_MS = 200


class MetadataService:
    """`run` lives as long as the process."""

    def __init__(self, settings: MetadataSettings) -> None:
        self.settings = settings
        self.telemetry = Telemetry.from_environment("metadata", uuid4().hex)
        self._level = Level(FIRST_VERSION)
        #: why this replica is not ready; None once it serves
        self._unready: str | None = "starting"

    async def run(self, shutdown: Shutdown) -> None:
        """Start, write the addresses to standard output, serve until `shutdown`, then drain."""
        settings = self.settings
        security = Security.of(settings)
        security.observe(self.telemetry)
        audit = AuditLog(EventRing("metadata"), Path(settings.audit_file) if settings.audit_file else None)
        async with AsyncExitStack() as stack:
            stack.push_async_callback(audit.close)
            health = Health(self.telemetry.metrics_text, security.open_to)
            health.ready_when("state", lambda: self._unready)
            health_port = await health.start(host=settings.listen_host, port=settings.health_port)
            stack.push_async_callback(health.stop)
            early = EarlyRest(
                settings,
                security,
                audit,
                await stack.enter_async_context(running_tasks()),
                reason=lambda: self._unready,
            )
            rest_port = early.open()
            proofs = NodeProofs(security.peers, partial(directories_in, settings.new_cluster_nodes_file))
            stack.push_async_callback(proofs.close)
            joined = await join_cluster(
                settings,
                shutdown,
                find=finder(settings),
                on_waiting=self._waits,
                on_session=early.reached,
                for_ever=True,
                on_level=self._sees_level,
                proved_older=proofs.fault,
            )
            if joined is None:
                await early.close()
                return
            session, cluster, history = joined.session, joined.cluster, joined.history
            assert early.restoring is not None, "ZooKeeper was reached"
            early.restoring.on_claim = history.restoring
            security = security.in_era(cluster.era, history.heard_stale)
            self._unready = "starting"
            stack.push_async_callback(session.close)
            holders = NoteHolders(session, security.peers)
            stack.push_async_callback(holders.close)
            noting = NotingSession(session, holders.store)
            keys = key_store(settings, noting, cluster.cluster_id)
            health.ready_when("zookeeper", lambda: _why_not_connected(session))
            start = await stack.enter_async_context(running_tasks())
            pace = RepairPace(settings.repair_bytes_per_s, settings.repair_absent_delay_ms, settings.repair_interval_ms)
            coordination = Coordination.over(
                noting, cluster.cluster_id, start, peers=security.peers, pace=pace, keys=keys, events=audit.events,
                unnoted=session,
                copies=copy_settings(settings),
                restoring=early.restoring,
            )  # fmt: skip
            stack.push_async_callback(coordination.close)
            gateway_limits = GatewayLimits(settings.gateway_streams_max, settings.gateway_bytes_max)
            gateway = Gateway(coordination.owners, security.peers, limits=gateway_limits)
            stack.push_async_callback(gateway.close)
            if not await until_answered(settings, shutdown, "the topic owners", coordination.owners.refresh):
                return
            self._start_coordination(coordination, gateway, start)
            metrics.observe_audit(self.telemetry, audit)
            served = ServedCertificates(partial(places_of, settings))
            metrics.observe_certificates(self.telemetry, served)
            start(served.run())
            if isinstance(joined.base, ZooKeeperSession) and joined.base.tree_acls is not None:
                joined.base.tree_acls.era_root = paths.era_root(cluster.era.number)
                start(joined.base.tree_acls.guard(whole_ensemble=settings.zookeeper_exclusive))

            server = Server(
                security, frame_bytes_max=settings.frame_bytes_max, connections_max=settings.connections_max
            )
            coordination.serve(server)
            gateway.serve(server)
            port = await server.start(host=settings.listen_host, port=settings.grpc_port)
            stack.push_async_callback(lambda: server.stop(grace_ms=STOP_GRACE_MS))
            client = await own_client(settings, port)
            # No flush: the client's requests have ended by then, so a drain need not wait.
            stack.push_async_callback(client.close, flush=False)
            reaching = Reaching(client, coordination.lookup, coordination.policies)
            letters = DeadLetterService(client, coordination.lookup, coordination.topics)
            server.unary(metadata_codec.RESOLVE_DEAD_LETTER_TOPIC, letters.resolve)
            server.unary(metadata_codec.PUBLISH_DEAD_LETTERS, letters.publish)
            publisher = HttpPublishService(reaching, settings, keys)
            stack.push_async_callback(publisher.close)
            start(publisher.run())
            metrics.observe_publishing(self.telemetry, publisher)
            host, _, advertised_port = settings.grpc_address(port).rpartition(":")
            replicas = Replicas(coordination.registry, home_of(host, int(advertised_port)), security.peers)
            consumer = self._consumer(client, coordination, replicas, start)
            stack.push_async_callback(consumer.close)
            console = self._console(security)
            redrive = Redrive(client, coordination.lookup, coordination.subscriptions)
            app = new_app(
                coordination, security, publisher, consumer, redrive, console, audit=audit,
                bodies_bytes_max=settings.rest_bodies_bytes_max,
            )  # fmt: skip
            RestOverGrpc(app).serve(server)  # after the start: the application publishes through this same server
            early.serve(app)
            me = LiveMetadata(host, {"grpc": int(advertised_port), "http": rest_port, "health": health_port})
            coordination.events.name = settings.grpc_address(port)
            registration = coordination.registry.register_metadata(me)
            if not await until_answered(settings, shutdown, "this service's registration", registration.establish):
                return
            if not await registered_level(settings, shutdown, session):
                return
            keeping = start(registration.keep())
            comparison = NoteComparison(session, security.peers, interval_ms=settings.notes_interval_ms)
            stack.push_async_callback(comparison.close)
            self._elect(coordination, comparison, registration, start)
            self._unready = None
            self._announce(cluster.cluster_id, port, rest_port, health_port)
            await shutdown.wait()
            self._unready = "draining"
            coordination.owners.listener = None
            keeping.cancel()
            await asyncio.wait([keeping])
            await registration.leave()
            await consumer.close()  # so that long polls are answered, and need not be cut off
            if console is not None:
                console.close()  # so that live pages end
            await early.close()

    def _consumer(
        self, client: AsyncClient, coordination: Coordination, replicas: Replicas, start: Start
    ) -> HttpConsumeService:
        settings = self.settings
        consumer = HttpConsumeService(
            client, coordination.lookup, replicas, sessions_max=settings.consume_sessions_max,
            bytes_max=settings.consume_bytes_max,
        )  # fmt: skip
        metrics.observe_consuming(self.telemetry, consumer)
        start(consumer.run())
        return consumer

    def _console(self, security: Security) -> Console | None:
        settings = self.settings
        if not settings.console:
            return None
        return Console(security, payloads=settings.console_payloads, streams_max=settings.console_streams_max)

    def _sees_level(self, level: Level) -> None:
        self._level = level

    def _waits(self, reason: str) -> None:
        self._unready = reason

    def _start_coordination(self, coordination: Coordination, gateway: Gateway, start: Start) -> None:
        coordination.owners.level = lambda: self._level.stored
        start(coordination.owners.follow())
        start(_follow_owners(coordination, gateway))
        start(coordination.deletions.run())
        start(coordination.history.run())
        metrics.observe_coordination(self.telemetry, coordination)
        metrics.observe_gateway(self.telemetry, gateway)
        metrics.observe_levels(self.telemetry, lambda: self._level.stored)
        observe_damaged(self.telemetry)

    def _elect(
        self, coordination: Coordination, comparison: NoteComparison, registration: Registration[LiveMetadata],
        start: Start,
    ) -> None:  # fmt: skip
        """Begin what only one replica does: balancing of topics, if it is on, repair of ledgers, proofs, copies of
        records, and the comparison of notes."""
        balancer = Balancer(
            coordination.registry,
            coordination.topics,
            coordination.owners,
            coordination.placements,
            own_name=lambda: registration.name,
            interval_ms=self.settings.balance_interval_ms,
        )
        metrics.observe_election(self.telemetry, balancer)
        metrics.observe_repair(self.telemetry, coordination.repair)
        metrics.observe_copies(self.telemetry, coordination.copies)
        metrics.observe_notes(self.telemetry, comparison)
        start(balancer.follow())
        if self.settings.balance:
            start(balancer.run())

        def elected() -> str | None:
            return registration.name if balancer.elected else None

        start(coordination.repair.repairer.run(elected))
        start(coordination.proofs.run(elected))
        start(coordination.copies.run(elected))
        start(comparison.run(elected))

    def _announce(self, cluster_id: str, port: int, rest_port: int, health_port: int) -> None:
        address = self.settings.address
        serving = {
            "address": self.settings.grpc_address(port),
            "http": address(rest_port),
            "health": address(health_port),
            "cluster_id": cluster_id,
        }
        if self.settings.console:
            serving["console"] = address(rest_port) + HOME
        announce_serving(logger, serving)


async def _follow_owners(coordination: Coordination, gateway: Gateway) -> None:
    """Keep a channel to each owner that has a session, and to no other; never returns."""
    owners = coordination.owners
    while True:
        change = owners.change
        coordination.calls.owners_changed(owners.live)
        gateway.owners_changed(owners.live)
        await change.wait()


def copy_settings(settings: MetadataSettings) -> CopySettings:
    """Raises InvalidArgument for a file of keys that cannot be used."""
    key_file, target = settings.backup_key_file, settings.backup_target
    read_keys(Path(key_file) if key_file else None)
    return CopySettings(
        settings.backup_interval_ms,
        Path(key_file) if key_file else None,
        Path(target) if target else None,
        roles_in(settings.backup_roles),
    )


def _why_not_connected(session: StoreSession) -> str | None:
    return None if session.state is SessionState.CONNECTED else session.state.value


@contextlib.asynccontextmanager
async def running_tasks() -> AsyncIterator[Start]:
    """Yield a function that starts background tasks. All end with the block; a task that fails ends the block."""
    async with asyncio.TaskGroup() as group:
        running: set[asyncio.Task[None]] = set()

        def start(work: Coroutine[None, None, None]) -> asyncio.Task[None]:
            task = group.create_task(work)
            running.add(task)
            task.add_done_callback(running.discard)
            return task

        try:
            yield start
        finally:
            for task in list(running):
                task.cancel()
