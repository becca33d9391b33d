"""The fold of a topic's ack log: the durable state of its subscriptions.

Rules
- An entry takes effect as a whole, and its changes in their order (hazard oversized-ack-entry).
- A change whose meaning contradicts the state is ignored and counted (`ignored`); only bytes that cannot be decoded
  raise. An entry that stopped the fold would take the topic from its producers, too.
- Numbers of subscriptions ascend and are never reused, so a change that was meant for a deleted subscription finds no
  other one (hazard recreated-subscription). Generations of consumers ascend (hazard former-consumer-acks).
- Acknowledgements count only at their subscription's seek_epoch (hazard late-ack-after-seek). A seek begins with an
  empty state: it clears acknowledgements, delivery counts and delays (hazard wrong-delivery-count).
- A dead letter stays until it is published, whatever happens to the subscription's position: seek, skip and late
  acknowledgements cancel none (hazard pending-dead-letter-trimmed). Its message counts as acknowledged when it is
  published. The numbers of dead letters are dense for each subscription and dead-letter topic (hazard
  dead-letter-number-lost).
- The effects of a bound subscription are in one store, under one name. `consumed` says of which messages; a redo begins
  it anew, and a rewind takes out what the store has lost.
- The offset that a group commits is the position of its subscription: there is no second one. Below the position it
  is a seek of this fold, which alone knows what is in front of it (hazard former-member-commits).
- Only this state moves what is trimmed, paused and reported; acknowledgements in flight are elsewhere (hazard
  failed-ack-write).
- Law: snapshot(P) + replay(P..end) == fold(whole chain).
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from enum import Enum
from sys import intern, maxsize
from typing import NamedTuple, assert_never

from pyroaring import BitMap64

from oncelog.core.acks.ack_format import decode_changes
from oncelog.core.acks.ack_set import AckSet
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
    PropertiesSet,
    Redelivered,
    Redelivery,
    Rewound,
    Sought,
    SubscriptionCreated,
    SubscriptionDeleted,
    SubscriptionType,
)
from oncelog.core.acks.consumed import Consumed
from oncelog.core.acks.index_ranges import bits_of, ranges_of
from oncelog.core.errors import CorruptEntry, InvariantViolated, LogHole
from oncelog.core.formats.batch import Buffer
from oncelog.core.formats.entry import GIVEN_UP_GENERATIONS, EntryHeader, EntryKind, decode_given_up
from oncelog.core.ids import BEFORE_ALL, GENERATION_MAX, Generation, Position, SeekEpoch, SubscriptionNumber, TopicId

#: The number of a topic's first subscription.
FIRST_NUMBER = SubscriptionNumber(1)
FIRST_EPOCH = SeekEpoch(0)
NO_GENERATION = Generation(0)
#: Approximate bytes of one message to redeliver, and of one pending dead letter, in a snapshot.
_REDELIVERY_BYTES = 12
_DEAD_LETTER_BYTES = 32


class Ignored(Enum):
    """Why a change had no effect."""

    UNKNOWN_SUBSCRIPTION = "unknown_subscription"
    STALE_SEEK_EPOCH = "stale_seek_epoch"
    FENCED_GENERATION = "fenced_generation"
    NUMBER_IN_USE = "number_in_use"
    NAME_IN_USE = "name_in_use"
    DEAD_LETTER_ORDER = "dead_letter_order"
    OTHER_STORE = "other_store"
    NOT_BOUND = "not_bound"


class DeadLetterPosition(NamedTuple):
    """Where a pending dead letter is published: message `sequence` of the subscription in that topic."""

    topic_id: TopicId
    sequence: int


class CommittedOffset(NamedTuple):
    """The newest commit of a group. position: of the subscription behind it. If the position is another one by now,
    something else has moved it, and the metadata is not about it."""

    position: int
    metadata: str
    time_ms: int


@dataclass(slots=True)
class EffectsBinding:
    """Where the effects of a subscription go. store_id: 32 hexadecimal digits. effect: their name in the store."""

    store_id: str
    effect: str
    consumed: Consumed


@dataclass(slots=True)
class SubscriptionState:
    """The durable state of one subscription."""

    number: SubscriptionNumber
    subscription_id: str
    name: str
    type: SubscriptionType
    acks: AckSet
    #: of the creator; empty without authentication
    role: str = ""
    properties: tuple[tuple[str, str], ...] = ()
    #: counts the seeks
    seek_epoch: SeekEpoch = FIRST_EPOCH
    #: the seek_epoch of the newest seek whose effects are to be redone
    redo_epoch: SeekEpoch = FIRST_EPOCH
    #: of the newest grant; 0: none
    generation: Generation = NO_GENERATION
    #: the name of the consumer with that grant (exclusive and failover)
    active_consumer: str = ""
    #: {index: delivery count and delay}, of messages that are not acknowledged
    redeliveries: dict[int, Redelivery] = field(default_factory=dict)
    #: {index: place} of the dead letters that are not published yet
    dead_letters: dict[int, DeadLetterPosition] = field(default_factory=dict)
    #: {dead-letter topic: sequence of the next dead letter}
    dead_letter_next: dict[TopicId, int] = field(default_factory=dict)
    #: where the seek of redo_epoch wants them redone from
    redo_index: int = 0
    #: None: it has no effects that the log knows of
    binding: EffectsBinding | None = None
    #: None: no group has committed an offset
    committed: CommittedOffset | None = None

    @property
    def mark_delete(self) -> int:
        return self.acks.mark_delete

    @property
    def first_needed(self) -> int:
        """The lowest index whose message this subscription still needs: no ledger with it may be trimmed."""
        return min(self.acks.mark_delete, min(self.dead_letters, default=self.acks.mark_delete))

    @property
    def state_bytes(self) -> int:
        """An upper estimate of the bytes of acknowledgements, delivery counts and dead letters in a snapshot."""
        return (
            self.acks.state_bytes
            + (0 if self.binding is None else self.binding.consumed.set.state_bytes)
            + _REDELIVERY_BYTES * len(self.redeliveries)
            + _DEAD_LETTER_BYTES * len(self.dead_letters)
        )

    def is_waiting(self, index: int) -> bool:
        """Whether the message is neither acknowledged nor a dead letter."""
        return not self.acks.contains(index) and index not in self.dead_letters

    # --- changes ------------------------------------------------------------------------------------------------------

    def acked_by_consumer(self, ranges: Sequence[IndexRange]) -> None:
        if self.binding is not None:
            new = (each for first, last in ranges for each in self.acks.unacked_ranges(first, last + 1, maxsize))
            self.binding.consumed.add(self._but_dead_letters(new))
        self.acked(ranges)

    def _but_dead_letters(self, ranges: Iterable[IndexRange]) -> Iterable[IndexRange]:
        if not self.dead_letters:
            return ranges
        left = bits_of(ranges)
        left -= BitMap64(self.dead_letters)
        return ranges_of(left)

    def acked(self, ranges: Sequence[IndexRange]) -> None:
        self.acks.add(ranges)
        redeliveries = self.redeliveries
        if not redeliveries:
            return
        for first, last in ranges:
            if last - first < len(redeliveries):
                for index in range(first, last + 1):
                    redeliveries.pop(index, None)
            else:
                for index in [index for index in redeliveries if first <= index <= last]:
                    del redeliveries[index]

    def redelivered(self, messages: Iterable[Redelivery]) -> None:
        for message in messages:
            if not self.acks.contains(message.index):
                self.redeliveries[message.index] = message

    def _begin_again(self, index: int, seek_epoch: SeekEpoch) -> None:
        self.acks = AckSet(index)
        self.redeliveries = {}
        self.seek_epoch = seek_epoch

    def offset_committed(self, change: OffsetCommitted) -> Ignored | None:
        if change.generation < self.generation:
            return Ignored.FENCED_GENERATION
        if change.generation > self.generation:
            self.generation, self.active_consumer = change.generation, ""
        if change.offset < self.mark_delete:
            self._begin_again(change.offset, SeekEpoch(self.seek_epoch + 1))
        elif change.offset:
            self.acked([IndexRange(0, change.offset - 1)])
        self.committed = CommittedOffset(self.mark_delete, change.metadata, change.time_ms)
        return None

    def sought(self, change: Sought) -> None:
        self._begin_again(change.mark_delete, change.seek_epoch)
        if change.redo:
            self.redo_epoch, self.redo_index = change.seek_epoch, change.mark_delete
            if self.binding is not None:
                self.binding.consumed.redo(change.mark_delete)

    def bound(self, change: EffectsBound) -> Ignored | None:
        binding = self.binding
        if binding is None:
            binding = self.binding = EffectsBinding(change.store_id, change.effect, Consumed(self.mark_delete))
        elif (binding.store_id, binding.effect) != (change.store_id, change.effect):
            if not change.rebind:
                return Ignored.OTHER_STORE
            binding.store_id, binding.effect = change.store_id, change.effect
        binding.consumed.forget(change.forgotten_below)
        return None

    def rewound(self, change: Rewound) -> Ignored | None:
        if self.binding is None:
            return Ignored.NOT_BOUND
        lost = self.binding.consumed.within(change.ranges)
        if lost:
            self.binding.consumed.remove(lost)
            self.acks = self.acks.without(lost)
        self.redeliveries = {}
        self.seek_epoch = change.seek_epoch
        return None

    def dead_lettered(self, change: DeadLettered) -> Ignored | None:
        """A dead letter for another topic replaces a pending one: its topic was deleted, and it is decided again."""
        pending = self.dead_letters.get(change.index)
        following = self.dead_letter_next.get(change.topic_id, 0)
        if change.sequence != following or (pending is not None and pending.topic_id == change.topic_id):
            return Ignored.DEAD_LETTER_ORDER
        self.dead_letters[change.index] = DeadLetterPosition(change.topic_id, change.sequence)
        self.dead_letter_next[change.topic_id] = following + 1
        return None

    def dead_letters_published(self, change: DeadLetterPublished) -> Ignored | None:
        if change.sequence >= self.dead_letter_next.get(change.topic_id, 0):
            return Ignored.DEAD_LETTER_ORDER
        published = [
            index
            for index, place in self.dead_letters.items()
            if place.topic_id == change.topic_id and place.sequence <= change.sequence
        ]
        for index in sorted(published):
            del self.dead_letters[index]
            self.acked([IndexRange(index, index)])
        return None

    def check_invariants(self) -> None:
        self.acks.check_invariants()
        if self.binding is not None:
            self.binding.consumed.set.check_invariants()
        if any(self.acks.contains(index) for index in self.redeliveries):
            raise InvariantViolated(f"subscription {self.name!r} would redeliver an acknowledged message")
        for index, place in self.dead_letters.items():
            if place.sequence >= self.dead_letter_next.get(place.topic_id, 0):
                raise InvariantViolated(f"subscription {self.name!r}: dead letter {index} has no number of its topic's")


class SubscriptionsState:
    """The durable state of a topic's subscriptions, as of exactly `position` of its ack log."""

    def __init__(self) -> None:
        self.subscriptions: dict[SubscriptionNumber, SubscriptionState] = {}
        #: {name: number}; one to one with `subscriptions`
        self.names: dict[str, SubscriptionNumber] = {}
        #: of the next subscription; numbers below it are never given again
        self.next_number: SubscriptionNumber = FIRST_NUMBER
        #: ledgers of the ack log that were given up; the names of dead-letter producers contain it
        self.given_up: int = 0
        #: the last entry folded in
        self.position: Position = BEFORE_ALL
        #: subscriptions changed since the last snapshot, in order of change
        self.dirty: dict[SubscriptionNumber, None] = {}
        #: subscriptions deleted since the last snapshot: a delta must delete them, too (hazard recreated-subscription)
        self.deleted: dict[SubscriptionNumber, None] = {}
        #: {subscription: its state_bytes}, their sum, and the subscriptions that have changed since
        self._weights: dict[SubscriptionNumber, int] = {}
        self._weight = 0
        self._unweighed: dict[SubscriptionNumber, None] = {}
        #: {reason: changes without effect}
        self.ignored: dict[Ignored, int] = {}

    @property
    def state_bytes(self) -> int:
        """An upper estimate of the bytes of all subscriptions' acknowledgements in a snapshot."""
        for number in self._unweighed:
            subscription = self.subscriptions.get(number)
            before, after = self._weights.pop(number, 0), 0 if subscription is None else subscription.state_bytes
            if after:
                self._weights[number] = after
            self._weight += after - before
        self._unweighed.clear()
        return self._weight

    @property
    def first_needed(self) -> int | None:
        """The lowest index whose message a subscription still needs; None without subscriptions."""
        return min((each.first_needed for each in self.subscriptions.values()), default=None)

    @property
    def ever_used(self) -> bool:
        """Whether a subscription was ever created."""
        return self.next_number > FIRST_NUMBER

    def by_name(self, name: str) -> SubscriptionState | None:
        number = self.names.get(name)
        return None if number is None else self.subscriptions[number]

    # --- the fold -----------------------------------------------------------------------------------------------------

    def fold(self, header: EntryHeader, body: Buffer) -> list[Ignored | None]:
        """Fold one entry of the ack log. Raises CorruptEntry when it cannot be decoded, and then folds none of it;
        LogHole when it is not behind the entries before. The head of a ledger changes nothing, not even the
        position."""
        if header.kind == EntryKind.GIVEN_UP:
            decode_given_up(body)
            self.pass_over(header.position)
            self.gave_up()
            return []
        if header.kind == EntryKind.HEAD_ACKS:
            self._require_next(header.position)
            return []
        if header.kind != EntryKind.ACK_STATE:
            raise CorruptEntry(f"entry {header.position} of an ack log is of kind {header.kind}")
        return self.fold_changes(header.position, decode_changes(body))

    def fold_changes(self, position: Position, changes: Sequence[Change]) -> list[Ignored | None]:
        """Fold the changes of the entry at `position`. Returns for each one why it had no effect, or None."""
        self.pass_over(position)
        outcomes = [self._apply(change) for change in changes]
        for outcome in outcomes:
            if outcome is not None:
                self.ignored[outcome] = self.ignored.get(outcome, 0) + 1
        return outcomes

    def pass_over(self, position: Position) -> None:
        """The state is now as of `position`. Raises LogHole when that is not behind the entries before."""
        self._require_next(position)
        self.position = position

    def _require_next(self, position: Position) -> None:
        if position <= self.position:
            raise LogHole(f"entry {position} of the ack log follows {self.position}")

    def _apply(self, change: Change) -> Ignored | None:
        if isinstance(change, SubscriptionCreated):
            return self._created(change)
        subscription = self.subscriptions.get(change.number)
        if subscription is None:
            return Ignored.UNKNOWN_SUBSCRIPTION
        ignored = self._change(subscription, change)
        self._unweighed[change.number] = None
        if ignored is None and change.number in self.subscriptions:
            self.dirty[change.number] = None
        return ignored

    def _created(self, change: SubscriptionCreated) -> Ignored | None:
        if change.number < self.next_number:
            return Ignored.NUMBER_IN_USE
        if change.name in self.names:
            return Ignored.NAME_IN_USE
        self.next_number = SubscriptionNumber(change.number + 1)
        self.names[change.name] = change.number
        self.subscriptions[change.number] = SubscriptionState(
            change.number,
            change.subscription_id,
            change.name,
            change.type,
            AckSet(change.first_index),
            intern(change.role),
            change.properties,
        )
        self.dirty[change.number] = None
        return None

    def _change(self, subscription: SubscriptionState, change: Change) -> Ignored | None:
        stale = subscription.seek_epoch
        match change:
            case SubscriptionCreated():
                raise InvariantViolated("a new subscription changes none")
            case SubscriptionDeleted():
                self.remove(subscription.number)
            case ConsumerActivated():
                if change.generation <= subscription.generation:
                    return Ignored.FENCED_GENERATION
                subscription.generation, subscription.active_consumer = change.generation, change.consumer_name
            case PropertiesSet():
                subscription.properties = change.properties
            case DeadLettered():
                return subscription.dead_lettered(change)
            case DeadLetterPublished():
                return subscription.dead_letters_published(change)
            case Sought():
                if change.seek_epoch != stale + 1:
                    return Ignored.STALE_SEEK_EPOCH
                subscription.sought(change)
            case Rewound():
                if change.seek_epoch != stale + 1:
                    return Ignored.STALE_SEEK_EPOCH
                if change.generation != subscription.generation:
                    return Ignored.FENCED_GENERATION
                return subscription.rewound(change)
            case EffectsBound():
                if change.seek_epoch != stale:
                    return Ignored.STALE_SEEK_EPOCH
                if change.generation != subscription.generation:
                    return Ignored.FENCED_GENERATION
                return subscription.bound(change)
            case OffsetCommitted():
                return subscription.offset_committed(change)
            case Acked() | AckedBelow() | Redelivered() | MessagesSkipped() | Evicted():
                if change.seek_epoch != stale:
                    return Ignored.STALE_SEEK_EPOCH
                if isinstance(change, Redelivered):
                    subscription.redelivered(change.messages)
                elif isinstance(change, AckedBelow):
                    if change.generation != subscription.generation:
                        return Ignored.FENCED_GENERATION
                    if change.below:
                        subscription.acked_by_consumer([IndexRange(0, change.below - 1)])
                elif isinstance(change, Acked):
                    subscription.acked_by_consumer(change.ranges)
                else:
                    subscription.acked(change.ranges)
            case _:
                assert_never(change)
        return None

    def gave_up(self) -> None:
        """A ledger was given up: changes that were answered may be gone. No number, generation or epoch is given a
        second time; dead letters are decided again, under the name of another producer (hazard index-given-twice)."""
        self.given_up += 1
        self.next_number = SubscriptionNumber(self.next_number + GIVEN_UP_GENERATIONS)
        for number, each in self.subscriptions.items():
            each.generation = Generation(min(each.generation + GIVEN_UP_GENERATIONS, GENERATION_MAX))
            each.active_consumer = ""
            each.seek_epoch = SeekEpoch(each.seek_epoch + GIVEN_UP_GENERATIONS)
            each.dead_letters, each.dead_letter_next = {}, {}
            self._unweighed[number] = None
            self.dirty[number] = None

    # --- snapshots ----------------------------------------------------------------------------------------------------

    def remove(self, number: SubscriptionNumber) -> None:
        """Delete a subscription, if it exists."""
        subscription = self.subscriptions.pop(number, None)
        if subscription is not None:
            del self.names[subscription.name]
            self.dirty.pop(number, None)
            self.deleted[number] = None
            self._unweighed[number] = None

    def restore(self, subscription: SubscriptionState) -> None:
        """Add or replace the state of a subscription in a snapshot."""
        self.subscriptions[subscription.number] = subscription
        self.names[subscription.name] = subscription.number
        self._unweighed[subscription.number] = None

    def snapshot_taken(self) -> None:
        """A snapshot contains the whole state as it is."""
        for number in self.dirty:
            subscription = self.subscriptions[number]
            sets = [subscription.acks] + ([] if subscription.binding is None else [subscription.binding.consumed.set])
            for each in sets:
                each.dirty.clear()
                each.replaced = False
        self.dirty.clear()
        self.deleted.clear()

    def check_invariants(self) -> None:
        if self.names != {each.name: number for number, each in self.subscriptions.items()}:
            raise InvariantViolated(f"the names {self.names} are not those of the subscriptions")
        for number, each in self.subscriptions.items():
            if each.number != number or number >= self.next_number:
                raise InvariantViolated(f"subscription {each.name!r} has number {number}")
            each.check_invariants()
        if self.state_bytes != sum(each.state_bytes for each in self.subscriptions.values()):
            raise InvariantViolated(f"{self.state_bytes} bytes of ack state are not those of the subscriptions")
