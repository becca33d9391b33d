"""Everything that one replica coordinates the cluster with, over one session with ZooKeeper."""

from dataclasses import dataclass

from oncelog.core.era import FIRST_ERA
from oncelog.core.errors import ServiceUnavailable
from oncelog.core.names import TopicName
from oncelog.metadata.cluster.cluster_level import ClusterLevel
from oncelog.metadata.observing.dependencies import Dependencies
from oncelog.metadata.observing.event_lists import EventLister
from oncelog.metadata.observing.grants import Grants
from oncelog.metadata.observing.history import HistorySampler
from oncelog.metadata.observing.lag_listing import LagLister
from oncelog.metadata.observing.topic_listing import TopicLister
from oncelog.metadata.observing.unowned_topics import UnownedTopics
from oncelog.metadata.owners.owner_calls import OwnerCalls
from oncelog.metadata.owners.owner_streams import OwnerStreams
from oncelog.metadata.owners.owners import Owners, Probe, Start, probe
from oncelog.metadata.placement.placements import Placements
from oncelog.metadata.proof.owner_folds import OwnerFolds
from oncelog.metadata.proof.owner_view import OwnerViews
from oncelog.metadata.proof.proofs import Proofs
from oncelog.metadata.proof.topic_range import TopicRanges
from oncelog.metadata.repair.repair import Repair, RepairPace
from oncelog.metadata.restore.performer import RestoreSources
from oncelog.metadata.restore.record_copies import CopySettings, RecordCopies
from oncelog.metadata.restore.restoring import Restoring
from oncelog.metadata.restore.rights import ClosedRights
from oncelog.metadata.topics.era_proof import EraProof
from oncelog.metadata.topics.ledger_fences import LedgerFences
from oncelog.metadata.topics.lookup_service import LookupService
from oncelog.metadata.topics.partition_growth import PartitionGrowth
from oncelog.metadata.topics.producer_calls import ProducerCalls
from oncelog.metadata.topics.producer_leases import ProducerLeases
from oncelog.metadata.topics.subscription_calls import SubscriptionCalls
from oncelog.metadata.topics.topic_calls import TopicCalls
from oncelog.metadata.topics.topic_deletions import DeletionParts, TopicDeletions
from oncelog.metadata.topics.topic_lookup import TopicLookup
from oncelog.metadata_store.keys.idempotency_keys import KeyStore
from oncelog.metadata_store.records.cluster_store import ClusterStore
from oncelog.metadata_store.records.cursor_store import CursorStore
from oncelog.metadata_store.records.deletion_store import DeletionStore
from oncelog.metadata_store.records.ledger_store import LedgerStore
from oncelog.metadata_store.records.namespace_store import NamespaceStore
from oncelog.metadata_store.records.policy_store import PolicyStore
from oncelog.metadata_store.records.proof_store import ProofStore
from oncelog.metadata_store.records.registry import Registry
from oncelog.metadata_store.records.topic_store import TopicStore
from oncelog.metadata_store.session.store_session import StoreSession
from oncelog.rpc.codecs import metadata_codec
from oncelog.rpc.codecs.events_codec import serve_events
from oncelog.rpc.server import Server
from oncelog.runtime.credentials import PLAIN, Credentials
from oncelog.runtime.observing.audit_log import AuditLog
from oncelog.runtime.observing.events import EventRing


@dataclass(frozen=True, slots=True)
class Coordination:
    """One replica's records, view of the topic owners, and decisions. The gRPC and REST interfaces both use it."""

    cluster_id: str
    namespaces: NamespaceStore
    policies: PolicyStore
    grants: Grants
    topics: TopicStore
    ledgers: LedgerStore
    cursors: CursorStore
    registry: Registry
    level: ClusterLevel
    dependencies: Dependencies
    owners: Owners
    calls: OwnerCalls
    lookup: TopicLookup
    placements: Placements
    topic_calls: TopicCalls
    subscriptions: SubscriptionCalls
    leases: ProducerLeases
    producers: ProducerCalls
    growth: PartitionGrowth
    lister: TopicLister
    lags: LagLister
    unowned: UnownedTopics
    history: HistorySampler
    deletions: TopicDeletions
    repair: Repair
    copies: RecordCopies
    events: EventRing
    event_lists: EventLister
    folds: OwnerFolds
    proofs: Proofs
    restoring: Restoring
    rights: ClosedRights

    @classmethod
    def over(
        cls,
        session: StoreSession,
        cluster_id: str,
        start: Start,
        *,
        reach: Probe = probe,
        peers: Credentials = PLAIN,
        pace: RepairPace | None = None,
        keys: KeyStore | None = None,
        events: EventRing | None = None,
        unnoted: StoreSession | None = None,
        copies: CopySettings | None = None,
        restoring: Restoring | None = None,
    ) -> "Coordination":
        """Build all parts over one session with the store. start: runs their background tasks. pace: of repair.
        keys: idempotency keys; None: they are not configured. unnoted: the same session for changes whose notes nobody
        waits for; None: `session`. restoring: None: one that knows no storage node."""
        unnoted = unnoted or session
        registry, topics, policies, ledgers = (
            Registry(session),
            TopicStore(session),
            PolicyStore(session),
            LedgerStore(session),
        )
        namespaces, events = NamespaceStore(session), events or EventRing("metadata")
        owners, calls = Owners(registry, start, probe=reach, events=events), OwnerCalls(peers)
        placements = Placements(topics, owners, calls, start)
        owners.listener = placements
        fences = LedgerFences(registry, ledgers, peers)
        repair = Repair.over(
            session,
            placements,
            owners=lambda: [one.incarnation for one in owners.live],
            events=events,
            peers=peers,
            pace=pace,
            unnoted=unnoted,
        )
        lookup = TopicLookup(
            topics, policies, owners, placements, EraProof(session, repair.calls), by_use=TopicStore(unnoted)
        )
        topic_calls = TopicCalls(lookup, owners)
        subscriptions = SubscriptionCalls(lookup, topic_calls, calls)
        deletion_parts = DeletionParts(
            topics, DeletionStore(session), ledgers, ProofStore(session), owners, calls, fences
        )
        era = peers.era or FIRST_ERA
        kept = RecordCopies(session, repair.watch, repair.calls, copies or CopySettings(), era=era)
        unowned = UnownedTopics(topics, owners, start)
        ranges, folds = TopicRanges(topics, ledgers, topic_calls, calls), OwnerFolds(topic_calls, calls)
        views = OwnerViews(topic_calls, calls, CursorStore(session), ledgers, repair.calls)
        return cls(
            cluster_id=cluster_id,
            namespaces=namespaces,
            policies=policies,
            grants=Grants(namespaces, policies, start),
            topics=topics,
            ledgers=ledgers,
            cursors=CursorStore(session),
            registry=registry,
            level=ClusterLevel(
                ClusterStore(session),
                registry,
                era=era,
                prepare=kept.pin_before_finalize,
                conclude=kept.pin_after_finalize,
            ),
            dependencies=Dependencies(session, registry, start, check_keys=None if keys is None else keys.check),
            owners=owners,
            calls=calls,
            lookup=lookup,
            placements=placements,
            topic_calls=topic_calls,
            subscriptions=subscriptions,
            leases=ProducerLeases(topic_calls, calls),
            producers=ProducerCalls(topic_calls, calls),
            growth=PartitionGrowth(topics, subscriptions),
            lister=TopicLister(owners, calls),
            lags=LagLister(owners, calls),
            unowned=unowned,
            history=HistorySampler(owners, calls, unowned),
            deletions=TopicDeletions(deletion_parts, start),
            repair=repair,
            copies=kept,
            folds=folds,
            proofs=Proofs(ProofStore(session), topics, ranges, folds, views, repair.watch.refresh, events),
            events=events,
            event_lists=EventLister(events, registry, owners, start, peers),
            restoring=restoring or Restoring(RestoreSources(session, AuditLog(events), credentials=peers), start),
            rights=ClosedRights(ClusterStore(session), namespaces, policies),
        )

    def serve(self, server: Server) -> None:
        """Register the gRPC methods."""
        lookups = LookupService(
            self.cluster_id, self.lookup, self.topics, self.ledgers, self.cursors, self.registry, self.policies
        )
        server.client_unary(metadata_codec.LOOKUP, lookups.look_up)
        server.client_unary(metadata_codec.LEDGERS, lookups.ledgers)
        server.client_unary(metadata_codec.TOPICS, lookups.topics)
        serve_events(server, self.events)
        server.stream(metadata_codec.OWNER_STREAM, OwnerStreams(self.cluster_id, self.owners).serve)

    async def create_topic(self, name: TopicName, *, partitions: int = 0) -> bool:
        """As `TopicLookup.create`; waits while a deleted partitioned topic of that name is removed."""
        try:
            return await self.lookup.create(name, partitions=partitions)
        except ServiceUnavailable:
            # Asked only now, because a name is mostly free.
            await self.deletions.until_free(name)
        return await self.lookup.create(name, partitions=partitions)

    async def close(self) -> None:
        """Stop drawing conclusions from closed streams, end repairs, and close the channels to other processes."""
        self.owners.listener = None
        await self.event_lists.close()
        await self.repair.close()
        await self.calls.close()
