"""For how long a session has reached no server: the reason that a process gives for not being ready.

A process that goes on without ZooKeeper, as a storage node does, allows it to be away for a while: an election takes
seconds and meets all processes at once, which must not all end a rollout by it.
"""

from collections.abc import Callable

from oncelog.stores.store_session import SessionState, StoreSession


class SessionAbsence:
    """Listens to one session for good; made while that is connected."""

    def __init__(self, session: StoreSession, *, allowed_ms: int, now_ms: Callable[[], int]) -> None:
        """allowed_ms: an absence is no reason before it is longer. now_ms: a clock that only goes forward."""
        self._allowed_ms = allowed_ms
        self._now_ms = now_ms
        #: when the session was last seen to leave its server; None while it has one
        self._since_ms: int | None = None
        self._heard(session.state)
        session.add_listener(self._heard)

    def reason(self) -> str | None:
        """For `Health.ready_when`: None, or for how long there has been no session."""
        if self._since_ms is None:
            return None
        absent_ms = self._now_ms() - self._since_ms
        return f"no session for {absent_ms // 1000} s" if absent_ms > self._allowed_ms else None

    def _heard(self, state: SessionState) -> None:
        if state is SessionState.CONNECTED:
            self._since_ms = None
        elif self._since_ms is None:
            self._since_ms = self._now_ms()
