"""The calls that an owner answers, of clients and of the metadata services; by the service that handles each."""

from collections.abc import Callable

from oncelog.core.ids import Incarnation
from oncelog.rpc.codecs import (
    consumer_codec,
    deduplication_codec,
    finding_codec,
    group_codec,
    owner_codec,
    producer_codec,
    reader_codec,
    subscription_codec,
)
from oncelog.rpc.codecs.events_codec import serve_events
from oncelog.rpc.server import Server
from oncelog.runtime.observing.events import EventRing
from oncelog.topic_owner.observe.lag_listing import LagListing
from oncelog.topic_owner.observe.rates import OwnerRates
from oncelog.topic_owner.observe.topic_listing import TopicListing, wall_ms
from oncelog.topic_owner.observe.topic_samples import TopicSamples
from oncelog.topic_owner.shell.topic_registry import TopicRegistry
from oncelog.topic_owner.streams.admin_service import AdminService
from oncelog.topic_owner.streams.chunk_service import ChunkService
from oncelog.topic_owner.streams.consume_service import ConsumeService
from oncelog.topic_owner.streams.deduplication_service import DeduplicationService
from oncelog.topic_owner.streams.finding_service import FindingService
from oncelog.topic_owner.streams.group_offset_service import GroupOffsetService
from oncelog.topic_owner.streams.group_service import GroupService
from oncelog.topic_owner.streams.inspection_service import InspectionService
from oncelog.topic_owner.streams.lease_service import LeaseService
from oncelog.topic_owner.streams.producer_service import ProducerService
from oncelog.topic_owner.streams.publish_service import PublishService
from oncelog.topic_owner.streams.read_service import ReadService
from oncelog.topic_owner.streams.stream_rooms import StreamRooms
from oncelog.topic_owner.streams.subscription_service import SubscriptionService


def serve_calls(
    server: Server, topics: TopicRegistry, incarnation: Incarnation, publish: PublishService, reads: ReadService,
    rooms: StreamRooms, rates: OwnerRates, events: EventRing, *, level: Callable[[], int],
    now_ms: Callable[[], int] = wall_ms,
) -> None:  # fmt: skip
    """level: of the cluster. now_ms: since 1970, for the lists of topics."""
    server.client_stream(owner_codec.PUBLISH, publish.publish)
    server.client_stream(reader_codec.READ, reads.read)
    server.client_stream(consumer_codec.CONSUME, ConsumeService(topics, rooms, level).consume)
    admin = AdminService(topics, incarnation, rates)
    server.client_unary(reader_codec.FIND_INDEX, admin.find_index)
    server.client_unary(owner_codec.LAST_MESSAGE, admin.last_message)
    server.client_unary(owner_codec.LEASE_PRODUCER_ID, LeaseService(topics, publish.calls).lease)
    server.client_unary(owner_codec.READ_CHUNK, ChunkService(topics).read)
    server.client_unary(owner_codec.PRODUCER_NAMES, admin.producer_names)
    GroupOffsetService(topics, level).serve(server)
    server.client_unary(group_codec.ASK_GROUP, GroupService(topics).ask)
    subscriptions = SubscriptionService(topics)
    server.unary(subscription_codec.DESCRIBE_SUBSCRIPTIONS, subscriptions.describe)
    server.unary(subscription_codec.CHANGE_SUBSCRIPTION, subscriptions.change)
    server.unary(subscription_codec.PEEK_MESSAGE, subscriptions.peek)
    InspectionService(topics).serve(server)
    deduplication = DeduplicationService(topics)
    server.unary(deduplication_codec.DESCRIBE_DEDUPLICATION, deduplication.describe)
    server.unary(deduplication_codec.TAKE_SNAPSHOT, deduplication.take_snapshot)
    server.unary(deduplication_codec.VERIFY_FOLD, deduplication.verify)
    producers = ProducerService(topics)
    server.unary(producer_codec.LIST_PRODUCERS, producers.list)
    server.unary(producer_codec.DESCRIBE_PRODUCER, producers.describe)
    server.unary(producer_codec.REMOVE_PRODUCER, producers.remove)
    finding = FindingService(topics)
    server.unary(finding_codec.FIND_MESSAGE, finding.find)
    server.unary(finding_codec.READ_STORED_MESSAGES, finding.read)
    server.unary(owner_codec.TOPIC_STATES, admin.states)
    server.unary(owner_codec.LIST_TOPICS, TopicListing(topics, rates, now_ms=now_ms).answer)
    server.unary(owner_codec.LIST_LAGS, LagListing(topics, rates).answer)
    server.unary(owner_codec.SAMPLE_TOPICS, TopicSamples(topics, rates).answer)
    server.unary(owner_codec.RATES, rates.answer)
    server.unary(owner_codec.ASSIGN, admin.assign)
    server.unary(owner_codec.UNLOAD, admin.unload)
    server.unary(owner_codec.TRUNCATE, admin.truncate)
    server.unary(owner_codec.TRIM, admin.trim)
    server.unary(owner_codec.CACHED_ENTRIES, admin.cached_entries)
    serve_events(server, events)
