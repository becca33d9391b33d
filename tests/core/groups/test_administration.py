"""Descriptions, lists, commits from outside of a group, and deletions."""

from oncelog.core.errors import ServiceUnavailable
from oncelog.core.groups.answers import DeleteAnswer, DescribedMember, GroupError, GroupState
from oncelog.core.groups.events import Assignment, DeletionFailed, GenerationDeleted
from oncelog.core.groups.limits import INITIAL_DELAY_MS
from tests.core.groups.group_world import NONE, SESSION_MS, World


def test_description_shows_members_and_what_they_were_assigned() -> None:
    world = World()
    world.gather(world.join(client_id="app", client_host="10.0.0.1", instance_id="i1"))
    assert world.describe().state is GroupState.COMPLETING
    world.sync("m1", 1, assignments=(Assignment("m1", b"all"),))
    described = world.describe()
    assert described.members == (DescribedMember("m1", "i1", "app", "10.0.0.1", b"of range", b"all"),)
    assert (described.state, described.generation) == (GroupState.STABLE, 1)
    assert (described.protocol_type, described.protocol) == ("consumer", "range")


def test_description_during_a_rebalance_has_members_without_assignments() -> None:
    world = World()
    world.stable(1)
    world.join()
    described = world.describe()
    assert (described.state, described.protocol) == (GroupState.PREPARING, "")
    assert described.members[0] == DescribedMember("m1", None, "", "", b"", b"")


def test_unknown_group_is_dead() -> None:
    described = World().describe("unknown")
    assert (described.error, described.state, described.generation) == (NONE, GroupState.DEAD, 0)


def test_groups_are_listed_by_name_also_those_without_members() -> None:
    world = World({"z": 1, "a": 2})
    world.stable(1)
    assert list(world.listed().items()) == [
        ("a", ("", GroupState.EMPTY)),
        ("g", ("consumer", GroupState.STABLE)),
        ("z", ("", GroupState.EMPTY)),
    ]


def test_clients_outside_of_a_group_commit_while_it_has_no_members() -> None:
    world = World()
    assert world.commit() == (NONE, 0, "")
    world.stable(1)
    assert world.commit().error is GroupError.UNKNOWN_MEMBER_ID
    assert world.commit("m1").error is GroupError.UNKNOWN_MEMBER_ID
    world.leave("m1")
    assert world.commit() == (NONE, 1, "")


def test_commit_from_outside_names_no_generation_below_one_that_may_be_durable() -> None:
    world = World()
    world.writes_at_once = False
    world.join()
    world.elapse(INITIAL_DELAY_MS)
    world.fail_write(durable=True)
    assert world.commit() == (NONE, 1, "")


def test_group_is_deleted_in_two_steps() -> None:
    world = World()
    world.stable(1)
    world.leave("m1")
    assert world.ask_deletion() == (NONE, 1, "")
    call = world.delete(1)
    assert world.waits(call)
    assert [each.group for each in world.deletions] == ["g"]
    world.handle(GenerationDeleted("g"))
    assert world.answer(call, DeleteAnswer).error is NONE
    assert world.listed() == {}
    (joined,) = world.gather(world.join())
    assert joined.generation == 1


def test_group_with_members_is_not_deleted() -> None:
    world = World()
    world.stable(1)
    assert world.ask_deletion().error is GroupError.NON_EMPTY_GROUP
    world.leave("m1")
    world.writes_at_once = False
    world.join()
    world.elapse(INITIAL_DELAY_MS)
    world.leave("m2")
    assert world.ask_deletion().error is GroupError.NON_EMPTY_GROUP  # its next generation is in flight
    world.write()
    assert world.ask_deletion() == (NONE, 2, "")


def test_group_that_had_members_between_the_steps_is_not_deleted() -> None:
    """Their offsets are newer than those that were deleted."""
    world = World()
    world.stable(1)
    world.leave("m1")
    world.ask_deletion()
    world.gather(world.join())
    world.leave("m2")
    assert world.answer(world.delete(1), DeleteAnswer).error is GroupError.NON_EMPTY_GROUP
    assert not world.deletions


def test_group_that_never_had_a_generation_is_not_found() -> None:
    world = World()
    assert world.ask_deletion().error is GroupError.GROUP_ID_NOT_FOUND
    world.join(member_id_required=True)
    assert world.ask_deletion().error is GroupError.GROUP_ID_NOT_FOUND
    assert world.answer(world.delete(0), DeleteAnswer).error is GroupError.GROUP_ID_NOT_FOUND


def test_requests_wait_elsewhere_while_their_group_is_being_deleted() -> None:
    world = World()
    world.stable(1)
    world.leave("m1")
    world.delete(1)
    away = GroupError.COORDINATOR_NOT_AVAILABLE
    assert world.join_error(world.join()) is away
    assert world.heartbeat("m1", 1) is away
    assert world.sync_error(world.sync("m1", 1)) is away
    assert world.commit().error is away
    assert world.ask_deletion().error is away
    assert world.describe().state is GroupState.DEAD
    assert world.listed() == {"g": ("consumer", GroupState.DEAD)}


def test_failed_deletion_leaves_the_group() -> None:
    world = World()
    world.stable(1)
    world.leave("m1")
    call = world.delete(1)
    world.handle(DeletionFailed("g", ServiceUnavailable("no answer")))
    assert world.answer(call, DeleteAnswer).error is GroupError.COORDINATOR_NOT_AVAILABLE
    (joined,) = world.gather(world.join())
    assert joined.generation == 2


def test_abandoned_deletion_goes_on() -> None:
    world = World()
    world.stable(1)
    world.leave("m1")
    world.abandon(world.delete(1))
    world.handle(GenerationDeleted("g"))
    world.handle(GenerationDeleted("g"))
    assert world.listed() == {}


def test_given_ids_end_with_their_group() -> None:
    world = World()
    world.stable(1)
    world.leave("m1")
    world.join(member_id_required=True)
    world.delete(1)
    world.handle(GenerationDeleted("g"))
    assert world.join_error(world.join("m2")) is GroupError.UNKNOWN_MEMBER_ID
    assert world.coordinator.next_due_ms is None


def test_given_id_that_expires_while_its_group_is_being_deleted_changes_nothing() -> None:
    world = World()
    world.stable(1)
    world.leave("m1")
    world.join(member_id_required=True)
    call = world.delete(1)
    world.elapse(SESSION_MS)
    world.handle(GenerationDeleted("g"))
    assert world.answer(call, DeleteAnswer).error is NONE
