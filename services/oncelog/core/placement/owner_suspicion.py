"""When a metadata replica may treat an owner as dead before the owner's ZooKeeper session ends (hazard
living-owner-suspected).

    UNSEEN --StreamOpened--> CONNECTED --its latest stream closed--> CLOSED (the owner is probed)
    CLOSED --ConnectionRefused--> SUSPECTED          CLOSED --ConnectionAccepted--> UNSEEN
    CLOSED while it answered --HostUnreachable--> SUSPECTED
    any --StreamOpened--> CONNECTED                  any --its session is gone--> forgotten

Rules
- Suspicion needs both: a stream that this replica saw open and then closed, and a negative answer of the network to a
  probe. So a replica that restarts suspects no owner. A replica behind a network partition, where probes are lost and
  not refused, waits for the end of the session.
- A refused connection always counts: the owner's own host sent the refusal.
- "No route to host" comes from other machines, also from those on this side of a network partition. It counts only if
  the stream closed while it answered: a round trip had just succeeded, within a time in which no keepalive can expire.
  Such a stream ends because the process is gone, and with a deleted pod also its address, not because of silence.
  Behind a network partition, in one direction or both, no round trip succeeds before keepalive closes the stream.
- A timeout never counts, however the stream ended: a firewall looks the same.
- An answer counts for the stream whose end caused the probe. A late answer, after another stream opened and closed, is
  ignored.
- A suspicion is a hint for placement, not a proof: the record and the fence decide who may write. A wrong suspicion
  costs one takeover.
"""

from dataclasses import dataclass
from typing import assert_never

from oncelog.core.errors import InvariantViolated
from oncelog.core.ids import Incarnation

# --- events -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class StreamOpened:
    """stream: a unique, ascending number for each stream."""

    owner: Incarnation
    stream: int


@dataclass(frozen=True, slots=True)
class StreamClosed:
    """answered: a round trip over it succeeded so recently that silence cannot be the reason for its end."""

    owner: Incarnation
    stream: int
    answered: bool = False


@dataclass(frozen=True, slots=True)
class ConnectionRefused:
    """The response to ProbeOwner: the host answered that no process listens. A timeout is not reported.

    stream: the stream of the ProbeOwner. None: observed otherwise, and valid for the stream that closed last.
    """

    owner: Incarnation
    stream: int | None = None


@dataclass(frozen=True, slots=True)
class HostUnreachable:
    """The response to ProbeOwner: the network has no route to the host. A timeout is not reported. stream: as above."""

    owner: Incarnation
    stream: int | None = None


@dataclass(frozen=True, slots=True)
class ConnectionAccepted:
    """The response to ProbeOwner: a process listens. stream: as above."""

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
    """Connect to the owner's port, and report the result. stream: the stream that closed."""

    owner: Incarnation
    stream: int


@dataclass(frozen=True, slots=True)
class OwnerSuspected:
    """Place the owner's topics again."""

    owner: Incarnation


SuspicionEffect = ProbeOwner | OwnerSuspected


# --- the machine ------------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class _ClosedStream:
    """An owner's latest stream. answered: until it closed. gone: whether a probe was answered negatively, too."""

    stream: int
    answered: bool
    gone: bool = False


class OwnerSuspicion:
    """The suspicions of one replica about all owners."""

    def __init__(self) -> None:
        #: {owner: its latest stream}, for open streams
        self._connected: dict[Incarnation, int] = {}
        #: owners whose stream closed, in that order
        self._closed: dict[Incarnation, _ClosedStream] = {}

    @property
    def suspected(self) -> tuple[Incarnation, ...]:
        """Owners that this replica considers dead."""
        return tuple(owner for owner, closed in self._closed.items() if closed.gone)

    def handle(self, event: SuspicionEvent) -> list[SuspicionEffect]:
        match event:
            case StreamOpened():
                self._connected[event.owner] = max(event.stream, self._connected.get(event.owner, event.stream))
                self._closed.pop(event.owner, None)
            case StreamClosed():
                if self._connected.get(event.owner) == event.stream:
                    del self._connected[event.owner]
                    self._closed[event.owner] = _ClosedStream(event.stream, event.answered)
                    return [ProbeOwner(event.owner, event.stream)]
            case ConnectionRefused() | HostUnreachable() | ConnectionAccepted():
                return self._probe_answered(event)
            case SessionsUpdated():
                for owner in self._closed.keys() - event.live:
                    del self._closed[owner]
            case _:
                assert_never(event)
        return []

    def _probe_answered(self, event: ConnectionRefused | HostUnreachable | ConnectionAccepted) -> list[SuspicionEffect]:
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
        """Raises InvariantViolated if an owner is both connected and closed."""
        if self._connected.keys() & self._closed.keys():
            raise InvariantViolated("an owner's stream is both open and closed")
