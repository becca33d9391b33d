"""The fold of the ack log: what each change does, and which ones have no effect."""

import pytest

from oncelog.core.acks.ack_format import encode_change, encode_changes
from oncelog.core.acks.ack_state import CommittedOffset, DeadLetterPosition, Ignored, SubscriptionsState
from oncelog.core.acks.changes import (
    Acked,
    AckedBelow,
    Change,
    ConsumerActivated,
    DeadLettered,
    DeadLetterPublished,
    EffectsBound,
    Evicted,
    EvictionReason,
    IndexRange,
    MessagesSkipped,
    OffsetCommitted,
    PropertiesSet,
    Redelivered,
    Redelivery,
    Sought,
    SubscriptionCreated,
    SubscriptionDeleted,
    SubscriptionType,
)
from oncelog.core.errors import CorruptEntry, LogHole
from oncelog.core.formats.entry import EntryHeader, EntryKind, GivenUp, encode_given_up
from oncelog.core.ids import EntryId, Generation, LedgerId, OwnerEpoch, SeekEpoch, SubscriptionNumber, TopicId
from tests.core.builders import TOPIC, at

ONE, TWO = SubscriptionNumber(1), SubscriptionNumber(2)
FIRST, SECOND = SeekEpoch(0), SeekEpoch(1)
OTHER_TOPIC = TopicId("0e" * 16)


def created(number: SubscriptionNumber = ONE, name: str = "s", first_index: int = 0) -> SubscriptionCreated:
    return SubscriptionCreated(number, f"{number:032x}", name, SubscriptionType.SHARED, first_index, "admin")


def single(*indexes: int) -> tuple[IndexRange, ...]:
    return tuple(IndexRange(index, index) for index in indexes)


def header(entry_id: int, kind: int = EntryKind.ACK_STATE) -> EntryHeader:
    return EntryHeader(
        kind, LedgerId(1), EntryId(entry_id), EntryId(entry_id - 1), 0, OwnerEpoch(1), 0, 0, 0, 0, 0, TOPIC
    )


class Chain:
    """A state, and the entries folded into it."""

    def __init__(self, *changes: Change) -> None:
        self.state = SubscriptionsState()
        self.entries = 0
        self.fold(*changes)

    def fold(self, *changes: Change) -> list[Ignored | None]:
        """One entry with these changes."""
        outcomes = self.state.fold(header(self.entries), encode_changes([encode_change(each) for each in changes]))
        self.entries += 1
        self.state.check_invariants()
        return outcomes

    def acked(self, number: SubscriptionNumber = ONE, below: int = 20) -> list[int]:
        """The acknowledged indexes."""
        return [index for index in range(below) if self.state.subscriptions[number].acks.contains(index)]


def test_each_change_has_its_effect() -> None:
    """One life of a subscription."""
    chain = Chain(created(first_index=2))
    one = chain.state.subscriptions[ONE]
    assert (one.name, one.role, one.type, one.mark_delete) == ("s", "admin", SubscriptionType.SHARED, 2)
    assert chain.fold(Acked(ONE, FIRST, single(3, 5)), Redelivered(ONE, FIRST, (Redelivery(2, 4, 99),))) == [None, None]
    assert chain.acked() == [0, 1, 3, 5]
    assert one.redeliveries == {2: Redelivery(2, 4, 99)}
    chain.fold(ConsumerActivated(ONE, "worker", Generation(1)), AckedBelow(ONE, FIRST, 3, Generation(1)))
    assert (one.generation, one.active_consumer, one.mark_delete, one.redeliveries) == (1, "worker", 4, {})
    chain.fold(MessagesSkipped(ONE, FIRST, single(4)), Evicted(ONE, FIRST, single(7), EvictionReason.TTL))
    assert chain.acked() == [0, 1, 2, 3, 4, 5, 7]
    chain.fold(PropertiesSet(ONE, (("a", "b"),)))
    assert one.properties == (("a", "b"),)
    chain.fold(SubscriptionDeleted(ONE))
    assert chain.state.subscriptions == {}
    assert chain.state.by_name("s") is None
    assert chain.state.ignored == {}


@pytest.mark.hazard("late-ack-after-seek")
def test_acknowledgement_of_an_older_seek_epoch_has_no_effect() -> None:
    """Message 0 is out, the subscription is sought to 0, and the late acknowledgement of 0 arrives."""
    chain = Chain(created(), Acked(ONE, FIRST, single(0, 1, 2)), Sought(ONE, SECOND, 0, redo=True))
    assert chain.acked() == []
    for late in (
        Acked(ONE, FIRST, single(0)),
        AckedBelow(ONE, FIRST, 5, Generation(0)),
        MessagesSkipped(ONE, FIRST, single(0)),
        Redelivered(ONE, FIRST, (Redelivery(0, 1, 0),)),
    ):
        assert chain.fold(late) == [Ignored.STALE_SEEK_EPOCH]
    assert chain.acked() == []
    assert chain.fold(Acked(ONE, SECOND, single(0))) == [None]
    assert chain.acked() == [0]


@pytest.mark.hazard("late-ack-after-seek")
def test_seek_epochs_are_given_once_and_in_order() -> None:
    """A repeated or skipped epoch would give one epoch to two places."""
    chain = Chain(created())
    assert chain.fold(Sought(ONE, SeekEpoch(2), 9, redo=False)) == [Ignored.STALE_SEEK_EPOCH]
    assert chain.fold(Sought(ONE, SECOND, 5, redo=False)) == [None]
    assert chain.fold(Sought(ONE, SECOND, 9, redo=False)) == [Ignored.STALE_SEEK_EPOCH]
    assert chain.state.subscriptions[ONE].mark_delete == 5
    assert chain.state.subscriptions[ONE].redo_epoch == 0
    chain.fold(Sought(ONE, SeekEpoch(2), 3, redo=True))
    assert chain.state.subscriptions[ONE].redo_epoch == 2


@pytest.mark.hazard("recreated-subscription")
def test_number_of_a_deleted_subscription_is_never_given_again() -> None:
    """A change that was meant for the deleted one finds no other one under its number."""
    chain = Chain(created(), SubscriptionDeleted(ONE))
    assert chain.fold(created(ONE)) == [Ignored.NUMBER_IN_USE]
    assert chain.fold(Acked(ONE, FIRST, single(0))) == [Ignored.UNKNOWN_SUBSCRIPTION]
    assert chain.fold(created(TWO, "s")) == [None]
    assert chain.state.next_number == 3
    assert chain.acked(TWO) == []
    assert chain.fold(created(SubscriptionNumber(3), "s")) == [Ignored.NAME_IN_USE]


@pytest.mark.hazard("former-consumer-acks")
def test_cumulative_acknowledgement_of_a_lower_generation_has_no_effect() -> None:
    """Single acknowledgements count from any consumer; a cumulative one only from the active consumer."""
    chain = Chain(
        created(), ConsumerActivated(ONE, "c1", Generation(1)), ConsumerActivated(ONE, "c2", Generation(2)),
        Redelivered(ONE, FIRST, (Redelivery(6, 1, 0),)),
    )  # fmt: skip
    assert chain.fold(AckedBelow(ONE, FIRST, 10, Generation(1))) == [Ignored.FENCED_GENERATION]
    assert chain.fold(Acked(ONE, FIRST, single(0))) == [None]
    assert chain.acked() == [0]
    assert chain.fold(AckedBelow(ONE, FIRST, 2, Generation(2))) == [None]
    assert chain.acked() == [0, 1]
    assert chain.fold(ConsumerActivated(ONE, "c3", Generation(2))) == [Ignored.FENCED_GENERATION]
    assert chain.state.subscriptions[ONE].active_consumer == "c2"


@pytest.mark.hazard("wrong-delivery-count")
def test_delivery_counts_are_folded_and_cleared_by_seek() -> None:
    """Counts and delays of unacknowledged messages survive a takeover; an acknowledgement or a seek ends them."""
    messages = (Redelivery(3, 2, 1000), Redelivery(4, 1, 0), Redelivery(9, 7, 0))
    chain = Chain(created(), Acked(ONE, FIRST, single(9)), Redelivered(ONE, FIRST, messages))
    one = chain.state.subscriptions[ONE]
    assert list(one.redeliveries) == [3, 4]
    chain.fold(Redelivered(ONE, FIRST, (Redelivery(3, 3, 2000),)), Acked(ONE, FIRST, (IndexRange(4, 8),)))
    assert one.redeliveries == {3: Redelivery(3, 3, 2000)}
    chain.fold(Sought(ONE, SECOND, 0, redo=False))
    assert one.redeliveries == {}


@pytest.mark.hazard("dead-letter-number-lost")
def test_dead_letter_is_acknowledged_when_it_is_published() -> None:
    """Its number is durable before it is published, and each number has one message."""
    chain = Chain(created(), DeadLettered(ONE, 4, TOPIC, 0), DeadLettered(ONE, 2, TOPIC, 1))
    one = chain.state.subscriptions[ONE]
    assert one.dead_letters == {4: DeadLetterPosition(TOPIC, 0), 2: DeadLetterPosition(TOPIC, 1)}
    assert chain.acked() == []
    assert [index for index in range(6) if not one.is_waiting(index)] == [2, 4]
    for wrong in (
        DeadLettered(ONE, 7, TOPIC, 1),
        DeadLettered(ONE, 7, TOPIC, 3),
        DeadLettered(ONE, 4, TOPIC, 2),
        DeadLetterPublished(ONE, TOPIC, 2),
        DeadLetterPublished(ONE, OTHER_TOPIC, 0),
    ):
        assert chain.fold(wrong) == [Ignored.DEAD_LETTER_ORDER]
    chain.fold(DeadLetterPublished(ONE, TOPIC, 0))
    assert (chain.acked(), list(one.dead_letters)) == ([4], [2])
    chain.fold(DeadLetterPublished(ONE, TOPIC, 1))
    assert (chain.acked(), one.dead_letters, one.dead_letter_next) == ([2, 4], {}, {TOPIC: 2})


@pytest.mark.hazard("pending-dead-letter-trimmed")
def test_pending_dead_letter_outlives_seek_skip_and_late_acknowledgement() -> None:
    """A number without its message would be a gap in the dead-letter topic for ever; its bytes must stay."""
    chain = Chain(created(), DeadLettered(ONE, 4, TOPIC, 0))
    one = chain.state.subscriptions[ONE]
    chain.fold(Acked(ONE, FIRST, single(4)), MessagesSkipped(ONE, FIRST, (IndexRange(0, 9),)))
    assert (one.mark_delete, one.first_needed) == (10, 4)
    chain.fold(Sought(ONE, SECOND, 15, redo=False))
    assert one.dead_letters == {4: DeadLetterPosition(TOPIC, 0)}
    assert chain.state.first_needed == 4
    chain.fold(Sought(ONE, SeekEpoch(2), 0, redo=False))
    assert not one.is_waiting(4)
    chain.fold(DeadLetterPublished(ONE, TOPIC, 0))
    assert chain.acked() == [4]
    assert chain.state.first_needed == 0


@pytest.mark.hazard("pending-dead-letter-trimmed")
def test_dead_letter_is_decided_anew_for_another_topic() -> None:
    """The dead-letter topic was recreated: its messages begin at number 0 again."""
    chain = Chain(created(), DeadLettered(ONE, 4, TOPIC, 0), DeadLettered(ONE, 4, OTHER_TOPIC, 0))
    one = chain.state.subscriptions[ONE]
    assert one.dead_letters == {4: DeadLetterPosition(OTHER_TOPIC, 0)}
    assert chain.fold(DeadLetterPublished(ONE, TOPIC, 0)) == [None]
    assert chain.acked() == []


@pytest.mark.hazard("oversized-ack-entry")
def test_change_without_meaning_is_ignored_and_counted() -> None:
    """The other changes of the entry count; the topic is not taken from its producers."""
    chain = Chain(created())
    outcomes = chain.fold(
        Acked(TWO, FIRST, single(1)), Acked(ONE, FIRST, single(1)), SubscriptionDeleted(TWO), created(TWO, "s")
    )
    unknown = Ignored.UNKNOWN_SUBSCRIPTION
    assert outcomes == [unknown, None, unknown, Ignored.NAME_IN_USE]
    assert chain.acked() == [1]
    assert chain.state.ignored == {unknown: 2, Ignored.NAME_IN_USE: 1}
    assert chain.state.position == at(1)


@pytest.mark.hazard("oversized-ack-entry")
def test_undecodable_entry_has_no_effect_at_all() -> None:
    """An entry is atomic: its intact first change does not count when the second one cannot be decoded."""
    chain = Chain(created())
    body = encode_changes([encode_change(Acked(ONE, FIRST, single(1))), encode_change(SubscriptionDeleted(ONE))])
    for damaged in (body[:-1], body + b"\0", b"\x09" + body[1:]):
        with pytest.raises(CorruptEntry):
            chain.state.fold(header(chain.entries), damaged)
    with pytest.raises(CorruptEntry):
        chain.state.fold(header(chain.entries, EntryKind.MESSAGES), body)
    assert (chain.acked(), chain.state.position) == ([], at(0))


def test_entry_is_folded_once() -> None:
    """A replay that begins too early is a bug that must not be hidden."""
    chain = Chain(created(), Acked(ONE, FIRST, single(1)))
    with pytest.raises(LogHole):
        chain.state.fold(header(0), encode_changes([encode_change(SubscriptionDeleted(ONE))]))
    assert chain.acked() == [1]


def test_head_is_nothing_to_the_fold() -> None:
    """A ledger with nothing but a head moves no position, so a takeover and the owner before it agree."""
    chain = Chain(created())
    assert chain.state.fold(header(chain.entries, EntryKind.HEAD_ACKS), b"{}") == []
    assert chain.state.position == at(0)
    with pytest.raises(LogHole):
        chain.state.fold(header(0, EntryKind.HEAD_ACKS), b"{}")
    for kind in (EntryKind.HEAD_LOG, EntryKind.HEAD_SNAPSHOTS):
        with pytest.raises(CorruptEntry):
            chain.state.fold(header(chain.entries, kind), b"{}")


@pytest.mark.hazard("index-given-twice")
def test_given_up_ledger_gives_no_number_epoch_or_generation_twice() -> None:
    """Changes that were answered may be gone with the ledger; the acknowledgements that are left count."""
    chain = Chain(created(), Acked(ONE, FIRST, single(1)), ConsumerActivated(ONE, "c", Generation(1)))
    chain.fold(DeadLettered(ONE, 4, TOPIC, 0))
    body = encode_given_up(GivenUp(LedgerId(1), EntryId(1), "admin"))
    chain.state.fold(header(chain.entries, EntryKind.GIVEN_UP), body)
    one = chain.state.subscriptions[ONE]
    assert chain.acked() == [1]
    assert (one.generation, one.seek_epoch, one.active_consumer) == (1 + 2**16, 2**16, "")
    assert (one.dead_letters, one.dead_letter_next) == ({}, {})
    assert (chain.state.next_number, chain.state.given_up) == (2 + 2**16, 1)


# --- offsets of groups ------------------------------------------------------------------------------------------------


def committed(offset: int, generation: int = 1, metadata: str = "") -> OffsetCommitted:
    return OffsetCommitted(ONE, Generation(generation), offset, metadata, 70)


def test_commit_moves_the_position_forward() -> None:
    """What was acknowledged above it stays so, and nothing below it is delivered again; deliveries stay valid."""
    chain = Chain(created(), Acked(ONE, FIRST, single(1, 4, 7)), Redelivered(ONE, FIRST, (Redelivery(2, 4, 99),)))
    assert chain.fold(committed(4, metadata="m")) == [None]
    one = chain.state.subscriptions[ONE]
    assert chain.acked() == [0, 1, 2, 3, 4, 7]
    assert (one.seek_epoch, one.redeliveries, one.generation) == (0, {}, 1)
    assert one.committed == CommittedOffset(5, "m", 70)
    chain.fold(committed(5, metadata="n"))
    assert (chain.acked(), one.seek_epoch, one.committed) == ([0, 1, 2, 3, 4, 7], 0, CommittedOffset(5, "n", 70))


def test_commit_below_the_position_begins_again_there() -> None:
    """As a seek: no acknowledgement of before counts, and late ones have no effect."""
    chain = Chain(created(), Acked(ONE, FIRST, single(0, 1, 2, 3, 7)), Redelivered(ONE, FIRST, (Redelivery(5, 4, 99),)))
    assert chain.fold(committed(1), Acked(ONE, FIRST, single(2))) == [None, Ignored.STALE_SEEK_EPOCH]
    one = chain.state.subscriptions[ONE]
    assert (chain.acked(), one.seek_epoch, one.redeliveries, one.committed) == ([0], 1, {}, CommittedOffset(1, "", 70))
    chain.fold(committed(0))
    assert (chain.acked(), one.seek_epoch) == ([], 2)


@pytest.mark.hazard("former-member-commits")
def test_commit_of_an_older_generation_is_void() -> None:
    """Whether a commit or an activation has raised it. The newest commit stands, with its metadata."""
    chain = Chain(created(), committed(5, 3, "of 3"), ConsumerActivated(ONE, "worker", Generation(4)))
    one = chain.state.subscriptions[ONE]
    assert chain.fold(committed(2, 3), committed(9, 3), committed(0, 0)) == [Ignored.FENCED_GENERATION] * 3
    assert (one.mark_delete, one.generation, one.active_consumer) == (5, 4, "worker")
    assert one.committed == CommittedOffset(5, "of 3", 70)
    assert chain.fold(committed(6, 4), committed(7, 6), committed(8, 5)) == [None, None, Ignored.FENCED_GENERATION]
    assert (one.mark_delete, one.generation, one.active_consumer) == (7, 6, "")


def test_commit_is_no_acknowledgement_of_a_consumer() -> None:
    """A store of effects that lacks the messages has lost nothing, and dead letters stay."""
    chain = Chain(created(), DeadLettered(ONE, 1, TOPIC, 0))
    one = chain.state.subscriptions[ONE]
    chain.fold(EffectsBound(ONE, FIRST, Generation(0), "5a" * 16, "invoices", 0, rebind=False), committed(4))
    assert one.binding is not None
    assert (one.binding.consumed.ranges(), one.first_needed, one.mark_delete) == ([], 1, 4)


def test_given_up_ledger_keeps_the_commit_and_raises_its_fence() -> None:
    """Members of before may have been told of commits that are gone."""
    chain = Chain(created(), committed(5, 1, "m"))
    chain.state.gave_up()
    one = chain.state.subscriptions[ONE]
    assert chain.fold(committed(6, 2)) == [Ignored.FENCED_GENERATION]
    assert (one.mark_delete, one.committed) == (5, CommittedOffset(5, "m", 70))
