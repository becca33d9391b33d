"""The events that the subscriptions of a topic accept, and the effects that they ask for.

A consumer's stream carries absolute numbers, so that a lost or repeated report harms nothing (hazard relative-credit).
Everything that the ack log must hold first is answered when it is durable.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

from oncelog.core.acks.changes import EvictionReason, IndexRange, SubscriptionType
from oncelog.core.delivery.group_offsets.events import GroupRequest
from oncelog.core.delivery.store_binding.events import AnswerEffects, EffectsRequest, RebindRequested
from oncelog.core.errors import OncelogError
from oncelog.core.formats.batch import Buffer
from oncelog.core.ids import (
    ConsumerNumber,
    Generation,
    OwnerEpoch,
    Position,
    SeekEpoch,
    SubscriptionNumber,
    TopicId,
)
from oncelog.core.process_version import PROCESS_VERSION
from oncelog.core.stream_budget import ENTRY_BYTES, NO_LIMIT, Outbox

# --- events -----------------------------------------------------------------------------------------------------------

#: A count of deliveries is a record for each message: of so many at once, because millions would hold up all topics of
#: the owner. A NackRequested names at most so many messages. Time-outs beyond that follow at the next ticks. Of a lost
#: consumer only so many messages are counted: the one that ends consumers is one of the oldest as soon as those before
#: it are acknowledged.
COUNTED_MAX = 10_000


@dataclass(frozen=True, slots=True)
class HeldMessages:
    """What a reconnecting consumer presents (hazard delivered-while-held). ranges: delivered to it and not
    acknowledged. begun: of these, the ones that the application has received. generation: of its grant, 0: none.
    delivery_counts: {index: how often it was delivered}, of those above 1; None: an older client, which does not
    say."""

    subscription_id: str
    seek_epoch: SeekEpoch
    generation: Generation
    ranges: tuple[IndexRange, ...]
    begun: tuple[IndexRange, ...] = ()
    delivery_counts: dict[int, int] | None = None


@dataclass(frozen=True, slots=True)
class ConsumerOpening:
    """A request to attach to a subscription. call: identifies the request for the shell, which numbers them as they
    come.

    consumer_name: unique among the connected consumers of the subscription (ConsumerBusy, hazard
    activation-not-durable). instance_id: 16 random bytes of one `subscribe`; a request with the instance_id of a
    connected consumer replaces its former stream. first_index: where the subscription begins if it is created; None: it
    must exist. resume: only for a reconnection, which never creates (hazard recreated-subscription: SubscriptionGone).
    priority: failover, lower values are active first. max_deliveries: 0: no limit. ack_timeout_ms: 0: none. role: of
    the caller; empty without authentication. store_id, effect: the store (32 hexadecimal digits) that has the effects
    of the messages, and their name in it; empty: the consumer keeps none. outbox: of the stream on which the messages
    go. is_creator: the subscription was created for this request. peer: host:port of the client; empty: unknown.
    version: of the consumer's program; 0: an older one does not say. whole_entries: the messages of an entry that go to
    this consumer are not cut by its credit: they go while any is left, and may exceed it.
    """

    call: int
    subscription: str
    type: SubscriptionType
    consumer_name: str
    instance_id: bytes
    first_index: int | None = None
    resume: HeldMessages | None = None
    priority: int = 0
    max_deliveries: int = 0
    dead_letter_topic: str = ""
    ack_timeout_ms: int = 0
    owner_epoch_seen: OwnerEpoch = OwnerEpoch(0)
    role: str = ""
    properties: tuple[tuple[str, str], ...] = ()
    store_id: str = ""
    effect: str = ""
    outbox: Outbox = field(default=NO_LIMIT, compare=False, repr=False)
    is_creator: bool = False
    peer: str = ""
    version: int = PROCESS_VERSION
    whole_entries: bool = False


@dataclass(frozen=True, slots=True)
class ConsumerOpeningAbandoned:
    """The client withdrew its request to attach, or its stream broke: `call` needs no answer."""

    call: int


@dataclass(frozen=True, slots=True)
class ConsumerDetached:
    """The consumer's stream ended. lost: it broke, and the consumer may come back with what it holds."""

    consumer: ConsumerNumber
    lost: bool


@dataclass(frozen=True, slots=True)
class FlowReported:
    """Credit: of the messages of its stream, `handed_out` have left the consumer's buffer, whether to the application
    or dropped; the owner sends up to handed_out + window. begun: indexes that the application has received and not
    acknowledged. A consumer reports when its application has received messages, when half a window has left its buffer,
    and when its buffer is empty.

    arrived: of the messages of its stream, how many had reached the consumer; seek_epoch: of what it holds. What was
    sent later is not meant by `begun`. None: an older client, which does not say. bytes_max: bytes of entries that may
    wait in the consumer's buffer; None: as much as the owner sends at most."""

    consumer: ConsumerNumber
    handed_out: int
    window: int
    begun: tuple[IndexRange, ...] = ()
    arrived: int | None = None
    seek_epoch: SeekEpoch | None = None
    bytes_max: int | None = None


@dataclass(frozen=True, slots=True)
class ConsumerHeld:
    """The answer to ConsumerWanted: the client of the gateway is there, and keeps the subscription."""

    consumer: ConsumerNumber


@dataclass(frozen=True, slots=True)
class RoomReturned:
    """The outbox of this consumer's stream, which had no room when it was asked, may have some."""

    consumer: ConsumerNumber


@dataclass(frozen=True, slots=True)
class AckRequested:
    """Acknowledge ranges, or, where `below` is not None, every message below that index (cumulative; exclusive and
    failover only, with the generation of the grant)."""

    consumer: ConsumerNumber
    request: int
    seek_epoch: SeekEpoch
    ranges: tuple[IndexRange, ...] = ()
    below: int | None = None
    generation: Generation = Generation(0)


@dataclass(frozen=True, slots=True)
class NackRequested:
    """Deliver these messages again. delay_ms None: the owner's back-off by the delivery count. delivery_counts: {index:
    which delivery is meant}, of those above 1, so that a repeated request counts once (hazard nack-counted-twice);
    None: an older client, which does not say."""

    consumer: ConsumerNumber
    request: int
    seek_epoch: SeekEpoch
    ranges: tuple[IndexRange, ...]
    delay_ms: int | None = None
    delivery_counts: dict[int, int] | None = None


@dataclass(frozen=True, slots=True)
class SeekRequested:
    """Begin again at `index`, clamped by nothing: out of range is refused. Also for administrators. redo: effects are
    to be redone."""

    call: int
    number: SubscriptionNumber
    index: int
    redo: bool = False


@dataclass(frozen=True, slots=True)
class CreateRequested:
    """An administrator creates a subscription that begins at first_index, clamped to the messages that the topic has.
    Its first consumer chooses its type. Conflict if it exists."""

    call: int
    subscription: str
    first_index: int
    role: str = ""
    properties: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class PropertiesRequested:
    """An administrator replaces the properties of a subscription."""

    call: int
    number: SubscriptionNumber
    properties: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class SkipRequested:
    """An administrator acknowledges messages: the next `count` unacknowledged ones, or everything below `below` (clear
    backlog, expire by age). Exactly one of the two is not None."""

    call: int
    number: SubscriptionNumber
    count: int | None = None
    below: int | None = None


@dataclass(frozen=True, slots=True)
class DeleteRequested:
    """Delete a subscription. force: even if consumers are connected; they get SubscriptionGone. generation: of a group
    that goes: ConsumerFenced if the subscription has a higher one; None: whatever it has. unused_for_ms: unless 0, also
    ConsumerFenced if no group has committed, or one has within this time."""

    call: int
    subscription: str
    force: bool = False
    generation: Generation | None = None
    unused_for_ms: int = 0


@dataclass(frozen=True, slots=True)
class DeadLetterTopicResolved:
    """The response to ResolveDeadLetterTopic. topic_id None: it could not be resolved; it is asked for again later."""

    number: SubscriptionNumber
    topic: str
    topic_id: TopicId | None


@dataclass(frozen=True, slots=True)
class DeadLetterStored:
    """The dead-letter topic holds the messages of this subscription up to `sequence`."""

    number: SubscriptionNumber
    topic_id: TopicId
    sequence: int


@dataclass(frozen=True, slots=True)
class DeadLettersWaiting:
    """The dead letters could not be stored, and are tried again: the reason, for reports."""

    number: SubscriptionNumber
    reason: str


@dataclass(frozen=True, slots=True)
class DeadLetterTopicReplaced:
    """The dead-letter topic was deleted; the one of its name is another topic now (hazard
    pending-dead-letter-trimmed)."""

    number: SubscriptionNumber
    topic_id: TopicId
    new_topic_id: TopicId


DeadLetterEvent = DeadLetterTopicResolved | DeadLetterStored | DeadLettersWaiting | DeadLetterTopicReplaced


@dataclass(frozen=True, slots=True)
class MessagesRead:
    """The response to ReadMessages: consecutive entries of messages, from the one that holds `first_index` on, or the
    next one if none does. Indexes between them that no entry holds were given up (hazard index-given-twice) and count
    as skipped. Empty: nothing could be read yet, ask again after the next event."""

    number: SubscriptionNumber
    first_index: int
    entries: tuple["StoredEntry", ...]


@dataclass(frozen=True, slots=True)
class StoredEntry:
    """One entry of messages. It holds the indexes base_index .. base_index + count - 1; the first skip_first messages
    of its batch are none of the topic's. data: as stored."""

    position: Position
    base_index: int
    count: int
    skip_first: int
    data: Buffer


def cost_bytes(entry: StoredEntry) -> int:
    """What an outbox holds for one entry."""
    return len(entry.data) + ENTRY_BYTES


# --- effects ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Subscribed:
    """A consumer is attached. seek_epoch: acknowledgements must carry it. generation: of the grant if this consumer is
    the active one, else 0. kept: of the presented ranges, those that stay with the consumer. created: the subscription
    was created for this request. whole_entries: as wanted; an older owner does not know it."""

    consumer: ConsumerNumber
    number: SubscriptionNumber
    subscription_id: str
    seek_epoch: SeekEpoch
    generation: Generation
    kept: tuple[IndexRange, ...] = ()
    created: bool = False
    whole_entries: bool = False


@dataclass(frozen=True, slots=True)
class AnswerSubscribe:
    """The answer to the ConsumerOpening of this call."""

    call: int
    result: Subscribed | OncelogError


@dataclass(frozen=True, slots=True)
class ReadMessages:
    """Read entries from the one that holds first_index on, at least one, about bytes_max; comes back as MessagesRead.
    position: of that entry; None: it has to be searched for."""

    number: SubscriptionNumber
    first_index: int
    bytes_max: int
    position: Position | None = None


@dataclass(frozen=True, slots=True)
class DeliveredEntry:
    """An entry as stored, and the indexes of it that are meant for the consumer."""

    entry: StoredEntry
    ranges: tuple[IndexRange, ...]

    @property
    def cost_bytes(self) -> int:
        """What the outbox holds for it."""
        return cost_bytes(self.entry)


@dataclass(frozen=True, slots=True)
class DeliverMessages:
    """One frame for one consumer. delivery_counts: {index: how often it was delivered, this time included}, of those
    above 1. outbox: has taken the entries; whoever sends or drops the frame gives their bytes back."""

    consumer: ConsumerNumber
    seek_epoch: SeekEpoch
    generation: Generation
    entries: tuple[DeliveredEntry, ...]
    delivery_counts: dict[int, int] = field(default_factory=dict)
    outbox: Outbox = field(default=NO_LIMIT, compare=False, repr=False)

    @property
    def cost_bytes(self) -> int:
        return sum(each.cost_bytes for each in self.entries)


@dataclass(frozen=True, slots=True)
class AnswerAck:
    """The answer to an AckRequested or NackRequested. error None: it is durable. durable False: the ack state is at its
    hard limit; the message is hidden, and the acknowledgement is in memory only (hazard ack-state-at-its-limit).
    acked_below: every message below it is acknowledged durably, by whatever; 0: not reported."""

    consumer: ConsumerNumber
    request: int
    error: OncelogError | None = None
    durable: bool = True
    acked_below: int = 0


@dataclass(frozen=True, slots=True)
class RecallMessages:
    """The consumer must drop these messages unless the application has received them (key_shared, hazard
    key-moves-too-early)."""

    consumer: ConsumerNumber
    ranges: tuple[IndexRange, ...]


@dataclass(frozen=True, slots=True)
class ConsumerActive:
    """The consumer is the active one, with this durable generation; 0: it is not any more."""

    consumer: ConsumerNumber
    generation: Generation


@dataclass(frozen=True, slots=True)
class ConsumerWanted:
    """Another consumer wants the exclusive subscription: ConsumerHeld or ConsumerDetached follows, or the consumer is
    ended. Of a gateway alone."""

    consumer: ConsumerNumber


@dataclass(frozen=True, slots=True)
class SubscriptionSought:
    """The subscription begins again: the consumer drops everything of a lower seek_epoch."""

    consumer: ConsumerNumber
    seek_epoch: SeekEpoch


@dataclass(frozen=True, slots=True)
class AnswerSeek:
    """The answer to the SeekRequested of this call; the Sought is durable."""

    call: int
    result: SeekEpoch | OncelogError


@dataclass(frozen=True, slots=True)
class AnswerAdmin:
    """The answer to the request of an administrator or a group with this call. error None: it is durable. generation:
    that the subscription of a group has, 0: there is no such subscription."""

    call: int
    error: OncelogError | None = None
    generation: Generation = Generation(0)


@dataclass(frozen=True, slots=True)
class MessagesEvicted:
    """Messages of a subscription were acknowledged durably without a consumer: for metrics and logs."""

    reason: EvictionReason
    count: int
    subscription: str


@dataclass(frozen=True, slots=True)
class ResolveDeadLetterTopic:
    """Find the id of the dead-letter topic, and create the topic if it is missing; comes back as
    DeadLetterTopicResolved."""

    number: SubscriptionNumber
    topic: str


@dataclass(frozen=True, slots=True)
class PublishDeadLetter:
    """Publish message `index` as number `sequence` of this subscription's producer in the dead-letter topic. The
    DeadLettered is durable. Comes back as DeadLetterStored. A new owner emits it again; sequences of one topic ascend.
    reason: why the message was given up; empty: it was delivered too often, or this is a new owner.
    """

    number: SubscriptionNumber
    index: int
    topic_id: TopicId
    sequence: int
    reason: str = ""


@dataclass(frozen=True, slots=True)
class EndConsumer:
    """The stream ends with this error: nothing more is delivered or answered on it."""

    consumer: ConsumerNumber
    error: OncelogError


#: Of an existing subscription.
ChangeRequest = SeekRequested | PropertiesRequested | SkipRequested | DeleteRequested | RebindRequested
#: Answered by AnswerAdmin, a seek by AnswerSeek.
AdminRequest = CreateRequested | ChangeRequest | GroupRequest
OfOneConsumer = (
    ConsumerDetached | ConsumerHeld | FlowReported | RoomReturned | AckRequested | NackRequested | EffectsRequest
)  # fmt: skip
ConsumerEvent = (
    ConsumerOpening | ConsumerOpeningAbandoned | OfOneConsumer
    | AdminRequest | MessagesRead | DeadLetterEvent
)  # fmt: skip
ConsumerEffect = (
    AnswerSubscribe | ReadMessages | DeliverMessages | AnswerAck | RecallMessages | ConsumerActive | ConsumerWanted
    | SubscriptionSought | AnswerSeek | AnswerAdmin | AnswerEffects | ResolveDeadLetterTopic | PublishDeadLetter
    | EndConsumer | MessagesEvicted
)  # fmt: skip


class SubscriptionStep(Protocol):
    """The event being handled: its time, and where its effects go. The topic's Step is one."""

    @property
    def now_ms(self) -> int: ...

    @property
    def emit(self) -> Callable[[ConsumerEffect], None]: ...
