"""One connection of a client: when it is read, what waits for the client, and how it ends.

A connection is held, and nothing is read, for as long as there is a reason: a request that must be answered first, a
limit of bytes, a client that does not read its answers. A client that reads nothing for a minute is disconnected. What
was written before the end is still sent, for five seconds. Who may connect is in `core.shared.admissions`.

What the bytes mean is decided by a class of each protocol.
"""

import asyncio
import logging
from collections.abc import Callable
from typing import Any, cast

from oncelog.core.errors import InvalidArgument
from oncelog_doors.connections.home import ConnectionHome

_LOG = logging.getLogger(__name__)

#: Until a client is authenticated.
CONNECT_MS = 10_000
#: A client that reads nothing for this long is disconnected.
UNSENT_MS = 60_000
UNSENT_BYTES_MAX = 1024 * 1024
#: How long a connection that ends may still send what was written to it.
CLOSING_MS = 5_000


class ClientConnection(asyncio.Protocol):
    """home: of all connections of its listener. It is one of their `connections` while it is open."""

    def __init__(self, home: ConnectionHome[Any]) -> None:
        self._home = home
        self.number = home.next_connection()
        self.timers, self.tasks = home.timers, home.tasks
        self.peer = self.address = ""
        self._role: str | None = None
        self._is_admitted = self._spoke = self._is_authenticated = self._draining = self._closed = False
        #: why nothing is read
        self._held: set[str] = set()
        self._cancel_connecting: Callable[[], None] | None = None
        self._cancel_unsent: Callable[[], None] | None = None
        self._cancel_abort: Callable[[], None] | None = None

    # --- what a protocol does -----------------------------------------------------------------------------------------

    def received(self, data: bytes) -> None:
        """Keep what was received, until `handle` is called."""
        raise NotImplementedError

    def handle(self) -> None:
        """Handle what was received while the connection is neither held nor closed. Raises InvalidArgument for what no
        client sends."""
        raise NotImplementedError

    def not_connected(self) -> str:
        """Why a client that was not authenticated in time is disconnected."""
        return f"it was not authenticated in {CONNECT_MS // 1000} s"

    def is_read(self, reads: bool) -> None:
        """Reading has stopped, or goes on."""

    def all_was_read(self) -> None:
        """The client has read enough of what waited for it."""

    def ended(self) -> None:
        """Nothing of the client is handled any more."""

    def lost(self, *, client_lost: bool) -> None:
        """The connection is over. client_lost: it was not ended here."""

    @property
    def waiting(self) -> int:
        """Requests without an answer: a connection that drains waits for them."""
        raise NotImplementedError

    # --- asyncio ------------------------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        self._transport.set_write_buffer_limits(high=UNSENT_BYTES_MAX)
        host, port = (transport.get_extra_info("peername") or ("", 0))[:2]
        self.address, self.peer = str(host), f"{host}:{port}"
        self._home.connections[self.number] = self
        refusal = self._home.admissions.refusal_of_address(self.address, self.timers.now_ms())
        if refusal is not None:
            self._home.refused()
            self.fail(refusal)
            return
        self._home.admissions.admitted(self.address)
        self._is_admitted = True
        due_ms = self.timers.now_ms() + CONNECT_MS
        self._cancel_connecting = self.timers.at(due_ms, lambda: self.fail(self.not_connected()))

    def data_received(self, data: bytes) -> None:
        self._spoke = True
        self.received(data)
        self._handle()

    def pause_writing(self) -> None:
        self.hold("unsent")
        self._wait_for_reading()

    def _wait_for_reading(self) -> None:
        """End the connection when nothing of what waits for it is read for a minute."""
        size = self.unsent_bytes

        def look() -> None:
            if self.unsent_bytes < size:  # it is slow, and it reads
                self._wait_for_reading()
            else:
                self.fail(f"it reads nothing for {UNSENT_MS // 1000} s", send=False)

        self._cancel_unsent = self.timers.at(self.timers.now_ms() + UNSENT_MS, look)

    def resume_writing(self) -> None:
        if self._cancel_unsent is not None:
            self._cancel_unsent()
            self._cancel_unsent = None
        self.release("unsent")
        self.all_was_read()

    @property
    def unsent_bytes(self) -> int:
        """What waits for the client in this process."""
        return self._transport.get_write_buffer_size()

    @property
    def reads_along(self) -> bool:
        """Whether less than 1 MiB waits for the client."""
        return "unsent" not in self._held

    def connection_lost(self, error: Exception | None) -> None:
        client_lost = not self._closed
        self._end()
        for cancel in (self._cancel_connecting, self._cancel_unsent, self._cancel_abort):
            if cancel is not None:
                cancel()
        self.lost(client_lost=client_lost)
        if self._is_admitted:
            self._home.admissions.gone(self.address, self._role)
            if not self._is_authenticated and self._spoke:
                self._home.admissions.failed(self.address, self.timers.now_ms())
        self._home.gone(self.number)

    # --- reading ------------------------------------------------------------------------------------------------------

    def hold(self, reason: str) -> None:
        """Read nothing until `release`."""
        if not self._held and not self._closed:
            self._transport.pause_reading()
            self.is_read(False)
        self._held.add(reason)

    def release(self, reason: str) -> None:
        if reason not in self._held:
            return
        self._held.discard(reason)
        if not self._held and not self._closed:
            self.is_read(True)
            self._transport.resume_reading()
            asyncio.get_running_loop().call_soon(self._handle)

    @property
    def holds(self) -> frozenset[str]:
        """Why nothing is read; empty: it is."""
        return frozenset(self._held)

    @property
    def reads(self) -> bool:
        """Whether what was received is handled now."""
        return not self._held and not self._closed

    def _handle(self) -> None:
        try:
            self.handle()
        except InvalidArgument as error:
            self.fail(str(error))

    # --- life ---------------------------------------------------------------------------------------------------------

    def authenticated(self, role: str) -> str | None:
        """Its client is known, as a role or, without authentication, as "". Returns why the connection is refused;
        None: it is open."""
        if role:
            full = self._home.admissions.refusal_of_role(role)
            if full is not None:
                return full
            self._home.admissions.proved(role)
            self._role = role
        self._is_authenticated = True
        if self._cancel_connecting is not None:
            self._cancel_connecting()
            self._cancel_connecting = None
        return None

    def drain(self) -> None:
        """Take no more requests, and end when all are answered."""
        self._draining = True
        self.hold("draining")
        self.end_if_drained()

    def end_if_drained(self) -> None:
        if self._draining and not self._closed and not self.waiting:
            self.close()

    def written(self) -> None:
        """An answer was written."""
        if self._draining:  # what is written in the same step comes first
            asyncio.get_running_loop().call_soon(self.end_if_drained)

    def fail(self, reason: str, *, send: bool = True) -> None:
        """End the connection. send: what was written before is still sent."""
        if not self._closed:
            _LOG.info("connection of %s is closed: %s", self.peer, reason)
            self.close(send=send)

    def _end(self) -> None:
        self._closed = True
        self.ended()

    def close(self, *, send: bool = True) -> None:
        self._end()
        if send:
            self._transport.close()
            # Until then the peer may read. A transport with unsent bytes waits for that for ever.
            self._cancel_abort = self.timers.at(self.timers.now_ms() + CLOSING_MS, self._transport.abort)
        else:
            self._transport.abort()
