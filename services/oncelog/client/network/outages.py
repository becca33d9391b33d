"""Warnings about producers and consumers that have lost their owner. A client has one line for all of them: an outage
of the cluster meets them at the same moment. What opens something says by itself what it waits for (`backoff`)."""

import logging
from weakref import WeakKeyDictionary

from oncelog.core.counted import counted
from oncelog.core.errors import OncelogError

logger = logging.getLogger(__name__)

#: A takeover is usually over before.
TOLD_AFTER_S = 3.0
TOLD_EVERY_S = 30.0


class Outages:
    """Of one client. Times are those of the event loop."""

    def __init__(self) -> None:
        #: {session: since when it has had an error}
        self._since_s: WeakKeyDictionary[object, float] = WeakKeyDictionary()
        self._told_again_s: float | None = None

    def lasts(self, session: object, what: str, error: OncelogError, now_s: float) -> None:
        """The session has an error that it retries. what: the session, for the log."""
        began_s = self._since_s.setdefault(session, now_s)
        if now_s < max(began_s + TOLD_AFTER_S, self._told_again_s or 0):
            return
        self._told_again_s = now_s + TOLD_EVERY_S
        others = len(self._since_s) - 1
        more = f", nor can {counted(others, 'other one', 'others')} of this client" if others else ""
        logger.warning("%s cannot continue yet%s: %s", what, more, error.message)

    def is_over(self, session: object, *, works: bool) -> None:
        """works: the session continues; otherwise it has ended."""
        if self._since_s.pop(session, None) is not None and not self._since_s:
            if works and self._told_again_s is not None:
                logger.warning("all producers and consumers of this client continue")
            self._told_again_s = None
