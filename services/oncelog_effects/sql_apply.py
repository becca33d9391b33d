"""The statements of an apply of `SqlEffects`: the first one and the last one of its transaction.

    advance    the position moves, under the claim, from the position that the source knows
    …          what the application's function does
    look       the transaction is whole, its position is the one that advance wrote, and it is the same transaction
    commit

Each is built once: SQLAlchemy takes longer to build a statement than the server to perform it.
"""

from collections.abc import Sequence
from typing import Any

from sqlalchemy import (
    BigInteger,
    Boolean,
    ColumnElement,
    Connection,
    Select,
    Update,
    bindparam,
    func,
    literal_column,
    select,
    true,
    update,
)
from sqlalchemy.exc import DBAPIError

from oncelog.core.effect_errors import EffectMisuse
from oncelog_effects.core.effects.ordered import Source, StoredPosition
from oncelog_effects.sql_session import LIMITS, is_refused_after_error, try_again_error
from oncelog_effects.sql_tables import EffectsTables
from oncelog_effects.store import ClaimLost


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


#: Inside of the transaction of `advance`: its end releases it, so a commit by the driver's own connection shows.
_SAVEPOINT = "oncelog_effect"
#: Whether the row was written by this transaction (PostgreSQL).
_IS_OURS: ColumnElement[bool] = literal_column("xmin = CAST(pg_current_xact_id_if_assigned() AS xid)", Boolean)


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
        self._limits_stall = limits_stall
        self._look: Select[Any] = select(
            columns.position, _IS_OURS.label("is_ours") if limits_stall else true().label("is_ours")
        ).where(*of_source(tables))
        self._stored: Select[Any] = select(columns.position, columns.claim).where(*of_source(tables))

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
        if has_effect and not self._limits_stall:
            connection.exec_driver_sql(f"SAVEPOINT {_SAVEPOINT}")

    def look(
        self, connection: Connection, source: Source, following: StoredPosition, errors: Sequence[BaseException]
    ) -> bool:
        """Whether the transaction is the one of `advance`: the guard does not see a commit by the driver's own
        connection (hazard committed-by-the-driver).

        A function that swallows an error leaves a transaction that PostgreSQL rolls back at its commit, without a word
        (hazard swallowed-error-committed). errors: of the database, while the function ran. Raises EffectMisuse, or the
        error that has ended the transaction if the database asks to try it again."""
        try:
            found = connection.execute(self._look, source_values(source)).one()
        except DBAPIError as error:
            if try_again_error(error) is not None:
                raise  # as a conflict of SERIALIZABLE: this is a statement like any other
            ended_by = next((each for each in reversed(errors) if not is_refused_after_error(each)), None)
            if ended_by is not None and try_again_error(ended_by) is not None:
                raise ended_by from error  # the function has caught it, and is not to blame
            raise EffectMisuse(
                "the function has caught an error of the database, after which the whole transaction can only be "
                "rolled back: let it raise, or use connection.begin_nested() around what may fail"
            ) from error
        if found.position != following.position:
            raise EffectMisuse("the function has changed the position of its effect")
        return bool(found.is_ours) and (self._limits_stall or _released(connection))

    def is_stored(self, connection: Connection, source: Source, following: StoredPosition) -> bool:
        """Whether the row has this position already, under this claim."""
        found = connection.execute(self._stored, source_values(source)).one_or_none()
        return found is not None and (found.position, found.claim) == (following.position, following.claim)


def _released(connection: Connection) -> bool:
    try:
        connection.exec_driver_sql(f"RELEASE {_SAVEPOINT}")
    except DBAPIError:
        return False
    return True
