"""What transactions that keep track of effects or of an outbox need from PostgreSQL."""

from sqlalchemy import Connection, text

_SETTINGS = text(
    "SELECT set_config('idle_in_transaction_session_timeout', :stall, :local), "
    "set_config('synchronous_commit', CASE current_setting('synchronous_commit') WHEN 'off' THEN 'on' "
    "ELSE current_setting('synchronous_commit') END, :local)"
)


def limit_stall(connection: Connection, stall_ms: int, *, local: bool = True) -> None:
    """A process that is stopped with a row locked must not block the next one for ever, and a commit that was answered
    must be durable. local: for this transaction; otherwise for the connection."""
    if connection.dialect.name == "postgresql":
        connection.execute(_SETTINGS, {"stall": str(stall_ms), "local": local})
