"""A replica suspects an owner only after it saw a stream close and a connection refused."""

import pytest

from oncelog.core.ids import Incarnation
from oncelog.core.placement.owner_suspicion import (
    ConnectionAccepted,
    ConnectionRefused,
    HostUnreachable,
    OwnerSuspected,
    OwnerSuspicion,
    ProbeOwner,
    SessionsUpdated,
    StreamClosed,
    StreamOpened,
)

O1, O2 = Incarnation("o1"), Incarnation("o2")


def closed(*, answered: bool = False) -> OwnerSuspicion:
    """The stream of O1 opened and closed."""
    core = OwnerSuspicion()
    assert core.handle(StreamOpened(O1, 1)) == []
    assert core.handle(StreamClosed(O1, 1, answered)) == [ProbeOwner(O1, 1)]
    return core


def test_closed_stream_and_refused_connection_suspect_an_owner() -> None:
    """A killed process causes both at once, well before its session ends."""
    core = closed()
    assert list(core.suspected) == []
    assert core.handle(ConnectionRefused(O1)) == [OwnerSuspected(O1)]
    assert list(core.suspected) == [O1]
    assert core.handle(ConnectionRefused(O1)) == []
    core.check_invariants()


@pytest.mark.hazard("living-owner-suspected")
def test_refused_connection_alone_causes_no_suspicion() -> None:
    """A replica that restarts sees owners that have not reconnected to it yet."""
    core = OwnerSuspicion()
    assert core.handle(ConnectionRefused(O1)) == []
    core.handle(StreamOpened(O1, 1))
    assert core.handle(ConnectionRefused(O1)) == []
    assert list(core.suspected) == []


def test_close_of_an_unknown_stream_causes_no_suspicion() -> None:
    """Such a close proves nothing about the owner."""
    core = OwnerSuspicion()
    assert core.handle(StreamClosed(O1, 1)) == []
    assert core.handle(ConnectionRefused(O1)) == []


def test_close_of_an_older_stream_is_ignored() -> None:
    """The owner reconnected before the end of its old stream was noticed."""
    core = OwnerSuspicion()
    core.handle(StreamOpened(O1, 1))
    core.handle(StreamOpened(O1, 2))
    assert core.handle(StreamClosed(O1, 1)) == []
    assert core.handle(StreamClosed(O1, 2)) == [ProbeOwner(O1, 2)]


def test_owner_that_listens_is_not_suspected() -> None:
    """Its stream broke, but it did not die."""
    core = closed()
    core.handle(ConnectionAccepted(O1))
    assert core.handle(ConnectionRefused(O1)) == []
    assert list(core.suspected) == []


def test_new_stream_ends_the_suspicion() -> None:
    """The owner is alive."""
    core = closed()
    core.handle(ConnectionRefused(O1))
    core.handle(StreamOpened(O1, 2))
    assert list(core.suspected) == []
    core.check_invariants()


@pytest.mark.hazard("living-owner-suspected")
def test_timeout_causes_no_suspicion() -> None:
    """A host that vanished does not answer; the end of the session decides."""
    core = closed()
    core.handle(SessionsUpdated((O1, O2)))
    assert list(core.suspected) == []


def test_owner_without_session_is_forgotten() -> None:
    """Incarnations never come back, so no state of them is kept."""
    core = closed()
    core.handle(ConnectionRefused(O1))
    core.handle(SessionsUpdated((O1,)))
    assert list(core.suspected) == [O1]
    core.handle(SessionsUpdated((O2,)))
    assert list(core.suspected) == []
    core.check_invariants()


def test_vanished_host_of_a_stream_that_answered_is_suspected() -> None:
    """A deleted pod: its stream ends at once, and its address disappears, perhaps before a connection is refused."""
    core = closed(answered=True)
    assert core.handle(HostUnreachable(O1)) == [OwnerSuspected(O1)]
    assert list(core.suspected) == [O1]
    assert core.handle(HostUnreachable(O1)) == core.handle(ConnectionRefused(O1)) == []
    core.check_invariants()
    core.handle(StreamOpened(O1, 2))
    assert list(core.suspected) == []
    core.check_invariants()


@pytest.mark.hazard("living-owner-suspected")
def test_vanished_host_of_a_stream_that_fell_silent_is_not_suspected() -> None:
    """Behind a network partition there is no route either, seen from this side."""
    core = closed()
    assert core.handle(HostUnreachable(O1)) == []
    assert core.handle(ConnectionRefused(O1)) == [OwnerSuspected(O1)], "its own host has answered"


@pytest.mark.parametrize("word", [ConnectionRefused, HostUnreachable, ConnectionAccepted])
def test_late_answer_of_a_probe_is_ignored(
    word: type[ConnectionRefused | HostUnreachable | ConnectionAccepted],
) -> None:
    """The probe belongs to the end of an earlier stream, for example behind a network partition that is over."""
    core = OwnerSuspicion()
    for stream in (1, 2):
        core.handle(StreamOpened(O1, stream))
        core.handle(StreamClosed(O1, stream, answered=stream == 2))
    assert core.handle(word(O1, 1)) == []
    assert core.suspected == ()
    assert core.handle(ConnectionRefused(O1, 2)) == [OwnerSuspected(O1)], "nor did it end the doubt"
    core.check_invariants()


def test_missing_route_alone_causes_no_suspicion() -> None:
    """Before any stream, beside an open one, and after a process answered there."""
    core = OwnerSuspicion()
    assert core.handle(HostUnreachable(O1)) == []
    core.handle(StreamOpened(O1, 1))
    assert core.handle(HostUnreachable(O1)) == []
    core.handle(StreamClosed(O1, 1, answered=True))
    core.handle(ConnectionAccepted(O1))
    assert core.handle(HostUnreachable(O1)) == []
    core.check_invariants()
