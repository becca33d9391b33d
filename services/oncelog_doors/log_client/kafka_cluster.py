"""The cluster in the form that a door needs for Kafka's clients (`kafka.ports.ClusterPort`).

The door reads with its own rights, so it asks for those of a client's role before each answer, and again while a reader
is open.
"""

from collections.abc import Sequence

from crc32c import crc32c

from oncelog.client.client import AsyncClient
from oncelog.client.gateways import StartIndex, StartMessage, StartTime, WholeEntry, bounds_of, index_at
from oncelog.client.producing.leases import LeaseWanted
from oncelog.core.access import Caller, Right
from oncelog.core.errors import ChunkedMessage, CorruptEntry, InvalidBatch, OncelogError, TopicNotFound
from oncelog.core.format_errors import MessageEncrypted
from oncelog.core.ids import TopicId
from oncelog.core.names import DOORS_PREFIX, NamespaceName, TopicName
from oncelog_doors.connections.ports import ProvedCaller
from oncelog_doors.core.kafka.producer_ids import is_ours, producer_id_of
from oncelog_doors.core.kafka.stored_entries import first_at, goes_out_as_it_came, records_of
from oncelog_doors.core.shared.lookup_rights import require_creation
from oncelog_doors.core.shared.named_topics import NamedTopic
from oncelog_doors.kafka.ports import NO_OFFSET, Bounds, FoundOffset, ProducerPort, ReadBatch, StoredPlace
from oncelog_doors.log_client.forwarded_rest import ForwardedRest
from oncelog_doors.log_client.kafka_administration import KafkaAdministration
from oncelog_doors.log_client.kafka_groups import KafkaGroups
from oncelog_doors.log_client.kafka_offsets import KafkaOffsets
from oncelog_doors.log_client.kafka_producer import open_kafka_producer
from oncelog_doors.log_client.log_reader import LogReader, open_at
from oncelog_doors.log_client.rights import Rights
from oncelog_doors.log_client.sdk_cluster import SdkCluster

#: Of a question to the owner of a topic; clients wait 30 s and more, and ask again.
_QUESTION_MS = 20_000
#: Of the creation of a topic by its first use: clients ask again.
_CREATION_MS = 3_000
#: How old the rights of a role may be that one request after the other is judged by.
_RIGHTS_AGE_S = 5.0
#: Entries that are looked at for the first message of a time.
_LOOKED_AT_MAX = 1_000


#: Any right of a role shows it the topics of the namespace: its administrators look at them, too.
_SEES = tuple(Right)
#: A topic without messages, of the doors.
_LEASES = f"{DOORS_PREFIX}kafka_producers"
#: The shortest life of a lease.
_LEASE_S = 10.0


class KafkaCluster:
    """cluster: of all doors of this process. rest: for what clients do with the rights of their own tokens."""

    def __init__(
        self,
        cluster: SdkCluster,
        rest: ForwardedRest,
        cluster_id: str,
        namespace: NamespaceName,
        *,
        partitions_default: int,
    ) -> None:
        """namespace: has the topic by whose leases producer ids are given. partitions_default: of new topics."""
        self._cluster, self._rest = cluster, rest
        self._own_rights = KafkaAdministration(ForwardedRest(cluster.client), None)
        self.partitions_default = partitions_default
        self.cluster_id = cluster_id
        self.groups = KafkaGroups(cluster)
        self.offsets = KafkaOffsets(cluster)
        self._leases = TopicName(namespace.tenant, namespace.namespace, _LEASES)

    @property
    def _client(self) -> AsyncClient:
        return self._cluster.client

    @property
    def authentication(self) -> bool:
        return self._cluster.authentication

    async def caller_of(self, token: str, address: str) -> ProvedCaller:
        return await self._cluster.caller_of(token, address)

    async def partitions(self, topic: TopicName, caller: Caller, *, may_create: bool) -> int:
        try:
            return await self._cluster.partitions(topic, caller, may_create=False, sees=_SEES)
        except TopicNotFound:
            if not may_create:
                raise
        if Right.PRODUCE not in await self.rights_of(topic.namespace_name, caller):
            require_creation(caller, topic)
        # With partitions, so that the topic can get more of them. With the rights of the door: a role that may only
        # publish cannot read whether the namespace allows the creation.
        await self._own_rights.create_by_use(topic, self.partitions_default, _CREATION_MS)
        return await self._cluster.partitions(topic, caller, may_create=False, sees=_SEES)

    async def topics_of(self, namespace: NamespaceName, caller: Caller) -> Sequence[NamedTopic]:
        return await self._cluster.topics_of(namespace, caller, _SEES)

    async def rights_of(self, namespace: NamespaceName, caller: Caller) -> frozenset[Right]:
        return await self._cluster.rights_of(namespace, caller)

    def administration(self, token: str | None) -> KafkaAdministration:
        return KafkaAdministration(self._rest, token)

    async def _allowed(self, log: TopicName, caller: Caller) -> Rights:
        rights = self._cluster.rights(caller, log)
        await rights.check(may_create=False, age_s=_RIGHTS_AGE_S)
        return rights

    async def bounds(self, log: TopicName, caller: Caller) -> Bounds:
        await self._allowed(log, caller)
        try:
            return Bounds(*await bounds_of(self._client, str(log), timeout_ms=_QUESTION_MS))
        except TopicNotFound:
            if log.partition is None:
                raise
            return Bounds(0, 0)  # of a topic that has this partition, which was never used

    async def offset_at(self, log: TopicName, caller: Caller, time_ms: int) -> FoundOffset:
        rights = await self._allowed(log, caller)
        end = (await self.bounds(log, caller)).end
        if end == 0:
            return NO_OFFSET
        place = StartTime(time_ms)
        first = await index_at(self._client, str(log), place, timeout_ms=_QUESTION_MS)
        if first >= end:
            return NO_OFFSET
        windows = self._cluster.windows
        reader = await open_at(self._client, rights, place, windows.opened(), windows, create=False)
        try:
            return await _first_at(reader, time_ms, first, end)
        finally:
            reader.close()

    async def open_reader(self, log: TopicName, caller: Caller, offset: int) -> "KafkaReader":
        rights = await self._allowed(log, caller)
        windows = self._cluster.windows
        window_bytes = windows.opened()
        # A partition is created by its first use, and a consumer may wait for its first message.
        create = log.partition is not None
        reader = await open_at(self._client, rights, StartIndex(offset), window_bytes, windows, create=create)
        return KafkaReader(reader, window_bytes)

    # --- producers ----------------------------------------------------------------------------------------------------

    @property
    def batch_bytes_max(self) -> int:
        return self._cluster.batch_bytes_max

    async def new_producer_id(self) -> int:
        """The log gives an id with each lease, and never again. Nobody publishes under the lease: it ends by itself."""
        wanted = LeaseWanted(str(self._leases), expires=_LEASE_S)
        [lease] = await self._client.lease_producer_ids([wanted])
        if isinstance(lease, OncelogError):
            raise lease
        return producer_id_of(lease.producer_id, self.cluster_id, crc32c)

    def is_ours(self, producer_id: int) -> bool:
        return is_ours(producer_id, self.cluster_id, crc32c)

    async def open_producer(self, log: TopicName, caller: Caller, producer_id: int | None) -> ProducerPort:
        return await open_kafka_producer(self._client, log, caller, producer_id)

    async def offset_at_place(self, log: TopicName, place: StoredPlace) -> int:
        at = StartMessage(place.position, place.batch_index, inclusive=True)
        return await index_at(self._client, str(log), at, timeout_ms=_QUESTION_MS)


class KafkaReader:
    """Of one partition of one connection."""

    def __init__(self, reader: LogReader, window_bytes: int) -> None:
        self._reader = reader
        self.read_ahead_bytes = window_bytes

    @property
    def topic_id(self) -> TopicId:
        return self._reader.topic_id

    def take(self) -> WholeEntry | None:
        return self._reader.take()

    async def arrival(self) -> None:
        await self._reader.arrival()

    def size_of(self, entry: WholeEntry) -> int:
        header, batch, _ = entry.stored
        return 0 if goes_out_as_it_came(header, batch) else self._reader.size_of(entry)

    def prepare(self, entry: WholeEntry) -> ReadBatch:
        header, batch, body = entry.stored
        try:
            records = records_of(header, batch, body, crc32c)
        except (InvalidBatch, ChunkedMessage, MessageEncrypted) as error:
            raise CorruptEntry(f"entry {header.position} cannot be read: {error}") from error
        return ReadBatch(records, header.base_index, header.next_index - 1)

    def close(self) -> None:
        self._reader.close()


async def _first_at(reader: LogReader, time_ms: int, first: int, end: int) -> FoundOffset:
    """The owner knows when entries were stored. Clients ask by the times that they have written, which are earlier: so
    the message is in the entry that is found, or behind it. first: of that entry. end: of the log."""
    offset = first
    for _ in range(_LOOKED_AT_MAX):
        while (entry := reader.take()) is None:
            await reader.arrival()
        header, batch, body = entry.stored
        found = first_at(header, batch, body, time_ms)
        if found is not None:
            return FoundOffset(*found)
        offset = header.next_index
        if offset >= end:
            return NO_OFFSET
    return FoundOffset(offset, time_ms)
