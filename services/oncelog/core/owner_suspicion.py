"""When a metadata replica may take an owner for gone before its session ends (hazard 5).

    UNSEEN --StreamOpened--> CONNECTED --its latest stream closed--> CLOSED (the owner is probed)
    CLOSED --ConnectionRefused--> SUSPECTED          CLOSED --ConnectionAccepted--> UNSEEN
    any --StreamOpened--> CONNECTED                  any --its session is gone--> forgotten

Rules: only both together count, a stream that this very replica saw open and then closed, and a connection that was
refused afterwards. So a replica that restarts suspects nobody, and one behind a cut, where probes are lost and not
refused, waits for the session. A suspicion is a hint to placement and no proof: the record and the fence decide who may
write.
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
    owner: Incarnation
    stream: int


@dataclass(frozen=True, slots=True)
class ConnectionRefused:
    """The answer to ProbeOwner: the host answered that nobody listens. A timeout is no answer."""

    owner: Incarnation


@dataclass(frozen=True, slots=True)
class ConnectionAccepted:
    """The answer to ProbeOwner: somebody listens."""

    owner: Incarnation


@dataclass(frozen=True, slots=True)
class SessionsSeen:
    """Every owner that has a session now."""

    live: tuple[Incarnation, ...]


SuspicionEvent = StreamOpened | StreamClosed | ConnectionRefused | ConnectionAccepted | SessionsSeen


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
        #: owners whose stream was seen to close, in that order: {owner: whether the refusal came too}
        self._closed: dict[Incarnation, bool] = {}

    @property
    def suspected(self) -> tuple[Incarnation, ...]:
        """Owners that are gone for all this replica can see."""
        return tuple(owner for owner, refused in self._closed.items() if refused)

    def handle(self, event: SuspicionEvent) -> list[SuspicionEffect]:
        match event:
            case StreamOpened():
                self._connected[event.owner] = max(event.stream, self._connected.get(event.owner, event.stream))
                self._closed.pop(event.owner, None)
                return []
            case StreamClosed():
                if self._connected.get(event.owner) != event.stream:
                    return []
                del self._connected[event.owner]
                self._closed[event.owner] = False
                return [ProbeOwner(event.owner)]
            case ConnectionRefused():
                if self._closed.get(event.owner) is not False:
                    return []
                self._closed[event.owner] = True
                return [OwnerSuspected(event.owner)]
            case ConnectionAccepted():
                self._closed.pop(event.owner, None)
                return []
            case SessionsSeen():
                self._closed = {owner: refused for owner, refused in self._closed.items() if owner in event.live}
                return []
            case _:
                assert_never(event)

    def check_invariants(self) -> None:
        """Raises InvariantViolated where an owner is both connected and closed."""
        if self._connected.keys() & self._closed.keys():
            raise InvariantViolated("an owner's stream is open and closed")
