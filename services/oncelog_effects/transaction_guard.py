"""Keeps an application's function from ending the transaction of its effect.

A function that commits would leave half an effect behind: its own statements without the position, or the position
without what follows. So the end of the transaction is refused before it reaches the database, whether it is asked for
by SQLAlchemy or as text.
"""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from weakref import WeakKeyDictionary

from sqlalchemy import Connection, Engine, event
from sqlalchemy.engine import ExceptionContext

from oncelog.core.effect_errors import EffectMisuse

_WORDS = re.compile(r"\b(?:commit|end|abort|begin|start|prepare|rollback)\b", re.IGNORECASE)
#: Comments, strings, quoted names, and dollar quotes: what is inside of them ends nothing.
_QUOTED = re.compile(
    r"--[^\n]*|/\*.*?\*/|(?<![\w$])e'(?:[^'\\]|\\.|'')*'|'(?:[^']|'')*'|\"(?:[^\"]|\"\")*\""
    r"|(?<![\w$])\$((?:[^\W\d]\w*)?)\$.*?\$\1\$",
    re.IGNORECASE | re.DOTALL,
)
#: ROLLBACK TO a savepoint stays inside of the transaction.
_ENDS = re.compile(
    r"(?:commit|end|abort|begin|start\s+transaction|prepare\s+transaction|"
    r"rollback(?!(?:\s+(?:work|transaction))?\s+to\b))\b",
    re.IGNORECASE,
)
#: A trigger of SQLite, a function of PostgreSQL: statements with semicolons, up to an END.
_BODY = re.compile(
    r"create\b.*\b(?:trigger\b.*\bbegin\b(?!\s*\()|(?:function|procedure)\b.*\bbegin\s+atomic\b)",
    re.IGNORECASE | re.DOTALL,
)
_END = re.compile(r"end\b", re.IGNORECASE)


def ends_transaction(statement: str) -> bool:
    if not _WORDS.search(statement):
        return False
    in_body = False
    for part in map(str.strip, _QUOTED.sub(_unquoted, statement).split(";")):
        if in_body:
            in_body = not _END.match(part)
        elif _ENDS.match(part):
            return True
        else:
            in_body = _BODY.match(part) is not None
    return False


def _unquoted(quoted: re.Match[str]) -> str:
    return " " if quoted[0].startswith(("--", "/*")) else "''"


def guard_of(engine: Engine) -> "TransactionGuard":
    """One for all stores of an engine."""
    if engine not in _GUARDS:
        _GUARDS[engine] = TransactionGuard(engine)
    return _GUARDS[engine]


class TransactionGuard:
    """Of one engine. It listens once, because to add and remove listeners for each transaction takes longer than a
    short statement; connections that are not guarded are let through."""

    def __init__(self, engine: Engine) -> None:
        #: {guarded connection: what was refused on it}
        self._refused: dict[Connection, list[EffectMisuse]] = {}
        #: {guarded connection: the errors of the database on it, whether the function has caught them or not}
        self._errors: dict[Connection, list[BaseException]] = {}
        event.listen(engine, "commit", self._refuse)
        event.listen(engine, "rollback", self._refuse)
        event.listen(engine, "before_cursor_execute", self._look)
        event.listen(engine, "handle_error", self._note)

    @contextmanager
    def guarded(self, connection: Connection) -> Iterator[list[BaseException]]:
        """Inside of the block, whatever would end the transaction raises EffectMisuse; so does the end of the block, if
        the function has caught that. connection: one that the engine has opened since. Gives the errors of the database
        inside of the block, which the function may have caught."""
        refused: list[EffectMisuse] = []
        errors: list[BaseException] = []
        self._refused[connection], self._errors[connection] = refused, errors
        try:
            yield errors
            if refused:
                raise refused[0]
        finally:
            del self._refused[connection], self._errors[connection]

    def _note(self, context: ExceptionContext) -> None:
        errors = None if context.connection is None else self._errors.get(context.connection)
        if errors is not None:
            errors.append(context.sqlalchemy_exception or context.original_exception)

    def _refuse(self, connection: Connection) -> None:
        refused = self._refused.get(connection)
        if refused is not None:
            refused.append(
                EffectMisuse(
                    "the function must not commit or roll back: its writes are committed together with the position "
                    "when it returns. For a part that may fail, use connection.begin_nested()"
                )
            )
            raise refused[-1]

    def _look(
        self, conn: Connection, cursor: Any, statement: str, parameters: Any, context: Any, executemany: bool
    ) -> None:
        refused = self._refused.get(conn)
        if refused is not None and ends_transaction(statement):
            refused.append(EffectMisuse(f"the function must not end its transaction: {statement.strip()[:80]}"))
            raise refused[-1]


_GUARDS: WeakKeyDictionary[Engine, TransactionGuard] = WeakKeyDictionary()
