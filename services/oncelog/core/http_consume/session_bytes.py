"""The memory for messages that wait here until clients of HTTP consume take them: one budget for all sessions. Pure.

    opened --messages arrive--> holds bytes --its client takes them--> holds fewer
                                    |
                                    +--its caller holds too much, and of it this session the most--> ended

Rules
- One caller holds at most half of the budget, and all of them at most the whole.
- The topic owners are told how much a session takes: its even share of the budget, over all partitions. But an entry
  goes whole, however large. So what is too much is found when it has arrived: then the session ends that holds the most
  of the caller that holds the most. Its messages are delivered again (hazard abandoned-http-session).
- A caller that is at its limit opens no further session.
"""

from collections.abc import Hashable
from dataclasses import dataclass, field

from oncelog.core.errors import InvariantViolated, TooManyRequests

#: A session takes at least so much, however many there may be.
SHARE_BYTES_MIN = 64 * 1024


@dataclass(slots=True)
class _Caller:
    bytes: int = 0
    #: {session: what it holds}
    sessions: dict[Hashable, int] = field(default_factory=dict)


class SessionBytes:
    """bytes_max: of all sessions. sessions_max: how many there may be."""

    def __init__(self, bytes_max: int, sessions_max: int) -> None:
        self.bytes_max = bytes_max
        self.caller_bytes_max = bytes_max // 2
        #: what one session takes from topic owners
        self.share_bytes = max(SHARE_BYTES_MIN, bytes_max // sessions_max)
        self.bytes = 0
        self._callers: dict[str, _Caller] = {}

    def check_room(self, caller: str) -> None:
        """Raises TooManyRequests if the caller may open no further session now."""
        known = self._callers.get(caller)
        most, held, who = self.caller_bytes_max, known.bytes if known else 0, caller
        if held < most and self.bytes >= self.bytes_max:
            most, held, who = self.bytes_max, self.bytes, "clients of this metadata service"
        if held >= most:
            message = (
                f"{held} bytes of messages wait for the open sessions of {who}, the maximum is {most}: take the "
                "messages of a session, or delete one"
            )
            raise TooManyRequests(message, field="session", limit=most)

    def changed(self, caller: str, session: Hashable, size: int) -> None:
        """A session holds so many bytes more, or less. One that has ended is not known any more."""
        known = self._callers.get(caller)
        if size < 0 and (known is None or session not in known.sessions):
            return
        known = self._callers.setdefault(caller, _Caller())
        self.bytes += size
        known.bytes += size
        known.sessions[session] = known.sessions.get(session, 0) + size
        if not known.sessions[session]:
            del known.sessions[session]
        if not known.sessions:
            del self._callers[caller]

    def too_large(self, caller: str) -> Hashable | None:
        """The session that must end, because this caller or all of them hold too much. None: none must."""
        known = self._callers.get(caller)
        if known is not None and known.bytes > self.caller_bytes_max:
            return _largest(known)
        if self.bytes > self.bytes_max:
            return _largest(max(self._callers.values(), key=lambda each: each.bytes))
        return None

    def ended(self, caller: str, session: Hashable) -> None:
        """It holds nothing any more. Idempotent."""
        known = self._callers.get(caller)
        if known is not None and session in known.sessions:
            self.changed(caller, session, -known.sessions[session])

    def check_invariants(self) -> None:
        held = [sum(caller.sessions.values()) for caller in self._callers.values()]
        if self.bytes != sum(held) or held != [caller.bytes for caller in self._callers.values()]:
            raise InvariantViolated(f"sessions hold {sum(held)} bytes, and {self.bytes} are counted")
        if any(size < 0 for caller in self._callers.values() for size in caller.sessions.values()):
            raise InvariantViolated("a session has given back more than it held")


def _largest(caller: _Caller) -> Hashable:
    return max(caller.sessions, key=lambda session: caller.sessions[session])
