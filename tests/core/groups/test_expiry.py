"""Since when a group is empty, deletions of groups that are empty for long enough, and the type that a group keeps."""

import pytest

from oncelog.core.groups.answers import DeleteAnswer, GroupError, GroupState
from oncelog.core.groups.limits import CLAIMS_MS, INITIAL_DELAY_MS
from tests.core.groups.group_world import NONE, SESSION_MS, World

WEEK_MS = 7 * 24 * 3_600_000

pytestmark = pytest.mark.hazard("console-groups-fill-the-disk")


def left() -> World:
    """A group whose only member has just left."""
    world = World()
    world.stable(1)
    world.leave("m1")
    return world


def test_group_is_due_after_its_last_member_has_left() -> None:
    world = left()
    assert world.empty_for_ms() == 0
    world.elapse(WEEK_MS - 1)
    refused = world.ask_deletion(empty_for_ms=WEEK_MS)
    assert refused.error is GroupError.NON_EMPTY_GROUP
    assert "has been empty for 604799999 ms, not for 604800000" in refused.reason
    assert world.ask_deletion() == (NONE, 1, "")  # DeleteGroups asks for no age
    world.elapse(1)
    assert world.empty_for_ms() == WEEK_MS
    assert world.ask_deletion(empty_for_ms=WEEK_MS) == (NONE, 1, "")
    world.delete(1, empty_for_ms=WEEK_MS)
    assert [each.group for each in world.deletions] == ["g"]


def test_group_whose_last_session_ends_is_empty_from_then_on() -> None:
    world = World()
    world.stable(1)
    world.elapse(SESSION_MS - 1)
    assert world.empty_for_ms() == 0
    world.elapse(6)
    assert world.empty_for_ms() == 5


def test_group_with_members_is_never_due() -> None:
    world = World()
    world.stable(1)
    for _ in range(4):
        world.elapse(SESSION_MS // 2)
        world.heartbeat("m1", 1)
    assert world.empty_for_ms() == 0
    assert world.ask_deletion(empty_for_ms=1).error is GroupError.NON_EMPTY_GROUP


@pytest.mark.parametrize("between", [False, True])
def test_commit_from_outside_begins_the_clock_again(between: bool) -> None:
    """between: the two steps of a deletion."""
    world = left()
    world.elapse(WEEK_MS)
    if between:
        assert world.ask_deletion(empty_for_ms=WEEK_MS).error is NONE
    assert world.commit().error is NONE
    assert world.empty_for_ms() == 0
    if not between:
        assert world.ask_deletion(empty_for_ms=WEEK_MS).error is GroupError.NON_EMPTY_GROUP
    assert world.answer(world.delete(1, empty_for_ms=WEEK_MS), DeleteAnswer).error is GroupError.NON_EMPTY_GROUP
    assert not world.deletions


def test_questions_and_refused_requests_do_not_keep_a_group() -> None:
    world = left()
    world.elapse(WEEK_MS)
    world.describe()
    world.heartbeat("m1", 1)
    assert world.commit("m1", 1).error is GroupError.UNKNOWN_MEMBER_ID
    assert world.empty_for_ms() == WEEK_MS


def test_client_that_is_about_to_join_keeps_the_group() -> None:
    world = left()
    world.elapse(WEEK_MS)
    world.join(member_id_required=True)
    assert world.empty_for_ms() == 0
    assert world.ask_deletion(empty_for_ms=WEEK_MS).error is GroupError.NON_EMPTY_GROUP
    world.gather(world.join("m2"))
    world.leave("m2")
    assert world.empty_for_ms() == 0
    world.elapse(3)
    assert world.empty_for_ms() == 3


def test_client_that_goes_before_it_has_joined_begins_the_clock_again() -> None:
    world = left()
    world.elapse(WEEK_MS)
    world.join(member_id_required=True)
    world.elapse(SESSION_MS + 7)
    assert world.empty_for_ms() == 7


def test_generation_in_flight_keeps_the_group() -> None:
    world = left()
    world.elapse(WEEK_MS)
    world.writes_at_once = False
    world.join()
    world.elapse(INITIAL_DELAY_MS)
    world.leave("m2")
    assert world.empty_for_ms() == 0
    world.write()
    world.elapse(2)
    assert world.empty_for_ms() == 2


def test_clock_begins_again_at_a_takeover() -> None:
    """The next coordinator does not know when the members have left, or whether they are still there."""
    world = left()
    world.elapse(WEEK_MS)
    world.takes_over()
    assert world.empty_for_ms() == 0
    world.elapse(CLAIMS_MS)
    assert world.ask_deletion(empty_for_ms=WEEK_MS).error is GroupError.NON_EMPTY_GROUP
    world.elapse(WEEK_MS - CLAIMS_MS)
    assert world.ask_deletion(empty_for_ms=WEEK_MS) == (NONE, 1, "")


def test_member_that_shows_itself_after_a_takeover_keeps_the_group() -> None:
    world = World()
    world.stable(1)
    world.takes_over()
    world.elapse(CLAIMS_MS // 2)
    assert world.empty_for_ms() == CLAIMS_MS // 2
    assert world.heartbeat("m1", 1) is GroupError.REBALANCE_IN_PROGRESS
    assert world.empty_for_ms() == 0


def test_group_keeps_the_type_of_its_last_members() -> None:
    world = left()
    assert world.listed() == {"g": ("consumer", GroupState.EMPTY)}
    assert world.describe().protocol_type == "consumer"
    world.join(member_id_required=True)
    assert world.listed() == {"g": ("consumer", GroupState.EMPTY)}
    world.gather(world.join("m2", protocol_type="connect"))
    world.leave("m2")
    assert world.listed() == {"g": ("connect", GroupState.EMPTY)}
    world.takes_over()
    assert world.listed() == {"g": ("", GroupState.EMPTY)}
