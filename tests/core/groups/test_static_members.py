"""Members with an instance id: they keep their assignment over a restart, and a second one ends the first."""

import pytest

from oncelog.core.groups.answers import GroupError, GroupState
from oncelog.core.groups.events import Assignment, LeavingMember
from tests.core.groups.group_world import NONE, RANGE, REBALANCE_MS, SESSION_MS, STICKY, World


def stable(world: World, *instances: str) -> None:
    answers = world.gather(*(world.join(instance_id=each, member_id_required=True) for each in instances))
    world.assign(answers)


def test_static_member_joins_at_once_without_a_member_id() -> None:
    world = World()
    (joined,) = world.gather(world.join(instance_id="i1", member_id_required=True))
    assert joined.members[0].instance_id == "i1"


def test_restarted_static_member_keeps_its_assignment_without_a_rebalance() -> None:
    world = World()
    stable(world, "i1", "i2")
    joined = world.joined(world.join(instance_id="i2"))
    assert (joined.member_id, joined.generation, joined.leader) == ("m3", 1, "m1")
    assert world.synced(world.sync("m3", 1)) == b"m2"
    assert world.heartbeat("m1", 1) is NONE
    assert world.heartbeat("m3", 1, instance_id="i2") is NONE
    assert world.describe().state is GroupState.STABLE


def test_restarted_leader_is_told_its_former_id_so_that_it_assigns_nothing() -> None:
    world = World()
    stable(world, "i1", "i2")
    joined = world.joined(world.join(instance_id="i1"))
    assert (joined.member_id, joined.leader, joined.members) == ("m3", "m1", ())
    assert world.synced(world.sync("m3", 1)) == b"m1"
    waiting = world.join("m3", instance_id="i1")
    assert world.waits(waiting)  # it leads, so its JoinGroup begins a rebalance


def test_former_instance_is_fenced() -> None:
    world = World()
    stable(world, "i1", "i2")
    world.join(instance_id="i2")
    fenced = GroupError.FENCED_INSTANCE_ID
    assert world.heartbeat("m2", 1, instance_id="i2") is fenced
    assert world.commit("m2", 1, instance_id="i2").error is fenced
    assert world.sync_error(world.sync("m2", 1, instance_id="i2")) is fenced
    assert world.join_error(world.join("m2", instance_id="i2")) is fenced
    assert world.leave(LeavingMember("m2", "i2")) == [fenced]
    assert world.heartbeat("m2", 1) is GroupError.UNKNOWN_MEMBER_ID
    assert world.describe().state is GroupState.STABLE


def test_waiting_requests_of_the_former_instance_are_answered_fenced() -> None:
    world = World()
    first = world.join(instance_id="i1")
    second = world.join(instance_id="i1")
    assert world.join_error(first) is GroupError.FENCED_INSTANCE_ID
    world.gather(second, world.join(instance_id="i2"))
    waiting = world.sync("m3", 1, instance_id="i2")
    world.join(instance_id="i2")
    assert world.sync_error(waiting) is GroupError.FENCED_INSTANCE_ID


def test_restart_with_other_metadata_begins_a_rebalance() -> None:
    world = World()
    stable(world, "i1", "i2")
    call = world.join(instance_id="i2", protocols=(RANGE._replace(metadata=b"other topics"),))
    assert world.waits(call)
    assert world.joined(world.join("m1", instance_id="i1")).generation == 2
    assert world.joined(call).generation == 2


def test_restart_while_the_group_waits_for_assignments_begins_a_rebalance() -> None:
    """The leader would give the assignment to the former member id."""
    world = World()
    world.gather(world.join(instance_id="i1"), world.join(instance_id="i2"))
    restarted = world.join(instance_id="i2")
    assert world.waits(restarted)
    given = (Assignment("m2", b"of the former id"),)
    assert world.sync_error(world.sync("m1", 1, assignments=given)) is GroupError.REBALANCE_IN_PROGRESS
    leader = world.joined(world.join("m1", instance_id="i1"))
    assert [each.member_id for each in leader.members] == ["m1", "m3"]


def test_restart_during_a_rebalance_joins_it() -> None:
    world = World()
    stable(world, "i1", "i2")
    world.join("m1", instance_id="i1")
    assert world.joined(world.join(instance_id="i2")).generation == 2


def test_static_member_keeps_its_place_over_the_rebalance_timeout() -> None:
    """Its restart may take longer than a rebalance; its session timeout decides."""
    world = World()
    session = 3 * REBALANCE_MS
    answers = world.gather(*(world.join(instance_id=each, session_timeout_ms=session) for each in ("i1", "i2")))
    world.assign(answers)
    call = world.join("m1", instance_id="i1")
    world.elapse(REBALANCE_MS)
    joined = world.joined(call)
    assert [each.instance_id for each in joined.members] == ["i1", "i2"]
    given = (Assignment("m1", b"one"), Assignment("m2", b"two"))
    world.sync("m1", 2, assignments=given)
    assert world.joined(world.join(instance_id="i2")).generation == 2
    assert world.synced(world.sync("m3", 2)) == b"two"
    world.elapse(session)
    assert world.describe().state is GroupState.EMPTY


def test_absent_static_leader_keeps_its_place_and_does_not_lead() -> None:
    world = World()
    session = 3 * REBALANCE_MS
    answers = world.gather(*(world.join(instance_id=each, session_timeout_ms=session) for each in ("i1", "i2")))
    world.assign(answers)
    call = world.join("m2", instance_id="i2", protocols=(STICKY, RANGE))
    world.elapse(REBALANCE_MS)
    joined = world.joined(call)
    assert (joined.leader, [each.member_id for each in joined.members]) == ("m2", ["m1", "m2"])


def test_group_of_absent_static_members_waits_for_their_sessions() -> None:
    world = World()
    session = 3 * REBALANCE_MS
    answers = world.gather(*(world.join(instance_id=each, session_timeout_ms=session) for each in ("i1", "i2")))
    world.assign(answers)
    world.leave(LeavingMember("", "i1"))
    world.elapse(2 * REBALANCE_MS)
    assert world.describe().state is GroupState.PREPARING
    assert [each.member_id for each in world.joined(world.join("m2", instance_id="i2")).members] == ["m2"]


def test_administrator_removes_a_static_member_by_its_instance_id() -> None:
    world = World()
    stable(world, "i1", "i2")
    assert world.leave(LeavingMember("", "i2"), LeavingMember("", "i3")) == [NONE, GroupError.UNKNOWN_MEMBER_ID]
    assert world.heartbeat("m1", 1, instance_id="i1") is GroupError.REBALANCE_IN_PROGRESS


@pytest.mark.parametrize("instance_id", ["i3", "i1"])
def test_member_id_with_another_instance_id_is_refused(instance_id: str) -> None:
    world = World()
    stable(world, "i1", "i2")
    error = world.join_error(world.join("m2", instance_id=instance_id))
    assert error is (GroupError.FENCED_INSTANCE_ID if instance_id == "i1" else GroupError.UNKNOWN_MEMBER_ID)


def test_static_member_may_join_again_without_its_instance_id() -> None:
    world = World()
    stable(world, "i1")
    world.join("m1", protocols=(STICKY,))
    assert world.describe().members[0].instance_id == "i1"


def test_abandoned_restart_can_be_repeated() -> None:
    world = World()
    stable(world, "i1")
    world.abandon(world.join(instance_id="i1", protocols=(STICKY,)))
    assert world.joined(world.join(instance_id="i1", protocols=(STICKY,))).member_id == "m3"


def test_silent_static_member_is_removed_after_its_session_timeout() -> None:
    world = World()
    stable(world, "i1", "i2")
    world.elapse(SESSION_MS - 1)
    world.heartbeat("m1", 1)
    world.elapse(1)
    assert world.heartbeat("m1", 1) is GroupError.REBALANCE_IN_PROGRESS
    assert [each.instance_id for each in world.joined(world.join("m1")).members] == ["i1"]
