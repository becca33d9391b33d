"""A takeover that needs lost entries of a closed ledger: it fails and says so, until an operator gives them up. Then it
passes over them, and the log says what was given up."""

import pytest

from oncelog.core.chain.managed_ledger import SendAdds
from oncelog.core.errors import EntriesLost, ProducerFenced
from oncelog.core.formats.entry import GIVEN_UP_INDEXES, GivenUp
from oncelog.core.formats.opening import Granted
from oncelog.core.ids import EntryId, LedgerId
from oncelog.core.ledger.metadata import EntryRange
from oncelog.core.topic.topic import Phase
from oncelog.core.topic_events.effects import TopicFailed
from oncelog.core.topic_events.events import TopicTimerFired
from tests.core.builders import plain, received
from tests.core.topic.test_ledger_end import given_up_of
from tests.core.topic.topic_world import Owner, World

pytestmark = [pytest.mark.hazard("index-given-twice"), pytest.mark.hazard("lost-too-early")]


def send(owner: Owner, granted: Granted, *ids: int) -> None:
    pid, generation = granted.instance
    for number in ids:
        owner.send(granted.session, received(number, [number], pid=pid, generation=generation))
        owner.run()


def rolled() -> tuple[World, list[LedgerId], Granted]:
    """Three ledgers: p and q write to the first one; p, q and then r to the second one; p to the third one.

    Entries of the second one behind its head: p 2, q 1, the grant of r, r 0, p's new grant, p 3.
    """
    world = World()
    owner = Owner(world, "o1").take_over()
    p, q = owner.open("p"), owner.open("q")
    send(owner, p, 0, 1)
    send(owner, q, 0)
    owner.roll()
    owner.run()
    send(owner, p, 2)
    send(owner, q, 1)
    r = owner.open("r")
    send(owner, r, 0)
    p = owner.open("p")
    send(owner, p, 3)
    owner.roll()
    owner.run()
    send(owner, p, 4)
    return world, [link.ledger_id for link in world.record.ledgers], p


def lose(world: World, ledger_id: LedgerId, first: int, last: int) -> None:
    metadata, version = world.ledgers[ledger_id]
    lost = (*metadata.lost, EntryRange(EntryId(first), EntryId(last)))
    world.ledgers[ledger_id] = (metadata.mark_lost(lost), version + 1)


def give_up(world: World, ledger_id: LedgerId) -> None:
    metadata, version = world.ledgers[ledger_id]
    world.ledgers[ledger_id] = (metadata.give_up_entries((), by="ann"), version + 1)


def state_of(owner: Owner) -> object:
    assert owner.core.phase is Phase.SERVING
    assert owner.core.serving is not None
    state = owner.core.serving.log.table.state
    state.check_invariants()
    return plain(state), state.next_index, state.position


def test_takeover_fails_until_the_entries_are_given_up() -> None:
    """The owner repeats the takeover by itself, and reads the ledger's record each time."""
    world, ledgers, _ = rolled()
    lose(world, ledgers[1], 1, 2)
    owner = Owner(world, "o2").take_over()
    [failed] = owner.emitted(TopicFailed)
    assert (failed.failure.code, failed.failure.entry_id) == (EntriesLost.code, 1)
    give_up(world, ledgers[1])
    owner.now_ms += 60_000
    owner.handle(TopicTimerFired("retry"))
    owner.run()
    assert owner.core.phase is Phase.SERVING
    assert given_up_of(world) == [GivenUp(ledgers[1], EntryId(1), "ann")]


@pytest.mark.parametrize(
    ("first", "last", "marks"),
    [
        (-1, -1, {"p": 4, "q": 1, "r": 0}),
        (0, 0, {"p": 4, "q": 1, "r": 0}),
        (1, 2, {"p": 4, "q": 0}),
        (2, 2, {"p": 4, "q": 1}),
        (4, 4, {"p": 4, "q": 1, "r": 0}),
        (3, 5, {"p": 4, "q": 1, "r": -1}),
        (0, 5, {"p": 4, "q": 0}),
    ],
)
def test_what_is_left_is_folded_and_numbers_jump(first: int, last: int, marks: dict[str, int]) -> None:
    """Whatever is lost: the head, grants, batches, the beginning or the end of the ledger. The message numbers of the
    entries behind stay, and each instance must open its name again."""
    world, ledgers, p = rolled()
    lose(world, ledgers[1], 1 + first, 1 + last)
    give_up(world, ledgers[1])
    owner = Owner(world, "o2").take_over()
    assert given_up_of(world) == [GivenUp(ledgers[1], EntryId(1 + first), "ann")]
    serving = owner.core.serving
    assert serving is not None
    state = serving.log.table.state
    assert {each.name: each.persisted for each in state.producers.values()} == marks
    assert state.next_index == 8 + GIVEN_UP_INDEXES
    call = owner.ask("p", resume=p.instance)
    owner.run()
    assert isinstance(owner.answers[call], ProducerFenced)
    again = owner.open("p")
    assert (again.last_sequence_id, again.instance[1] > p.instance[1]) == (4, True)
    assert owner.open("r").last_sequence_id == marks.get("r", -1)


def test_later_takeovers_find_the_same_state_and_say_nothing_again() -> None:
    """Also if an owner dies before GivenUp is durable."""
    world, ledgers, _ = rolled()
    lose(world, ledgers[1], 1, 5)
    give_up(world, ledgers[1])
    for number in range(3):
        Owner(world, f"dies {number}").take_over(SendAdds)
        assert given_up_of(world) == []
    first = state_of(Owner(world, "o2").take_over())
    assert state_of(Owner(world, "o3").take_over()) == first
    assert len(given_up_of(world)) == 1


def test_several_ledgers_are_given_up_one_by_one() -> None:
    """The log says each. If nothing follows the hole in its ledger, the next one shows the number of its message."""
    world, ledgers, _ = rolled()
    Owner(world, "closes the last one").take_over(SendAdds)
    lose(world, ledgers[1], 2, 3)
    lose(world, ledgers[2], 0, 0)
    for ledger_id in ledgers[1:]:
        give_up(world, ledger_id)
    owner = Owner(world, "o2").take_over()
    assert given_up_of(world) == [GivenUp(ledgers[1], EntryId(2), "ann"), GivenUp(ledgers[2], EntryId(0), "ann")]
    serving = owner.core.serving
    assert serving is not None
    assert serving.log.table.state.next_index == 8 + 2 * GIVEN_UP_INDEXES
    assert state_of(Owner(world, "o3").take_over()) == state_of(owner)


def test_copies_that_return_are_replayed() -> None:
    """The record keeps that they were given up, and the log has said so already."""
    world, ledgers, _ = rolled()
    lose(world, ledgers[1], 0, 5)
    give_up(world, ledgers[1])
    Owner(world, "o2").take_over()
    metadata, version = world.ledgers[ledgers[1]]
    world.ledgers[ledgers[1]] = (metadata.mark_lost(()), version + 1)
    owner = Owner(world, "o3").take_over()
    serving = owner.core.serving
    assert serving is not None
    producers = serving.log.table.state.producers.values()
    assert {each.name: each.persisted for each in producers} == {"p": 4, "q": 1, "r": 0}
    assert len(given_up_of(world)) == 1
