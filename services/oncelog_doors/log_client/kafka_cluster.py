"""The cluster in the form that a door needs for Kafka's clients (`kafka.ports.ClusterPort`).

The door reads with its own rights, so it asks for those of a client's role before each answer, and again while a reader
is open.
"""

from collections.abc import Sequence

from crc32c import crc32c

from oncelog.client.client import AsyncClient
from oncelog.client.gateways import StartIndex, StartMessage, StartTime, WholeEntry, bounds_of, index_at
from oncelog.client.producing.leases import LeaseWanted
from oncelog.core.access import Caller
from oncelog.core.errors import ChunkedMessage, CorruptEntry, InvalidBatch, OncelogError
from oncelog.core.format_errors import MessageEncrypted
from oncelog.core.ids import TopicId
from oncelog.core.names import NamespaceName, TopicName
from oncelog_doors.connections.ports import ProvedCaller
from oncelog_doors.core.kafka.producer_ids import is_ours, producer_id_of
from oncelog_doors.core.kafka.stored_entries import first_at, records_of
from oncelog_doors.core.shared.named_topics import OWN_PREFIX, NamedTopic
from oncelog_doors.kafka.ports import NO_OFFSET, Bounds, FoundOffset, ReadBatch, StoredPlace
from oncelog_doors.log_client.kafka_producer import KafkaProducer, open_kafka_producer
from oncelog_doors.log_client.log_reader import LogReader, open_at
from oncelog_doors.log_client.rights import Rights
from oncelog_doors.log_client.sdk_cluster import SdkCluster

#: Of a question to the owner of a topic; clients wait 30 s and more, and ask again.
_QUESTION_MS = 20_000
#: How old the rights of a role may be that one request after the other is judged by.
_RIGHTS_AGE_S = 5.0
#: Entries that are looked at for the first message of a time.
_LOOKED_AT_MAX = 1_000


#: A topic without messages, of the doors.
_LEASES = f"{OWN_PREFIX}kafka_producers"
#: The shortest life of a lease.
_LEASE_S = 10.0


class KafkaCluster:
    """cluster: of all doors of this process."""

    def __init__(self, cluster: SdkCluster, cluster_id: str, namespace: NamespaceName) -> None:
        """namespace: has the topic by whose leases producer ids are given."""
        self._cluster = cluster
        self.cluster_id = cluster_id
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
        return await self._cluster.partitions(topic, caller, may_create=may_create)

    async def topics_of(self, namespace: NamespaceName, caller: Caller) -> Sequence[NamedTopic]:
        return await self._cluster.topics_of(namespace, caller)

    async def _allowed(self, log: TopicName, caller: Caller) -> Rights:
        rights = self._cluster.rights(caller, log)
        await rights.check(may_create=False, age_s=_RIGHTS_AGE_S)
        return rights

    async def bounds(self, log: TopicName, caller: Caller) -> Bounds:
        await self._allowed(log, caller)
        return Bounds(*await bounds_of(self._client, str(log), timeout_ms=_QUESTION_MS, create=_may_be_unused(log)))

    async def offset_at(self, log: TopicName, caller: Caller, time_ms: int) -> FoundOffset:
        rights = await self._allowed(log, caller)
        end = (await self.bounds(log, caller)).end
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
        start, creates = StartIndex(offset), _may_be_unused(log)
        reader = await open_at(self._client, rights, start, window_bytes, windows, create=creates)
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

    async def open_producer(self, log: TopicName, caller: Caller, producer_id: int | None) -> KafkaProducer:
        return await open_kafka_producer(self._client, log, caller, producer_id)

    async def offset_at_place(self, log: TopicName, place: StoredPlace) -> int:
        at = StartMessage(place.position, place.batch_index, inclusive=True)
        return await index_at(self._client, str(log), at, timeout_ms=_QUESTION_MS)


def _may_be_unused(log: TopicName) -> bool:
    """A partition is there for clients of Kafka before its first use, which creates it. Only partitions that the topic
    has can be created."""
    return log.partition is not None


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
        return self._reader.size_of(entry)

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
