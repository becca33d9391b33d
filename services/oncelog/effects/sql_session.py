"""What transactions that keep track of effects or of an outbox need from PostgreSQL."""

from typing import Any

from sqlalchemy import Boolean, Connection, bindparam, case, func, select
from sqlalchemy.exc import DBAPIError, SQLAlchemyError

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


def _state_of(driver: Any) -> str:
    """SQLSTATE as psycopg, asyncpg, psycopg2 and pg8000 have it."""
    state = getattr(driver, "sqlstate", None) or getattr(driver, "pgcode", None)
    if state is None and (args := getattr(driver, "args", ())) and isinstance(args[0], dict):
        state = args[0].get("C")
    return state if isinstance(state, str) else ""


def said_by(error: SQLAlchemyError) -> str:
    """Without the statement and the links that SQLAlchemy adds: an operator reads one sentence."""
    return " ".join(str(getattr(error, "orig", None) or error).split())


def limit_stall(connection: Connection, stall_ms: int, *, local: bool = True) -> None:
    """LIMITS as a statement of their own."""
    if connection.dialect.name == "postgresql":
        connection.execute(_SETTINGS, {"stall": str(stall_ms), "local": local})
