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
    Evicted,
    IndexRange,
    MessagesSkipped,
    Sought,
    SubscriptionCreated,
    SubscriptionDeleted,
)
from oncelog.verify.violation import Violation

#: Longer ranges are kept as they are: an operator skipped them, or no message has these indexes.
_LISTED_MAX = 1 << 20


@dataclass(slots=True)
class ModelSubscription:
    """dead_letters: {index: (topic, sequence)}, not published yet. decided: {topic: dead letters so far}."""

    name: str
    acked: set[int] = field(default_factory=set)
    long: list[IndexRange] = field(default_factory=list)
    seek_epoch: int = 0
    generation: int = 0
    dead_letters: dict[int, tuple[str, int]] = field(default_factory=dict)
    decided: dict[str, int] = field(default_factory=dict)

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

    def _change(self, known: ModelSubscription, change: Change) -> None:
        match change:
            case SubscriptionDeleted():
                del self.subscriptions[change.number]
            case ConsumerActivated():
                known.generation = max(known.generation, change.generation)
            case Acked() | MessagesSkipped() | Evicted() if change.seek_epoch == known.seek_epoch:
                known.add(change.ranges)
            case AckedBelow() if (change.seek_epoch, change.generation) == (known.seek_epoch, known.generation):
                known.add([IndexRange(0, change.below - 1)])
            case Sought() if change.seek_epoch == known.seek_epoch + 1:
                known.seek_epoch, known.acked, known.long = change.seek_epoch, set(), []
                known.add([IndexRange(0, change.mark_delete - 1)])
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
    mine = (known.seek_epoch, known.generation, known.dead_letters)
    theirs = (found.seek_epoch, found.generation, {index: tuple(place) for index, place in found.dead_letters.items()})
    if mine != theirs:
        raise Violation("subscriptions are the fold", f"{known.name!r} is {theirs}, the ack log has {mine}")
    for index in indexes:
        if known.is_acked(index) != found.acks.contains(index):
            raise Violation(
                "acknowledgements are the fold",
                f"{known.name!r}: message {index} is acknowledged in one of owner and ack log only",
            )
