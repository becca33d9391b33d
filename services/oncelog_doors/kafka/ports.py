"""What a door for Kafka's clients needs of the cluster: the forms of the client of Oncelog behind it."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

from oncelog.client.group_offsets import GroupResult, NewOffset
from oncelog.core.access import Caller, Right
from oncelog.core.errors import OncelogError
from oncelog.core.groups.answers import GroupAnswer
from oncelog.core.groups.events import GroupRequest, ListRequested
from oncelog.core.ids import Generation, Position, SequenceId, TopicId
from oncelog.core.names import NamespaceName, TopicName
from oncelog_doors.connections.ports import ProvedCaller
from oncelog_doors.connections.received import Buffer
from oncelog_doors.core.kafka.batch_checks import CheckedBatch
from oncelog_doors.core.kafka.batch_numbers import GivenIds
from oncelog_doors.core.kafka.error_codes import ErrorCode
from oncelog_doors.core.shared.named_topics import NamedTopic
from oncelog_doors.kafka.administration_ports import AdministrationPort

#: What the coordinator of groups can be asked.
GroupQuestion = GroupRequest | ListRequested


class Bounds(NamedTuple):
    """Of the log of a partition. first: the first offset that is kept. end: behind the last message; every message that
    was acknowledged before is in front of it."""

    first: int
    end: int


class FoundOffset(NamedTuple):
    """timestamp_ms: of the message."""

    offset: int
    timestamp_ms: int


#: No message is so new.
NO_OFFSET = FoundOffset(-1, -1)


class StoredPlace(NamedTuple):
    """Of a message. batch_index: within its entry. offset: None: it is not known, but can be asked for."""

    position: Position
    batch_index: int
    offset: int | None = None


class ReadBatch(NamedTuple):
    """What is sent of one stored entry. last_offset: of its last message."""

    records: Buffer
    base_offset: int
    last_offset: int


class ReaderPort(Protocol):
    """The entries of one partition from an offset on. It survives changes of the owner by itself."""

    @property
    def topic_id(self) -> TopicId:
        """Of the topic that is read: one that is deleted and made again has another."""

    @property
    def read_ahead_bytes(self) -> int:
        """How much of what was read may wait for the client."""

    def take(self) -> Any | None:
        """The next entry, for `prepare`; None when none is here."""

    def size_of(self, entry: Any) -> int:
        """The bytes that `prepare` reads, and does more with than copying them, or about as many as take it as long."""

    def prepare(self, entry: Any) -> ReadBatch:
        """What is sent of an entry. It computes only, and may run in another thread. Raises OncelogError for an entry
        that no client can be sent."""

    async def arrival(self) -> None:
        """Return when an entry may be here. Raises OncelogError: a retriable one, after which it may wait again, or
        what ends this reader."""

    def close(self) -> None:
        """`arrival` then raises ReaderClosed."""


@dataclass(frozen=True, slots=True)
class StoredAt:
    """A batch is stored, by this send or an earlier one. place: of its first record; None: it is not remembered."""

    place: StoredPlace | None


@dataclass(frozen=True, slots=True)
class NotStored:
    """The log has refused a batch, and nothing of it was stored by this. sentence: why."""

    code: ErrorCode
    sentence: str


Decision = StoredAt | NotStored
#: Called once, on the event loop. None: the producer has ended, and nothing is known of the batch.
Decided = Callable[[Decision | None], None]


class ProducerPort(Protocol):
    """One open producer: a session with the owner of its partition, which comes back after takeovers by itself."""

    @property
    def mark(self) -> SequenceId | None:
        """The highest id that was durable when it was opened, after writes in flight had settled; -1: none. None: ids
        are counted here, and the numbers of clients mean nothing."""

    def has_room(self, size: int) -> bool:
        """Whether a batch of this size may be given now."""

    async def room(self, size: int) -> None:
        """Return when there is room, or the producer has ended."""

    def give(self, batch: CheckedBatch, ids: GivenIds, decided: Decided) -> None:
        """Hand a batch to the log. It is sent again until the log has decided about it."""

    async def ended(self) -> OncelogError:
        """Return what ends this producer, when it does."""

    async def close(self) -> None:
        """End the session now; each open `decided` gets None."""


class OffsetsPort(Protocol):
    """Offsets of groups in logs: partitions, or topics that are not partitioned. Each log has a result of its own; a
    retriable error when the time is over."""

    async def commit(
        self,
        caller: Caller,
        group: str,
        offsets: Mapping[TopicName, NewOffset],
        generation: Generation,
        *,
        timeout_ms: int,
    ) -> Mapping[TopicName, GroupResult]:
        """Durable when it returns."""

    async def fetch(
        self, caller: Caller, group: str, logs: Sequence[TopicName], *, timeout_ms: int
    ) -> Mapping[TopicName, GroupResult]:
        """Behind all commits that were begun before."""

    async def delete(
        self, caller: Caller, group: str, logs: Sequence[TopicName], generation: Generation, *, timeout_ms: int
    ) -> Mapping[TopicName, GroupResult]:
        """ConsumerFenced: the log has a higher generation. The results are what was there."""


class GroupsPort(Protocol):
    """Groups of consumers of a namespace. Raises OncelogError; a retriable one when the time is over."""

    async def ask(
        self, namespace: NamespaceName, caller: Caller, question: GroupQuestion, *, timeout_ms: int
    ) -> GroupAnswer:
        """Ask the coordinator, and the next one if it goes. Raises TopicNotFound if no client of the namespace has ever
        joined a group; JoinGroup and a commit never raise it."""

    async def raise_generations(
        self, logs: Sequence[TopicName], caller: Caller, group: str, generation: Generation, *, timeout_ms: int
    ) -> Generation:
        """Return when these partitions durably refuse commits of former generations. Returns the highest generation
        that one of them has; 0: the group has offsets in none."""

    async def delete_offsets(
        self,
        namespace: NamespaceName,
        caller: Caller,
        group: str,
        generation: Generation,
        *,
        unused_for_ms: int,
        timeout_ms: int,
    ) -> bool:
        """Delete the offsets of the group in all topics, up to this generation. unused_for_ms: unless 0, not where no
        group has committed, or one has within this time. Returns whether there were any."""

    async def delete_unused_offsets(
        self, namespace: NamespaceName, caller: Caller, *, unused_for_ms: int, timeout_ms: int
    ) -> Mapping[str, int]:
        """Delete each offset that was committed so long ago by a client without a group, and that no member of the
        group has had since. timeout_ms: of each question. Returns how many there were of each group; those that could
        not be asked for are due the next time."""


class ClusterPort(Protocol):
    """The cluster, for all connections of a door. Calls for a caller raise PermissionDenied, and OncelogError."""

    @property
    def cluster_id(self) -> str: ...

    @property
    def groups(self) -> GroupsPort: ...

    @property
    def offsets(self) -> OffsetsPort: ...

    @property
    def authentication(self) -> bool:
        """Whether callers need a token."""

    async def caller_of(self, token: str, address: str) -> ProvedCaller:
        """Raises Unauthenticated for an invalid token, and a Retriable error if it cannot be checked now."""

    def administration(self, token: str | None) -> AdministrationPort:
        """For the client with this token; None: it has none, because none is needed."""

    async def rights_of(self, namespace: NamespaceName, caller: Caller) -> frozenset[Right]:
        """Those that the caller has there."""

    async def partitions(self, topic: TopicName, caller: Caller, *, may_create: bool) -> int:
        """0: the topic is not partitioned. A topic that is created has `partitions_default` and can be used when this
        returns."""

    async def topics_of(self, namespace: NamespaceName, caller: Caller) -> Sequence[NamedTopic]:
        """The topics of a namespace, without their partitions."""

    async def bounds(self, log: TopicName, caller: Caller) -> Bounds:
        """Of a partition, or of a topic that is not partitioned."""

    async def offset_at(self, log: TopicName, caller: Caller, time_ms: int) -> FoundOffset:
        """The first message whose time is not before this one, as far as clocks agree: NO_OFFSET if there is none."""

    async def open_reader(self, log: TopicName, caller: Caller, offset: int) -> ReaderPort:
        """Open a reader for the caller. Cancelling withdraws the request."""

    @property
    def batch_bytes_max(self) -> int:
        """The limit of the log for a batch."""

    @property
    def partitions_default(self) -> int:
        """Of a new topic, unless its creator says how many."""

    async def new_producer_id(self) -> int:
        """One that no other client of this cluster ever gets."""

    def is_ours(self, producer_id: int) -> bool:
        """Whether `new_producer_id` may have given it."""

    async def open_producer(self, log: TopicName, caller: Caller, producer_id: int | None) -> ProducerPort:
        """Open a producer for the caller. producer_id: None: one of this door, for batches without numbers. It waits
        while the partition has no owner; cancelling withdraws the request."""

    async def offset_at_place(self, log: TopicName, place: StoredPlace) -> int:
        """Of a message that is stored."""
