"""The log's half of the model of effects: what the real fold of the ack log makes of one subscription.

A state of a subscription is a few numbers here, so that it can be hashed; each change is folded by
`core.acks.ack_state` and each question answered by `core.delivery.store_binding`, once for each different one.
"""

from functools import cache
from types import SimpleNamespace
from typing import NamedTuple, cast

from oncelog.core.acks.ack_set import AckSet
from oncelog.core.acks.ack_state import EffectsBinding, SubscriptionsState, SubscriptionState
from oncelog.core.acks.changes import (
    AckedBelow,
    Change,
    ConsumerActivated,
    DeadLettered,
    DeadLetterPublished,
    EffectsBound,
    IndexRange,
    MessagesSkipped,
    Rewound,
    Sought,
    SubscriptionCreated,
    SubscriptionDeleted,
    SubscriptionType,
)
from oncelog.core.acks.consumed import Consumed
from oncelog.core.delivery.context import Context
from oncelog.core.delivery.deliverable import LogRange
from oncelog.core.delivery.store_binding.bound_effects import BoundEffects
from oncelog.core.delivery.store_binding.events import AnswerEffects, EffectsAsked, SubscriptionEffects
from oncelog.core.ids import (
    ConsumerNumber,
    EntryId,
    Generation,
    LedgerId,
    Position,
    SeekEpoch,
    SubscriptionNumber,
    TopicId,
)

STORE_ID, EFFECT = "5a" * 16, "invoices"
#: messages in the topic, at most
SIZE_MAX = 4


class Log(NamedTuple):
    """The subscription. acked, consumed: one bit for each message. known_from: -1: no store is bound."""

    number: int = 1
    generation: int = 0
    epoch: int = 0
    redo_epoch: int = 0
    redo_index: int = 0
    acked: int = 0
    consumed: int = 0
    known_from: int = -1

    @property
    def mark_delete(self) -> int:
        return next(index for index in range(SIZE_MAX + 1) if not self.acked >> index & 1)


def granted(log: Log) -> Log:
    """Another consumer is the active one."""
    return _folded(log, (ConsumerActivated(_number(log), "c", Generation(log.generation + 1)),))


def acknowledged(log: Log, number: int, epoch: int, generation: int, below: int) -> Log:
    change = AckedBelow(SubscriptionNumber(number), SeekEpoch(epoch), below, Generation(generation))
    return _folded(log, (change,))


def bound(log: Log, epoch: int, generation: int) -> Log:
    """The log as it was, if the request is void."""
    change = EffectsBound(_number(log), SeekEpoch(epoch), Generation(generation), STORE_ID, EFFECT, 0, rebind=False)
    return _folded(log, (change,))


def rewound(log: Log, epoch: int, generation: int, lost: tuple[IndexRange, ...]) -> Log:
    """epoch, generation: as the asker knows them. The log as it was, if the request is void."""
    return _folded(log, (Rewound(_number(log), SeekEpoch(epoch + 1), Generation(generation), lost),))


def skipped(log: Log, index: int) -> Log:
    return _folded(log, (MessagesSkipped(_number(log), SeekEpoch(log.epoch), (IndexRange(index, index),)),))


def dead_lettered(log: Log, index: int) -> Log:
    """The letter is stored."""
    topic_id = TopicId("dd" * 16)
    decided = DeadLettered(_number(log), index, topic_id, 0)
    return _folded(log, (decided, DeadLetterPublished(_number(log), topic_id, 0)))


def sought(log: Log, index: int, *, redo: bool) -> Log:
    return _folded(log, (Sought(_number(log), SeekEpoch(log.epoch + 1), index, redo),))


def recreated(log: Log) -> Log:
    number = SubscriptionNumber(log.number + 1)
    created = SubscriptionCreated(number, f"{number:032x}", "billing", SubscriptionType.FAILOVER, 0)
    return _folded(log, (SubscriptionDeleted(_number(log)), created))


@cache
def asked(log: Log, size: int) -> SubscriptionEffects:
    """What the owner answers to AskEffects; the topic has messages 0 .. size - 1."""
    answers: list[AnswerEffects] = []
    context = SimpleNamespace(state=_subscription(log), step=SimpleNamespace(emit=answers.append))
    BoundEffects(cast("Context", context), LogRange(0, size)).ask(EffectsAsked(ConsumerNumber(1), 1, 0))
    (answer,) = answers
    return answer.effects


def bits_of(ranges: tuple[IndexRange, ...] | list[IndexRange]) -> int:
    return sum(1 << index for first, last in ranges for index in range(first, last + 1))


# --- the fold --------------------------------------------------------------------------------------------------------


def _number(log: Log) -> SubscriptionNumber:
    return SubscriptionNumber(log.number)


@cache
def _folded(log: Log, changes: tuple[Change, ...]) -> Log:
    state = SubscriptionsState()
    state.restore(_subscription(log))
    state.next_number = SubscriptionNumber(log.number + 1)
    state.fold_changes(Position(LedgerId(1), EntryId(0)), changes)
    state.check_invariants()
    (after,) = state.subscriptions.values()
    consumed = [] if after.binding is None else after.binding.consumed.ranges()
    return Log(
        number=after.number,
        generation=after.generation,
        epoch=after.seek_epoch,
        redo_epoch=after.redo_epoch,
        redo_index=after.redo_index,
        acked=sum(1 << index for index in range(SIZE_MAX) if after.acks.contains(index)),
        consumed=bits_of(consumed),
        known_from=-1 if after.binding is None else after.binding.consumed.known_from,
    )


def _subscription(log: Log) -> SubscriptionState:
    acks = AckSet(0)
    acks.add(_ranges(log.acked))
    state = SubscriptionState(_number(log), f"{log.number:032x}", "billing", SubscriptionType.FAILOVER, acks)
    state.generation, state.seek_epoch = Generation(log.generation), SeekEpoch(log.epoch)
    state.redo_epoch, state.redo_index = SeekEpoch(log.redo_epoch), log.redo_index
    if log.known_from >= 0:
        consumed = Consumed(log.known_from)
        consumed.add(_ranges(log.consumed))
        state.binding = EffectsBinding(STORE_ID, EFFECT, consumed)
    return state


def _ranges(bits: int) -> list[IndexRange]:
    """Of single messages: the fold joins them."""
    return [IndexRange(index, index) for index in range(SIZE_MAX) if bits >> index & 1]
