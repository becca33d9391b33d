"""The gRPC methods for clients: look-up of topics, the topics of a namespace, and the ledgers of a topic.

The end and length of a CLOSED ledger are final, and its members change only by repair. So this service keeps copies of
CLOSED records, and a client that plans a read of a topic with thousands of ledgers (Spark does so for each micro-batch)
costs ZooKeeper one read per ledger that is not CLOSED. A copy is read again after a while, soon when one of its
members is not registered, and at once when a client names the ledger, because members have not given an entry. The
topic record, which lists the topic's ledgers, is read each time.
"""

import asyncio
import time
from collections.abc import Callable, Container, Sequence
from typing import Protocol

from oncelog.core.access import Caller, Right
from oncelog.core.address import join_address
from oncelog.core.errors import CorruptEntry, WrongCluster
from oncelog.core.formats.topic_record import DEDUP_CURSOR, LedgerLink, TopicRecord
from oncelog.core.ids import Incarnation, LedgerId, OwnerEpoch, TopicId
from oncelog.core.ledger.metadata import LedgerMetadata, LedgerState
from oncelog.core.names import parse_namespace, parse_topic
from oncelog.metadata.topics.topic_lookup import TopicLookup, require_unpartitioned
from oncelog.metadata_store.records.cursor_store import CursorStore
from oncelog.metadata_store.records.ledger_store import LedgerStore
from oncelog.metadata_store.records.policy_store import PolicyStore
from oncelog.metadata_store.records.registry import Registry
from oncelog.metadata_store.records.topic_store import TopicStore
from oncelog.metadata_store.session.store_session import Versioned
from oncelog.wire import metadata_pb2 as pb

#: Closed ledger records in memory, of about 700 bytes each.
LEDGERS_MAX = 50_000
#: A copy is read again after this time; after the shorter one if a member is not registered: repair may replace it.
COPY_AGE_S = 600.0
COPY_AGE_WITH_ABSENT_MEMBER_S = 10.0
#: Ledger records read concurrently.
LEDGER_READS_MAX = 64
_STATES = {
    LedgerState.OPEN: pb.LEDGER_STATE_OPEN,
    LedgerState.IN_RECOVERY: pb.LEDGER_STATE_IN_RECOVERY,
    LedgerState.CLOSED: pb.LEDGER_STATE_CLOSED,
}


class LedgerReads(Protocol):
    """The part of `LedgerStore` that is used here."""

    async def read(self, ledger_id: LedgerId) -> Versioned[LedgerMetadata] | None: ...


class ClosedLedgers:
    """Reads ledger records and keeps those of CLOSED ledgers, the most recently used `ledgers_max` of them."""

    def __init__(
        self, records: LedgerReads, *, ledgers_max: int = LEDGERS_MAX, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._records = records
        self._ledgers_max = ledgers_max
        self._clock = clock
        #: (record, when it was read), least recently used first
        self._closed: dict[tuple[TopicId, LedgerId], tuple[LedgerMetadata, float]] = {}

    async def read(
        self,
        topic_id: TopicId,
        ledger_id: LedgerId,
        registered: Container[Incarnation] | None = None,
        *,
        fresh: bool = False,
    ) -> LedgerMetadata | None:
        """The record, None if there is none. registered: the live storage nodes; None: not known. fresh: read it now.

        Raises StoreUnavailable, CorruptEntry.
        """
        key = (topic_id, ledger_id)
        known = self._closed.pop(key, None)
        if known is None or fresh or self._is_old(*known, registered):
            stored = await self._records.read(ledger_id)
            if stored is None or stored.value.state is not LedgerState.CLOSED:
                return None if stored is None else stored.value
            known = (stored.value, self._clock())
        self._closed[key] = known
        while len(self._closed) > self._ledgers_max:
            del self._closed[next(iter(self._closed))]
        return known[0]

    def _is_old(self, record: LedgerMetadata, read_s: float, registered: Container[Incarnation] | None) -> bool:
        age_s = self._clock() - read_s
        if registered is not None and any(member not in registered for member in record.members):
            return age_s >= COPY_AGE_WITH_ABSENT_MEMBER_S
        return age_s >= COPY_AGE_S


class LookupService:
    """Handlers of the gRPC methods; a caller's rights are checked here."""

    def __init__(
        self,
        cluster_id: str,
        lookup: TopicLookup,
        topics: TopicStore,
        ledgers: LedgerStore,
        cursors: CursorStore,
        registry: Registry,
        policies: PolicyStore,
    ) -> None:
        self._cluster_id = cluster_id
        self._lookup = lookup
        self._topics = topics
        self._ledgers = ClosedLedgers(ledgers)
        self._cursors = cursors
        self._registry = registry
        self._policies = policies

    async def look_up(self, request: pb.LookupRequest, caller: Caller) -> pb.LookupAnswer:
        if request.cluster_id not in ("", self._cluster_id):
            raise WrongCluster(f"wrong cluster: this is {self._cluster_id}, the client expects {request.cluster_id}")
        located = await self._lookup.locate_for(
            caller,
            parse_topic(request.topic),
            create=request.create_if_missing,
            owner_epoch_seen=OwnerEpoch(request.owner_epoch_seen),
        )
        return pb.LookupAnswer(
            cluster_id=self._cluster_id,
            topic_id=located.topic_id,
            partitions=located.partitions,
            owner_address=located.address,
            owner_incarnation=located.owner,
            owner_epoch=located.owner_epoch,
            owner_internal_address=located.internal_address,
            former_partitions=located.former_partitions,
        )

    async def topics(self, request: pb.TopicsRequest, caller: Caller) -> pb.TopicsAnswer:
        namespace = parse_namespace(request.namespace)
        await self._policies.require(caller, namespace, *Right)
        answer = pb.TopicsAnswer()
        for local, record in (await self._topics.topics(namespace)).items():
            name = parse_topic(f"{namespace}/{local}")
            if name.partition is None:
                # A damaged record hides nothing: its topic is listed, and a use of the topic fails with its error.
                partitions = 0 if isinstance(record, CorruptEntry) else record.partitions
                answer.topics.add(topic=str(name), partitions=partitions)
        return answer

    async def ledgers(self, request: pb.LedgersRequest, caller: Caller) -> pb.LedgersAnswer:
        name = parse_topic(request.topic)
        await self._policies.require(caller, name.namespace_name, Right.CONSUME)
        found, record = await self._lookup.record(name)
        require_unpartitioned(name, found.partitions)
        assert record is not None, "a topic that is not partitioned has a record"
        answer = pb.LedgersAnswer(topic_id=found.topic_id)
        answer.ledgers.extend(await self._of_log(record, request, answer))
        if request.with_snapshots:
            # Read after the log's ledgers: the listed snapshots may be newer than the listed entries, but never older.
            cursor = await self._cursors.read(record.topic_id, DEDUP_CURSOR)
            snapshots = [LedgerLink(link.ledger_id, 0) for link in (cursor.value.ledgers if cursor is not None else ())]
            answer.snapshot_ledgers.extend(await self._listed(record.topic_id, snapshots, request.ledger_ids))
        if request.with_acks:
            acks = [LedgerLink(ledger_id, 0) for ledger_id in record.acks]
            answer.ack_ledgers.extend(await self._listed(record.topic_id, acks, request.ledger_ids))
            answer.acks_deleted_below = record.acks_deleted_below
        return answer

    async def _of_log(
        self, record: TopicRecord, request: pb.LedgersRequest, answer: pb.LedgersAnswer
    ) -> list[pb.TopicLedger]:
        """Those that are requested. `answer` gets where the next ones begin."""
        after = LedgerId(request.after_ledger_id if request.HasField("after_ledger_id") else -1)
        count_max = request.ledgers_max or None
        links = await self._topics.pages.links(record, after=after, count_max=count_max)
        if links and links[-1] != record.ledgers[-1]:
            answer.next_after_ledger_id = links[-1].ledger_id
        return await self._listed(record.topic_id, links, request.ledger_ids)

    async def _listed(
        self, topic_id: TopicId, links: Sequence[LedgerLink], only: Sequence[int]
    ) -> list[pb.TopicLedger]:
        """The records of the linked ledgers, with the addresses of their members. only: of these, as they are now;
        empty: of all."""
        fresh, wanted = bool(only), set(only)
        links = [link for link in links if link.ledger_id in wanted] if fresh else links
        nodes = await self._registry.storage_nodes.live()
        addresses = {node.incarnation: join_address(node.host, node.port) for node in nodes.values()}
        listed: list[pb.TopicLedger] = []
        for start in range(0, len(links), LEDGER_READS_MAX):
            some = links[start : start + LEDGER_READS_MAX]
            reads = (self._ledgers.read(topic_id, link.ledger_id, addresses, fresh=fresh) for link in some)
            records = await asyncio.gather(*reads)
            # A missing record: the ledger was trimmed after the topic record was read.
            listed += [
                _ledger(link, ledger, addresses)
                for link, ledger in zip(some, records, strict=True)
                if ledger is not None
            ]
        return listed


def _ledger(link: LedgerLink, ledger: LedgerMetadata, addresses: dict[Incarnation, str]) -> pb.TopicLedger:
    return pb.TopicLedger(
        ledger_id=link.ledger_id,
        state=_STATES[ledger.state],
        first_base_index=link.base_index,
        end=ledger.end,
        length_bytes=ledger.length,
        members=[pb.LedgerMember(incarnation=one, address=addresses.get(one, "")) for one in ledger.members],
        ack_quorum=ledger.ack_quorum,
        lost=[pb.LostEntries(first=first, last=last) for first, last in ledger.lost],
        given_up_by=ledger.given_up_by,
        gone=ledger.given_up,
    )
