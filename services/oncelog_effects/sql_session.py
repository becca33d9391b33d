"""What transactions that keep track of effects or of an outbox need from PostgreSQL."""

import asyncio
import os
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

from sqlalchemy import Boolean, Connection, Engine, bindparam, case, event, func, select
from sqlalchemy.exc import DBAPIError

#: Beginnings of SQLSTATE that say nothing of the statement: connections, conflicts, a server that starts, ends, is
#: read-only, or out of disk, memory, connections or another resource; I/O errors; locks and statements that take too
#: long.
_TRY_AGAIN = (
    "08", "40001", "40003", "40P01", "25006", "25P03", "25P04", "53", "55P03", "57014", "57P", "58000", "58030",
)  # fmt: skip
#: The same of SQLite: busy, locked, out of memory, read-only, interrupted, I/O error, full, cannot open, protocol.
_TRY_AGAIN_SQLITE = (5, 6, 7, 8, 9, 10, 13, 14, 15)

_DURABLE = func.current_setting("synchronous_commit")
_LOCAL = bindparam("local", type_=Boolean)
#: Conditions that are true, and set what they name. A process that is stopped with a row locked must not block the
#: next one for ever, and a commit that was answered must be durable. stall: milliseconds as text. local: for this
#: transaction; otherwise for the connection.
LIMITS = (
    func.set_config("idle_in_transaction_session_timeout", bindparam("stall"), _LOCAL).is_not(None),
    func.set_config("synchronous_commit", case((_DURABLE == "off", "on"), else_=_DURABLE), _LOCAL).is_not(None),
)
_SETTINGS = select(*LIMITS)


def try_again_error(error: BaseException) -> BaseException | None:
    """The error of a database that could not carry out a transaction now; also as the cause of an error that a function
    has made of it. None: there is none."""
    seen: list[BaseException] = []
    found: BaseException | None = error
    while found is not None and found not in seen:
        if _asks_to_try_again(found):
            return found
        seen.append(found)
        found = found.__cause__ or (None if found.__suppress_context__ else found.__context__)
    return None


def _asks_to_try_again(error: BaseException) -> bool:
    if isinstance(error, DBAPIError) and error.connection_invalidated:
        return True
    driver: Any = error.orig if isinstance(error, DBAPIError) else error
    code = getattr(driver, "sqlite_errorcode", None)
    if isinstance(code, int):
        return code & 0xFF in _TRY_AGAIN_SQLITE
    return _state_of(driver).startswith(_TRY_AGAIN)


def is_refused_after_error(error: BaseException) -> bool:
    """Whether PostgreSQL has refused a statement because an error before it has ended the transaction."""
    return _state_of(error.orig if isinstance(error, DBAPIError) else error) == "25P02"


def _state_of(driver: Any) -> str:
    """SQLSTATE as psycopg, asyncpg, psycopg2 and pg8000 have it."""
    state = getattr(driver, "sqlstate", None) or getattr(driver, "pgcode", None)
    if state is None and (args := getattr(driver, "args", ())) and isinstance(args[0], dict):
        state = args[0].get("C")
    return state if isinstance(state, str) else ""


def is_broken(error: BaseException) -> bool:
    """Whether the connection has ended."""
    return isinstance(error, DBAPIError) and error.connection_invalidated


def said_by(error: BaseException) -> str:
    """Without the statement and the links that SQLAlchemy adds: an operator reads one sentence."""
    return " ".join(str(getattr(error, "orig", None) or error).split())


def limit_stall(connection: Connection, stall_ms: int, *, local: bool = True) -> None:
    """LIMITS as a statement of their own."""
    if connection.dialect.name == "postgresql":
        connection.execute(_SETTINGS, {"stall": str(stall_ms), "local": local})


#: Drivers that take the parameters of libpq.
_LIBPQ = ("psycopg", "psycopg2")
CONNECT_S_MIN = 2


class TransactionLimit:
    """The longest that one transaction may take: a database whose host vanishes says nothing, and TCP waits for it.

    The socket below the connection is shut: whatever waits for it, in a thread or in the event loop, fails at once, as
    if the server had ended the connection (hazard silent-database). A thread cannot be ended, and a driver that is
    cancelled may wait for the server.
    """

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self.expired = False
        self._began = 0.0
        self._ended: float | None = None
        self._driver: Any = None
        self._lock = threading.Lock()

    @contextmanager
    def running(self) -> Iterator[None]:
        """In the event loop: the time counts from here to the end of the block."""
        self._began = time.monotonic()
        timer = asyncio.get_running_loop().call_later(self.seconds, self._expire)
        try:
            yield
        finally:
            self._ended = time.monotonic()
            timer.cancel()

    @property
    def elapsed_s(self) -> float:
        """Since the beginning of the block, up to its end."""
        return (time.monotonic() if self._ended is None else self._ended) - self._began

    def watch(self, connection: Connection) -> None:
        """In any thread: this connection is shut when the time is over."""
        with self._lock:
            self._driver = connection.connection.driver_connection
            if self.expired:
                _shut(self._driver)

    def _expire(self) -> None:
        with self._lock:
            self.expired = True
            if self._driver is not None:
                _shut(self._driver)


def _shut(driver: Any) -> None:
    with suppress(Exception):  # of the driver: it is closed already
        if callable(fileno := getattr(driver, "fileno", None)):
            with socket.socket(fileno=os.dup(fileno())) as below:
                below.shutdown(socket.SHUT_RDWR)
        elif callable(terminate := getattr(driver, "terminate", None)):  # asyncpg
            terminate()
        else:  # pg8000
            driver._usock.shutdown(socket.SHUT_RDWR)  # noqa: SLF001


def limit_connecting(engine: Engine, seconds: float) -> None:
    """Connections that the engine opens from now on: libpq waits for a server that says nothing for ever, unless the
    address or the environment says for how long."""
    if engine.dialect.driver not in _LIBPQ or "PGCONNECT_TIMEOUT" in os.environ:
        return
    limit = max(CONNECT_S_MIN, int(seconds))

    def before(_dialect: Any, _record: Any, _arguments: Any, parameters: dict[str, Any]) -> None:
        parameters.setdefault("connect_timeout", limit)

    event.listen(engine, "do_connect", before)
