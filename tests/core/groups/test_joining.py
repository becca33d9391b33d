"""JoinGroup: member ids, the first rebalance, the leader and the protocol."""

from typing import Any

import pytest

from oncelog.core.groups.answers import GroupError, GroupState, JoinAnswer, JoinedMember
from oncelog.core.groups.events import Protocol
from oncelog.core.groups.limits import INITIAL_DELAY_MS
from tests.core.groups.group_world import RANGE, REBALANCE_MS, SESSION_MS, STICKY, World


def test_group_has_one_leader_who_gets_all_members() -> None:
    world = World()
    first, second = world.gather(world.join(client_id="a"), world.join(client_id="b"))
    assert (first.leader, second.leader) == ("m1", "m1")
    assert (first.generation, second.generation) == (1, 1)
    assert first.members == (JoinedMember("m1", None, b"of range"), JoinedMember("m2", None, b"of range"))
    assert second.members == ()
    assert (first.protocol_type, first.protocol) == ("consumer", "range")


def test_dynamic_member_joins_with_the_id_that_it_is_given_first() -> None:
    world = World()
    asked = world.answer(world.join(member_id_required=True), JoinAnswer)
    assert (asked.error, asked.member_id) == (GroupError.MEMBER_ID_REQUIRED, "m1")
    assert not world.describe().members
    (joined,) = world.gather(world.join("m1", member_id_required=True))
    assert joined.member_id == "m1"


def test_rebalance_waits_for_a_member_that_was_given_its_id() -> None:
    world = World()
    call = world.join()
    world.join(member_id_required=True)
    world.elapse(INITIAL_DELAY_MS)
    assert world.waits(call)
    second = world.join("m2")
    assert [world.joined(each).generation for each in (call, second)] == [1, 1]


def test_id_that_is_not_used_is_forgotten_after_its_session_timeout() -> None:
    world = World()
    call = world.join()
    world.join(member_id_required=True)
    world.elapse(SESSION_MS - 1)
    assert world.waits(call)
    world.elapse(1)
    assert world.joined(call).generation == 1
    assert world.join_error(world.join("m2")) is GroupError.UNKNOWN_MEMBER_ID


def test_group_of_given_ids_alone_is_forgotten() -> None:
    world = World()
    world.join(member_id_required=True)
    assert world.listed() == {"g": ("", GroupState.EMPTY)}
    world.elapse(SESSION_MS)
    assert world.listed() == {}
    assert world.describe().state is GroupState.DEAD


def test_unknown_member_id_is_refused() -> None:
    world = World()
    assert world.join_error(world.join("foreign")) is GroupError.UNKNOWN_MEMBER_ID
    assert world.listed() == {}


def test_empty_group_waits_for_more_members_after_each_one() -> None:
    world = World()
    calls = []
    for _ in range(5):
        calls.append(world.join())
        world.elapse(INITIAL_DELAY_MS - 1)
    assert world.waits(*calls)
    world.elapse(1)
    assert {world.joined(call).generation for call in calls} == {1}


def test_empty_group_waits_at_most_the_rebalance_timeout() -> None:
    world = World()
    calls = []
    for _ in range(2):
        calls.append(world.join(rebalance_timeout_ms=2 * INITIAL_DELAY_MS))
        world.elapse(INITIAL_DELAY_MS - 1)
    calls.append(world.join(rebalance_timeout_ms=2 * INITIAL_DELAY_MS))
    assert world.waits(*calls)
    world.elapse(2)
    assert {world.joined(call).generation for call in calls} == {1}


def test_protocol_has_the_most_votes_of_those_that_all_offer() -> None:
    world = World()
    own = Protocol("own", b"")
    calls = [
        world.join(protocols=(own, RANGE, STICKY)),
        world.join(protocols=(STICKY, RANGE)),
        world.join(protocols=(STICKY, RANGE)),
    ]
    first = world.gather(*calls)[0]
    assert first.protocol == "sticky"
    assert [each.metadata for each in first.members] == [b"of sticky"] * 3


def test_first_member_decides_between_protocols_with_as_many_votes() -> None:
    world = World()
    calls = [world.join(protocols=(RANGE, STICKY)), world.join(protocols=(STICKY, RANGE))]
    assert {each.protocol for each in world.gather(*calls)} == {"range"}


@pytest.mark.parametrize(
    "offer",
    [{"protocols": (STICKY,)}, {"protocol_type": "connect"}, {"protocols": ()}, {"protocol_type": ""}],
    ids=["other protocol", "other type", "no protocol", "no type"],
)
def test_member_without_a_common_protocol_is_refused(offer: dict[str, Any]) -> None:
    world = World()
    world.stable(2)
    assert world.join_error(world.join(**offer)) is GroupError.INCONSISTENT_GROUP_PROTOCOL
    assert world.describe().state is GroupState.STABLE


def test_first_member_of_a_group_needs_a_protocol() -> None:
    world = World()
    assert world.join_error(world.join(protocols=())) is GroupError.INCONSISTENT_GROUP_PROTOCOL
    assert world.join_error(world.join(protocol_type="")) is GroupError.INCONSISTENT_GROUP_PROTOCOL
    assert world.listed() == {}


def test_protocol_that_only_departed_members_lacked_is_common_again() -> None:
    world = World()
    call = world.join(protocols=(RANGE, STICKY))
    other = world.join()
    assert world.leave("m2") == [GroupError.NONE]
    assert world.join_error(other) is GroupError.UNKNOWN_MEMBER_ID
    assert {each.protocol for each in world.gather(call, world.join(protocols=(STICKY,)))} == {"sticky"}


def test_only_member_may_change_its_protocol() -> None:
    world = World()
    world.stable(1)
    joined = world.joined(world.join("m1", protocols=(STICKY,)))
    assert (joined.generation, joined.protocol) == (2, "sticky")


def test_repeated_join_takes_the_place_of_the_first_one() -> None:
    """Its client has lost the connection, and its door may not know yet."""
    world = World()
    world.stable(2)
    lost = world.join("m1", protocols=(STICKY, RANGE))
    again = world.join("m1", protocols=(STICKY, RANGE))
    assert world.join_error(lost) is GroupError.REBALANCE_IN_PROGRESS
    other = world.join("m2")
    assert world.joined(again).generation == world.joined(other).generation == 2


def test_join_that_is_sent_again_is_one_member() -> None:
    """Its answer was lost between the coordinator and the gateway, which has given the same new id."""
    world = World()
    first, again = world.join(new_member_id="same"), world.join(new_member_id="same")
    assert world.join_error(first) is GroupError.REBALANCE_IN_PROGRESS
    (joined,) = world.gather(again)
    assert [each.member_id for each in joined.members] == ["same"]
    assert world.joined(world.join(new_member_id="same")) == joined


def test_member_id_that_is_sent_again_is_pending_once() -> None:
    world = World()
    for _ in range(2):
        asked = world.join(new_member_id="next", member_id_required=True)
        assert world.join_error(asked) is GroupError.MEMBER_ID_REQUIRED
    (joined,) = world.gather(world.join("next"))
    assert len(joined.members) == 1


def test_group_without_members_is_a_number() -> None:
    world = World()
    world.stable(2)
    assert world.leave("m1", "m2") == [GroupError.NONE] * 2
    assert world.describe().state is GroupState.EMPTY
    assert world.coordinator.next_due_ms is None
    (joined,) = world.gather(world.join())
    assert joined.generation == 2


def test_rebalance_timeout_of_version_0_is_the_session_timeout() -> None:
    world = World()
    world.stable(1, rebalance_timeout_ms=-1)
    call = world.join(rebalance_timeout_ms=-1)
    for _ in range(3):
        world.elapse(SESSION_MS // 3)
        assert world.waits(call)
        world.heartbeat("m1", 1)
    world.elapse(1)
    assert world.joined(call).leader == "m2"
    assert SESSION_MS < REBALANCE_MS
