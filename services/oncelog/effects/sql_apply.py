"""The statements of an apply of `SqlEffects`: the first one and the last one of its transaction.

    advance    the position moves, under the claim, from the position that the source knows
    …          what the application's function does
    look       the transaction is whole, and its position is the one that advance wrote
    commit

Each is built once: SQLAlchemy takes longer to build a statement than the server to perform it.
"""

from typing import Any

from sqlalchemy import BigInteger, ColumnElement, Connection, Select, Update, bindparam, func, select, update
from sqlalchemy.exc import DBAPIError

from oncelog.core.effects.errors import EffectMisuse
from oncelog.core.effects.ordered import Source, StoredPosition
from oncelog.effects.sql_session import LIMITS
from oncelog.effects.sql_tables import EffectsTables
from oncelog.effects.store import ClaimLost


def of_source(tables: EffectsTables) -> tuple[ColumnElement[bool], ...]:
    """The row of the source that `source_values` names."""
    columns = tables.effects.c
    return (
        columns.effect == bindparam("of_effect"),
        columns.topic_id == bindparam("of_topic_id"),
        columns.partition_no == bindparam("of_partition"),
    )


def source_values(source: Source) -> dict[str, object]:
    return {"of_effect": source.effect, "of_topic_id": source.topic_id, "of_partition": source.partition}


class ApplyStatements:
    """Of one store. limits_stall: whether the server can end a transaction that does nothing (PostgreSQL). Then it is
    told to in the statement that locks the row, which is a round trip less."""

    def __init__(self, tables: EffectsTables, stall_ms: int, *, limits_stall: bool) -> None:
        columns = tables.effects.c
        advance: Update = (
            update(tables.effects)
            .where(*of_source(tables), columns.claim == bindparam("expected_claim"))
            .where(columns.position == bindparam("expected_position"))
            .where(columns.pending_dead.is_not_distinct_from(bindparam("expected_pending", type_=BigInteger)))
            .values(
                position=bindparam("next_position"),
                last_message=bindparam("next_message"),
                pending_dead=bindparam("next_pending"),
                applied=columns.applied + bindparam("transactions"),
                updated_at=func.now(),
            )
        )
        self._session: dict[str, object] = {}
        if limits_stall:
            advance = advance.where(*LIMITS)
            self._session = {"stall": str(stall_ms), "local": True}
        self._advance = advance
        self._look: Select[Any] = select(columns.position).where(*of_source(tables))

    def advance(
        self,
        connection: Connection,
        source: Source,
        claimed: StoredPosition,
        following: StoredPosition,
        *,
        has_effect: bool,
    ) -> None:
        """Raises ClaimLost."""
        values = {
            **source_values(source),
            **self._session,
            "expected_claim": claimed.claim,
            "expected_position": claimed.position,
            "expected_pending": claimed.pending_dead,
            "next_position": following.position,
            "next_message": following.last_message,
            "next_pending": following.pending_dead,
            "transactions": int(has_effect),
        }
        if connection.execute(self._advance, values).rowcount != 1:
            raise ClaimLost

    def look(self, connection: Connection, source: Source, following: StoredPosition) -> None:
        """A function that swallows an error leaves a transaction that PostgreSQL rolls back at its commit, without a
        word (hazard swallowed-error-committed). Raises EffectMisuse."""
        try:
            found = connection.execute(self._look, source_values(source)).scalar_one()
        except DBAPIError as error:
            if error.connection_invalidated:
                raise
            raise EffectMisuse(
                "the function has caught an error of the database, after which the whole transaction can only be "
                "rolled back: let it raise, or use connection.begin_nested() around what may fail"
            ) from error
        if found != following.position:
            raise EffectMisuse("the function has changed the position of its effect")
