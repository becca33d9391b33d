"""The generation is durable before any member is answered, and no generation is used twice."""

import pytest

from oncelog.core.errors import LimitReached, OncelogError, ServiceUnavailable
from oncelog.core.groups.answers import GroupError, GroupState
from oncelog.core.groups.events import GenerationFailed, GenerationWritten
from oncelog.core.groups.limits import GENERATION_MAX, INITIAL_DELAY_MS
from oncelog.core.ids import Generation
from tests.core.groups.group_world import NONE, SESSION_MS, STICKY, World


def writing(members: int = 1) -> tuple[World, list[int]]:
    """A new group whose first generation is in flight."""
    world = World()
    world.writes_at_once = False
    calls = [world.join() for _ in range(members)]
    world.elapse(INITIAL_DELAY_MS)
    assert [(each.group, each.generation) for each in world.writes] == [("g", 1)]
    return world, calls


@pytest.mark.hazard("coordinator-is-lost")
def test_joins_are_answered_when_the_generation_is_durable() -> None:
    world, calls = writing(2)
    assert world.waits(*calls)
    world.write()
    assert [world.joined(call).generation for call in calls] == [1, 1]


def test_member_that_joins_during_the_write_belongs_to_the_generation() -> None:
    world, calls = writing()
    late = world.join()
    world.write()
    assert [each.member_id for each in world.joined(calls[0]).members] == ["m1", "m2"]
    assert world.joined(late).generation == 1
    assert not world.writes


def test_member_that_is_given_its_id_during_the_write_is_waited_for() -> None:
    world, calls = writing()
    world.join(member_id_required=True)
    world.write()
    assert world.waits(*calls)
    late = world.join("m2")
    assert {world.joined(call).generation for call in (*calls, late)} == {1}
    assert not world.writes


def test_member_that_leaves_during_the_write_does_not_belong_to_the_generation() -> None:
    world, calls = writing(2)
    world.leave("m1")
    world.write()
    assert [each.member_id for each in world.joined(calls[1]).members] == ["m2"]


def test_protocol_is_chosen_when_the_generation_begins() -> None:
    world, calls = writing()
    again = world.join("m1", protocols=(STICKY,))
    assert world.join_error(calls[0]) is GroupError.REBALANCE_IN_PROGRESS
    world.write()
    assert world.joined(again).protocol == "sticky"


def test_generation_that_no_member_has_joined_is_used_for_the_next_ones() -> None:
    world, _ = writing()
    world.leave("m1")
    assert world.describe().state is GroupState.EMPTY
    second = world.join()
    world.write()
    world.elapse(INITIAL_DELAY_MS)
    assert world.joined(second).generation == 1
    assert not world.writes


def test_group_that_became_empty_during_the_write_remembers_the_generation() -> None:
    world, _ = writing()
    world.leave("m1")
    world.write()
    world.join()
    world.elapse(INITIAL_DELAY_MS)
    assert [each.generation for each in world.writes] == [2]


@pytest.mark.parametrize(
    ("error", "answer"),
    [
        (ServiceUnavailable("no answer"), GroupError.COORDINATOR_NOT_AVAILABLE),
        (LimitReached("too many subscriptions", field="subscription", limit=1), GroupError.UNKNOWN_SERVER_ERROR),
    ],
)
def test_failed_write_answers_all_that_wait(error: OncelogError, answer: GroupError) -> None:
    world = World()
    world.stable(2)
    world.writes_at_once = False
    calls = [world.join("m1"), world.join("m2"), world.join()]
    assert world.describe().state is GroupState.PREPARING
    world.writes.clear()
    world.handle(GenerationFailed("g", Generation(2), error))
    assert {world.join_error(call) for call in calls} == {answer}
    assert [each.member_id for each in world.describe().members] == ["m1", "m2"]


@pytest.mark.hazard("coordinator-is-lost")
def test_generation_of_a_failed_write_is_not_tried_again() -> None:
    """It may be durable, and a later coordinator would take it for the members' generation."""
    world, _ = writing()
    world.fail_write(durable=True)
    call = world.join()
    world.elapse(INITIAL_DELAY_MS)
    assert [each.generation for each in world.writes] == [2]
    world.write()
    assert world.joined(call).generation == 2


def test_members_rejoin_after_a_failed_write() -> None:
    world = World()
    world.stable(2)
    world.writes_at_once = False
    world.join("m1")
    world.join("m2")
    world.fail_write()
    assert world.heartbeat("m1", 1) is GroupError.REBALANCE_IN_PROGRESS
    calls = [world.join("m1"), world.join("m2")]
    world.write()
    assert {world.joined(call).generation for call in calls} == {3}


def test_generation_that_another_coordinator_raised_is_not_used() -> None:
    world, calls = writing()
    world.writes.clear()
    world.handle(GenerationWritten("g", Generation(5)))
    assert world.waits(*calls)
    world.write()
    assert world.joined(calls[0]).generation == 6


def test_outcome_of_an_earlier_write_is_ignored() -> None:
    world, calls = writing()
    world.fail_write()
    call = world.join()
    world.elapse(INITIAL_DELAY_MS)
    world.handle(GenerationWritten("g", Generation(1)))
    world.handle(GenerationFailed("g", Generation(1), ServiceUnavailable("late")))
    assert world.waits(call)
    world.write()
    world.handle(GenerationWritten("g", Generation(2)))
    world.handle(GenerationWritten("unknown", Generation(2)))
    assert world.joined(call).generation == 2
    assert world.answers[calls[0]].error is GroupError.COORDINATOR_NOT_AVAILABLE  # type: ignore[union-attr]


def test_former_generation_may_commit_until_the_next_one_begins() -> None:
    world = World()
    world.stable(2)
    world.writes_at_once = False
    calls = [world.join("m1"), world.join("m2")]
    assert world.commit("m1", 1) == (NONE, 1, "")
    world.write()
    assert world.joined(calls[0]).generation == 2
    assert world.commit("m1", 1).error is GroupError.ILLEGAL_GENERATION
    assert world.commit("m1", 2).error is GroupError.REBALANCE_IN_PROGRESS
    world.sync("m1", 2)
    assert world.commit("m1", 2) == (NONE, 2, "")


def test_silent_member_is_removed_during_the_write() -> None:
    world = World()
    world.stable(2)
    world.writes_at_once = False
    first, second = world.join("m1"), world.join("m2")
    world.abandon(second)
    world.elapse(SESSION_MS)
    world.write()
    assert [each.member_id for each in world.joined(first).members] == ["m1"]


def test_last_generation_is_used_and_then_the_group_is_refused() -> None:
    world = World({"g": GENERATION_MAX - 1})
    world.elapse(60_000)
    answers = world.gather(world.join())
    assert answers[0].generation == GENERATION_MAX
    world.assign(answers)
    call = world.join("m1")
    assert world.join_error(call) is GroupError.UNKNOWN_SERVER_ERROR
    assert str(GENERATION_MAX) in world.answers[call].reason  # type: ignore[union-attr]
    assert world.describe().state is GroupState.EMPTY
    assert world.durable == {"g": GENERATION_MAX}
    assert not world.unanswered


def test_generation_of_partitions_beyond_the_last_one_is_refused() -> None:
    world = World()
    world.gather(world.join(), world.join())
    world.sync("m1", 1, highest_generation=GENERATION_MAX)
    calls = [world.join("m1"), world.join("m2")]
    assert {world.join_error(call) for call in calls} == {GroupError.UNKNOWN_SERVER_ERROR}
    assert not world.writes
