"""Effects in a database, by SQLAlchemy: the position of each source is in the transaction of its effects."""

import asyncio
import re
import uuid
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from inspect import isawaitable
from typing import Any, Generic, NoReturn, TypeVar, cast

from sqlalchemy import Connection, Engine, Row, func, insert, select, update
from sqlalchemy.exc import OperationalError, SQLAlchemyError
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from oncelog.core.effect_errors import EffectMisuse, StoreBusy, StoreNotTransactional
from oncelog.core.errors import EffectsError, InvalidArgument, StoreMismatch, StoreUnavailable
from oncelog.runtime.application_errors import reason_of
from oncelog_effects.core.effects.ordered import Rank, Source, StoredPosition
from oncelog_effects.function_run import FunctionFailedError
from oncelog_effects.functions import in_thread
from oncelog_effects.sql_apply import ApplyStatements, of_source, source_values
from oncelog_effects.sql_schema import DIALECTS, prepare
from oncelog_effects.sql_session import (
    TransactionLimit,
    is_broken,
    limit_connecting,
    limit_stall,
    said_by,
    try_again_error,
)
from oncelog_effects.sql_tables import ORDERED, EffectsTables
from oncelog_effects.store import SourceNames
from oncelog_effects.transaction_guard import guard_of
from oncelog_effects.watched_connection import WatchedConnection

STALL_TIMEOUT_S = 30.0
TRANSACTION_TIMEOUT_S = 300.0
_PREFIX = re.compile("[a-z_][a-z0-9_]{0,40}")
#: Text of SQLite for a lock that another connection holds.
_LOCKED = "locked"
#: Text of PgBouncer.
_STATEMENT_POOLING = "statement pooling mode"
ConnectionT = TypeVar("ConnectionT", Connection, AsyncConnection)
ResultT = TypeVar("ResultT")


class SqlEffects(Generic[ConnectionT]):
    """A store of effects in PostgreSQL 13 or later, or SQLite 3.35 or later.

    Args:
        engine: of SQLAlchemy 2; functions of an Engine get a Connection, and run in a thread of their own; functions of
            an AsyncEngine get an AsyncConnection.
        schema: where the tables are; None: the engine's default.
        prefix: of the tables' names.
        create_tables: whether missing tables and columns are created at the first claim. Otherwise an administrator
            runs the statements of `oncelog effects ddl`, or Alembic those of `tables.metadata`.
        stall_timeout: seconds after which PostgreSQL ends the transaction of a process that does nothing, so that
            another one can claim the source.
        transaction_timeout: seconds after which this process shuts the connection of a transaction that has not ended,
            because the host of the database may have vanished without a word (PostgreSQL). It is tried again, and is
            no attempt of its messages; the function may not take longer.

    Raises InvalidArgument.
    """

    def __init__(
        self,
        engine: Engine | AsyncEngine,
        *,
        schema: str | None = None,
        prefix: str = "oncelog",
        create_tables: bool = True,
        stall_timeout: float = STALL_TIMEOUT_S,
        transaction_timeout: float = TRANSACTION_TIMEOUT_S,
    ) -> None:
        if not isinstance(engine, Engine | AsyncEngine):
            message = (
                f"engine must be that of SQLAlchemy, as create_engine(url) returns it, not {type(engine).__name__}"
            )
            raise InvalidArgument(message, field="engine")
        if engine.dialect.name not in DIALECTS:
            message = f"{engine.dialect.name} is not supported: use one of {', '.join(DIALECTS)}"
            raise InvalidArgument(message, field="engine")
        if not _PREFIX.fullmatch(prefix):
            raise InvalidArgument("a prefix has 1 to 41 characters of a-z 0-9 _", field="prefix", limit=41)
        if not 0.1 <= stall_timeout <= 86_400:
            raise InvalidArgument("stall_timeout is 0.1 to 86,400 seconds", field="stall_timeout", limit=86_400)
        if not 1 <= transaction_timeout <= 86_400:
            message = "transaction_timeout is 1 to 86,400 seconds"
            raise InvalidArgument(message, field="transaction_timeout", limit=86_400)
        self.tables = EffectsTables(schema=schema, prefix=prefix)
        self._engine = engine
        self._create_tables = create_tables
        self._stall_ms = int(stall_timeout * 1000)
        self._is_sqlite = engine.dialect.name == "sqlite"
        sync_engine = engine.sync_engine if isinstance(engine, AsyncEngine) else engine
        self._transaction_s = transaction_timeout
        limit_connecting(sync_engine, transaction_timeout)
        self._guard = guard_of(sync_engine)
        self._statements = ApplyStatements(self.tables, self._stall_ms, limits_stall=not self._is_sqlite)
        self._row_of = select(self.tables.effects).where(*of_source(self.tables)).with_for_update()
        self._store_id = ""
        self._checking = asyncio.Lock()

    @property
    def engine(self) -> Engine | AsyncEngine:
        return self._engine

    @property
    def place(self) -> str:
        """For messages: the database, without its password."""
        return self._engine.url.render_as_string(hide_password=True)

    # --- EffectsStore -------------------------------------------------------------------------------------------------

    async def store_id(self) -> str:
        async with self._checking:
            if not self._store_id:
                try:
                    await self._transact(self._prepare)
                except StoreUnavailable:
                    await self._transact(self._prepare)  # another process has created the same at the same time
                nonce = uuid.uuid4().hex
                try:
                    await self._transact(lambda connection: self._probe(connection, nonce))
                except _RolledBack:
                    pass
                self._store_id = await self._transact(lambda connection: self._checked(connection, nonce))
            return self._store_id

    async def claim(
        self, source: Source, names: SourceNames, decide: Callable[[StoredPosition | None], StoredPosition]
    ) -> StoredPosition:
        return await self._transact(lambda connection: self._claim(connection, source, names, decide))

    async def apply(
        self,
        source: Source,
        claimed: StoredPosition,
        following: StoredPosition,
        run: Callable[[ConnectionT], Awaitable[None] | None] | None,
    ) -> None:
        def step(connection: Connection) -> None:
            self._statements.advance(connection, source, claimed, following, has_effect=run is not None)

        if run is None:
            await self._transact(step)
            return
        limit = TransactionLimit(self._transaction_s)
        try:
            with self._translated(limit), limit.running():
                is_whole = await self._applied(step, source, following, run, limit)
        except (_FromFunctionError, EffectMisuse) as failed:
            original = failed.original if isinstance(failed, _FromFunctionError) else failed
            if limit.expired:
                raise self._unavailable(original, limit) from original
            await self._raise(original, source, claimed, following, limit)
        if not is_whole:
            raise EffectMisuse(
                f"the function has committed {_of_messages(source, claimed, following)} by the connection of its "
                "driver. All of it is stored this time, but a crash behind that commit would have left a part of it: "
                "do not commit, that is done when the function returns"
            )

    async def _applied(
        self,
        step: Callable[[Connection], None],
        source: Source,
        following: StoredPosition,
        run: Callable[[ConnectionT], Awaitable[None] | None],
        limit: TransactionLimit,
    ) -> bool:
        """Whether position and effect were committed together. Raises _FromFunctionError."""
        if isinstance(self._engine, AsyncEngine):
            async_run = cast("Callable[[AsyncConnection], Any]", run)
            return await self._apply_async(self._engine, step, following, source, async_run, limit)
        engine, sync_run = self._engine, cast("Callable[[Connection], Any]", run)
        return await in_thread(lambda: self._apply_sync(engine, step, following, source, sync_run, limit))

    async def _raise(
        self,
        original: Exception,
        source: Source,
        claimed: StoredPosition,
        following: StoredPosition,
        limit: TransactionLimit,
    ) -> NoReturn:
        """What was raised, or that the database asks to try again. EffectMisuse: the transaction was rolled back, and
        the position is there all the same."""
        error = original.error if isinstance(original, FunctionFailedError) else original
        try:
            is_stored = await self._transact(lambda each: self._statements.is_stored(each, source, following))
        except (StoreUnavailable, StoreBusy):
            is_stored = False  # not known
        if is_stored:
            raise EffectMisuse(
                f"the function has committed {_of_messages(source, claimed, following)} by the connection of its "
                f"driver, and has failed behind that ({reason_of(error)}): a part of it is stored, and so is the "
                "position, so these messages do not come again. Complete or remove it by hand; do not commit, that is "
                "done when the function returns"
            ) from error
        if (refused := try_again_error(error)) is not None:
            raise self._unavailable(refused, limit) from error
        raise original from original.__cause__

    # --- transactions -------------------------------------------------------------------------------------------------

    async def _transact(self, work: Callable[[Connection], ResultT]) -> ResultT:
        """One short transaction of ours. Raises StoreUnavailable, StoreBusy, and what `work` raises."""
        limit = TransactionLimit(self._transaction_s)
        with self._translated(limit), limit.running():
            if isinstance(self._engine, AsyncEngine):
                async with self._engine.connect() as connection:
                    result = await connection.run_sync(self._begun(work, limit))
                    await connection.commit()
                    return result
            engine = self._engine

            def transact() -> ResultT:
                with engine.connect() as connection:
                    result = self._begun(work, limit)(connection)
                    connection.commit()
                    return result

            return await in_thread(transact)

    def _begun(self, work: Callable[[Connection], ResultT], limit: TransactionLimit) -> Callable[[Connection], ResultT]:
        def run(connection: Connection) -> ResultT:
            self._begin(connection, limit)
            limit_stall(connection, self._stall_ms)
            return work(connection)

        return run

    def _begin(self, connection: Connection, limit: TransactionLimit) -> None:
        if self._is_sqlite:
            connection.exec_driver_sql("BEGIN IMMEDIATE")
        else:
            limit.watch(connection)

    def _apply_sync(
        self,
        engine: Engine,
        step: Callable[[Connection], None],
        following: StoredPosition,
        source: Source,
        run: Callable[[Connection], Any],
        limit: TransactionLimit,
    ) -> bool:
        with engine.connect() as connection:
            try:
                self._begin(connection, limit)
                step(connection)
                with _functions_errors(), self._guard.guarded(connection) as errors:
                    _check_not_async(run(connection))
                is_whole = self._statements.look(connection, source, following, errors)
                connection.commit()
            except BaseException:
                _abandon(connection)
                raise
        return is_whole

    async def _apply_async(
        self,
        engine: AsyncEngine,
        step: Callable[[Connection], None],
        following: StoredPosition,
        source: Source,
        run: Callable[[AsyncConnection], Any],
        limit: TransactionLimit,
    ) -> bool:
        async with engine.connect() as connection:
            try:
                await connection.run_sync(lambda sync: self._begin(sync, limit))
                await connection.run_sync(step)
                given, sync_connection = WatchedConnection(connection), connection.sync_connection
                guarded = self._guard.guarded(cast("Connection", sync_connection))
                with _functions_errors(), guarded as errors, given.all_awaited():
                    await _checked_async(run(given))
                is_whole = await connection.run_sync(self._statements.look, source, following, errors)
                await connection.commit()
            except BaseException:
                await connection.run_sync(_abandon)
                raise
        return is_whole

    @contextmanager
    def _translated(self, limit: TransactionLimit) -> Iterator[None]:
        """Errors that are not the function's leave the outcome unknown."""
        try:
            yield
        except SQLAlchemyError as error:
            raise self._unavailable(error, limit) from error

    def _unavailable(
        self, error: BaseException, limit: TransactionLimit | None = None
    ) -> StoreUnavailable | StoreBusy | EffectsError:
        if limit is not None and limit.expired:
            return StoreUnavailable(
                f"{self.place}: a transaction has taken longer than {limit.seconds:g} s, and its connection was shut: "
                "the host of the database is silent, or the function needs a larger transaction_timeout of SqlEffects"
            )
        if _STATEMENT_POOLING in str(error):
            return StoreNotTransactional(
                f"{self.place}: PgBouncer with pool_mode=statement allows no transactions: use pool_mode=transaction "
                f"or session ({said_by(error)})"
            )
        if limit is not None and not self._is_sqlite and limit.elapsed_s * 1000 >= self._stall_ms and is_broken(error):
            return StoreUnavailable(
                f"{self.place}: the connection has ended in the middle of a transaction ({said_by(error)}). If the "
                f"function has done nothing in the database for {self._stall_ms / 1000:g} s, the server has ended it: "
                "give SqlEffects a larger stall_timeout"
            )
        if self._is_sqlite and isinstance(error, OperationalError) and _LOCKED in str(error.orig):
            return StoreBusy(f"{self.place}: another process has locked the database: {error.orig}")
        return StoreUnavailable(f"{self.place}: {error}")

    # --- statements ---------------------------------------------------------------------------------------------------

    def _prepare(self, connection: Connection) -> None:
        prepare(connection, self.tables, create=self._create_tables)

    def _probe(self, connection: Connection, nonce: str) -> None:
        connection.execute(update(self.tables.meta).values(probe=nonce))
        raise _RolledBack

    def _checked(self, connection: Connection, nonce: str) -> str:
        row = connection.execute(select(self.tables.meta.c.probe, self.tables.meta.c.store_id)).one()
        if row.probe == nonce:
            raise StoreNotTransactional(
                f"{self.place} keeps what was rolled back, so position and effect could differ: do not use an engine "
                "with isolation level AUTOCOMMIT"
            )
        if self._is_sqlite and connection.exec_driver_sql("PRAGMA synchronous").scalar_one() < 2:
            raise StoreNotTransactional(f"{self.place}: PRAGMA synchronous must be FULL or EXTRA")
        return str(row.store_id)

    def _claim(
        self,
        connection: Connection,
        source: Source,
        names: SourceNames,
        decide: Callable[[StoredPosition | None], StoredPosition],
    ) -> StoredPosition:
        effects = self.tables.effects
        row = connection.execute(self._row_of, source_values(source)).one_or_none()
        self._check_store(connection)
        decided = decide(None if row is None else position_of(row))
        values = {**_values_of(decided), **names._asdict()}
        if row is None:
            key = {"effect": source.effect, "topic_id": source.topic_id, "partition_no": source.partition}
            connection.execute(insert(effects).values(**key, **values, kind=ORDERED))
        else:
            connection.execute(update(effects).where(effects.c.id == row.id).values(**values, claimed_at=func.now()))
        return decided

    def _check_store(self, connection: Connection) -> None:
        """What is behind the engine may have become another store, and so may the store, by a new store id;
        hazard store-replaced-while-running."""
        found = connection.execute(select(self.tables.meta.c.store_id)).scalar_one()
        known, self._store_id = self._store_id, str(found)
        if known and known != found:
            raise StoreMismatch(
                f"{self.place} was store {known} when this program began, and is store {found} now: it was replaced, "
                "or got a store id of its own; start the program again"
            )


class _RolledBack(Exception):
    """Ends the probe, so that it is rolled back."""


def _of_messages(source: Source, claimed: StoredPosition, following: StoredPosition) -> str:
    first, last = claimed.position, following.position - 1
    where = "" if source.partition < 0 else f" of partition {source.partition}"
    which = f"message {first}" if first == last else f"messages {first} to {last}"
    return f"the effect {source.effect} of {which}{where}"


class _FromFunctionError(Exception):
    """What the application's function raised."""

    def __init__(self, original: Exception) -> None:
        super().__init__(original)
        self.original = original


def _abandon(connection: Connection) -> None:
    """Roll back. SQLAlchemy takes a transaction whose commit was refused for ended. It would give the connection to the
    next user, who would commit what was written."""
    transaction = connection.get_transaction()
    try:
        if transaction is not None and transaction.is_active:
            transaction.rollback()
        elif not connection.invalidated and (dbapi := connection.connection.dbapi_connection) is not None:
            dbapi.rollback()
    except Exception:  # noqa: BLE001  # of the driver: the connection is of no use, so the server rolls back
        connection.invalidate()


def _check_not_async(result: object) -> None:
    """Nobody would run the coroutine, and the position would pass a message without an effect."""
    if isawaitable(result):
        if callable(close := getattr(result, "close", None)):
            close()
        raise EffectMisuse("the function is async, and the engine is not: use create_async_engine, or a plain function")


def _checked_async(result: object) -> Awaitable[None]:
    """A function that is not `async` awaits nothing, so none of its statements has run."""
    if not isawaitable(result):
        raise EffectMisuse("the engine is asynchronous, and the function is not: use `async def`, or create_engine")
    return cast("Awaitable[None]", result)


@contextmanager
def _functions_errors() -> Iterator[None]:
    try:
        yield
    except Exception as error:
        raise _FromFunctionError(error) from error


def position_of(row: Row[Any]) -> StoredPosition:
    rank = Rank(row.subscription_no, row.redo_epoch, row.generation)
    return StoredPosition(rank, row.claim, row.position, row.last_message, getattr(row, "pending_dead", None))


def _values_of(stored: StoredPosition) -> dict[str, object]:
    return {
        "subscription_no": stored.rank.subscription_number,
        "redo_epoch": stored.rank.redo_epoch,
        "generation": stored.rank.generation,
        "claim": stored.claim,
        "position": stored.position,
        "last_message": stored.last_message,
        "pending_dead": stored.pending_dead,
    }
