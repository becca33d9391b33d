"""Lost entries of the ack log that an operator gives up: the takeover passes over them, numbers jump, and the chain
says so. What was acknowledged there may be delivered again; nothing counts as acknowledged that was not."""

from dataclasses import replace

import pytest

from oncelog.core.acks.changes import Acked, ConsumerActivated, IndexRange, Sought
from oncelog.core.chain.managed_ledger import SendAdds
from oncelog.core.errors import EntriesLost
from oncelog.core.formats.entry import (
    GIVEN_UP_GENERATIONS,
    EntryKind,
    GivenUp,
    body_of,
    decode_given_up,
    peek_header,
)
from oncelog.core.ids import EntryId, Generation, LedgerId, SeekEpoch
from oncelog.core.ledger.metadata import LedgerState
from oncelog.core.records.records import CursorKey
from oncelog.core.topic.topic import Phase
from oncelog.core.topic_events.effects import TopicFailed
from oncelog.core.topic_events.events import TopicTimerFired
from tests.core.acks.ack_log import NUMBER, OFTEN, Chain, shown, shown_of
from tests.core.builders import A, B, C
from tests.core.topic.test_lost_entries import give_up, lose
from tests.core.topic.topic_world import SETTINGS, Owner, World

pytestmark = pytest.mark.hazard("index-given-twice")
#: In the second and third ledger, index 10 (n + 1) + m is acknowledged by entry m + 1 of ledger n, behind its head.
ENTRIES = 3


def history() -> tuple[World, list[LedgerId]]:
    """Three ledgers of the chain with acknowledgements of one subscription, and a grant and a seek at its begin."""
    chain = Chain.new(replace(SETTINGS, acks=replace(SETTINGS.acks, ledger_entries_max=ENTRIES)))
    chain.append((ConsumerActivated(NUMBER, "a", Generation(1)), 1), (Sought(NUMBER, SeekEpoch(1), 0, False), 2))
    chain.owner.run()
    for number in range(1, 4):
        chain.owner.tick(300).run()
        for entry in range(ENTRIES):
            index = 10 * number + entry
            chain.append((Acked(NUMBER, SeekEpoch(1), (IndexRange(index, index),)), index))
            chain.owner.run()
    acks = chain.world.record.acks
    assert [len(chain.world.entries_of(ledger_id)) for ledger_id in acks] == [3 + ENTRIES, 1 + ENTRIES, 1 + ENTRIES]
    return chain.world, list(acks)


def acked(owner: Owner) -> list[int]:
    serving = owner.core.serving
    assert serving is not None, owner.effects[-3:]
    acks = serving.acks.state.subscriptions[NUMBER].acks
    return [index for index in range(50) if acks.contains(index)]


def said(world: World) -> list[GivenUp]:
    """What the chain says was given up."""
    entries = [data for ledger_id in world.record.acks for data in world.entries_of(ledger_id).values()]
    return [decode_given_up(body_of(data)) for data in entries if peek_header(data).kind == EntryKind.GIVEN_UP]


def test_takeover_fails_until_the_entries_are_given_up() -> None:
    world, ledgers = history()
    lose(world, ledgers[1], 2, 3)
    owner = Owner(world, "o2").take_over()
    [failed] = owner.emitted(TopicFailed)
    assert (failed.failure.code, failed.failure.ledger_id, failed.failure.entry_id) == (
        EntriesLost.code, ledgers[1], 2,
    )  # fmt: skip
    give_up(world, ledgers[1])
    owner.now_ms += 60_000
    owner.handle(TopicTimerFired("retry"))
    owner.run()
    assert owner.core.phase is Phase.SERVING
    assert said(world) == [GivenUp(ledgers[1], EntryId(2), "ann")]


@pytest.mark.parametrize(("first", "last"), [(0, 0), (1, 1), (1, 2), (2, 2), (0, 2)])
def test_only_what_is_left_counts_as_acknowledged_and_numbers_jump(first: int, last: int) -> None:
    """No seek epoch, generation or number that a consumer may have been told is given again."""
    world, ledgers = history()
    lose(world, ledgers[1], 1 + first, 1 + last)
    give_up(world, ledgers[1])
    owner = Owner(world, "o2").take_over()
    left = [20 + entry for entry in range(ENTRIES) if not first <= entry <= last]
    assert acked(owner) == [10, 11, 12, *left, 30, 31, 32]
    assert owner.core.serving is not None
    state = owner.core.serving.acks.state
    subscription = state.subscriptions[NUMBER]
    assert (subscription.seek_epoch, subscription.generation) == (1 + GIVEN_UP_GENERATIONS, 1 + GIVEN_UP_GENERATIONS)
    assert state.next_number == 2 + GIVEN_UP_GENERATIONS
    assert said(world) == [GivenUp(ledgers[1], EntryId(1 + first), "ann")]


def test_open_ledger_of_the_chain_ends_without_the_lost_members() -> None:
    """The last entry was durable on the two members that are gone."""
    world, ledgers = history()
    del world.nodes[A][ledgers[-1]][ENTRIES]
    metadata, version = world.ledgers[ledgers[-1]]
    assert metadata.state is LedgerState.OPEN
    world.ledgers[ledgers[-1]] = (metadata.give_up((B, C), by="ann"), version + 1)
    owner = Owner(world, "o2").take_over()
    assert acked(owner) == [10, 11, 12, 20, 21, 22, 30, 31]
    assert said(world) == [GivenUp(ledgers[-1], EntryId(ENTRIES), "ann")]


def test_later_takeovers_find_the_same_state_and_say_nothing_again() -> None:
    """Also if an owner dies before GivenUp is durable."""
    world, ledgers = history()
    lose(world, ledgers[1], 2, 3)
    give_up(world, ledgers[1])
    for number in range(3):
        Owner(world, f"dies {number}").take_over(SendAdds)
        assert said(world) == []
    second = Chain(world, Owner(world, "o2").take_over())
    second.append((Acked(NUMBER, SeekEpoch(1 + GIVEN_UP_GENERATIONS), (IndexRange(40, 40),)), 40))
    second.owner.run()
    third = Owner(world, "o3").take_over()
    assert acked(third) == [10, 11, 12, 20, 30, 31, 32, 40]
    assert shown_of(third) == shown(second.serving.acks.state)
    assert len(said(world)) == 1


def test_changes_wait_behind_what_was_given_up() -> None:
    """A change at a seek epoch of after the jump would have no effect before it."""
    world, ledgers = history()
    lose(world, ledgers[1], 2, 3)
    give_up(world, ledgers[1])
    owner = Owner(world, "o2").take_over(SendAdds)
    chain = Chain(world, owner)
    chain.append((Acked(NUMBER, SeekEpoch(1 + GIVEN_UP_GENERATIONS), (IndexRange(40, 40),)), 40))
    kinds = [add.header.kind for effect in owner.queue if isinstance(effect, SendAdds) for add in effect.adds]
    assert kinds == [EntryKind.HEAD_ACKS, EntryKind.GIVEN_UP]
    owner.run()
    assert chain.settled_tokens == [40]
    assert acked(owner) == [10, 11, 12, 20, 30, 31, 32, 40]


def test_no_snapshot_before_the_chain_says_what_was_given_up() -> None:
    """It would contain the jump, and the next takeover would make it again: everything that was acknowledged behind the
    first one would be void."""
    world, ledgers = history()
    lose(world, ledgers[1], 2, 3)
    give_up(world, ledgers[1])
    owner = Owner(world, "o2", OFTEN).take_over(SendAdds)
    before = len(owner.writes(CursorKey))
    for _ in range(3):
        owner.tick(60_000)
        owner.run(SendAdds)
    assert len(owner.writes(CursorKey)) == before
    owner.run()
    for _ in range(3):
        owner.tick(60_000).run()
    assert len(owner.writes(CursorKey)) > before
    third = Owner(world, "o3", OFTEN).take_over()
    assert acked(third) == [10, 11, 12, 20, 30, 31, 32]
    assert third.core.serving is not None
    assert third.core.serving.acks.state.subscriptions[NUMBER].seek_epoch == 1 + GIVEN_UP_GENERATIONS
