"""Rebalancing: a few topics at a time move to the owner that hashing assigns, if that has fewer, and never back."""

import random

import pytest

from oncelog.core.ids import Incarnation, OwnerEpoch, TopicId
from oncelog.core.placement.balance import (
    LOOK_AGAIN_SETTLES,
    MOVES_MIN,
    MOVES_OF_ALL,
    Balance,
    MoveTopic,
    OwnersCounted,
    ReadTopics,
    TopicsRead,
)
from oncelog.core.placement.topic_placement import pick_owner

A, B, C = Incarnation("a" * 32), Incarnation("b" * 32), Incarnation("c" * 32)
SETTLE_MS, REST_MS = 10_000, 60_000


class World:
    """Topics on owners, and a clock."""

    def __init__(self, count: int, *owners: Incarnation) -> None:
        self.core = Balance(settle_ms=SETTLE_MS, rest_ms=REST_MS)
        self.owners = list(owners)
        self.now_ms = 1_000
        self.topics = {TopicId(f"{n:032x}"): owners[0] for n in range(count)}
        self.epochs = dict.fromkeys(self.topics, 1)
        self.place()

    def place(self) -> None:
        for topic_id in self.topics:
            self.topics[topic_id] = pick_owner(topic_id, self.owners) or self.owners[0]

    def move(self, topic_id: TopicId, owner: Incarnation) -> None:
        self.topics[topic_id] = owner
        self.epochs[topic_id] += 1

    def counts(self) -> dict[Incarnation, int]:
        return {one: sum(1 for owner in self.topics.values() if owner == one) for one in self.owners}

    def round(self, after_ms: int = SETTLE_MS // 2) -> list[MoveTopic]:
        """Apply the moves at once, as the writer of the records would."""
        self.now_ms += after_ms
        effects = self.core.handle(OwnersCounted(self.counts(), self.now_ms))
        if effects != [ReadTopics()]:
            assert effects == []
            return []
        read = {t: (owner, OwnerEpoch(self.epochs[t])) for t, owner in self.topics.items()}
        moves = [effect for effect in self.core.handle(TopicsRead(read, self.now_ms)) if isinstance(effect, MoveTopic)]
        for move in moves:
            assert self.topics[move.topic_id] == move.owner
            home = pick_owner(move.topic_id, [owner for owner in self.owners if owner != move.owner])
            assert home == pick_owner(move.topic_id, self.owners), "where it belongs among all"
            assert home is not None
            self.move(move.topic_id, home)
        return moves

    def until_quiet(self) -> list[MoveTopic]:
        moves: list[MoveTopic] = []
        for _ in range(2_000):
            moves += self.round()
        assert not any(self.round() for _ in range(50))
        return moves


def test_topics_follow_a_new_owner() -> None:
    """The new owner gets its share, nothing else moves, and then rebalancing ends."""
    world = World(300, A, B)
    world.owners.append(C)
    before = dict(world.topics)
    moves = world.until_quiet()
    counts = world.counts()
    assert len(moves) == counts[C] == sum(before[t] != owner for t, owner in world.topics.items())
    assert counts[C] >= 80
    assert len({move.topic_id for move in moves}) == len(moves), "none twice"


def test_no_topic_moves_before_the_owners_are_stable() -> None:
    """An owner that restarts repeatedly gets its topics back only when it stays."""
    world = World(40, A, B)
    for _ in range(20):
        world.owners = [A, B, C] if C not in world.owners else [A, B]
        assert world.round(SETTLE_MS - 1) == []
    world.owners = [A, B, C]
    assert world.round(SETTLE_MS) == []
    assert world.round(SETTLE_MS)


def test_few_topics_move_at_a_time() -> None:
    """Each move pauses the topic's producers, so not all move at once."""
    world = World(40, A)
    world.owners.append(B)
    world.round()
    assert [len(world.round(SETTLE_MS)), len(world.round(1))] == [MOVES_MIN, MOVES_MIN]


def test_fraction_of_very_many_topics_moves_at_a_time() -> None:
    """Two of ten thousand topics at a time would take hours."""
    world = World(10 * MOVES_OF_ALL, A)
    world.owners.append(B)
    world.round()
    assert len(world.round(SETTLE_MS)) == 10


def belonging_to(home: Incarnation, count: int, *owners: Incarnation, first: int = 0) -> list[TopicId]:
    """Topics that hashing assigns to that owner, in their order."""
    numbered = (TopicId(f"{number:032x}") for number in range(first, first + 1_000))
    return [topic_id for topic_id in numbered if pick_owner(topic_id, owners) == home][:count]


def settled(*owners: Incarnation) -> Balance:
    """A rebalancer whose owners have not changed for a long time."""
    core = Balance(settle_ms=SETTLE_MS, rest_ms=REST_MS)
    core.handle(OwnersCounted(dict.fromkeys(owners, 0), 0))
    return core


def test_topics_leave_the_fullest_owner_first() -> None:
    """Few topics move at a time, so the most useful moves come first, not those with the lowest ids."""
    first, last = belonging_to(C, 4, A, B, C), belonging_to(C, 8, A, B, C, first=1_000)
    topics = dict.fromkeys(first, (A, OwnerEpoch(1))) | dict.fromkeys(last, (B, OwnerEpoch(1)))
    assert settled(A, B, C).handle(TopicsRead(topics, SETTLE_MS)) == [
        MoveTopic(topic_id, B) for topic_id in last[:MOVES_MIN]
    ]


def test_two_topics_on_one_of_two_owners_become_one_each() -> None:
    """If hashing assigns one of them to the other owner; a single topic stays."""
    world = World(2, A)
    world.owners.append(B)
    belongs = [t for t in world.topics if pick_owner(t, [A, B]) == B]
    assert len(world.until_quiet()) == min(1, len(belongs))
    assert World(1, A).until_quiet() == []


def test_topic_that_was_moved_recently_stays() -> None:
    """An operator's unload is not undone at once. It is undone later, if the counts are still unbalanced."""
    world = World(40, A, B)
    world.until_quiet()
    world.owners.append(C)
    world.until_quiet()
    moved = [t for t, owner in world.topics.items() if owner == C][:6]
    for topic_id in moved:
        world.move(topic_id, A)
    ends_ms = world.now_ms + REST_MS
    while world.now_ms < ends_ms - SETTLE_MS:
        assert not {move.topic_id for move in world.round()} & set(moved)
    assert {move.topic_id for move in world.until_quiet()} & set(moved)


@pytest.mark.parametrize("seed", range(20))
def test_no_topic_moves_back_and_forth(seed: int) -> None:
    """From any placement, with any owners: moves end, and each made the counts more even."""
    own = random.Random(seed)
    owners = [Incarnation(f"{own.getrandbits(128):032x}") for _ in range(own.randint(1, 6))]
    world = World(own.randint(0, 60), *owners)
    for topic_id in world.topics:
        world.topics[topic_id] = own.choice(owners)
    spread = sum(count * count for count in world.counts().values())
    moves = world.until_quiet()
    assert len({move.topic_id for move in moves}) == len(moves)
    assert sum(count * count for count in world.counts().values()) <= spread - 2 * len(moves)


def test_counts_without_a_move_are_not_examined_repeatedly() -> None:
    """Hashing never balances exactly: otherwise all records would be read periodically, in vain."""
    world = World(0, A, B)
    world.topics = {TopicId(f"{n:032x}"): A for n in range(40) if pick_owner(TopicId(f"{n:032x}"), [A, B]) == A}
    world.epochs = dict.fromkeys(world.topics, 1)
    world.round()
    counted = OwnersCounted(world.counts(), world.now_ms + SETTLE_MS)
    assert world.core.handle(counted) == [ReadTopics()]
    read = {t: (owner, OwnerEpoch(1)) for t, owner in world.topics.items()}
    assert world.core.handle(TopicsRead(read, counted.now_ms)) == []
    assert world.core.handle(OwnersCounted(world.counts(), counted.now_ms + SETTLE_MS)) == []
    fewer = {A: world.counts()[A] - 1, B: 0}
    assert world.core.handle(OwnersCounted(fewer, counted.now_ms + SETTLE_MS)) == [ReadTopics()]


def test_counts_without_a_move_are_examined_again_later() -> None:
    """The counts are not everything: records may have changed without a change of the counts."""
    core, uneven = settled(A, B), {A: 9, B: 0}
    assert core.handle(OwnersCounted(uneven, SETTLE_MS)) == [ReadTopics()]
    assert core.handle(TopicsRead({}, SETTLE_MS)) == []
    again_ms = SETTLE_MS + SETTLE_MS * LOOK_AGAIN_SETTLES
    assert core.handle(OwnersCounted(uneven, again_ms - 1)) == []
    assert core.handle(OwnersCounted(uneven, again_ms)) == [ReadTopics()]


def test_recently_moved_topics_are_examined_each_time() -> None:
    """They move as soon as their resting time is over, without a change of the counts."""
    core, uneven = settled(A, B), {A: 4, B: 0}
    topics = belonging_to(B, 4, A, B)
    for epoch in (1, 2):
        now_ms = SETTLE_MS + epoch
        assert core.handle(OwnersCounted(uneven, now_ms)) == [ReadTopics()]
        moves = core.handle(TopicsRead(dict.fromkeys(topics, (A, OwnerEpoch(epoch))), now_ms))
        assert bool(moves) is (epoch == 1), "whoever has them now has just got them"
    assert core.handle(OwnersCounted(uneven, SETTLE_MS + 3)) == [ReadTopics()]


def test_topics_of_owners_that_accept_none_are_not_moved() -> None:
    """An owner that drains or is lost gives up its topics by other means."""
    world = World(40, A, B)
    world.owners.remove(A)
    assert world.until_quiet() == []
    joined = World(40, A, B)
    joined.owners = [B, C]
    moves = joined.until_quiet()
    assert {move.owner for move in moves} == {B}, "to the one that joined, and not from the one that takes none"
