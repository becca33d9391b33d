"""A reference model of a topic's subscriptions on plain sets, with which the fold of the ack log must agree."""

from collections.abc import Iterable
from dataclasses import dataclass, field

from oncelog.core.acks.ack_state import SubscriptionsState, SubscriptionState
from oncelog.core.acks.changes import (
    Acked,
    AckedBelow,
    Change,
    ConsumerActivated,
    DeadLettered,
    DeadLetterPublished,
    EffectsBound,
    Evicted,
    IndexRange,
    MessagesSkipped,
    OffsetCommitted,
    Rewound,
    Sought,
    SubscriptionCreated,
    SubscriptionDeleted,
)
from oncelog.core.formats.entry import GIVEN_UP_GENERATIONS
from oncelog.verify.violation import Violation

#: Longer ranges are kept as they are: an operator skipped them, or no message has these indexes.
_LISTED_MAX = 1 << 20


@dataclass(slots=True)
class ModelSubscription:
    """dead_letters: {index: (topic, sequence)}, not published yet. decided: {topic: dead letters so far}. store: that
    has the effects, and their name; None: none has. consumed: what it should have, from known_from on. committed:
    metadata and time of the newest offset that a group has committed."""

    name: str
    acked: set[int] = field(default_factory=set)
    long: list[IndexRange] = field(default_factory=list)
    seek_epoch: int = 0
    generation: int = 0
    dead_letters: dict[int, tuple[str, int]] = field(default_factory=dict)
    decided: dict[str, int] = field(default_factory=dict)
    store: tuple[str, str] | None = None
    consumed: set[int] = field(default_factory=set)
    known_from: int = 0
    committed: tuple[str, int] | None = None

    def mark_delete(self) -> int:
        return next(index for index in range(_LISTED_MAX) if not self.is_acked(index))

    def consume(self, ranges: Iterable[IndexRange]) -> None:
        """What a consumer acknowledges, and nobody before."""
        if self.store is not None:
            listed = (
                index for first, last in ranges if last - first <= _LISTED_MAX for index in range(first, last + 1)
            )
            self.consumed |= {
                index
                for index in listed
                if index >= self.known_from and not self.is_acked(index) and index not in self.dead_letters
            }

    def bind(self, change: EffectsBound) -> None:
        wanted = (change.store_id, change.effect)
        if self.store is None:
            self.known_from = self.mark_delete()
        if self.store in (None, wanted) or change.rebind:
            self.store, self.known_from = wanted, max(self.known_from, change.forgotten_below)
            self.consumed = {index for index in self.consumed if index >= self.known_from}

    def add(self, ranges: Iterable[IndexRange]) -> None:
        for each in ranges:
            if each.last - each.first > _LISTED_MAX:
                self.long.append(each)
            else:
                self.acked.update(range(each.first, each.last + 1))

    def is_acked(self, index: int) -> bool:
        return index in self.acked or any(first <= index <= last for first, last in self.long)


class AckModel:
    """Receives the changes of an ack log in order."""

    def __init__(self) -> None:
        self.subscriptions: dict[int, ModelSubscription] = {}
        self.numbers_given = 0

    def apply(self, change: Change) -> None:
        if isinstance(change, SubscriptionCreated):
            names = [each.name for each in self.subscriptions.values()]
            if change.number > self.numbers_given and change.name not in names:
                self.numbers_given = change.number
                created = self.subscriptions[change.number] = ModelSubscription(change.name)
                created.add([IndexRange(0, change.first_index - 1)])
        elif change.number in self.subscriptions:
            self._change(self.subscriptions[change.number], change)

    def gave_up(self) -> None:
        """Changes that were answered may be gone: no number is given a second time."""
        self.numbers_given += GIVEN_UP_GENERATIONS
        for known in self.subscriptions.values():
            known.generation += GIVEN_UP_GENERATIONS
            known.seek_epoch += GIVEN_UP_GENERATIONS
            known.dead_letters, known.decided = {}, {}

    def _change(self, known: ModelSubscription, change: Change) -> None:
        match change:
            case SubscriptionDeleted():
                del self.subscriptions[change.number]
            case ConsumerActivated():
                known.generation = max(known.generation, change.generation)
            case Acked() | MessagesSkipped() | Evicted() if change.seek_epoch == known.seek_epoch:
                if isinstance(change, Acked):
                    known.consume(change.ranges)
                known.add(change.ranges)
            case AckedBelow() if (change.seek_epoch, change.generation) == (known.seek_epoch, known.generation):
                known.consume([IndexRange(0, change.below - 1)])
                known.add([IndexRange(0, change.below - 1)])
            case EffectsBound() if (change.seek_epoch, change.generation) == (known.seek_epoch, known.generation):
                known.bind(change)
            case Rewound() if (change.seek_epoch, change.generation) == (known.seek_epoch + 1, known.generation):
                if known.store is not None:
                    lost = known.consumed & {i for first, last in change.ranges for i in range(first, last + 1)}
                    known.seek_epoch, known.acked, known.consumed = (
                        change.seek_epoch, known.acked - lost, known.consumed - lost,
                    )  # fmt: skip
            case Sought() if change.seek_epoch == known.seek_epoch + 1:
                known.seek_epoch, known.acked, known.long = change.seek_epoch, set(), []
                known.add([IndexRange(0, change.mark_delete - 1)])
                if change.redo:
                    known.consumed = {index for index in known.consumed if index < change.mark_delete}
                    known.known_from = min(known.known_from, change.mark_delete)
            case OffsetCommitted() if change.generation >= known.generation:
                known.generation, known.committed = change.generation, (change.metadata, change.time_ms)
                if change.offset < known.mark_delete():
                    known.seek_epoch, known.acked, known.long = known.seek_epoch + 1, set(), []
                known.add([IndexRange(0, change.offset - 1)])
            case DeadLettered() if change.sequence == known.decided.get(change.topic_id, 0):
                if known.dead_letters.get(change.index, ("", 0))[0] != change.topic_id:
                    known.dead_letters[change.index] = (change.topic_id, change.sequence)
                    known.decided[change.topic_id] = change.sequence + 1
            case DeadLetterPublished() if change.sequence < known.decided.get(change.topic_id, 0):
                for index, (topic_id, sequence) in list(known.dead_letters.items()):
                    if topic_id == change.topic_id and sequence <= change.sequence:
                        del known.dead_letters[index]
                        known.acked.add(index)
            case _:
                pass

    def compare(self, state: SubscriptionsState, indexes: Iterable[int]) -> None:
        """Raises Violation unless the owner's state agrees, as to acknowledgements for these indexes."""
        names = {number: each.name for number, each in self.subscriptions.items()}
        if names != {int(number): each.name for number, each in state.subscriptions.items()}:
            raise Violation("subscriptions are the fold", f"the owner has {state.names}, the ack log {names}")
        asked = list(indexes)
        for number, known in self.subscriptions.items():
            _compare(known, {int(n): each for n, each in state.subscriptions.items()}[number], asked)


def _compare(known: ModelSubscription, found: SubscriptionState, indexes: list[int]) -> None:
    mine = (known.seek_epoch, known.generation, known.committed, known.dead_letters)
    committed = None if found.committed is None else (found.committed.metadata, found.committed.time_ms)
    dead_letters = {index: tuple(place) for index, place in found.dead_letters.items()}
    theirs = (found.seek_epoch, found.generation, committed, dead_letters)
    if mine != theirs:
        raise Violation("subscriptions are the fold", f"{known.name!r} is {theirs}, the ack log has {mine}")
    binding = found.binding
    if known.store != (None if binding is None else (binding.store_id, binding.effect)):
        raise Violation("effects are the fold", f"{known.name!r} has the store {binding}, the ack log {known.store}")
    consumed = set() if binding is None else {i for a, z in binding.consumed.ranges() for i in range(a, z + 1)}
    if consumed != known.consumed:
        raise Violation("effects are the fold", f"{known.name!r} has consumed {consumed}, the ack log {known.consumed}")
    for index in indexes:
        if known.is_acked(index) != found.acks.contains(index):
            raise Violation(
                "acknowledgements are the fold",
                f"{known.name!r}: message {index} is acknowledged in one of owner and ack log only",
            )
