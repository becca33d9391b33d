"""A replica suspects an owner only on what it saw itself: a stream that closed, and then a refused connection."""

import pytest

from oncelog.core.coordination.owner_suspicion import (
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
from oncelog.core.ids import Incarnation

O1, O2 = Incarnation("o1"), Incarnation("o2")


def closed(*, answered: bool = False) -> OwnerSuspicion:
    """O1's stream was open and closed."""
    core = OwnerSuspicion()
    assert core.handle(StreamOpened(O1, 1)) == []
    assert core.handle(StreamClosed(O1, 1, answered)) == [ProbeOwner(O1, 1)]
    return core


def test_closed_stream_and_refused_connection_suspect_an_owner() -> None:
    """A killed process: both at once, well before its session ends."""
    core = closed()
    assert list(core.suspected) == []
    assert core.handle(ConnectionRefused(O1)) == [OwnerSuspected(O1)]
    assert list(core.suspected) == [O1]
    assert core.handle(ConnectionRefused(O1)) == []
    core.check_invariants()


@pytest.mark.hazard(5)
def test_refused_connection_alone_suspects_nobody() -> None:
    """A replica that restarts sees owners that have not come back to it yet."""
    core = OwnerSuspicion()
    assert core.handle(ConnectionRefused(O1)) == []
    core.handle(StreamOpened(O1, 1))
    assert core.handle(ConnectionRefused(O1)) == []
    assert list(core.suspected) == []


def test_close_of_a_stream_never_seen_open_suspects_nobody() -> None:
    """It says nothing about the owner."""
    core = OwnerSuspicion()
    assert core.handle(StreamClosed(O1, 1)) == []
    assert core.handle(ConnectionRefused(O1)) == []


def test_close_of_an_older_stream_is_ignored() -> None:
    """The owner came back on a new stream before the old one's end was noticed."""
    core = OwnerSuspicion()
    core.handle(StreamOpened(O1, 1))
    core.handle(StreamOpened(O1, 2))
    assert core.handle(StreamClosed(O1, 1)) == []
    assert core.handle(StreamClosed(O1, 2)) == [ProbeOwner(O1, 2)]


def test_owner_that_listens_is_not_suspected() -> None:
    """Its stream broke, it did not die."""
    core = closed()
    core.handle(ConnectionAccepted(O1))
    assert core.handle(ConnectionRefused(O1)) == []
    assert list(core.suspected) == []


def test_new_stream_ends_the_suspicion() -> None:
    """It lives."""
    core = closed()
    core.handle(ConnectionRefused(O1))
    core.handle(StreamOpened(O1, 2))
    assert list(core.suspected) == []
    core.check_invariants()


@pytest.mark.hazard(5)
def test_silence_suspects_nobody() -> None:
    """A vanished host answers nothing; the session decides."""
    core = closed()
    core.handle(SessionsUpdated((O1, O2)))
    assert list(core.suspected) == []


def test_owner_without_session_is_forgotten() -> None:
    """Incarnations never come back, so nothing of them is kept."""
    core = closed()
    core.handle(ConnectionRefused(O1))
    core.handle(SessionsUpdated((O1,)))
    assert list(core.suspected) == [O1]
    core.handle(SessionsUpdated((O2,)))
    assert list(core.suspected) == []
    core.check_invariants()


def test_vanished_host_of_a_stream_that_answered_is_suspected() -> None:
    """A deleted pod: its stream ends at once, and its address goes with it, perhaps before it was seen to refuse."""
    core = closed(answered=True)
    assert core.handle(HostUnreachable(O1)) == [OwnerSuspected(O1)]
    assert list(core.suspected) == [O1]
    assert core.handle(HostUnreachable(O1)) == core.handle(ConnectionRefused(O1)) == []
    core.check_invariants()
    core.handle(StreamOpened(O1, 2))
    assert list(core.suspected) == []
    core.check_invariants()


@pytest.mark.hazard(5)
def test_vanished_host_of_a_stream_that_fell_silent_is_not_suspected() -> None:
    """Behind a cut there is no route either, from this side."""
    core = closed()
    assert core.handle(HostUnreachable(O1)) == []
    assert core.handle(ConnectionRefused(O1)) == [OwnerSuspected(O1)], "its own host has answered"


@pytest.mark.parametrize("word", [ConnectionRefused, HostUnreachable, ConnectionAccepted])
def test_word_that_comes_late_is_of_another_time(
    word: type[ConnectionRefused | HostUnreachable | ConnectionAccepted],
) -> None:
    """It was asked for at the end of the stream before: behind a cut, say, that is over."""
    core = OwnerSuspicion()
    for stream in (1, 2):
        core.handle(StreamOpened(O1, stream))
        core.handle(StreamClosed(O1, stream, answered=stream == 2))
    assert core.handle(word(O1, 1)) == []
    assert core.suspected == ()
    assert core.handle(ConnectionRefused(O1, 2)) == [OwnerSuspected(O1)], "nor did it end the doubt"
    core.check_invariants()


def test_no_route_alone_suspects_nobody() -> None:
    """Before any stream, beside an open one, and after somebody answered there."""
    core = OwnerSuspicion()
    assert core.handle(HostUnreachable(O1)) == []
    core.handle(StreamOpened(O1, 1))
    assert core.handle(HostUnreachable(O1)) == []
    core.handle(StreamClosed(O1, 1, answered=True))
    core.handle(ConnectionAccepted(O1))
    assert core.handle(HostUnreachable(O1)) == []
    core.check_invariants()
