"""The coordinator is lost: the next one has the durable generations, and takes the members that show themselves."""

import pytest

from oncelog.core.groups.answers import GroupError, GroupState, JoinAnswer
from oncelog.core.groups.limits import CLAIM_DELAY_MS, CLAIMS_MS, INITIAL_DELAY_MS, MEMBERS_MAX
from tests.core.groups.group_world import NONE, REBALANCE_MS, SESSION_MS, World

REBALANCE = GroupError.REBALANCE_IN_PROGRESS


def taken_over(size: int = 2, **more: object) -> World:
    """A stable group of generation 1, and another coordinator."""
    world = World()
    world.stable(size, **more)
    world.takes_over()
    return world


def test_members_of_the_durable_generation_are_sent_to_join_with_their_ids() -> None:
    world = taken_over(2)
    calls = []
    for member_id in ("m2", "m1"):
        assert world.heartbeat(member_id, 1) is REBALANCE
        calls.append(world.join(member_id))
    world.elapse(CLAIM_DELAY_MS)
    answers = [world.joined(call) for call in calls]
    assert [(each.member_id, each.generation) for each in answers] == [("m2", 2), ("m1", 2)]
    world.assign(answers)


def test_one_rebalance_follows_for_members_that_come_within_a_heartbeat_of_each_other() -> None:
    world = taken_over(3)
    calls = []
    for member_id in ("m1", "m2", "m3"):
        world.heartbeat(member_id, 1)
        calls.append(world.join(member_id))
        world.elapse(CLAIM_DELAY_MS - 1)
    assert world.waits(*calls)
    world.elapse(1)
    assert {world.joined(call).generation for call in calls} == {2}
    assert world.durable == {"g": 2}


def test_member_that_was_seen_is_waited_for_as_any_other() -> None:
    """Its application is busy; it commits and joins when it polls."""
    world = taken_over(2)
    world.heartbeat("m1", 1)
    world.heartbeat("m2", 1)
    call = world.join("m1")
    for _ in range(10):
        world.elapse(3_000)
        assert world.heartbeat("m2", 1) is REBALANCE
        assert world.commit("m2", 1) == (NONE, 1, "")
    assert world.waits(call)
    world.join("m2")
    assert len(world.joined(call).members) == 2


def test_member_that_was_seen_and_falls_silent_is_not_waited_for() -> None:
    world = taken_over(2)
    world.heartbeat("m2", 1)
    call = world.join("m1")
    world.elapse(CLAIMS_MS - 1)
    assert world.waits(call)
    world.elapse(1)
    assert [each.member_id for each in world.joined(call).members] == ["m1"]


def test_member_that_was_seen_and_does_not_join_is_removed_after_the_rebalance_timeout() -> None:
    world = taken_over(2)
    call = world.join("m1")
    for _ in range(REBALANCE_MS // 5_000):
        assert world.heartbeat("m2", 1) is REBALANCE
        assert world.waits(call)
        world.elapse(5_000)
    assert world.joined(call).generation == 2
    assert world.heartbeat("m2", 1) is GroupError.UNKNOWN_MEMBER_ID


@pytest.mark.hazard("coordinator-is-lost")
def test_commits_of_the_durable_generation_are_accepted_until_the_next_one_begins() -> None:
    world = taken_over(3)
    assert world.commit("m1", 1) == (NONE, 1, "")
    world.writes_at_once = False
    calls = [world.join("m1"), world.join("m2")]
    world.elapse(CLAIM_DELAY_MS)
    assert world.commit("m2", 1) == (NONE, 1, "")
    assert world.commit("m3", 1) == (NONE, 1, "")
    calls.append(world.join("m3"))
    world.write()
    assert {world.joined(call).generation for call in calls} == {2}
    assert world.commit("m1", 1).error is GroupError.ILLEGAL_GENERATION
    assert world.commit("foreign", 1).error is GroupError.UNKNOWN_MEMBER_ID


def test_other_generations_claim_nothing() -> None:
    world = taken_over(2)
    for generation in (0, 2):
        assert world.heartbeat("m1", generation) is GroupError.ILLEGAL_GENERATION
        assert world.commit("m1", generation).error is GroupError.ILLEGAL_GENERATION
        assert world.sync_error(world.sync("m1", generation)) is GroupError.ILLEGAL_GENERATION
    assert not world.coordinator.next_due_ms


def test_sync_of_the_durable_generation_is_sent_to_join() -> None:
    """The former coordinator has answered JoinGroup, and has ended."""
    world = World()
    world.gather(world.join(), world.join())
    world.takes_over()
    assert world.sync_error(world.sync("m2", 1)) is REBALANCE
    assert [each.member_id for each in world.describe().members] == ["m2"]


@pytest.mark.hazard("coordinator-is-lost")
def test_generation_that_was_durable_and_not_answered_is_never_used() -> None:
    world = World()
    world.stable(1)
    world.writes_at_once = False
    world.join("m1")
    world.durable["g"] = world.writes[0].generation
    world.takes_over()
    world.writes_at_once = True
    call = world.join("m1")
    world.elapse(CLAIM_DELAY_MS)
    assert world.joined(call).generation == 3


def test_unknown_members_are_refused_when_the_time_for_claims_is_over() -> None:
    world = taken_over(2)
    world.elapse(CLAIMS_MS)
    assert world.heartbeat("m1", 1) is GroupError.UNKNOWN_MEMBER_ID
    assert world.commit("m1", 1).error is GroupError.UNKNOWN_MEMBER_ID
    assert world.join_error(world.join("m1")) is GroupError.UNKNOWN_MEMBER_ID
    (joined,) = world.gather(world.join())
    assert joined.generation == 2


def test_claims_end_when_the_next_generation_begins() -> None:
    world = taken_over(2)
    call = world.join("m1")
    world.elapse(CLAIM_DELAY_MS)
    assert world.joined(call).generation == 2
    assert world.heartbeat("m2", 1) is GroupError.UNKNOWN_MEMBER_ID
    assert world.heartbeat("m2", 2) is GroupError.UNKNOWN_MEMBER_ID
    world.leave("m1")
    assert world.heartbeat("m2", 2) is GroupError.UNKNOWN_MEMBER_ID
    assert world.commit("m2", 2).error is GroupError.UNKNOWN_MEMBER_ID


def test_new_members_join_with_those_that_were_seen() -> None:
    world = taken_over(1)
    world.heartbeat("m1", 1)
    asked = world.answer(world.join(member_id_required=True), JoinAnswer)
    call = world.join(asked.member_id)
    world.elapse(CLAIM_DELAY_MS)
    assert world.waits(call)
    assert len(world.joined(world.join("m1")).members) == 2
    assert world.joined(call).generation == 2


def test_group_that_was_never_answered_takes_no_claims() -> None:
    world = World()
    world.takes_over()
    assert world.heartbeat("m1", 0) is GroupError.UNKNOWN_MEMBER_ID
    assert world.join_error(world.join("m1")) is GroupError.UNKNOWN_MEMBER_ID
    call = world.join()
    world.elapse(INITIAL_DELAY_MS)
    assert world.joined(call).generation == 1


def test_group_may_have_members_while_claims_are_taken() -> None:
    """Commits from outside, a description as empty or a deletion would be wrong."""
    world = taken_over(1)
    loading = GroupError.COORDINATOR_LOAD_IN_PROGRESS
    assert world.commit().error is loading
    assert world.describe().error is loading
    assert world.ask_deletion().error is loading
    world.elapse(CLAIMS_MS)
    assert world.commit() == (NONE, 1, "")
    assert world.describe().state is GroupState.EMPTY
    assert world.ask_deletion() == (NONE, 1, "")


def test_static_member_that_was_seen_fences_others_of_its_instance_id() -> None:
    world = World()
    world.assign(world.gather(world.join(instance_id="i1")))
    world.takes_over()
    assert world.heartbeat("m1", 1, instance_id="i1") is REBALANCE
    assert world.heartbeat("former", 1, instance_id="i1") is GroupError.FENCED_INSTANCE_ID
    call = world.join("m1", instance_id="i1")
    world.elapse(CLAIM_DELAY_MS)
    assert world.joined(call).members[0].instance_id == "i1"


def test_static_member_that_restarts_takes_the_place_of_the_one_that_was_seen() -> None:
    world = World()
    world.assign(world.gather(world.join(instance_id="i1")))
    world.takes_over()
    world.heartbeat("m1", 1, instance_id="i1")
    call = world.join(instance_id="i1")
    world.elapse(CLAIM_DELAY_MS)
    assert [each.member_id for each in world.joined(call).members] == ["m2"]
    assert world.heartbeat("m1", 1, instance_id="i1") is GroupError.FENCED_INSTANCE_ID


def test_heartbeat_without_an_instance_id_does_not_hide_that_the_member_is_static() -> None:
    world = World()
    world.assign(world.gather(world.join(instance_id="i1")))
    world.takes_over()
    world.heartbeat("m1", 1)
    call = world.join("m1", instance_id="i1")
    world.elapse(CLAIM_DELAY_MS)
    assert world.joined(call).members[0].instance_id == "i1"


def test_claims_count_as_members() -> None:
    world = World({"g": 1})
    world.checks = False
    for number in range(MEMBERS_MAX):
        assert world.heartbeat(f"c{number}", 1) is REBALANCE
    assert world.heartbeat("more", 1) is GroupError.UNKNOWN_MEMBER_ID
    assert world.join_error(world.join("more")) is GroupError.GROUP_MAX_SIZE_REACHED
    assert world.heartbeat("x" * 2**20, 1) is GroupError.UNKNOWN_MEMBER_ID
    world.elapse(SESSION_MS + CLAIMS_MS)
    assert world.describe().state is GroupState.EMPTY
