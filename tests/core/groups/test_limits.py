"""Bad input and limits: a refusal that names the value and the limit, and nothing changes."""

from typing import Any

import pytest

from oncelog.core.groups.answers import GroupError, JoinAnswer
from oncelog.core.groups.coordinator import Coordinator
from oncelog.core.groups.events import Assignment, JoinRequested, Protocol
from oncelog.core.groups.limits import (
    ASSIGNMENT_BYTES_MAX,
    COORDINATOR_BYTES_MAX,
    GROUPS_MAX,
    MEMBER_BYTES,
    MEMBERS_MAX,
    METADATA_BYTES_MAX,
    NAME_BYTES_MAX,
    PROTOCOL_BYTES,
    PROTOCOLS_MAX,
    SESSION_TIMEOUT_MS_MAX,
    SESSION_TIMEOUT_MS_MIN,
)
from oncelog.core.ids import Generation
from tests.core.groups.group_world import NONE, RANGE, World

SIZE = GroupError.GROUP_MAX_SIZE_REACHED


@pytest.mark.parametrize("group", ["", "a/b", "a b", "g" * 256, "..", "ä" * 300])
def test_name_that_no_subscription_can_have_is_refused(group: str) -> None:
    world = World()
    assert world.join_error(world.join(group=group)) is GroupError.INVALID_GROUP_ID
    assert world.heartbeat("m1", 1, group=group) is GroupError.INVALID_GROUP_ID
    assert world.commit(group=group).error is GroupError.INVALID_GROUP_ID
    assert world.listed() == {}


@pytest.mark.parametrize("session_ms", [SESSION_TIMEOUT_MS_MIN - 1, SESSION_TIMEOUT_MS_MAX + 1, 0, -1])
def test_session_timeout_outside_of_the_limits_is_refused(session_ms: int) -> None:
    world = World()
    call = world.join(session_timeout_ms=session_ms)
    assert world.join_error(call) is GroupError.INVALID_SESSION_TIMEOUT
    reason = world.answer(call, JoinAnswer).reason
    assert str(session_ms) in reason
    assert str(SESSION_TIMEOUT_MS_MIN) in reason
    assert world.listed() == {}


@pytest.mark.parametrize("session_ms", [SESSION_TIMEOUT_MS_MIN, SESSION_TIMEOUT_MS_MAX])
def test_session_timeout_at_a_limit_is_accepted(session_ms: int) -> None:
    world = World()
    world.gather(world.join(session_timeout_ms=session_ms))


def test_too_many_protocols_are_refused() -> None:
    world = World()
    offered = tuple(Protocol(f"p{number}", b"") for number in range(PROTOCOLS_MAX + 1))
    assert world.join_error(world.join(protocols=offered)) is GroupError.INVALID_REQUEST
    world.gather(world.join(protocols=offered[1:]))


def test_empty_instance_id_is_refused() -> None:
    world = World()
    assert world.join_error(world.join(instance_id="")) is GroupError.INVALID_REQUEST


@pytest.mark.parametrize("field", ["protocol_type", "client_id", "instance_id", "protocol name"])
def test_names_have_a_limit_of_bytes(field: str) -> None:
    """Not of characters: the bytes are kept as long as the member is there, and the type as long as the group is."""

    def given(size: int) -> dict[str, Any]:
        name = "ä" * (size // 2) + "x" * (size % 2)
        return {"protocols": (Protocol(name, b""),)} if field == "protocol name" else {field: name}

    world = World()
    call = world.join(**given(NAME_BYTES_MAX + 1))
    assert world.join_error(call) is GroupError.INVALID_REQUEST
    assert f"{field} has {NAME_BYTES_MAX + 1} bytes, at most {NAME_BYTES_MAX}" in world.answer(call, JoinAnswer).reason
    assert world.listed() == {}
    world.gather(world.join(**given(NAME_BYTES_MAX)))


def test_member_that_is_too_large_for_any_group_is_refused() -> None:
    world = World()
    call = world.join(protocols=(Protocol("range", b"x" * METADATA_BYTES_MAX),))
    assert world.join_error(call) is SIZE
    assert world.listed() == {}


def test_what_a_member_needs_beside_its_bytes_counts() -> None:
    """A thousand members with a hundred protocols of one byte each would hold 15 MiB in this process."""
    world = World()
    world.checks = False
    offered = tuple(Protocol(f"p{number}", b"") for number in range(PROTOCOLS_MAX))
    most = METADATA_BYTES_MAX // (MEMBER_BYTES + PROTOCOLS_MAX * PROTOCOL_BYTES)
    calls = [world.join(protocols=offered) for _ in range(most)]
    assert world.join_error(calls[-1]) is SIZE
    assert len(world.describe().members) == most - 1


def test_new_member_needs_an_id() -> None:
    world = World()
    assert world.join_error(world.join(new_member_id="")) is GroupError.INVALID_REQUEST


def test_group_has_a_limit_of_members_that_counts_given_ids() -> None:
    world = World()
    world.checks = False
    for _ in range(MEMBERS_MAX - 1):
        world.join()
    world.join(member_id_required=True)
    call = world.join(member_id_required=True)
    assert world.join_error(call) is SIZE
    assert str(MEMBERS_MAX) in world.answer(call, JoinAnswer).reason
    assert world.waits(world.join(f"m{MEMBERS_MAX}"))  # its place was kept
    assert world.join_error(world.join()) is SIZE
    world.coordinator.check_invariants()


def test_full_group_lets_its_members_rejoin_and_static_ones_restart() -> None:
    world = World()
    world.checks = False
    calls = [world.join(instance_id=f"i{number}") for number in range(MEMBERS_MAX)]
    world.assign(world.gather(*calls))
    assert world.joined(world.join(instance_id="i7")).generation == 1
    assert world.waits(world.join("m1"))
    world.coordinator.check_invariants()


def test_group_has_a_limit_of_metadata_bytes() -> None:
    world = World()
    half = Protocol("range", b"x" * (METADATA_BYTES_MAX // 2 - MEMBER_BYTES - PROTOCOL_BYTES - 1_000))
    calls = [world.join(protocols=(half,)), world.join(protocols=(half,))]
    call = world.join(protocols=(half,))
    assert world.join_error(call) is SIZE
    assert str(METADATA_BYTES_MAX) in world.answer(call, JoinAnswer).reason
    assert world.join_error(world.join(client_id="x" * 1_000)) is SIZE
    world.gather(*calls)
    assert world.join_error(world.join("m1", protocols=(half, Protocol("sticky", b"x" * 2_000)))) is SIZE
    world.join("m1", protocols=(RANGE,))
    assert world.waits(world.join(protocols=(half,)))


def test_assignments_have_a_limit_of_bytes() -> None:
    world = World()
    world.gather(world.join(), world.join())
    waiting = world.sync("m2", 1)
    given = (Assignment("m1", b"x" * ASSIGNMENT_BYTES_MAX), Assignment("m2", b"y"))
    assert world.sync_error(world.sync("m1", 1, assignments=given)) is GroupError.INVALID_REQUEST
    assert world.waits(waiting)
    assert world.synced(world.sync("m1", 1, assignments=given[:1])) == given[0].assignment
    assert world.synced(waiting) == b""


def test_coordinator_has_a_limit_of_groups() -> None:
    world = World({f"g{number}": 1 for number in range(GROUPS_MAX - 1)})
    world.gather(world.join())
    call = world.join(group="more")
    assert world.join_error(call) is SIZE
    assert str(GROUPS_MAX) in world.answer(call, JoinAnswer).reason
    assert world.waits(world.join(group="g7"))
    assert len(world.listed()) == GROUPS_MAX


def test_coordinator_has_a_limit_of_bytes_for_all_groups() -> None:
    coordinator = Coordinator({}, 0)
    large = (Protocol("range", b"x" * (METADATA_BYTES_MAX - 2_000)),)
    count = COORDINATOR_BYTES_MAX // (METADATA_BYTES_MAX - 700) + 1
    refused = []
    for number in range(count):
        event = JoinRequested(number, f"g{number}", "", f"m{number}", "consumer", large, 10_000, 60_000, "i")
        refused += [(number, each.answer.error) for each in coordinator.handle(event, 0)]  # type: ignore[union-attr]
    assert refused == [(count - 1, SIZE)]
    coordinator.check_invariants()


def test_bytes_of_a_group_are_given_back() -> None:
    world = World()
    large = (Protocol("range", b"x" * (METADATA_BYTES_MAX // 2)),)
    for _ in range(2 * COORDINATOR_BYTES_MAX // METADATA_BYTES_MAX + 2):
        (joined,) = world.gather(world.join(protocols=large))
        assert world.leave(joined.member_id) == [NONE]


def test_many_changes_leave_no_times_behind() -> None:
    """Each of them would stay for the longest session timeout: half an hour."""
    world = World()
    world.stable(1)
    for number in range(300):
        world.join(group="other", member_id_required=True, session_timeout_ms=SESSION_TIMEOUT_MS_MAX)
        world.leave(f"m{number + 2}", group="other")
        world.elapse(1)
    assert list(world.listed()) == ["g"]  # and the invariants were checked after each step


def test_process_that_stood_still_ends_no_sessions() -> None:
    """Heartbeats wait in sockets meanwhile."""
    world = World({"old": Generation(1)})
    world.stable(2)
    world.now_ms += 600_000
    assert world.coordinator.tick(world.now_ms) == []
    assert world.heartbeat("m1", 1) is NONE
    assert world.heartbeat("m2", 1) is NONE
    due = world.coordinator.next_due_ms
    assert due is not None
    assert world.now_ms < due <= world.now_ms + 10_000
    world.elapse(10_000)
    assert world.heartbeat("m1", 1) is GroupError.UNKNOWN_MEMBER_ID


def test_clock_that_goes_back_ends_no_sessions() -> None:
    world = World()
    world.stable(1)
    now_ms = world.now_ms
    world.now_ms -= 5_000
    assert world.heartbeat("m1", 1) is NONE
    world.now_ms = now_ms
    assert world.heartbeat("m1", 1) is NONE
