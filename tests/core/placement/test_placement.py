"""Placement: every replica makes the same choice, and topics move only for a reason."""

import random
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oncelog.core.errors import InvalidArgument
from oncelog.core.formats.topic_record import LedgerLink, TopicRecord
from oncelog.core.ids import Incarnation, LedgerId, OwnerEpoch, TopicId
from oncelog.core.ledger.member_selection import pick_members
from oncelog.core.placement.topic_placement import (
    NoOwnerLive,
    NotifyOwner,
    OwnersView,
    PlacementEffect,
    PlacementEvent,
    PlacementRecordRead,
    PlacementRecordWritten,
    PlacementRequested,
    TopicMissing,
    TopicPlaced,
    TopicPlacement,
    UnloadRequested,
    pick_owner,
)
from oncelog.core.records.records import ReadRecord, TopicKey, WriteRecord
from oncelog.core.records.status import WriteStatus

TOPIC = TopicId("0a" * 16)
NODES = tuple(Incarnation(f"n{i}") for i in range(8))
O1, O2 = (Incarnation(name) for name in ("o1", "o2"))
LEDGERS = (LedgerLink(LedgerId(3), 0), LedgerLink(LedgerId(5), 70))
NEW = TopicRecord(TOPIC, "public/default/flights")
ON_O1 = TopicRecord(TOPIC, "public/default/flights", O1, OwnerEpoch(4), LEDGERS)
ON_O2 = replace(ON_O1, owner=O2, owner_epoch=OwnerEpoch(5))
BOTH = OwnersView((O1, O2))
KEY = TopicKey(TOPIC)
READ = ReadRecord(KEY)


def was_read(
    record: TopicRecord | None, owners: OwnersView = BOTH, *, version: int = 9, now_ms: int = 0
) -> PlacementRecordRead:
    return PlacementRecordRead(TOPIC, record, version, owners, now_ms)


def written(status: WriteStatus = WriteStatus.OK, *, now_ms: int = 0) -> PlacementRecordWritten:
    return PlacementRecordWritten(TOPIC, status, 10, now_ms)


def told(owner: Incarnation, epoch: int) -> list[PlacementEffect]:
    return [TopicPlaced(TOPIC, owner, OwnerEpoch(epoch)), NotifyOwner(TOPIC, owner, OwnerEpoch(epoch))]


def ask(core: TopicPlacement, event: PlacementEvent) -> list[PlacementEffect]:
    effects = core.handle(event)
    core.check_invariants()
    return effects


def reading() -> TopicPlacement:
    core = TopicPlacement(TOPIC, backoff_ms=1000)
    assert ask(core, PlacementRequested(TOPIC)) == [READ]
    return core


# --- choices ----------------------------------------------------------------------------------------------------------


@given(st.permutations(NODES), st.integers(0, 10**6))
def test_choice_does_not_depend_on_the_order_of_the_view(nodes: list[Incarnation], number: int) -> None:
    """Replicas list the same owners in different orders and must agree."""
    topic_id = TopicId(f"{number:032x}")
    assert pick_owner(topic_id, nodes) == pick_owner(topic_id, NODES)
    assert pick_members(LedgerId(number), nodes, (), (), 3, 2) == pick_members(LedgerId(number), NODES, (), (), 3, 2)


def test_only_the_topics_of_a_lost_owner_move() -> None:
    """Rendezvous hashing: all other topics stay."""
    topics = [TopicId(f"{i:032x}") for i in range(400)]
    before = {topic: pick_owner(topic, NODES) for topic in topics}
    after = {topic: pick_owner(topic, NODES[1:]) for topic in topics}
    moved = [topic for topic in topics if before[topic] != after[topic]]
    assert moved == [topic for topic in topics if before[topic] == NODES[0]]
    assert all(20 < list(before.values()).count(node) < 90 for node in NODES)


def test_no_owner_is_chosen_when_none_is_live() -> None:
    """The shell then answers that no owner is live."""
    assert pick_owner(TOPIC, ()) is None


@pytest.mark.hazard("members-lost-in-turn")
@given(
    st.lists(st.sampled_from(NODES), unique=True),
    st.lists(st.sampled_from(NODES), unique=True),
    st.lists(st.sampled_from(NODES), unique=True),
)
def test_members_are_live_first_and_never_retired(
    live: list[Incarnation], absent: list[Incarnation], retired: list[Incarnation]
) -> None:
    """A ledger on a node that never comes back cannot be recovered when another member dies (hazard
    members-lost-in-turn)."""
    members = pick_members(LedgerId(1), live, absent, retired, 3, 2)
    usable = [node for node in live if node not in retired]
    known = {node for node in (*live, *absent) if node not in retired}
    if len(usable) < 2 or len(known) < 3:
        assert members is None
        return
    assert members is not None
    assert len(set(members)) == 3
    assert not set(members) & set(retired)
    assert sum(member in usable for member in members) == min(3, len(usable))
    assert [member in usable for member in members] == sorted([member in usable for member in members], reverse=True)


def test_cluster_of_three_continues_with_one_node_down() -> None:
    """The absent node fills the list; repair completes its copy later."""
    members = pick_members(LedgerId(7), NODES[:2], NODES[2:3], (), 3, 2)
    assert members is not None
    assert members[2] == NODES[2]
    assert pick_members(LedgerId(7), NODES[:1], NODES[1:3], (), 3, 2) is None
    assert pick_members(LedgerId(7), NODES[:2], NODES[2:3], NODES[2:3], 3, 2) is None


def test_single_node_is_its_own_quorum() -> None:
    """One node, with write quorum 1 and ack quorum 1."""
    assert pick_members(LedgerId(7), NODES[:1], (), (), 1, 1) == NODES[:1]
    with pytest.raises(InvalidArgument):
        pick_members(LedgerId(7), NODES, (), (), 1, 2)


# --- placing ----------------------------------------------------------------------------------------------------------


def test_new_topic_is_placed_and_its_owner_notified() -> None:
    """The record gets the owner and a higher epoch by compare-and-set."""
    core = reading()
    pick = pick_owner(TOPIC, BOTH.live)
    assert pick is not None
    assert ask(core, was_read(NEW)) == [WriteRecord(KEY, NEW.placed_on(pick), 9)]
    assert ask(core, written()) == told(pick, 1)


def test_live_owner_keeps_its_topic() -> None:
    """A look-up of a placed topic writes nothing."""
    assert ask(reading(), was_read(ON_O1)) == [TopicPlaced(TOPIC, O1, OwnerEpoch(4))]


def test_owner_without_session_is_replaced() -> None:
    """The list of ledgers stays the same; the epoch rises."""
    core = reading()
    assert ask(core, was_read(ON_O1, OwnersView((O2,)))) == [WriteRecord(KEY, ON_O2, 9)]
    assert ask(core, written()) == told(O2, 5)


def test_absence_of_owners_is_reported() -> None:
    """The next request looks again."""
    core = reading()
    assert ask(core, was_read(ON_O1, OwnersView(()))) == [NoOwnerLive(TOPIC)]
    assert ask(core, PlacementRequested(TOPIC)) == [READ]
    assert ask(core, was_read(None)) == [TopicMissing(TOPIC)]


@pytest.mark.hazard("away-node-of-an-older-version")
def test_owner_below_the_level_has_no_topics() -> None:
    """It had no session when the level was raised. The record of a topic that was idle since has the former format."""
    both = OwnersView((O1, O2), versions={O1: 7}, level=8)
    (write,) = ask(reading(), was_read(ON_O1, both))
    assert isinstance(write, WriteRecord)
    assert write.value.owner == O2
    assert ask(reading(), was_read(ON_O1, replace(both, live=(O1,)))) == [NoOwnerLive(TOPIC)]
    assert ask(reading(), was_read(ON_O1, replace(both, level=7))) == [TopicPlaced(TOPIC, O1, OwnerEpoch(4))]


def test_requests_during_a_round_share_its_result() -> None:
    """A thousand look-ups of one topic read its record once."""
    core = reading()
    assert ask(core, PlacementRequested(TOPIC)) == []
    ask(core, was_read(ON_O1, OwnersView((O2,))))
    assert ask(core, PlacementRequested(TOPIC)) == []
    assert ask(core, PlacementRequested(TopicId("ff"))) == []
    assert ask(core, written()) == told(O2, 5)


def test_late_answers_are_ignored() -> None:
    """Nothing is in flight, so no answer is expected."""
    core = reading()
    assert ask(core, written()) == []
    ask(core, was_read(ON_O1))
    assert ask(core, was_read(NEW)) == []
    assert ask(core, written()) == []


@pytest.mark.hazard("living-owner-suspected")
@pytest.mark.parametrize("status", [WriteStatus.CONFLICT, WriteStatus.UNKNOWN])
def test_decision_is_made_again_after_a_failed_write(status: WriteStatus) -> None:
    """The owner came back, another replica was faster, or the write was applied after all: never repeat it blindly."""
    for now_found, expected in [
        (was_read(ON_O1), told(O1, 4)),  # its session is there after all
        (was_read(replace(ON_O2, owner=O1), OwnersView((O1,))), told(O1, 5)),
        (was_read(ON_O2, OwnersView((O2,))), told(O2, 5)),  # mine, or the same choice of another replica
    ]:
        core = reading()
        ask(core, was_read(ON_O1, OwnersView((O2,))))
        assert ask(core, written(status)) == [READ]
        assert ask(core, now_found) == expected
    core = reading()
    ask(core, was_read(ON_O1, OwnersView((O2,))))
    ask(core, written(status))
    again = was_read(ON_O1, OwnersView((O2,)), version=11)
    assert ask(core, again) == [WriteRecord(KEY, ON_O2, 11)]


# --- suspicion and unload ---------------------------------------------------------------------------------------------


def test_suspected_owner_is_replaced_before_its_session_ends() -> None:
    """A killed process closes its stream at once, and its port refuses connections."""
    core = reading()
    assert ask(core, was_read(ON_O1, OwnersView((O1, O2), (O1,)))) == [WriteRecord(KEY, ON_O2, 9)]
    assert ask(core, written()) == told(O2, 5)


def test_suspected_owner_is_never_chosen() -> None:
    """Neither as the next owner, nor if there is no other."""
    core = reading()
    assert ask(core, was_read(NEW, OwnersView((O1,), (O1,)))) == [NoOwnerLive(TOPIC)]
    for number in range(20):
        topic_id = TopicId(f"{number:032x}")
        core = TopicPlacement(topic_id)
        core.handle(PlacementRequested(topic_id))
        record = replace(NEW, topic_id=topic_id)
        (write,) = core.handle(PlacementRecordRead(topic_id, record, 0, OwnersView((O1, O2), (O2,)), 0))
        assert isinstance(write, WriteRecord)
        assert write.value.owner == O1


@pytest.mark.hazard("living-owner-suspected")
def test_second_suspicion_within_the_back_off_waits_for_the_session() -> None:
    """Two replicas that see different halves of the network would otherwise move a topic back and forth (hazard
    living-owner-suspected)."""
    core = reading()
    ask(core, was_read(ON_O1, OwnersView((O1, O2), (O1,)), now_ms=100))
    ask(core, written(now_ms=150))
    suspicious = OwnersView((O1, O2), (O2,))
    ask(core, PlacementRequested(TOPIC))
    assert ask(core, was_read(ON_O2, suspicious, now_ms=1149)) == [TopicPlaced(TOPIC, O2, OwnerEpoch(5))]
    ask(core, PlacementRequested(TOPIC))
    (write,) = ask(core, was_read(ON_O2, suspicious, now_ms=1150))
    assert isinstance(write, WriteRecord)
    assert write.value.owner == O1


def test_end_of_the_session_needs_no_back_off() -> None:
    """Without a session there is no doubt."""
    core = reading()
    ask(core, was_read(ON_O1, OwnersView((O1, O2), (O1,)), now_ms=100))
    ask(core, written(now_ms=150))
    ask(core, PlacementRequested(TOPIC))
    (write,) = ask(core, was_read(ON_O2, OwnersView((O1,)), now_ms=151))
    assert isinstance(write, WriteRecord)


def test_takeover_by_another_replica_begins_the_back_off_too() -> None:
    """Otherwise each replica would start a takeover of its own."""
    core = reading()
    ask(core, was_read(ON_O1, now_ms=0))
    ask(core, PlacementRequested(TOPIC))
    assert ask(core, was_read(ON_O2, OwnersView((O1, O2), (O2,)), now_ms=500)) == [
        TopicPlaced(TOPIC, O2, OwnerEpoch(5))
    ]


def test_first_placement_begins_no_back_off() -> None:
    """An owner that dies right after it got its first topics is replaced at once."""
    core = reading()
    ask(core, was_read(NEW, OwnersView((O1,))))
    ask(core, written())
    ask(core, PlacementRequested(TOPIC))
    (write,) = ask(core, was_read(NEW.placed_on(O1), OwnersView((O1, O2), (O1,)), now_ms=1))
    assert isinstance(write, WriteRecord)
    assert write.value.owner == O2


def test_unload_moves_a_topic_to_another_owner() -> None:
    """Planned: the old owner notices that it is deposed, at its next write at the latest."""
    core = TopicPlacement(TOPIC)
    assert ask(core, UnloadRequested(TOPIC, O1)) == [READ]
    assert ask(core, was_read(ON_O1)) == [WriteRecord(KEY, ON_O2, 9)]
    assert ask(core, written()) == told(O2, 5)
    ask(core, PlacementRequested(TOPIC))
    assert ask(core, was_read(ON_O2)) == [TopicPlaced(TOPIC, O2, OwnerEpoch(5))]


def test_unload_without_another_owner_raises_the_epoch() -> None:
    """The owner takes the topic over from itself, once, even if the reply is lost."""
    again = ON_O1.placed_on(O1)
    core = TopicPlacement(TOPIC)
    ask(core, UnloadRequested(TOPIC, O1))
    assert ask(core, was_read(ON_O1, OwnersView((O1,)))) == [WriteRecord(KEY, again, 9)]
    assert ask(core, written(WriteStatus.UNKNOWN)) == [READ]
    assert ask(core, was_read(again, OwnersView((O1,)), version=10)) == told(O1, 5)


def test_unload_of_a_topic_that_moved_does_nothing() -> None:
    """The unload named the owner that it meant."""
    core = TopicPlacement(TOPIC)
    ask(core, UnloadRequested(TOPIC, O1))
    assert ask(core, was_read(ON_O2)) == [TopicPlaced(TOPIC, O2, OwnerEpoch(5))]


def test_unload_during_a_write_is_handled_after_it() -> None:
    """The unload may mean the owner that was chosen just now."""
    core = reading()
    ask(core, was_read(ON_O1, OwnersView((O2,))))
    assert ask(core, UnloadRequested(TOPIC, O2)) == []
    assert ask(core, written()) == [*told(O2, 5), READ]
    (write,) = ask(core, was_read(ON_O2))
    assert isinstance(write, WriteRecord)
    assert write.value == ON_O2.placed_on(O1)
    assert ask(core, written()) == told(O1, 6)


@pytest.mark.parametrize("seed", range(80))
def test_racing_replicas_only_ever_raise_the_epoch(seed: int) -> None:
    """Three replicas, lost and late replies, sessions that end and begin: one record, one epoch at a time."""
    rng = random.Random(seed)
    record, version = ON_O1, 0
    cores = [TopicPlacement(TOPIC, backoff_ms=50) for _ in range(3)]
    effects: list[list[PlacementEffect]] = [[], [], []]
    for now_ms in range(300):
        at = rng.randrange(3)
        owners = OwnersView(tuple(rng.sample(NODES, rng.randint(1, 3))), tuple(rng.sample(NODES, rng.randint(0, 2))))
        event: PlacementEvent = PlacementRequested(TOPIC)
        if effects[at]:
            effect = effects[at].pop(0)
            if isinstance(effect, WriteRecord):
                fits = effect.version == version and rng.random() < 0.8
                if fits:
                    assert effect.value.owner_epoch == record.owner_epoch + 1
                    assert effect.value.ledgers == record.ledgers
                    record, version = effect.value, version + 1
                lost = rng.random() < 0.3
                status = WriteStatus.UNKNOWN if lost else WriteStatus.OK if fits else WriteStatus.CONFLICT
                event = PlacementRecordWritten(TOPIC, status, version, now_ms)
            elif isinstance(effect, ReadRecord):
                event = PlacementRecordRead(TOPIC, record, version, owners, now_ms)
        elif rng.random() < 0.3:
            event = UnloadRequested(TOPIC, rng.choice(NODES))
        effects[at] += ask(cores[at], event)
    calm = OwnersView(NODES)
    for core, pending in zip(cores, effects, strict=True):
        pending.extend(ask(core, PlacementRequested(TOPIC)))
        placed: list[PlacementEffect] = []
        for _ in range(50):
            if not pending:
                break
            effect = pending.pop(0)
            if isinstance(effect, ReadRecord):
                pending.extend(ask(core, PlacementRecordRead(TOPIC, record, version, calm, 10**6)))
            elif isinstance(effect, WriteRecord):
                fits = effect.version == version
                record, version = (effect.value, version + 1) if fits else (record, version)
                status = WriteStatus.OK if fits else WriteStatus.CONFLICT
                pending.extend(ask(core, PlacementRecordWritten(TOPIC, status, version, 10**6)))
            elif isinstance(effect, TopicPlaced):
                placed.append(effect)
        assert not pending
        assert placed
        assert placed[-1] == TopicPlaced(TOPIC, record.owner or O1, record.owner_epoch)
