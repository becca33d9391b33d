"""Errors of the database for which no message is to blame: they are no attempts."""

import sqlite3
from contextlib import suppress
from typing import Any

import pytest
from sqlalchemy import text
from sqlalchemy.exc import DBAPIError
from sqlalchemy.ext.asyncio import AsyncConnection, create_async_engine

from oncelog.core.effect_errors import EffectMisuse, StoreNotTransactional
from oncelog.core.errors import StoreUnavailable
from oncelog_effects import SqlEffects
from oncelog_effects.sql_session import try_again_error
from tests.effects.contract.positions import SOURCE, at, claimed, stored
from tests.effects.contract.sql_database import Database

pytestmark = pytest.mark.asyncio

NO_ATTEMPTS = [
    "53100",
    "53200",
    "53300",
    "53400",
    "58030",
    "55P03",
    "57014",
    "40001",
    "40P01",
    "25006",
    "57P03",
    "08006",
]
ATTEMPTS = ["23505", "22012", "42P01", "P0001", "XX000"]
FAIL = """CREATE FUNCTION fail(code text) RETURNS void LANGUAGE plpgsql AS $$
BEGIN RAISE EXCEPTION 'as told' USING ERRCODE = code; END $$"""


class WrappedError(Exception):
    """What an application makes of an error."""


#: What a function raises goes on as it is.
FunctionsOwn = (DBAPIError, WrappedError)


def failing(code: str, *, wrapped: bool) -> Any:
    def fail(connection: Any) -> None:
        try:
            connection.execute(text(f"SELECT fail('{code}')"))
        except DBAPIError as error:
            if not wrapped:
                raise
            raise WrappedError from error

    return fail


@pytest.mark.hazard("message-blamed-for-the-database")
@pytest.mark.parametrize("wrapped", [False, True])
async def test_server_that_cannot_now_is_no_attempt(on_postgres: Database, *, wrapped: bool) -> None:
    """Whether the function raises the error as it is, or makes another one of it."""
    effects = on_postgres.effects()
    await claimed(effects)
    with on_postgres.engine.begin() as connection:  # type: ignore[union-attr]
        connection.exec_driver_sql(FAIL)
    for code in (*NO_ATTEMPTS, *ATTEMPTS):
        with pytest.raises(StoreUnavailable if code in NO_ATTEMPTS else FunctionsOwn):
            await effects.apply(SOURCE, at(0), at(1), failing(code, wrapped=wrapped))
    assert await stored(effects) == at(0)


def swallowing(code: str) -> Any:
    def swallow(connection: Any) -> None:
        for statement in (f"SELECT fail('{code}')", "SELECT 1"):
            with suppress(DBAPIError):
                connection.execute(text(statement))

    return swallow


@pytest.mark.hazard("message-blamed-for-the-database", "swallowed-error-committed")
async def test_conflict_that_the_function_catches_is_tried_again(on_postgres: Database) -> None:
    """It may have been told to catch errors of its own. The last look at its transaction then fails, and said that the
    function has caught an error, which ended the program. Of an error that a repetition does not help it still does."""
    effects = on_postgres.effects()
    await claimed(effects)
    with on_postgres.engine.begin() as connection:  # type: ignore[union-attr]
        connection.exec_driver_sql(FAIL)
    for code in ("40001", "40P01"):
        with pytest.raises(StoreUnavailable, match="as told"):
            await effects.apply(SOURCE, at(0), at(1), swallowing(code))
    with pytest.raises(EffectMisuse, match="has caught an error"):
        await effects.apply(SOURCE, at(0), at(1), swallowing("23505"))
    assert await stored(effects) == at(0)


@pytest.mark.hazard("message-blamed-for-the-database")
async def test_conflict_that_an_async_function_catches_is_tried_again(on_postgres: Database) -> None:
    """With an asynchronous engine."""
    engine = create_async_engine(on_postgres.engine.url)
    effects: SqlEffects[Any] = SqlEffects(engine)
    await claimed(effects)
    with on_postgres.engine.begin() as connection:  # type: ignore[union-attr]
        connection.exec_driver_sql(FAIL)

    async def swallow(connection: AsyncConnection) -> None:
        with suppress(DBAPIError):
            await connection.execute(text("SELECT fail('40001')"))

    with pytest.raises(StoreUnavailable, match="as told"):
        await effects.apply(SOURCE, at(0), at(1), swallow)
    await engine.dispose()


async def test_pooler_of_statements_is_refused(on_postgres: Database) -> None:
    """What PgBouncer says; no repetition helps."""
    effects = on_postgres.effects()
    await claimed(effects)

    def write(connection: Any) -> None:
        said = "transaction blocks not allowed in statement pooling mode"
        connection.exec_driver_sql(f"DO $$ BEGIN RAISE EXCEPTION '{said}' USING ERRCODE = '08P01'; END $$")

    with pytest.raises(StoreNotTransactional, match="use pool_mode=transaction or session"):
        await effects.apply(SOURCE, at(0), at(1), write)


@pytest.mark.hazard("message-blamed-for-the-database")
@pytest.mark.parametrize(
    ("pragma", "says"), [("max_page_count = 1", "full"), ("query_only = 1", "readonly")], ids=["full", "readonly"]
)
async def test_sqlite_that_cannot_now_is_no_attempt(on_sqlite: Database, pragma: str, says: str) -> None:
    effects = on_sqlite.effects()
    await claimed(effects)

    def write(connection: Any) -> None:
        connection.exec_driver_sql(f"PRAGMA {pragma}")
        try:
            connection.exec_driver_sql(
                "INSERT INTO invoices WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 "
                "FROM n WHERE i < 100000) SELECT i FROM n"
            )
        finally:
            connection.exec_driver_sql("PRAGMA query_only = 0")
            connection.exec_driver_sql("PRAGMA max_page_count = 1000000")

    with pytest.raises(StoreUnavailable, match=says):
        await effects.apply(SOURCE, at(0), at(1), write)
    assert (await on_sqlite.invoices(), await stored(effects)) == ([], at(0))


@pytest.mark.parametrize(
    ("code", "again"),
    [(sqlite3.SQLITE_IOERR_WRITE, True), (sqlite3.SQLITE_FULL, True), (sqlite3.SQLITE_CONSTRAINT_UNIQUE, False)],
)
async def test_errors_of_sqlite_are_known_by_their_codes(code: int, *, again: bool) -> None:
    error = sqlite3.OperationalError("as told")
    error.sqlite_errorcode = code
    assert (try_again_error(error) is error) is again
    assert try_again_error(ValueError()) is None
