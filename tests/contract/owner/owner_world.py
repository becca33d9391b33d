"""A whole topic owner in this process: its real parts, on the store in memory and on one storage node in this process.

Only the processes around it are missing: a test assigns topics itself, and speaks to the owner over a real socket.
"""

import asyncio
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

from crc32c import crc32c
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from oncelog.core.formats.batch import encode_batch, encode_deltas
from oncelog.core.formats.columns import encode_values
from oncelog.core.formats.compression import Compression
from oncelog.core.formats.outcome import Outcome
from oncelog.core.formats.topic_record import LedgerLink
from oncelog.core.ids import Generation, Incarnation, LedgerId, ProducerId, SessionNumber, TopicId
from oncelog.core.ledger.member_selection import StorageNodesUpdated
from oncelog.core.ledger.metadata import LedgerMetadata
from oncelog.core.names import parse_topic
from oncelog.core.node.node_ledger import LedgerOrigin
from oncelog.core.process_version import PROCESS_VERSION
from oncelog.core.records.id_claim import Counter, IdClaim
from oncelog.core.records.status import WriteStatus
from oncelog.core.topic.serving import TopicSettings
from oncelog.metadata_store.records.cluster_store import ClusterStore
from oncelog.metadata_store.records.counter_store import CounterStore
from oncelog.metadata_store.records.cursor_store import CursorStore
from oncelog.metadata_store.records.ledger_store import LedgerLookup, LedgerStore
from oncelog.metadata_store.records.policy_store import PolicyStore
from oncelog.metadata_store.records.topic_store import TopicStore
from oncelog.metadata_store.session import paths
from oncelog.metadata_store.session.store_session import Versioned, WriteResult
from oncelog.rpc.channel import Channel
from oncelog.rpc.codecs.owner_codec import PUBLISH, OpenGranted, OpenRequest, PublishFrame, ReceivedAnswers
from oncelog.rpc.server import Server
from oncelog.runtime.security import OPEN, Security
from oncelog.runtime.telemetry import Telemetry
from oncelog.storage_client.client import StorageClient
from oncelog.topic_owner.calls import serve_calls
from oncelog.topic_owner.metrics_export import observe, observe_offers
from oncelog.topic_owner.observe.rates import OwnerRates
from oncelog.topic_owner.observe.topic_listing import wall_ms
from oncelog.topic_owner.shell.effect_executor import OwnerParts
from oncelog.topic_owner.shell.entry_cache import CacheBudget
from oncelog.topic_owner.shell.id_source import IdSource
from oncelog.topic_owner.shell.ledger_routes import LedgerRoutes
from oncelog.topic_owner.shell.owner_metrics import OwnerMetrics
from oncelog.topic_owner.shell.store_clock import StoreClock
from oncelog.topic_owner.shell.topic_registry import Finished, TopicRegistry
from oncelog.topic_owner.shell.topic_runner import TopicRunner
from oncelog.topic_owner.streams.publish_service import PublishService
from oncelog.topic_owner.streams.read_service import ReadService
from oncelog.topic_owner.streams.stream_rooms import StreamRooms
from tests.cluster.until import until
from tests.contract.node.directory.held_journal import Disk
from tests.contract.storage_client.ledger_world import Node
from tests.contract.stores.memory_store import MemorySession, MemoryTree

ME = Incarnation("d" * 32)
ANOTHER = Incarnation("e" * 32)
DEADLINE_S = 30.0
#: One storage node, which is never too slow: with 5 s, the usual, a busy machine ends a ledger whose node a test holds.
PATIENT = TopicSettings(write_quorum=1, ack_quorum=1, add_timeout_ms=600_000)


@dataclass(frozen=True, slots=True)
class OwnerLimits:
    """What a test wants other than usual."""

    topic: TopicSettings = field(default_factory=lambda: PATIENT)
    message_bytes_max: int = 1 << 20
    unanswered_bytes_max: int = 1 << 22
    topics_max: int = 100
    offer_after_bytes: int | None = None
    stream_bytes_max: int = 1 << 26
    caller_streams_max: int = 1_000


class StoredNode(Node):
    """A storage node that finds the records of ledgers in the store."""

    def __init__(self, path: Path, lookup: LedgerLookup) -> None:
        super().__init__(path)
        self._lookup = lookup
        self.held = Disk()
        self.disk = self.held.calls()

    @contextmanager
    def hold(self) -> Iterator[None]:
        """Nothing becomes durable meanwhile, so nothing is acknowledged."""
        self.held.gate.clear()
        try:
            yield
        finally:
            self.held.gate.set()

    async def read(self, ledger_id: LedgerId) -> Versioned[LedgerMetadata] | None:
        return await self._lookup.read(ledger_id)

    async def has_snapshots(self, ledger_id: LedgerId, topic_id: TopicId) -> bool:
        return await self._lookup.has_snapshots(ledger_id, topic_id)

    async def was_deleted(self, ledger_id: LedgerId, origin: LedgerOrigin) -> bool:
        return await self._lookup.was_deleted(ledger_id, origin)

    async def floor(self, origin: LedgerOrigin) -> LedgerId:
        return await self._lookup.floor(origin)

    async def write(self, metadata: LedgerMetadata, *, version: int) -> WriteResult:
        return await self._lookup.write(metadata, version=version)


class OwnerWorld:
    """One owner. node: where its ledgers are; publish: its service of publish streams; spans: what its traces hold."""

    def __init__(
        self, session: MemorySession, node: StoredNode, limits: OwnerLimits, security: Security = OPEN
    ) -> None:
        self.session = session
        self.node = node
        #: of the cluster
        self.level = PROCESS_VERSION
        #: by how much the clock of the lists of topics is ahead
        self.later_ms = 0
        self.spans = InMemorySpanExporter()
        self.metrics = OwnerMetrics(Telemetry("topic_owner", ME), ME)
        self.topics = TopicRegistry(self._new_runner, topics_max=limits.topics_max)
        self.publish = PublishService(
            self.topics, crc32c, self.metrics, message_bytes_max=limits.message_bytes_max,
            unanswered_bytes_max=limits.unanswered_bytes_max, level=lambda: self.level,
        )  # fmt: skip
        self.rooms = StreamRooms(bytes_max=limits.stream_bytes_max, caller_streams_max=limits.caller_streams_max)
        self.reads = ReadService(self.topics, self.rooms, offer_after_bytes=limits.offer_after_bytes)
        self._limits = limits
        self._cache_budget = CacheBudget(1 << 20)
        routes = LedgerRoutes()
        self.parts = OwnerParts(
            TopicStore(session), CursorStore(session), LedgerStore(session),
            StorageClient(routes.answered, routes.lost, credentials=security.peers), routes,
            IdSource(IdClaim(ME, block=1), CounterStore(session, Counter.LEDGER)),
            IdSource(IdClaim(ME, block=100), CounterStore(session, Counter.PRODUCER)),
            PolicyStore(session), self.metrics, StoreClock(session, paths.CLUSTER_POLICIES),
        )  # fmt: skip
        observe(self.metrics, self.topics)
        observe_offers(self.metrics.telemetry, self.reads.offers)
        self.rates = OwnerRates(self.topics, self.metrics)
        self.rooms.observe(self.metrics.telemetry)

    def _new_runner(
        self, topic_id: TopicId, nodes: StorageNodesUpdated, first: SessionNumber, finished: Finished
    ) -> TopicRunner:
        return TopicRunner(
            topic_id, ME, self._limits.topic, crc32c, self.parts, nodes=nodes, first_session=first,
            cache_budget=self._cache_budget, finished=finished,
        )  # fmt: skip

    def see_the_node(self) -> None:
        self.parts.links.update_addresses({self.node.incarnation: self.node.address})
        self.topics.update_nodes(StorageNodesUpdated((self.node.incarnation,)))

    def trace(self) -> None:
        """Spans leave from now on."""
        provider = TracerProvider(shutdown_on_exit=False)
        provider.add_span_processor(SimpleSpanProcessor(self.spans))
        self.metrics.telemetry.tracer = provider.get_tracer("oncelog")

    async def new_topic(self, name: str, *, owner: Incarnation = ME) -> TopicId:
        """A topic whose record names an owner."""
        created = await self.parts.topics.create(parse_topic(name))
        await self.place(created.name.value.topic_id, owner)
        return created.name.value.topic_id

    async def place(self, topic_id: TopicId, owner: Incarnation) -> None:
        """Name an owner in the topic record."""
        stored = await self.parts.topics.read(topic_id)
        assert stored is not None
        written = await self.parts.topics.write(stored.value.placed_on(owner), version=stored.version)
        assert written.status is WriteStatus.OK

    async def list_ledger(self, topic_id: TopicId, ledger_id: LedgerId) -> None:
        """Name a ledger as the only one of the topic's log."""
        stored = await self.parts.topics.read(topic_id)
        assert stored is not None
        record = replace(stored.value, ledgers=(LedgerLink(ledger_id, 0),))
        written = await self.parts.topics.write(record, version=stored.version)
        assert written.status is WriteStatus.OK

    async def serve(self, name: str) -> TopicRunner:
        """A new topic that this owner serves."""
        topic_id = await self.new_topic(name)
        self.topics.assign(topic_id)
        runner = self.topics.find(topic_id)
        assert runner is not None
        await runner.progress.until_serving()
        return runner


@asynccontextmanager
async def owner_world(
    tmp_path: Path, limits: OwnerLimits | None = None, security: Security = OPEN, *, deadline_s: float = 60
) -> AsyncIterator[tuple[OwnerWorld, Channel]]:
    """deadline_s: then the test has failed. One that computes for seconds takes far longer on a busy machine."""
    async with AsyncExitStack() as stack:
        await stack.enter_async_context(asyncio.timeout(deadline_s))
        session = MemorySession(MemoryTree(), root="/oncelog")
        await ClusterStore(session).establish("test-cluster")
        node = StoredNode(tmp_path / "node", LedgerLookup(session))
        node.security = security
        await node.start()
        stack.push_async_callback(node.stop)
        limits = limits or OwnerLimits()
        world = OwnerWorld(session, node, limits, security)
        stack.push_async_callback(world.parts.links.close)
        stack.callback(_end, world)
        world.see_the_node()
        server = Server(security)
        serve_calls(
            server, world.topics, ME, world.publish, world.reads, world.rooms, world.rates, world.metrics.events,
            level=lambda: world.level, now_ms=lambda: wall_ms() + world.later_ms,
        )  # fmt: skip
        port = await server.start()
        stack.push_async_callback(lambda: server.stop(grace_ms=0))
        yield world, await stack.enter_async_context(Channel(f"127.0.0.1:{port}", credentials=security.peers))


def _end(world: OwnerWorld) -> None:
    """As when a process ends: what it waits for is nobody's any more."""
    for runner in world.topics:
        runner._executor.cancel()


class PublishClient:
    """One publish stream, spoken by hand."""

    def __init__(self, channel: Channel) -> None:
        self.stream = channel.stream(PUBLISH)
        self._requests = 0
        self._opens = 0

    async def open(self, runner: TopicRunner, name: str) -> OpenGranted:
        self._opens += 1
        await self.stream.write(PublishFrame(opens=[OpenRequest(self._opens, runner.name, runner.topic_id, name)]))
        [granted] = (await self.receive()).granted
        return granted

    async def send(self, session: SessionNumber, *batches: bytes) -> None:
        """One frame of batches of one session, numbered on."""
        requests = range(self._requests + 1, self._requests + 1 + len(batches))
        self._requests = requests.stop - 1
        await self.stream.write(PublishFrame([session] * len(batches), requests, batches))

    async def receive(self) -> ReceivedAnswers:
        """The next frame of answers."""
        return await anext(aiter(self.stream))

    async def stored(self, granted: OpenGranted, *batches: bytes) -> list[Outcome]:
        """Send and wait for all answers, none of which is an error."""
        await self.send(granted.session, *batches)
        outcomes: list[Outcome] = []
        while len(outcomes) < len(batches):
            for _, result in (await self.receive()).answers[granted.session]:
                assert isinstance(result, tuple), result
                outcomes.append(result)
        return outcomes


def batch_of(
    granted: OpenGranted, ids: Sequence[int], *, payload: bytes | None = None, raw_bytes: int | None = None,
    producer_id: ProducerId | None = None, compression: Compression = Compression.ZLIB,
) -> bytes:  # fmt: skip
    """A batch of ascending ids. payload: empty messages unless told. raw_bytes: None: it is not compressed."""
    return encode_batch(
        encode_values([b""] * len(ids)) if payload is None else payload,
        producer_id=granted.producer_id if producer_id is None else producer_id,
        generation=Generation(granted.generation),
        first=ids[0], last=ids[-1], count=len(ids), publish_time_ms=0, checksum=crc32c,
        compression=Compression.NONE if raw_bytes is None else compression, payload_raw_bytes=raw_bytes,
        deltas=encode_deltas(ids),
    )  # fmt: skip


async def until_streams(world: OwnerWorld, count: int) -> None:
    await until(lambda: len(world.publish.streams) == count, DEADLINE_S, waiting_for="streams to come or go")
