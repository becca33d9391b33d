"""What begins a rebalance, who is waited for, and what members are answered meanwhile."""

import pytest

from oncelog.core.groups.answers import GroupError, GroupState
from oncelog.core.groups.events import Assignment
from tests.core.groups.group_world import NONE, RANGE, REBALANCE_MS, SESSION_MS, STICKY, World


def test_members_get_the_assignments_of_the_leader() -> None:
    world = World()
    world.gather(world.join(), world.join(), world.join())
    waiting = world.sync("m2", 1)
    assert world.waits(waiting)
    given = (Assignment("m1", b"one"), Assignment("m2", b"two"), Assignment("foreign", b"x"))
    assert world.synced(world.sync("m1", 1, assignments=given)) == b"one"
    assert world.synced(waiting) == b"two"
    assert world.synced(world.sync("m3", 1)) == b""
    assert [each.assignment for each in world.describe().members] == [b"one", b"two", b""]


def test_assignments_of_a_follower_are_ignored() -> None:
    world = World()
    world.gather(world.join(), world.join())
    call = world.sync("m2", 1, assignments=(Assignment("m2", b"all"),))
    assert world.waits(call)
    world.sync("m1", 1)
    assert world.synced(call) == b""


def test_new_member_begins_a_rebalance() -> None:
    world = World()
    world.stable(2)
    new = world.join()
    assert world.heartbeat("m1", 1) is GroupError.REBALANCE_IN_PROGRESS
    assert world.sync_error(world.sync("m1", 1)) is GroupError.REBALANCE_IN_PROGRESS
    first = world.join("m1")
    assert world.waits(new, first)
    second = world.join("m2")
    answers = [world.joined(call) for call in (first, second, new)]
    assert {(each.generation, each.leader) for each in answers} == {(2, "m1")}
    world.assign(answers)
    assert world.heartbeat("m1", 1) is GroupError.ILLEGAL_GENERATION
    assert world.heartbeat("m1", 2) is NONE


def test_leader_that_joins_a_stable_group_begins_a_rebalance() -> None:
    world = World()
    world.stable(2)
    call = world.join("m1")
    assert world.waits(call)
    world.join("m2")
    assert world.joined(call).generation == 2


def test_follower_that_changes_nothing_gets_the_current_generation() -> None:
    world = World()
    world.stable(2)
    joined = world.joined(world.join("m2"))
    assert (joined.generation, joined.leader, joined.members) == (1, "m1", ())
    assert world.heartbeat("m1", 1) is NONE
    assert world.synced(world.sync("m2", 1)) == b"m2"


def test_follower_that_changes_its_metadata_begins_a_rebalance() -> None:
    world = World()
    world.stable(2)
    call = world.join("m2", protocols=(RANGE._replace(metadata=b"other topics"),))
    assert world.waits(call)
    assert world.joined(world.join("m1")).members[1].metadata == b"other topics"


@pytest.mark.parametrize("member_id", ["m1", "m2"])
def test_lost_answer_is_repeated_while_the_group_waits_for_assignments(member_id: str) -> None:
    world = World()
    answers = world.gather(world.join(), world.join())
    again = world.joined(world.join(member_id))
    assert again in answers


def test_change_while_the_group_waits_for_assignments_begins_a_rebalance() -> None:
    world = World()
    world.gather(world.join(protocols=(RANGE, STICKY)), world.join())
    waiting = world.sync("m2", 1)
    call = world.join("m1", protocols=(RANGE,))
    assert world.sync_error(waiting) is GroupError.REBALANCE_IN_PROGRESS
    world.join("m2")
    assert world.joined(call).generation == 2


def test_members_that_do_not_join_within_the_rebalance_timeout_are_removed() -> None:
    """They may send heartbeats for ever: their application hangs."""
    world = World()
    world.stable(3)
    new, leader = world.join(rebalance_timeout_ms=1_000), world.join("m1")
    for _ in range(REBALANCE_MS // 5_000):
        assert world.waits(new, leader)
        world.heartbeat("m2", 1)
        world.heartbeat("m3", 1)
        world.elapse(5_000)
    assert [each.member_id for each in world.joined(leader).members] == ["m1", "m4"]
    assert world.joined(new).generation == 2
    assert world.heartbeat("m2", 1) is GroupError.UNKNOWN_MEMBER_ID


def test_member_that_joined_is_the_leader_if_the_former_one_does_not() -> None:
    world = World()
    world.stable(2)
    call = world.join("m2", protocols=(RANGE._replace(metadata=b"new"),))
    for _ in range(REBALANCE_MS // 5_000):
        world.heartbeat("m1", 1)
        world.elapse(5_000)
    joined = world.joined(call)
    assert (joined.leader, [each.member_id for each in joined.members]) == ("m2", ["m2"])


def test_member_that_leaves_begins_a_rebalance() -> None:
    world = World()
    world.stable(3)
    assert world.leave("m1") == [NONE]
    calls = [world.join("m2"), world.join("m3")]
    assert {world.joined(call).leader for call in calls} == {"m2"}


def test_member_that_leaves_is_no_longer_waited_for() -> None:
    world = World()
    world.stable(2)
    call = world.join("m1")
    assert world.leave("m2") == [NONE]
    assert [each.member_id for each in world.joined(call).members] == ["m1"]


def test_requests_of_a_member_that_leaves_are_answered() -> None:
    world = World()
    world.gather(world.join(), world.join())
    waiting = world.sync("m2", 1)
    assert world.leave("m2") == [NONE]
    assert world.sync_error(waiting) is GroupError.UNKNOWN_MEMBER_ID
    waiting = world.join("m1")
    assert world.joined(waiting).generation == 2
    waiting = world.join("m1", protocols=(STICKY,))
    assert world.leave("m1") == [NONE]
    assert world.joined(waiting).generation == 3


def test_several_members_leave_at_once_each_with_its_answer() -> None:
    world = World()
    world.stable(3)
    world.join(member_id_required=True)
    assert world.leave("m1", "foreign", "m3", "m3", "m4") == [
        NONE,
        GroupError.UNKNOWN_MEMBER_ID,
        NONE,
        GroupError.UNKNOWN_MEMBER_ID,
        NONE,
    ]
    assert world.joined(world.join("m2")).members[0].member_id == "m2"


def test_silent_member_is_removed_after_its_session_timeout() -> None:
    world = World()
    world.stable(2)
    world.elapse(SESSION_MS - 1)
    assert world.heartbeat("m1", 1) is NONE
    world.elapse(1)
    assert world.heartbeat("m1", 1) is GroupError.REBALANCE_IN_PROGRESS
    assert world.heartbeat("m2", 1) is GroupError.UNKNOWN_MEMBER_ID
    assert world.joined(world.join("m1")).generation == 2


def test_commits_count_as_heartbeats() -> None:
    world = World()
    world.stable(1)
    for _ in range(3):
        world.elapse(SESSION_MS - 1)
        assert world.commit("m1", 1).error is NONE


def test_silent_leader_ends_the_wait_for_its_assignments() -> None:
    world = World()
    world.gather(world.join(), world.join())
    waiting = world.sync("m2", 1)
    world.elapse(SESSION_MS)
    assert world.sync_error(waiting) is GroupError.REBALANCE_IN_PROGRESS
    assert world.joined(world.join("m2")).leader == "m2"


def test_members_that_wait_for_an_answer_are_not_silent() -> None:
    world = World()
    world.stable(2)
    call = world.join("m1")
    world.writes_at_once = False
    for _ in range(4):
        world.elapse(SESSION_MS - 1)
        world.heartbeat("m2", 1)
    world.join("m2")
    world.elapse(10 * SESSION_MS)
    world.write()
    assert world.joined(call).generation == 2
    waiting = world.sync("m2", 2)
    for _ in range(5):
        world.elapse(SESSION_MS - 1)
        assert world.heartbeat("m1", 2) is NONE
    assert world.waits(waiting)


def test_follower_that_waited_longer_than_its_session_may_rejoin() -> None:
    """Its session begins again when it is sent away."""
    world = World()
    world.gather(world.join(), world.join(), world.join())
    waiting = world.sync("m2", 1)
    for _ in range(3):
        world.elapse(SESSION_MS - 1)
        world.heartbeat("m1", 1)
        world.heartbeat("m3", 1)
    world.leave("m3")
    assert world.sync_error(waiting) is GroupError.REBALANCE_IN_PROGRESS
    world.elapse(SESSION_MS - 1)
    assert world.heartbeat("m2", 1) is GroupError.REBALANCE_IN_PROGRESS


def test_leader_that_only_sends_heartbeats_is_removed() -> None:
    world = World()
    world.gather(world.join(), world.join())
    waiting = world.sync("m2", 1)
    for _ in range(REBALANCE_MS // 5_000):
        assert world.waits(waiting)
        assert world.heartbeat("m1", 1) is NONE
        world.elapse(5_000)
    assert world.sync_error(waiting) is GroupError.REBALANCE_IN_PROGRESS
    assert world.heartbeat("m1", 1) is GroupError.UNKNOWN_MEMBER_ID


def test_leader_has_the_rebalance_timeout_for_its_assignments_also_with_a_long_session() -> None:
    world = World()
    world.gather(*(world.join(session_timeout_ms=3 * REBALANCE_MS) for _ in range(2)))
    waiting = world.sync("m2", 1)
    world.elapse(REBALANCE_MS - 1)
    assert world.waits(waiting)
    world.elapse(1)
    assert world.sync_error(waiting) is GroupError.REBALANCE_IN_PROGRESS


def test_rebalance_timeout_of_0_leaves_time_for_assignments() -> None:
    world = World()
    answers = [world.joined(world.join(rebalance_timeout_ms=0))]
    world.elapse(SESSION_MS // 2)
    world.assign(answers)


@pytest.mark.parametrize(
    ("given", "error"),
    [
        ({"protocol": "sticky"}, GroupError.INCONSISTENT_GROUP_PROTOCOL),
        ({"protocol_type": "connect"}, GroupError.INCONSISTENT_GROUP_PROTOCOL),
        ({"protocol": "range", "protocol_type": "consumer"}, NONE),
    ],
)
def test_sync_with_another_protocol_is_refused(given: dict[str, str], error: GroupError) -> None:
    world = World()
    world.gather(world.join())
    call = world.sync("m1", 1, **given)
    assert world.answers[call].error is error  # type: ignore[union-attr]


def test_requests_of_another_generation_are_refused() -> None:
    world = World()
    world.stable(1)
    for generation in (0, 2, -1):
        assert world.heartbeat("m1", generation) is GroupError.ILLEGAL_GENERATION
        assert world.sync_error(world.sync("m1", generation)) is GroupError.ILLEGAL_GENERATION
    assert world.commit("m1", 2).error is GroupError.ILLEGAL_GENERATION


def test_requests_of_an_unknown_group_are_refused() -> None:
    world = World()
    assert world.heartbeat("m1", 1) is GroupError.UNKNOWN_MEMBER_ID
    assert world.sync_error(world.sync("m1", 1)) is GroupError.UNKNOWN_MEMBER_ID
    assert world.commit("m1", 1).error is GroupError.UNKNOWN_MEMBER_ID
    assert world.leave("m1") == [GroupError.UNKNOWN_MEMBER_ID]
    assert world.listed() == {}


def test_partitions_with_a_higher_generation_lift_the_group_above_it() -> None:
    world = World()
    world.gather(world.join(), world.join())
    waiting = world.sync("m2", 1)
    assert world.sync_error(world.sync("m1", 1, highest_generation=7)) is GroupError.REBALANCE_IN_PROGRESS
    assert world.sync_error(waiting) is GroupError.REBALANCE_IN_PROGRESS
    answers = [world.joined(call) for call in (world.join("m1"), world.join("m2"))]
    assert {each.generation for each in answers} == {8}
    assert world.durable == {"g": 8}
    assert world.synced(world.sync("m1", 8, highest_generation=8)) == b""


def test_groups_do_not_touch_each_other() -> None:
    world = World()
    world.stable(1)
    other = world.gather(world.join(group="other"))
    world.assign(other, group="other")
    world.leave("m2", group="other")
    assert world.heartbeat("m1", 1) is NONE
    assert world.listed() == {"g": ("consumer", GroupState.STABLE), "other": ("consumer", GroupState.EMPTY)}


def test_abandoned_join_of_a_client_without_its_id_removes_the_member() -> None:
    """It comes back as another member: the group would wait for this one."""
    world = World()
    world.stable(1)
    gone = world.join()
    world.abandon(gone)
    assert [each.member_id for each in world.describe().members] == ["m1"]
    assert world.joined(world.join("m1")).generation == 2


def test_abandoned_requests_of_a_known_member_leave_it_its_session() -> None:
    world = World()
    world.stable(2)
    first = world.join("m1")
    world.elapse(SESSION_MS // 2)
    world.heartbeat("m2", 1)
    world.abandon(first)
    world.elapse(SESSION_MS // 2)
    call = world.join("m2")
    assert world.waits(call)
    world.elapse(SESSION_MS // 2)
    assert [each.member_id for each in world.joined(call).members] == ["m2"]


def test_abandoned_sync_leaves_the_member_its_session() -> None:
    world = World()
    world.gather(world.join(), world.join())
    world.elapse(SESSION_MS // 2)
    world.abandon(world.sync("m2", 1))
    world.elapse(SESSION_MS // 2 - 1)
    assert world.heartbeat("m1", 1) is NONE
    world.elapse(SESSION_MS // 2)
    assert world.heartbeat("m1", 1) is NONE
    world.elapse(1)
    assert world.heartbeat("m1", 1) is GroupError.REBALANCE_IN_PROGRESS


def test_call_that_was_answered_is_not_abandoned_any_more() -> None:
    world = World()
    calls = [world.join(), world.join()]
    world.gather(*calls)
    world.abandon(calls[0])
    assert len(world.describe().members) == 2
