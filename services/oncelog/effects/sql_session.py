"""What transactions that keep track of effects or of an outbox need from PostgreSQL."""

from sqlalchemy import Boolean, Connection, bindparam, case, func, select
from sqlalchemy.exc import SQLAlchemyError

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


def said_by(error: SQLAlchemyError) -> str:
    """Without the statement and the links that SQLAlchemy adds: an operator reads one sentence."""
    return " ".join(str(getattr(error, "orig", None) or error).split())


def limit_stall(connection: Connection, stall_ms: int, *, local: bool = True) -> None:
    """LIMITS as a statement of their own."""
    if connection.dialect.name == "postgresql":
        connection.execute(_SETTINGS, {"stall": str(stall_ms), "local": local})
