"""One metadata service process: stateless but for what it saw of owners; any number of replicas run side by side."""

import asyncio
import contextlib
import json
import logging
import sys
from collections.abc import AsyncIterator, Coroutine
from contextlib import AsyncExitStack
from dataclasses import dataclass
from uuid import uuid4

from oncelog.metadata.admin.app import new_app
from oncelog.metadata.admin.connections import ConnectionLimits
from oncelog.metadata.admin.server import RestServer
from oncelog.metadata.admin.values import AdminParts
from oncelog.metadata.balancer import Balancer
from oncelog.metadata.deletions import DeletionParts, TopicDeletions
from oncelog.metadata.fences import LedgerFences
from oncelog.metadata.gateway import Gateway, GatewayLimits
from oncelog.metadata.lookup import Lookup
from oncelog.metadata.metadata_service import LookupService, OwnerStreams
from oncelog.metadata.owner_calls import OwnerCalls
from oncelog.metadata.owners import Owners, Probe, Start, probe
from oncelog.metadata.placements import Placements
from oncelog.metadata.publish.publisher import Publisher, Reaching, key_server, new_publisher, own_client
from oncelog.metadata.rest_calls import RestCalls
from oncelog.rpc import metadata_codec
from oncelog.rpc.server import Server
from oncelog.runtime.credentials import PLAIN, Credentials
from oncelog.runtime.descriptors import connections_within
from oncelog.runtime.health import Health
from oncelog.runtime.process import Shutdown
from oncelog.runtime.security import Security
from oncelog.runtime.settings import MetadataSettings
from oncelog.runtime.telemetry import Reading, Telemetry
from oncelog.stores.cursor_store import CursorStore
from oncelog.stores.damaged_records import observe_damaged
from oncelog.stores.dataset_store import DatasetStore
from oncelog.stores.deletion_store import DeletionStore
from oncelog.stores.ephemerals import Registration
from oncelog.stores.joining import join_cluster
from oncelog.stores.ledger_store import LedgerStore
from oncelog.stores.namespace_store import NamespaceStore
from oncelog.stores.policy_store import PolicyStore
from oncelog.stores.registry import LiveMetadata, Registry
from oncelog.stores.store_session import SessionState, StoreSession
from oncelog.stores.topic_store import TopicStore
from oncelog.stores.zookeeper import ZooKeeperSession

logger = logging.getLogger(__name__)

STOP_GRACE_MS = 200
REST_STOP_S = 3


@dataclass(frozen=True, slots=True)
class MetadataParts:
    """What one replica is made of, apart from its ports."""

    admin: AdminParts
    ledgers: LedgerStore
    cursors: CursorStore
    gateway: Gateway

    @classmethod
    def over(
        cls,
        session: StoreSession,
        cluster_id: str,
        start: Start,
        *,
        reach: Probe = probe,
        peers: Credentials = PLAIN,
        limits: GatewayLimits | None = None,
    ) -> "MetadataParts":
        """All parts over one session with the store; `start` runs their tasks."""
        registry, topics, policies = Registry(session), TopicStore(session), PolicyStore(session)
        owners, calls = Owners(registry, start, probe=reach), OwnerCalls(peers)
        placements = Placements(topics, owners, calls, start)
        lookup = Lookup(topics, policies, owners, placements)
        owners.listener = placements
        ledgers = LedgerStore(session)
        fences = LedgerFences(registry, ledgers, peers)
        deletions = TopicDeletions(DeletionParts(topics, DeletionStore(session), ledgers, owners, calls, fences), start)
        admin = AdminParts(
            cluster_id,
            NamespaceStore(session),
            policies,
            topics,
            registry,
            owners,
            calls,
            lookup,
            placements,
            deletions,
        )
        return cls(admin, ledgers, CursorStore(session), Gateway(owners, peers, limits=limits))

    def serve(self, server: Server) -> None:
        """Add the gRPC methods."""
        admin = self.admin
        lookups = LookupService(
            admin.cluster_id, admin.lookup, admin.topics, self.ledgers, self.cursors, admin.registry, admin.policies
        )
        server.client_unary(metadata_codec.LOOKUP, lookups.look_up)
        server.client_unary(metadata_codec.LEDGERS, lookups.ledgers)
        server.client_unary(metadata_codec.TOPICS, lookups.topics)
        self.gateway.serve(server)
        server.stream(metadata_codec.OWNER_STREAM, OwnerStreams(admin.cluster_id, admin.owners).serve)

    async def follow_owners(self) -> None:
        """Keep a channel to each owner that has a session, and to no other; never returns."""
        owners = self.admin.owners
        while True:
            change = owners.change
            await self.admin.calls.see(owners.live)
            await self.gateway.see(owners.live)
            await change.wait()

    async def close(self) -> None:
        """From now on nothing is concluded from streams that close."""
        self.admin.owners.listener = None
        await self.gateway.close()
        await self.admin.calls.close()


class MetadataService:
    """`run` lives as long as the process."""

    def __init__(self, settings: MetadataSettings) -> None:
        self.settings = settings
        self.telemetry = Telemetry.from_environment("metadata", uuid4().hex)
        #: why this replica gets no calls; None once it serves
        self._unready: str | None = "starting"

    async def run(self, shutdown: Shutdown) -> None:
        """Start, say so on standard output, serve until `shutdown`, stop taking calls, end those that run."""
        settings = self.settings
        security = Security.of(settings)
        async with AsyncExitStack() as stack:
            health = Health(self.telemetry.metrics_text)
            health.ready_when("state", lambda: self._unready)
            health_port = await health.start(host=settings.listen_host, port=settings.health_port)
            stack.push_async_callback(health.stop)
            joined = await join_cluster(settings, shutdown, establish=True)
            if joined is None:
                return
            session, cluster = joined
            keys = key_server(settings, cluster.cluster_id)
            stack.push_async_callback(session.close)
            health.ready_when("zookeeper", lambda: _why_not_connected(session))
            start = await stack.enter_async_context(running_tasks())
            gateway = GatewayLimits(settings.gateway_streams_max, settings.gateway_bytes_max)
            parts = MetadataParts.over(session, cluster.cluster_id, start, peers=security.peers, limits=gateway)
            stack.push_async_callback(parts.close)
            await parts.admin.owners.refresh()
            start(parts.admin.owners.follow())
            start(parts.follow_owners())
            start(parts.admin.deletions.run())
            if isinstance(session, ZooKeeperSession) and session.tree_acls is not None:
                start(session.tree_acls.guard(whole_ensemble=settings.zookeeper_exclusive))
            self._observe(parts)
            self._observe_gateway(parts.gateway)

            server = Server(
                security, frame_bytes_max=settings.frame_bytes_max, connections_max=settings.connections_max
            )
            parts.serve(server)
            port = await server.start(host=settings.listen_host, port=settings.grpc_port)
            stack.push_async_callback(lambda: server.stop(grace_ms=STOP_GRACE_MS))
            client = await own_client(settings, port)
            stack.push_async_callback(
                client.close, flush=False
            )  # its requests are ended by then: a drain waits for none
            reaching = Reaching(client, parts.admin.lookup, parts.admin.policies)
            publisher = new_publisher(settings, reaching, keys, DatasetStore(session))
            stack.push_async_callback(publisher.close)
            start(publisher.run())
            self._observe_publishing(publisher)
            app = new_app(parts.admin, security, publisher, bodies_bytes_max=settings.rest_bodies_bytes_max)
            RestCalls(app).serve(server)  # the application publishes through this very server, so it comes later
            limits = ConnectionLimits(
                connections_within(settings.rest_connections_max), settings.rest_connections_per_peer_max
            )
            rest = RestServer(app, stop_timeout_s=REST_STOP_S, certificate=security.certificate, limits=limits)
            rest_port = rest.start(host=settings.listen_host, port=settings.rest_port)
            serving_rest = start(rest.run())
            host, _, told_port = settings.grpc_address(port).rpartition(":")
            me = LiveMetadata(host, {"grpc": int(told_port), "http": rest_port, "health": health_port})
            registration = parts.admin.registry.register_metadata(me)
            await registration.establish()
            keeping = start(registration.keep())
            if settings.balance:
                self._balance(parts.admin, registration, start)
            self._unready = None
            self._say_serving(cluster.cluster_id, port, rest_port, health_port)
            await shutdown.wait()
            self._unready = "draining"
            parts.admin.owners.listener = None
            keeping.cancel()
            await asyncio.wait([keeping])
            await registration.leave()
            rest.stop()
            await serving_rest

    def _balance(self, admin: AdminParts, registration: Registration[LiveMetadata], start: Start) -> None:
        balancer = Balancer(
            admin.registry,
            admin.topics,
            admin.owners,
            admin.placements,
            own_name=lambda: registration.name,
            interval_ms=self.settings.balance_interval_ms,
        )
        self.telemetry.observe_level(
            "metadata_elected", "1 at the replica that balances", lambda: [Reading(int(balancer.elected))]
        )
        start(balancer.follow())
        start(balancer.run())

    def _observe_publishing(self, publisher: Publisher) -> None:
        counts = publisher.counts
        self.telemetry.observe_count(
            "metadata_published_messages",
            "Messages published over HTTP",
            lambda: [Reading(counts[by], {"by": by}) for by in ("named", "keyed")],
        )
        self.telemetry.observe_count(
            "metadata_idempotency_keys",
            "Requests with a key that were answered from it, settled for another process, or refused",
            lambda: [Reading(counts[what], {"outcome": what}) for what in ("replayed", "settled", "refused")],
        )

    def _observe_gateway(self, gateway: Gateway) -> None:
        self.telemetry.observe_level(
            "metadata_gateway_streams",
            "Streams of clients that are passed on to topic owners",
            lambda: [Reading(gateway.stream_count)],
        )
        self.telemetry.observe_count(
            "metadata_gateway_bytes",
            "Bytes of messages passed on between clients and topic owners",
            lambda: [Reading(gateway.passed_bytes)],
        )

    def _observe(self, parts: MetadataParts) -> None:
        counts, owners = parts.admin.placements.counts, parts.admin.owners
        observe_damaged(self.telemetry)
        self.telemetry.observe_count(
            "metadata_topics_placed", "Topics placed on an owner", lambda: [Reading(counts["topics_placed"])]
        )
        self.telemetry.observe_count(
            "metadata_topics_moved", "Topics moved for balance", lambda: [Reading(counts["topics_moved"])]
        )
        self.telemetry.observe_count(
            "metadata_owners_lost",
            "Owners whose session ended or that were suspected",
            lambda: [Reading(counts["owners_lost"])],
        )
        self.telemetry.observe_level(
            "metadata_owners_live", "Topic owners that have a session", lambda: [Reading(len(owners.live))]
        )
        self.telemetry.observe_level(
            "metadata_owners_usable", "Topic owners that take topics", lambda: [Reading(len(owners.usable))]
        )

    def _say_serving(self, cluster_id: str, port: int, rest_port: int, health_port: int) -> None:
        address = self.settings.address
        serving = {
            "address": self.settings.grpc_address(port),
            "http": address(rest_port),
            "health": address(health_port),
            "cluster_id": cluster_id,
        }
        sys.stdout.write(json.dumps({"serving": serving}) + "\n")
        sys.stdout.flush()
        logger.info("serving", extra={"fields": serving})


def _why_not_connected(session: StoreSession) -> str | None:
    return None if session.state is SessionState.CONNECTED else session.state.value


@contextlib.asynccontextmanager
async def running_tasks() -> AsyncIterator[Start]:
    """What starts tasks that end with the block; one that fails ends the block, and with it the process."""
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
