"""The requests of consumers whose messages take effect in a store, and what answers them besides `AnswerAck`."""

from dataclasses import dataclass

from oncelog.core.acks.changes import IndexRange
from oncelog.core.ids import ConsumerNumber, Generation, SeekEpoch, SubscriptionNumber

#: Characters of the reason of a dead letter.
REASON_MAX = 1_000


@dataclass(frozen=True, slots=True)
class EffectsAsked:
    """What the log knows of the effects of the consumer's subscription. from_index: of which messages on."""

    consumer: ConsumerNumber
    request: int
    from_index: int


@dataclass(frozen=True, slots=True)
class BindRequested:
    """The subscription's effects are in the store that the consumer named when it attached. forgotten_below: what was
    consumed below may be forgotten; 0: nothing. Answered when it is durable."""

    consumer: ConsumerNumber
    request: int
    seek_epoch: SeekEpoch
    generation: Generation
    forgotten_below: int = 0


@dataclass(frozen=True, slots=True)
class RewindRequested:
    """The store has lost the effects of these messages: deliver them again. ranges: ascending, disjoint, at least
    one. Answered when it is durable."""

    consumer: ConsumerNumber
    request: int
    seek_epoch: SeekEpoch
    generation: Generation
    ranges: tuple[IndexRange, ...]


@dataclass(frozen=True, slots=True)
class RebindRequested:
    """An administrator says that another store has the effects of a bound subscription from now on. Conflict while
    consumers are connected."""

    call: int
    number: SubscriptionNumber
    store_id: str


@dataclass(frozen=True, slots=True)
class DeadLetterRequested:
    """The store has given the message up: make one dead letter of it, however often this is asked for. reason: for the
    letter, empty: none; a new owner does not know it. Answered when the log has the dead letter, or the message is
    acknowledged."""

    consumer: ConsumerNumber
    request: int
    seek_epoch: SeekEpoch
    generation: Generation
    index: int
    reason: str = ""


@dataclass(frozen=True, slots=True)
class SubscriptionEffects:
    """What the log has durably. store_id, effect: empty before the first BindRequested. redo_epoch: the seek_epoch of
    the newest seek whose effects are to be redone, redo_index: from where. consumed: ranges from the asked index on,
    ascending; complete: whether these are all. Of messages below known_from it is not known whether they were consumed,
    of those below forgotten_below not any more. first_index, next_index: the messages that the topic has."""

    number: SubscriptionNumber
    store_id: str
    effect: str
    seek_epoch: SeekEpoch
    redo_epoch: SeekEpoch
    redo_index: int
    generation: Generation
    mark_delete: int
    first_index: int
    next_index: int
    known_from: int
    forgotten_below: int
    consumed: tuple[IndexRange, ...]
    complete: bool


@dataclass(frozen=True, slots=True)
class AnswerEffects:
    """The answer to an EffectsAsked."""

    consumer: ConsumerNumber
    request: int
    effects: SubscriptionEffects


#: Answered by AnswerAck; EffectsAsked by AnswerEffects.
EffectsRequest = EffectsAsked | BindRequested | RewindRequested | DeadLetterRequested
