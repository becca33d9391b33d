"""The changes of a topic's subscriptions, which the entries of its ack log hold.

The fold of these changes in their order is the whole durable state of the subscriptions (`state`). An entry of kind
ACK_STATE holds one or more changes and takes effect as a whole (hazard oversized-ack-entry). Indexes are the dense
numbers of messages in the topic: base_index + batch_index - skip_first.
"""

from enum import IntEnum
from typing import NamedTuple

from oncelog.core.ids import Generation, SeekEpoch, SubscriptionNumber, TopicId


class IndexRange(NamedTuple):
    """The messages first..last of a topic, both included."""

    first: int
    last: int


class SubscriptionType(IntEnum):
    """How the messages of a subscription are shared out among its consumers, as in Pulsar."""

    EXCLUSIVE = 1
    FAILOVER = 2
    SHARED = 3
    KEY_SHARED = 4


class EvictionReason(IntEnum):
    """Why messages were acknowledged without a consumer."""

    TTL = 1
    BACKLOG_QUOTA = 2


class Redelivery(NamedTuple):
    """A message that is to be delivered again. deliveries: how often it was delivered so far. not_before_ms: by the
    owner's clock, 0: at once."""

    index: int  # type: ignore[assignment]  # hides tuple.index, which has no use here
    deliveries: int
    not_before_ms: int


class SubscriptionCreated(NamedTuple):
    """first_index: everything below it counts as acknowledged. subscription_id: UUID hex. role: of the creator."""

    number: SubscriptionNumber
    subscription_id: str
    name: str
    type: SubscriptionType
    first_index: int
    role: str = ""
    properties: tuple[tuple[str, str], ...] = ()


class SubscriptionDeleted(NamedTuple):
    number: SubscriptionNumber


class ConsumerActivated(NamedTuple):
    """The consumer that is active from here on (exclusive and failover). Generations ascend and are never reused."""

    number: SubscriptionNumber
    consumer_name: str
    generation: Generation


class Acked(NamedTuple):
    """Single acknowledgements, by any consumer at this seek_epoch. ranges: ascending, disjoint."""

    number: SubscriptionNumber
    seek_epoch: SeekEpoch
    ranges: tuple[IndexRange, ...]


class AckedBelow(NamedTuple):
    """A cumulative acknowledgement: every message with an index below `below`."""

    number: SubscriptionNumber
    seek_epoch: SeekEpoch
    below: int
    generation: Generation


class Redelivered(NamedTuple):
    """Delivery counts and delays that a takeover must not forget (hazard wrong-delivery-count)."""

    number: SubscriptionNumber
    seek_epoch: SeekEpoch
    messages: tuple[Redelivery, ...]


class DeadLettered(NamedTuple):
    """The message becomes message `sequence` of this subscription in the dead-letter topic (hazards
    dead-letter-number-lost, pending-dead-letter-trimmed)."""

    number: SubscriptionNumber
    index: int  # type: ignore[assignment]  # hides tuple.index, which has no use here
    topic_id: TopicId
    sequence: int


class DeadLetterPublished(NamedTuple):
    """The dead-letter topic holds this subscription's messages up to `sequence`: they count as acknowledged."""

    number: SubscriptionNumber
    topic_id: TopicId
    sequence: int


class Sought(NamedTuple):
    """The subscription begins again at mark_delete. seek_epoch: the former one + 1. redo: effects are to be redone,
    from mark_delete on; what the store's marks say of before is void."""

    number: SubscriptionNumber
    seek_epoch: SeekEpoch
    mark_delete: int
    redo: bool


class EffectsBound(NamedTuple):
    """The subscription's effects go to the store `store_id` (32 hexadecimal digits) under the name `effect`. From the
    first one on, it is known which messages were consumed. forgotten_below: of those below nothing is known from here
    on; 0: nothing is forgotten. rebind: an operator says that this store takes the place of another one."""

    number: SubscriptionNumber
    seek_epoch: SeekEpoch
    generation: Generation
    store_id: str
    effect: str
    forgotten_below: int
    rebind: bool


class Rewound(NamedTuple):
    """Messages that were acknowledged, and whose effects the store has lost, are to be delivered again; all others stay
    acknowledged. seek_epoch: the former one + 1. generation: the newest one, as the asker knows it. ranges: ascending,
    disjoint."""

    number: SubscriptionNumber
    seek_epoch: SeekEpoch
    generation: Generation
    ranges: tuple[IndexRange, ...]


class PropertiesSet(NamedTuple):
    number: SubscriptionNumber
    properties: tuple[tuple[str, str], ...]


class MessagesSkipped(NamedTuple):
    """Messages that an operator acknowledged: skip, clear backlog, expire. ranges: ascending, disjoint."""

    number: SubscriptionNumber
    seek_epoch: SeekEpoch
    ranges: tuple[IndexRange, ...]


class Evicted(NamedTuple):
    """Messages that were acknowledged because of their age or of a backlog quota. ranges: ascending, disjoint."""

    number: SubscriptionNumber
    seek_epoch: SeekEpoch
    ranges: tuple[IndexRange, ...]
    reason: EvictionReason


class OffsetCommitted(NamedTuple):
    """A group of a gateway's clients goes on at `offset`: everything below it is acknowledged. If that is below the
    position, the subscription begins again there, at the next seek_epoch. Void at a generation below the newest one; a
    higher one is the newest from here on. metadata: what the client keeps beside the offset. time_ms: when, by the
    owner's clock."""

    number: SubscriptionNumber
    generation: Generation
    offset: int
    metadata: str
    time_ms: int


Change = (
    SubscriptionCreated | SubscriptionDeleted | ConsumerActivated | Acked | AckedBelow | Redelivered | DeadLettered
    | DeadLetterPublished | Sought | PropertiesSet | MessagesSkipped | Evicted | EffectsBound | Rewound
    | OffsetCommitted
)  # fmt: skip
