"""Ledgers are deleted at the request of an administrator: up to the end, or below an index and nothing else."""

from dataclasses import replace

import pytest

from oncelog.core.errors import InvalidArgument, NotOwner, ServiceUnavailable, TopicLoading
from oncelog.core.ids import LedgerId
from oncelog.core.ledger.metadata import LedgerState
from oncelog.core.retention.truncations import TRUNCATE_WAIT_MS
from oncelog.core.topic_events.effects import AnswerTruncate
from oncelog.core.topic_events.events import DrainRequested, TrimBelowRequested, TruncateRequested
from tests.core.builders import received
from tests.core.retention.test_topic_space import RARE, START_MS, consuming, first_index
from tests.core.topic.test_topic_subscriptions import SMALL, Consuming
from tests.core.topic.topic_world import Owner, World

# --- up to the end ----------------------------------------------------------------------------------------------------


def truncated(own: Consuming, call: int = 70) -> AnswerTruncate:
    own.owner.handle(TruncateRequested(call))
    own.owner.run()
    for _ in range(40):
        if any(answer.call == call for answer in own.owner.emitted(AnswerTruncate)):
            break
        own.owner.tick(250).run()
    (answer,) = [answer for answer in own.owner.emitted(AnswerTruncate) if answer.call == call]
    return answer


@pytest.mark.parametrize("settings", [SMALL, RARE])
def test_truncation_deletes_everything_up_to_the_end(settings: object) -> None:
    """Subscriptions skip to the end; what is published afterwards is delivered, also by the next owner."""
    world = World()
    own = Consuming(world, "o1", settings)  # type: ignore[arg-type]
    own.owner.now_ms += START_MS
    subscribed = own.subscribe(window=2)
    own.publish(0, 10)
    assert truncated(own) == AnswerTruncate(70, 10)
    assert first_index(own) == 10
    assert own.world.folded_acks().first_needed == 10
    assert set(own.delivered(subscribed.consumer)) <= {0, 1}
    own.publish(10, 3)
    two = Consuming(world, "o2")
    assert two.delivered(two.subscribe().consumer) == [10, 11, 12]
    assert two.owner.open().last_sequence_id == 12
    closed = [metadata for metadata, _ in world.ledgers.values() if metadata.state is LedgerState.CLOSED]
    assert {link.ledger_id for link in world.record.ledgers} <= set(world.ledgers)
    assert all(metadata.ledger_id >= LedgerId(1) for metadata in closed)


def test_truncation_of_an_empty_topic_is_answered_at_once() -> None:
    """And again: nothing is left to delete."""
    own = consuming()
    assert truncated(own) == AnswerTruncate(70, 0)
    own.publish(0, 3)
    assert truncated(own, 71) == AnswerTruncate(71, 3)
    assert truncated(own, 72) == AnswerTruncate(72, 3)


def test_truncation_that_takes_long_is_answered_and_goes_on() -> None:
    """Its client asks again; the owner of a closed topic has no answer but that."""
    own = consuming()
    own.publish(0, 5)
    own.owner.handle(TruncateRequested(1))
    own.owner.tick(TRUNCATE_WAIT_MS)
    (answer,) = own.owner.emitted(AnswerTruncate)
    assert isinstance(answer.error, ServiceUnavailable)
    own.owner.run()
    for _ in range(20):
        own.owner.tick(250).run()
    assert first_index(own) == 5
    own.publish(5, 5)
    own.owner.handle(TruncateRequested(2))
    own.owner.handle(DrainRequested())
    own.owner.run()
    own.owner.handle(TruncateRequested(3))
    errors = {answer.call: type(answer.error) for answer in own.owner.emitted(AnswerTruncate)}
    assert errors[2] is NotOwner
    assert errors[3] is NotOwner


def test_truncation_is_refused_while_the_topic_does_not_serve() -> None:
    """Its client tries again."""
    owner = Owner(World(), "o1")
    owner.handle(TruncateRequested(1))
    (answer,) = owner.emitted(AnswerTruncate)
    assert isinstance(answer.error, TopicLoading)


# --- below an index ---------------------------------------------------------------------------------------------------


def trimmed(own: Consuming, below: int | None, call: int = 70) -> AnswerTruncate:
    own.owner.handle(TrimBelowRequested(call, below))
    own.owner.run()
    for _ in range(80):
        if any(answer.call == call for answer in own.owner.emitted(AnswerTruncate)):
            break
        own.owner.tick(250).run()
    (answer,) = [answer for answer in own.owner.emitted(AnswerTruncate) if answer.call == call]
    return answer


def ends(own: Consuming) -> list[int]:
    """Where ledgers begin that messages were stored in."""
    return [link.base_index for link in own.world.record.ledgers]


@pytest.mark.hazard("trimmed-too-far")
@pytest.mark.parametrize("settings", [SMALL, RARE])
def test_no_message_at_or_above_the_index_is_deleted(settings: object) -> None:
    """The answer is the first index that is left: that of the ledger with the index."""
    own = Consuming(World(), "o1", settings)  # type: ignore[arg-type]
    for number in range(12):
        own.publish(number, 1)
        own.owner.run()
    places = ends(own)
    assert len(places) > 2
    for call, below in enumerate(range(13), 100):
        answer = trimmed(own, below, call)
        # Below the end of the log: its open ledger is rolled, so that all of it can go.
        expected = max(place for place in places if place <= below) if below < 12 else 12
        assert answer == AnswerTruncate(call, expected)
        assert first_index(own) == expected
    assert first_index(own) == 12


@pytest.mark.hazard("trimmed-too-far")
@pytest.mark.parametrize("ends_at", [None, 3])
def test_what_is_being_stored_at_the_time_of_the_request_stays(ends_at: int | None) -> None:
    """Messages 3 and 4 are in flight, behind the durable end, and in the ledger of the others."""
    own = Consuming(World(), "o1", replace(RARE, ledger_entries_max=100))
    own.publish(0, 3)
    granted = own.owner.open("p")
    pid, generation = granted.instance
    for number in (3, 4):
        own.owner.send(granted.session, received(number, [number], pid=pid, generation=generation))
    own.owner.handle(TrimBelowRequested(1, ends_at))
    for _ in range(40):
        own.owner.tick(250).run()
    assert own.owner.emitted(AnswerTruncate) == [AnswerTruncate(1, 0)]
    assert own.delivered(own.subscribe().consumer) == [0, 1, 2, 3, 4]


def test_subscriptions_go_on_at_the_first_message_that_is_left() -> None:
    own = consuming()
    own.subscribe(window=2)
    own.publish(0, 10)
    answer = trimmed(own, None)
    assert answer == AnswerTruncate(70, 10)
    assert own.world.folded_acks().first_needed == 10


def test_an_index_behind_the_end_is_refused_with_the_end() -> None:
    own = consuming()
    own.publish(0, 3)
    own.owner.run()
    answer = trimmed(own, 4)
    assert isinstance(answer.error, InvalidArgument)
    assert answer.error.details == {"field": "before_index", "limit": 3}
    assert first_index(own) == 0


def test_a_repeated_trim_changes_nothing_and_rolls_nothing() -> None:
    own = consuming()
    own.publish(0, 3)
    own.owner.run()
    assert trimmed(own, None, 1).first_index == 3
    own.publish(3, 1)
    own.owner.run()
    before = ends(own)
    assert trimmed(own, 3, 2).first_index == 3
    assert trimmed(own, 0, 3).first_index == 3
    assert ends(own) == before


def test_several_trims_and_a_truncation_are_answered() -> None:
    own = consuming()
    own.publish(0, 10)
    own.owner.run()
    for below in (10, 4):
        own.owner.handle(TrimBelowRequested(below, below))
    own.owner.handle(TruncateRequested(2))
    for _ in range(80):
        own.owner.tick(250).run()
    answers = {answer.call: answer for answer in own.owner.emitted(AnswerTruncate)}
    assert {call: each.error for call, each in answers.items()} == dict.fromkeys((10, 4, 2))
    assert first_index(own) == 10


def test_a_trim_that_takes_long_is_answered_and_ends_with_its_owner() -> None:
    own = consuming()
    own.publish(0, 5)
    own.owner.run()
    own.owner.handle(TrimBelowRequested(1, None))
    own.owner.tick(TRUNCATE_WAIT_MS)
    (answer,) = own.owner.emitted(AnswerTruncate)
    assert isinstance(answer.error, ServiceUnavailable)
    own.publish(5, 5)
    own.owner.run()
    own.owner.handle(TrimBelowRequested(2, None))
    own.owner.handle(DrainRequested())
    own.owner.run()
    own.owner.handle(TrimBelowRequested(3, None))
    errors = {answer.call: type(answer.error) for answer in own.owner.emitted(AnswerTruncate)}
    assert errors[2] is NotOwner
    assert errors[3] is NotOwner


def test_a_trim_is_refused_while_the_topic_does_not_serve() -> None:
    owner = Owner(World(), "o1")
    owner.handle(TrimBelowRequested(1, None))
    (answer,) = owner.emitted(AnswerTruncate)
    assert isinstance(answer.error, TopicLoading)
