"""When a metadata replica may take an owner for gone before its session ends (hazard 5).

    UNSEEN --StreamOpened--> CONNECTED --its latest stream closed--> CLOSED (the owner is probed)
    CLOSED --ConnectionRefused--> SUSPECTED          CLOSED --ConnectionAccepted--> UNSEEN
    CLOSED while it answered --HostUnreachable--> SUSPECTED
    any --StreamOpened--> CONNECTED                  any --its session is gone--> forgotten

Rules
- Only both together count, a stream that this very replica saw open and then closed, and a word of the network that
  nobody is there. So a replica that restarts suspects nobody, and one behind a cut, where probes are lost and not
  refused, waits for the session.
- A refused connection is that word always: it came from the owner's own host.
- "No route to the host" is said by others, on this side of a cut too. It is that word only for a stream that closed
  while it answered: a round trip over it had just succeeded, within a time in which no keepalive can run out. What
  closes such a stream is its end, not silence: the process is gone, and with a deleted pod its address. Behind a cut,
  of one way or both, no round trip succeeds any more before keepalive closes the stream.
- Silence is no word, however the stream ended: a firewall looks the same.
- A word counts for the stream whose end it was asked about: one that comes late, when another has opened and closed, is
  of another time.
- A suspicion is a hint to placement and no proof: the record and the fence decide who may write. A wrong one costs one
  takeover.
"""

from dataclasses import dataclass
from typing import assert_never

from oncelog.core.errors import InvariantViolated
from oncelog.core.ids import Incarnation

# --- events -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class StreamOpened:
    """stream: a number of its own for each stream, ascending."""

    owner: Incarnation
    stream: int


@dataclass(frozen=True, slots=True)
class StreamClosed:
    """answered: a round trip over it succeeded so shortly before that it cannot have been silence that closed it."""

    owner: Incarnation
    stream: int
    answered: bool = False


@dataclass(frozen=True, slots=True)
class ConnectionRefused:
    """The answer to ProbeOwner: the host answered that nobody listens. A timeout is no answer.

    stream: that of the ProbeOwner it answers; None: seen otherwise, and true of whichever stream closed last.
    """

    owner: Incarnation
    stream: int | None = None


@dataclass(frozen=True, slots=True)
class HostUnreachable:
    """The answer to ProbeOwner: no such host, says the network on the way. A timeout is no answer. stream: as above."""

    owner: Incarnation
    stream: int | None = None


@dataclass(frozen=True, slots=True)
class ConnectionAccepted:
    """The answer to ProbeOwner: somebody listens. stream: as above."""

    owner: Incarnation
    stream: int | None = None


@dataclass(frozen=True, slots=True)
class SessionsUpdated:
    """Every owner that has a session now."""

    live: tuple[Incarnation, ...]


SuspicionEvent = (
    StreamOpened | StreamClosed | ConnectionRefused | HostUnreachable | ConnectionAccepted | SessionsUpdated
)


# --- effects ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ProbeOwner:
    """Connect to the owner's port, and report what comes of it. stream: the one that closed."""

    owner: Incarnation
    stream: int


@dataclass(frozen=True, slots=True)
class OwnerSuspected:
    """Place its topics anew."""

    owner: Incarnation


SuspicionEffect = ProbeOwner | OwnerSuspected


# --- the machine ------------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class _Closed:
    """An owner's latest stream. answered: until it closed. gone: whether the word came too that nobody is there."""

    stream: int
    answered: bool
    gone: bool = False


class OwnerSuspicion:
    """One replica's suspicions about all owners."""

    def __init__(self) -> None:
        #: {owner: its latest stream}, open ones
        self._connected: dict[Incarnation, int] = {}
        #: owners whose stream was seen to close, in that order
        self._closed: dict[Incarnation, _Closed] = {}

    @property
    def suspected(self) -> tuple[Incarnation, ...]:
        """Owners that are gone for all this replica can see."""
        return tuple(owner for owner, closed in self._closed.items() if closed.gone)

    def handle(self, event: SuspicionEvent) -> list[SuspicionEffect]:
        match event:
            case StreamOpened():
                self._connected[event.owner] = max(event.stream, self._connected.get(event.owner, event.stream))
                self._closed.pop(event.owner, None)
            case StreamClosed():
                if self._connected.get(event.owner) == event.stream:
                    del self._connected[event.owner]
                    self._closed[event.owner] = _Closed(event.stream, event.answered)
                    return [ProbeOwner(event.owner, event.stream)]
            case ConnectionRefused() | HostUnreachable() | ConnectionAccepted():
                return self._word(event)
            case SessionsUpdated():
                for owner in self._closed.keys() - event.live:
                    del self._closed[owner]
            case _:
                assert_never(event)
        return []

    def _word(self, event: ConnectionRefused | HostUnreachable | ConnectionAccepted) -> list[SuspicionEffect]:
        closed = self._closed.get(event.owner)
        if closed is None or event.stream not in {None, closed.stream}:
            return []
        if isinstance(event, ConnectionAccepted):
            del self._closed[event.owner]
            return []
        if closed.gone or (isinstance(event, HostUnreachable) and not closed.answered):
            return []
        closed.gone = True
        return [OwnerSuspected(event.owner)]

    def check_invariants(self) -> None:
        """Raises InvariantViolated where an owner is both connected and closed."""
        if self._connected.keys() & self._closed.keys():
            raise InvariantViolated("an owner's stream is open and closed")
