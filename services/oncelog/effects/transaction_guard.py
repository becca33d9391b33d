"""Keeps an application's function from ending the transaction of its effect.

A function that commits would leave half an effect behind: its own statements without the position, or the position
without what follows. So the end of the transaction is refused before it reaches the database, whether it is asked for
by SQLAlchemy or as text.
"""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from sqlalchemy import Connection, event

from oncelog.core.effects.errors import EffectMisuse

#: At the beginning of the text, or behind a semicolon. ROLLBACK TO a savepoint stays inside of the transaction.
_ENDS = re.compile(
    r"(?:^|;)(?:\s|--[^\n]*\n|/\*.*?\*/)*"
    r"(?:commit|end|abort|begin|start\s+transaction|prepare\s+transaction|"
    r"rollback(?!(?:\s+(?:work|transaction))?\s+to\b))\b",
    re.IGNORECASE | re.DOTALL,
)


def ends_transaction(statement: str) -> bool:
    return _ENDS.search(statement) is not None


@contextmanager
def guarded(connection: Connection) -> Iterator[None]:
    """Inside of the block, whatever would end the transaction raises EffectMisuse; so does the end of the block, if the
    function has caught that."""
    refused: list[EffectMisuse] = []

    def refuse(_: Connection) -> None:
        refused.append(
            EffectMisuse(
                "the function must not commit or roll back: its writes are committed together with the position when "
                "it returns. For a part that may fail, use connection.begin_nested()"
            )
        )
        raise refused[-1]

    def look(conn: Connection, cursor: Any, statement: str, parameters: Any, context: Any, executemany: bool) -> None:
        if ends_transaction(statement):
            refused.append(EffectMisuse(f"the function must not end its transaction: {statement.strip()[:80]}"))
            raise refused[-1]

    listeners: tuple[tuple[str, Any], ...] = (
        ("commit", refuse), ("rollback", refuse), ("before_cursor_execute", look),
    )  # fmt: skip
    for name, listener in listeners:
        event.listen(connection, name, listener)
    try:
        yield
        if refused:
            raise refused[0]
    finally:
        for name, listener in listeners:
            event.remove(connection, name, listener)
