"""What a door for Pulsar's clients needs of the cluster: the forms of the client of Oncelog behind it."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

from oncelog.core.access import Caller
from oncelog.core.acks.changes import IndexRange
from oncelog.core.errors import OncelogError
from oncelog.core.ids import Position, SeekEpoch, SequenceId
from oncelog.core.names import NamespaceName, TopicName
from oncelog_doors.connections.ports import ProvedCaller
from oncelog_doors.core.pulsar.deliveries import Delivery, RawBatch
from oncelog_doors.core.pulsar.message_ids import DeliveredId, Start
from oncelog_doors.core.pulsar.schemas import FoundSchema, Schema
from oncelog_doors.core.pulsar.subscribing import Subscription
from oncelog_doors.core.pulsar.verdicts import Ids, Rejected, Verdict
from oncelog_doors.core.shared.named_topics import NamedTopic

#: Called once, on the event loop. None: the producer has ended, and nothing is known of the batch.
Decided = Callable[[Verdict | None], None]


class Holder(Protocol):
    """What one client has and another one may want: a producer name, an exclusive subscription."""

    def holder_lives(self) -> None:
        """The answer to `wanted`: the client is there."""


class ProducerPort(Protocol):
    """One open producer: a session with the owner of its topic, which comes back after takeovers by itself."""

    @property
    def name(self) -> str:
        """As given, or assigned."""

    @property
    def token(self) -> int:
        """What the client presents next time, at any door."""

    @property
    def last_sequence_id(self) -> SequenceId:
        """The highest id that is durable, after writes in flight have settled; -1: none."""

    def prepare(self, entry: bytes, ids: Ids, message_count: int, *, is_chunk: bool) -> Any | Rejected:
        """Check an entry, and make of it what `give` takes. is_chunk: it is a part of a message. It computes only, and
        may run in another thread."""

    def has_room(self, size: int) -> bool:
        """Whether a batch of this size may be given now."""

    async def room(self, size: int) -> None:
        """Return when there is room, or the producer has ended."""

    def give(self, prepared: Any, decided: Decided, stored: Callable[[], None]) -> None:
        """Hand a batch to the log. It is sent again until the log has decided about it. stored: of a chunk of a message
        only: called once at most, before `decided`: its bytes are not kept any more, and its message is not decided.
        """

    def gives_no_more_chunks(self) -> None:
        """The client does not go on with the message of which some chunks were given: they are decided now."""

    def holder_lives(self) -> None:
        """The answer to `wanted`: the client is there."""

    async def ended(self) -> OncelogError:
        """Return what ends this producer, when it does."""

    async def close(self, *, gives_up_name: bool) -> None:
        """End the session now; each open `decided` gets None. gives_up_name: the client has closed its producer, so the
        name is free; else it is kept for a moment for its token."""


class ChunksPort(Protocol):
    """The chunks of one message that is sent to a client. count: how many they are."""

    count: int

    async def read(self, number: int, bytes_max: int) -> Delivery:
        """What is sent of a chunk; numbers ascend. bytes_max: as of `prepare`. It waits while storage is away. Raises
        OncelogError for a message that cannot be read, or no client can be sent."""


class ReaderPort(Protocol):
    """The entries of one topic from a start on. It survives changes of the topic's owner by itself."""

    @property
    def before(self) -> Position | None:
        """The place directly in front of the start; None: in front of all that is kept."""

    def take(self) -> Any | None:
        """The next entry, for `prepare`; None when none is here."""

    async def arrival(self) -> None:
        """Return when an entry may be here. Raises OncelogError: a retriable one, after which it may wait again, or
        what ends this reader."""

    def chunks_of(self, entry: Any) -> "ChunksPort | None":
        """Of a message in chunks, which is sent in them; None: of an entry for `prepare`. Raises OncelogError."""

    def size_of(self, entry: Any) -> int:
        """The bytes that `prepare` reads, or about as many as take it as long."""

    def prepare(self, entry: Any, bytes_max: int) -> Delivery:
        """What is sent of an entry. bytes_max: of an entry that no client wrote. It computes only, and may run in
        another thread. Raises OncelogError for an entry that no client can be sent."""

    async def last_id(self) -> DeliveredId | None:
        """Of the last message of the topic; None: it has none. Raises OncelogError."""

    def close(self) -> None:
        """`arrival` then raises ReaderClosed."""


class TakenEntry(NamedTuple):
    """One delivery of messages of one entry. ranges: the messages that are meant, ascending indexes of the topic.
    delivery_count: of the worst of them; 1: none was delivered before."""

    raw: RawBatch
    ranges: tuple[IndexRange, ...]
    delivery_count: int
    seek_epoch: SeekEpoch


@dataclass(frozen=True, slots=True)
class ConsumerCallbacks:
    """Called on the event loop once the consumer is open. active: exclusive and failover: whether it is the active
    consumer now. recalled: messages that it has taken are given to other consumers, or come again. sought: the
    subscription begins elsewhere. wanted: another client wants the exclusive subscription."""

    active: Callable[[bool], None]
    recalled: Callable[[tuple[IndexRange, ...]], None]
    sought: Callable[[SeekEpoch], None]
    wanted: Callable[[], None]


#: Called once, when the log has decided about an acknowledgement: its error, and whether it is durable.
Settled = Callable[[OncelogError | None, bool], None]


class ConsumerPort(Protocol):
    """One consumer of a subscription. It survives changes of the topic's owner by itself, with what it holds."""

    @property
    def created(self) -> bool:
        """Whether the subscription was created for this consumer."""

    @property
    def active(self) -> bool:
        """Of exclusive and failover: whether it is the active consumer."""

    @property
    def seek_epoch(self) -> SeekEpoch: ...

    @property
    def failure(self) -> OncelogError | None:
        """What has ended it; None while it is open."""

    def permits(self, total: int) -> None:
        """So many messages may be delivered in all since it was opened."""

    def take(self) -> TakenEntry | None:
        """The next delivery; None when none is here. Raises CorruptEntry and MessageTooLarge, once, for one that cannot
        be read: its messages stay unacknowledged. Raises another OncelogError if there is no going on."""

    def chunks_of(self, taken: TakenEntry) -> ChunksPort | None:
        """Of a message in chunks, which is sent in them; None: of another entry. Raises OncelogError."""

    async def arrival(self) -> None:
        """Return when a delivery may be here. Raises OncelogError: a retriable one, after which it may wait again, or
        what ends this consumer."""

    def ack(self, ranges: Sequence[IndexRange], seek_epoch: SeekEpoch, then: Settled) -> None:
        """Acknowledge these messages. Raises nothing."""

    async def acks_undecodable(self) -> bool:
        """Whether messages that the client cannot decode are acknowledged. It waits while no service answers."""

    async def is_paused(self) -> bool:
        """Whether new messages are withheld because of the state of acknowledgements (PIP-299). Raises OncelogError."""

    def nack(self, ranges: Sequence[IndexRange], *, delay_ms: int) -> None:
        """Deliver these messages again, not before so many ms. Raises nothing."""

    def redeliver(self) -> None:
        """Deliver everything again that was taken and not acknowledged. Raises nothing."""

    async def seek(self, start: Start) -> None:
        """Begin the subscription again there, for all its consumers. Returns when that is durable. Raises
        OncelogError."""

    async def unsubscribe(self) -> None:
        """Delete the subscription and end this consumer. Raises OncelogError; Conflict: there are other consumers, and
        nothing has changed."""

    async def last_id(self) -> DeliveredId | None:
        """Of the last message of the topic; None: it has none. Raises OncelogError."""

    def holder_lives(self) -> None:
        """The answer to `wanted`: the client is there."""

    async def close(self, *, client_lost: bool) -> None:
        """Give back what it holds, at once. client_lost: the client is gone without a word."""


class SchemasPort(Protocol):
    """The schemas of topics. The partitions of a topic have them together. All raise PermissionDenied, and
    OncelogError."""

    async def store(self, topic: TopicName, caller: Caller, schema: Schema) -> bytes:
        """The version of a schema, which is stored if it is new. Raises IncompatibleSchema, LimitReached,
        TopicNotFound."""

    async def compare(self, topic: TopicName, caller: Caller, schema: Schema) -> bytes | None:
        """The version of a schema; None: the topic does not have it. Raises IncompatibleSchema if the topic has schemas
        of another type."""

    async def find(self, topic: TopicName, caller: Caller, version: bytes | None) -> FoundSchema:
        """version: None: the newest. Raises NotFound."""


class ClusterPort(Protocol):
    """The cluster, for all connections of a door."""

    @property
    def schemas(self) -> SchemasPort: ...

    @property
    def read_ahead_bytes(self) -> int:
        """What all readers together may hold ready."""

    @property
    def authentication(self) -> bool:
        """Whether callers need a token."""

    @property
    def batch_bytes_max(self) -> int:
        """The limit of the log for a batch."""

    async def caller_of(self, token: str, address: str) -> ProvedCaller:
        """Raises Unauthenticated for an invalid token, and a Retriable error if it cannot be checked now."""

    async def partitions(self, topic: TopicName, caller: Caller, *, may_create: bool) -> int:
        """0: the topic is not partitioned. Raises OncelogError."""

    async def topics_of(self, namespace: NamespaceName, caller: Caller) -> Sequence[NamedTopic]:
        """The topics of a namespace, without their partitions, as they are after this call. Raises PermissionDenied for
        a caller that may not read them, and OncelogError."""

    async def open_producer(
        self,
        topic: TopicName,
        caller: Caller,
        *,
        name: str | None,
        token: int,
        epoch: int | None,
        wanted: Callable[[], None],
    ) -> ProducerPort:
        """Open a producer for the caller. It waits while the topic has no owner; cancelling withdraws the request. It
        creates no topic: TopicNotFound.

        wanted: called when another client wants the name. Raises OncelogError, as `ProducerOpening.refused` reads it.
        """

    async def ensure_subscription(self, topic: TopicName, caller: Caller, name: str) -> None:
        """Make the subscription, which begins with the first message, if it is missing; and its topic. Returns when it
        is durable. Raises OncelogError."""

    async def open_reader(self, topic: TopicName, caller: Caller, start: Start, *, may_create: bool) -> ReaderPort:
        """Open a reader for the caller. Returns when its first entry is here, or when nothing is stored behind the
        start: so a place that cannot be read fails here. Cancelling withdraws the request. Raises OncelogError."""

    async def open_consumer(
        self,
        topic: TopicName,
        caller: Caller,
        name: str,
        consumer_name: str,
        subscription: Subscription,
        callbacks: ConsumerCallbacks,
        *,
        may_create: bool,
    ) -> ConsumerPort:
        """Open a consumer for the caller. name: of the subscription, which is made if it is missing. consumer_name:
        unlike those of its other consumers. may_create: create the topic if it is missing. It waits while the topic has
        no owner, and while it is unknown whether another client has an exclusive subscription; cancelling withdraws the
        request. Raises OncelogError."""
