"""Events and effects of a consumer, besides those of `owner_attempts`.

What the owner is asked, and what it reports, are the events and effects of its own core (`subscriptions.events`), so
the two halves have one vocabulary. Each carries the attempt whose stream it belongs to.
"""

from dataclasses import dataclass, field

from oncelog.core.acks.changes import IndexRange, SubscriptionType
from oncelog.core.delivery.events import (
    AckRequested,
    AnswerAck,
    AnswerSeek,
    AnswerSubscribe,
    ConsumerActive,
    ConsumerDetached,
    ConsumerHeld,
    ConsumerOpening,
    ConsumerWanted,
    DeliverMessages,
    EndConsumer,
    FlowReported,
    NackRequested,
    RecallMessages,
    SeekRequested,
    StoredEntry,
    SubscriptionSought,
)
from oncelog.core.delivery.store_binding.events import AnswerEffects, EffectsRequest, SubscriptionEffects
from oncelog.core.errors import OncelogError
from oncelog.core.ids import Generation, OwnerEpoch, SeekEpoch
from oncelog.core.sdk.owner_attempts import AttemptEffect, AttemptEvent, FailSession

RECEIVE_WINDOW = 10_000
#: Of a consumer to which everything is delivered, without an ack time-out: several large batches of an application, so
#: that the owner sends the next ones while it works. Elsewhere, what waits here is kept from other consumers, or is
#: delivered again after each time-out.
RECEIVE_WINDOW_ALONE = 50_000
#: Acknowledgements, negative ones and seeks that are not settled. The SDK packs acknowledgements into ranges.
REQUESTS_MAX = 10_000


@dataclass(frozen=True, slots=True)
class ConsumerSettings:
    """What the application asked for; `ConsumerOpening` describes the fields that are not described here."""

    subscription: str
    type: SubscriptionType
    consumer_name: str
    first_index: int | None = None
    priority: int = 0
    max_deliveries: int = 0
    dead_letter_topic: str = ""
    ack_timeout_ms: int = 0
    properties: tuple[tuple[str, str], ...] = ()
    store_id: str = ""
    effect: str = ""
    #: messages that wait here for the application, at most
    receive_window: int = RECEIVE_WINDOW
    #: bytes of entries that wait here, at most, besides one entry; None: as much as the owner sends at most
    receive_bytes: int | None = None
    requests_max: int = REQUESTS_MAX
    #: messages that no storage node can give are acknowledged instead of ending the consumer
    skips_unreadable: bool = False
    #: an entry is never cut; permits take the place of receive_window (`entries`)
    whole_entries: bool = False
    #: after this long without any answer the owner is looked up again
    answer_timeout_ms: int = 30_000

    @property
    def is_ordered(self) -> bool:
        """Whether the type has one active consumer, so that there are cumulative acknowledgements."""
        return self.type in (SubscriptionType.EXCLUSIVE, SubscriptionType.FAILOVER)


# --- events -----------------------------------------------------------------------------------------------------------


OwnerReport = (
    AnswerSubscribe | DeliverMessages | AnswerAck | RecallMessages | ConsumerActive | ConsumerWanted
    | SubscriptionSought | AnswerSeek | AnswerEffects | EndConsumer
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class OwnerReported:
    """A message of the owner on the stream of this attempt. owner_epoch 0: it does not serve the topic."""

    attempt: int
    owner_epoch: OwnerEpoch
    report: OwnerReport


@dataclass(frozen=True, slots=True)
class MessagesWanted:
    """The application takes up to this many messages: HandOut follows."""

    count_max: int


@dataclass(frozen=True, slots=True)
class AckWanted:
    """Acknowledge ranges, or every message below `below`. seek_epoch and generation: of the message, as it was handed
    out. request: ascends over acknowledgements, negative ones and seeks. complete: False when the session has lowered
    `below`. AckEnded follows."""

    request: int
    seek_epoch: SeekEpoch
    ranges: tuple[IndexRange, ...] = ()
    below: int | None = None
    generation: Generation = Generation(0)
    complete: bool = True


@dataclass(frozen=True, slots=True)
class NackWanted:
    """Deliver these messages again; delay_ms None: the owner's back-off. delivery_counts: {index: which delivery is
    meant}, of those above 1. AckEnded follows."""

    request: int
    seek_epoch: SeekEpoch
    ranges: tuple[IndexRange, ...]
    delay_ms: int | None = None
    delivery_counts: dict[int, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class SeekWanted:
    """Begin the subscription again at this index. SeekEnded follows."""

    request: int
    index: int
    redo: bool = False


@dataclass(frozen=True, slots=True)
class EffectsWanted:
    """Ask the present owner about the effects of the subscription's messages; the consumer in it does not count.
    EffectsEnded follows. Nothing is repeated: whoever asks compares the log with a store, and does that again."""

    asked: EffectsRequest


@dataclass(frozen=True, slots=True)
class FlushWanted:
    """Say when everything is settled that was acknowledged before, negatively or not. reports: also when the owner has
    what the consumer has reported: how many messages it takes, and which ones the application has received. request: as
    of an acknowledgement. FlushEnded follows."""

    request: int
    reports: bool


@dataclass(frozen=True, slots=True)
class FlushAbandoned:
    """Nobody waits for this flush any more: no FlushEnded follows."""

    request: int


@dataclass(frozen=True, slots=True)
class EntryWanted:
    """Of a consumer of whole entries: the application takes the messages of one entry. HandOut follows."""


@dataclass(frozen=True, slots=True)
class PermitsGiven:
    """The application has asked for so many messages in all, since the consumer was opened."""

    total: int


@dataclass(frozen=True, slots=True)
class RestartWanted:
    """Give back what is held and what waits, and get it again from the owner, in order."""


@dataclass(frozen=True, slots=True)
class GiveBackWanted:
    """The consumer ends. counts: the oldest message that the application has counts one delivery."""

    counts: bool


@dataclass(frozen=True, slots=True)
class ClientLives:
    """The answer to ReportWanted: the client of the gateway is there."""


#: Of `EntrySession` alone.
EntryEvent = EntryWanted | PermitsGiven | RestartWanted | GiveBackWanted | ClientLives
ConsumerEvent = (
    OwnerReported | MessagesWanted | AckWanted | NackWanted | SeekWanted | EffectsWanted | FlushWanted | FlushAbandoned
    | EntryEvent | AttemptEvent
)  # fmt: skip

# --- effects ----------------------------------------------------------------------------------------------------------

OwnerRequest = (
    ConsumerOpening | FlowReported | AckRequested | NackRequested | SeekRequested | EffectsRequest | ConsumerDetached
    | ConsumerHeld
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class SendToOwner:
    """Send this on the stream of the attempt, if it is still open. A FlowReported replaces an unsent older one."""

    attempt: int
    request: OwnerRequest


@dataclass(frozen=True, slots=True)
class ReportAttached:
    """The consumer is attached, for the first time or again. generation: as of ReportActive."""

    seek_epoch: SeekEpoch
    generation: Generation


@dataclass(frozen=True, slots=True)
class ReportActive:
    """Exclusive and failover: the consumer is the active one, with this generation; 0: it is not any more."""

    generation: Generation


@dataclass(frozen=True, slots=True)
class ReportSought:
    """The subscription begins again: acknowledgements of messages of lower epochs are void."""

    seek_epoch: SeekEpoch


@dataclass(frozen=True, slots=True)
class MessagesReady:
    """There are messages for the application, after there were none."""


@dataclass(frozen=True, slots=True)
class MessageRange:
    """Consecutive messages of one entry. delivery_counts: {index: how often it was delivered}, of those above 1."""

    entry: StoredEntry
    first: int
    last: int
    seek_epoch: SeekEpoch
    generation: Generation
    delivery_counts: dict[int, int] = field(default_factory=dict)

    @property
    def count(self) -> int:
        return self.last - self.first + 1


@dataclass(frozen=True, slots=True)
class HandOut:
    """Messages for the application, in order. Empty: there are none now."""

    runs: tuple[MessageRange, ...]


@dataclass(frozen=True, slots=True)
class AckEnded:
    """error None: durable. durable False: in the owner's memory only (hazard ack-state-at-its-limit). complete False: a
    cumulative one ended before a message that this consumer has negatively acknowledged."""

    request: int
    error: OncelogError | None = None
    durable: bool = True
    complete: bool = True


@dataclass(frozen=True, slots=True)
class SeekEnded:
    request: int
    result: SeekEpoch | OncelogError


@dataclass(frozen=True, slots=True)
class EffectsEnded:
    """result: the answer to an EffectsAsked; None: what was asked for is durable."""

    request: int
    result: SubscriptionEffects | OncelogError | None


@dataclass(frozen=True, slots=True)
class FlushEnded:
    """error: the consumer is over. None: what was acknowledged has got its AckEnded, and the owner has the reports."""

    request: int
    error: OncelogError | None = None


@dataclass(frozen=True, slots=True)
class SkipUnreadable:
    """No storage node can give these messages any more, and the application wants to go on: acknowledge them."""

    seek_epoch: SeekEpoch
    messages: IndexRange
    error: OncelogError


@dataclass(frozen=True, slots=True)
class ReportTakenBack:
    """The owner has taken these messages back from the application. Of a consumer of whole entries."""

    ranges: tuple[IndexRange, ...]


@dataclass(frozen=True, slots=True)
class ReportWanted:
    """Ask the client of the gateway whether it is there; ClientLives follows, GiveBackWanted, or nothing."""


ConsumerEffect = (
    AttemptEffect | SendToOwner | ReportAttached | ReportActive | ReportSought | MessagesReady | HandOut | AckEnded
    | SeekEnded | EffectsEnded | FlushEnded | SkipUnreadable | ReportTakenBack
    | ReportWanted | FailSession
)  # fmt: skip
