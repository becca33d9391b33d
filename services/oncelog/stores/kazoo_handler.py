"""kazoo's handler of threads and sockets, with the two patiences that kazoo lacks.

Rules
- A host that takes no connection is left soon enough to try every other one within half a session.
- A connection on which something was asked is left when nothing at all was heard since for two thirds of a session:
  ZooKeeper's own rule for clients. kazoo 2.11 asks for a sign of life only when nothing was sent for a while, so that a
  client that goes on asking never notices a network that swallows, and its session ends while other servers are there.
"""

import errno
import time
from collections.abc import Callable, Sequence
from typing import Any

from kazoo.handlers.threading import SequentialThreadingHandler

#: Of a session: the rest is for finding another server.
SILENCE_RATIO = 2 / 3


class ImpatientHandler(SequentialThreadingHandler):  # type: ignore[misc]  # kazoo has no types
    """For one client. session_timeout_s: what it asks for; hosts_count: servers in its list."""

    def __init__(self, session_timeout_s: float, hosts_count: int, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__()
        self._one_host_timeout_s = session_timeout_s / (2 * hosts_count)
        self._silence_max_s = session_timeout_s * SILENCE_RATIO
        self._clock = clock
        self._connection: object = None
        #: Since when a request may wait for an answer; None: all that was sent was followed by some answer.
        self._asked_at_s: float | None = None

    def create_connection(self, *arguments: Any, timeout: float, **options: Any) -> Any:
        # kazoo would wait for one silent host as long as the session lasts, and so lose it with the others healthy.
        return super().create_connection(*arguments, timeout=min(timeout, self._one_host_timeout_s), **options)

    def select(self, readers: Sequence[Any], writers: Sequence[Any], errors: Sequence[Any], timeout: float) -> Any:
        """kazoo's connection thread waits here for answers and requests, and nowhere else for both.

        Raises OSError, which kazoo takes for a broken connection, when the server is silent for too long.
        """
        if len(readers) < 2:
            return super().select(readers, writers, errors, timeout)
        connection, requests = readers
        if connection is not self._connection:
            self._connection, self._asked_at_s = connection, None
        ready = super().select(readers, writers, errors, min(timeout, self._patience_s()))
        if connection in ready[0]:
            self._asked_at_s = None
        elif self._patience_s() == 0:
            raise OSError(errno.ETIMEDOUT, f"the server answered nothing for {self._silence_max_s:g} s")
        if requests in ready[0] and self._asked_at_s is None:
            self._asked_at_s = self._clock()
        return ready

    def _patience_s(self) -> float:
        if self._asked_at_s is None:
            return float("inf")
        return max(0.0, self._asked_at_s + self._silence_max_s - self._clock())
