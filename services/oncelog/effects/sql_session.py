"""What transactions that keep track of effects or of an outbox need from PostgreSQL."""

from sqlalchemy import Connection, text
from sqlalchemy.exc import SQLAlchemyError

_SETTINGS = text(
    "SELECT set_config('idle_in_transaction_session_timeout', :stall, :local), "
    "set_config('synchronous_commit', CASE current_setting('synchronous_commit') WHEN 'off' THEN 'on' "
    "ELSE current_setting('synchronous_commit') END, :local)"
)


def said_by(error: SQLAlchemyError) -> str:
    """Without the statement and the links that SQLAlchemy adds: an operator reads one sentence."""
    return " ".join(str(getattr(error, "orig", None) or error).split())


def limit_stall(connection: Connection, stall_ms: int, *, local: bool = True) -> None:
    """A process that is stopped with a row locked must not block the next one for ever, and a commit that was answered
    must be durable. local: for this transaction; otherwise for the connection."""
    if connection.dialect.name == "postgresql":
        connection.execute(_SETTINGS, {"stall": str(stall_ms), "local": local})
