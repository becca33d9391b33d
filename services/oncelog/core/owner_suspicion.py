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
    """The answer to ProbeOwner: the host answered that nobody listens. A timeout is no answer."""

    owner: Incarnation


@dataclass(frozen=True, slots=True)
class HostUnreachable:
    """The answer to ProbeOwner: no such host, says the network on the way. A timeout is no answer."""

    owner: Incarnation


@dataclass(frozen=True, slots=True)
class ConnectionAccepted:
    """The answer to ProbeOwner: somebody listens."""

    owner: Incarnation


@dataclass(frozen=True, slots=True)
class SessionsSeen:
    """Every owner that has a session now."""

    live: tuple[Incarnation, ...]


SuspicionEvent = StreamOpened | StreamClosed | ConnectionRefused | HostUnreachable | ConnectionAccepted | SessionsSeen


# --- effects ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ProbeOwner:
    """Connect to the owner's port, and report what comes of it."""

    owner: Incarnation


@dataclass(frozen=True, slots=True)
class OwnerSuspected:
    """Place its topics anew."""

    owner: Incarnation


SuspicionEffect = ProbeOwner | OwnerSuspected


# --- the machine ------------------------------------------------------------------------------------------------------


class OwnerSuspicion:
    """One replica's suspicions about all owners."""

    def __init__(self) -> None:
        #: {owner: its latest stream}, open ones
        self._connected: dict[Incarnation, int] = {}
        #: owners whose stream was seen to close, in that order: {owner: whether the word came too that nobody is there}
        self._closed: dict[Incarnation, bool] = {}
        #: {owner: whether its closed stream had answered until then}
        self._answered: dict[Incarnation, bool] = {}

    @property
    def suspected(self) -> tuple[Incarnation, ...]:
        """Owners that are gone for all this replica can see."""
        return tuple(owner for owner, gone in self._closed.items() if gone)

    def handle(self, event: SuspicionEvent) -> list[SuspicionEffect]:
        match event:
            case StreamOpened():
                self._connected[event.owner] = max(event.stream, self._connected.get(event.owner, event.stream))
                self._forget(event.owner)
                return []
            case StreamClosed():
                if self._connected.get(event.owner) != event.stream:
                    return []
                del self._connected[event.owner]
                self._closed[event.owner] = False
                self._answered[event.owner] = event.answered
                return [ProbeOwner(event.owner)]
            case ConnectionRefused():
                return self._suspect(event.owner)
            case HostUnreachable():
                return self._suspect(event.owner) if self._answered.get(event.owner) else []
            case ConnectionAccepted():
                self._forget(event.owner)
                return []
            case SessionsSeen():
                for owner in [owner for owner in self._closed if owner not in event.live]:
                    self._forget(owner)
                return []
            case _:
                assert_never(event)

    def _suspect(self, owner: Incarnation) -> list[SuspicionEffect]:
        if self._closed.get(owner) is not False:
            return []
        self._closed[owner] = True
        return [OwnerSuspected(owner)]

    def _forget(self, owner: Incarnation) -> None:
        self._closed.pop(owner, None)
        self._answered.pop(owner, None)

    def check_invariants(self) -> None:
        """Raises InvariantViolated where an owner is both connected and closed."""
        if self._connected.keys() & self._closed.keys():
            raise InvariantViolated("an owner's stream is open and closed")
        if self._closed.keys() != self._answered.keys():
            raise InvariantViolated("how an owner's stream closed is not known")
