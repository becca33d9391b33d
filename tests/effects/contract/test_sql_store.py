"""What a store of effects in a database does besides what every store does: transactions, servers, tables."""

import asyncio
import os
import threading
from contextlib import nullcontext, suppress
from dataclasses import replace
from typing import Any

import pytest
from sqlalchemy import Engine, create_engine, event, text
from sqlalchemy.exc import IntegrityError
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from oncelog.core.effect_errors import EffectMisuse, StoreBusy, StoreNotTransactional
from oncelog.core.errors import InvalidArgument, StoreUnavailable
from oncelog_effects.sql_store import SqlEffects
from oncelog_effects.store import ClaimLost
from oncelog_effects.transaction_guard import ends_transaction
from tests.effects.contract.positions import FIRST, NAMES, SOURCE, at, claimed, stored
from tests.effects.contract.sql_database import Database

pytestmark = pytest.mark.asyncio


@pytest.mark.hazard("stopped-process-holds-the-row")
async def test_server_ends_the_transaction_of_a_process_that_does_nothing(on_postgres: Database) -> None:
    """So another one can claim."""
    effects, other = on_postgres.effects(stall_timeout=1.0), on_postgres.effects()
    await claimed(other)  # this one's pauses end no transaction
    inside, released = asyncio.Event(), asyncio.Event()
    loop = asyncio.get_running_loop()
    applying = asyncio.ensure_future(
        effects.apply(
            SOURCE,
            at(0),
            at(1),
            lambda _: asyncio.run_coroutine_threadsafe(_stand_still(inside, released), loop).result(),
        )
    )
    await inside.wait()
    await other.claim(SOURCE, NAMES, lambda row: replace(row or FIRST, claim="02" * 16))
    released.set()
    with pytest.raises((StoreUnavailable, ClaimLost)):
        await applying
    assert (await stored(other)).position == 0


async def test_function_that_is_slower_than_the_server_waits_is_told_what_helps(on_postgres: Database) -> None:
    """It would run again and again, and each time be cut off."""
    effects = on_postgres.effects(stall_timeout=1.0)
    await claimed(effects)

    def compute(connection: Any) -> None:
        pid = connection.execute(text("SELECT pg_backend_pid()")).scalar()
        gone = text(f"SELECT count(*) FROM pg_stat_activity WHERE pid = {pid}")
        with engine.connect() as other:
            while other.execute(gone).scalar():
                other.rollback()
        connection.execute(text("INSERT INTO invoices VALUES (1)"))

    engine = create_engine(on_postgres.engine.url)
    with pytest.raises(StoreUnavailable, match=r"nothing in the database for 1 s.*a larger stall_timeout"):
        await effects.apply(SOURCE, at(0), at(1), compute)
    engine.dispose()


async def test_functions_that_are_not_async_run_beside_each_other(on_postgres: Database) -> None:
    """As many as `concurrency` says, on a machine of any number of cores."""
    count = 4 * (os.cpu_count() or 1) + 8
    engine = create_engine(on_postgres.engine.url, pool_size=count)
    effects: SqlEffects[Any] = SqlEffects(engine)
    barrier = threading.Barrier(count)
    await effects.store_id()
    sources = [SOURCE._replace(partition=number) for number in range(count)]
    for source in sources:
        await effects.claim(source, NAMES, lambda _: FIRST)
    await asyncio.gather(*(effects.apply(each, at(0), at(1), lambda _: _meet(barrier)) for each in sources))
    engine.dispose()


def _meet(barrier: threading.Barrier) -> None:
    barrier.wait(30)


@pytest.mark.hazard("stopped-process-holds-the-row")
async def test_process_that_stops_while_it_creates_the_tables_blocks_nobody(on_postgres: Database) -> None:
    """Each transaction of ours is limited, not only those of a row."""
    other = create_engine(on_postgres.engine.url)
    inside, released = threading.Event(), threading.Event()

    def stop(_: object) -> None:
        inside.set()
        released.wait(30)

    event.listen(on_postgres.engine, "commit", stop, once=True)
    stopped = asyncio.ensure_future(on_postgres.effects(stall_timeout=1.0).store_id())
    await asyncio.to_thread(inside.wait, 30)
    try:
        async with asyncio.timeout(30):
            found = await SqlEffects(other).store_id()
    finally:
        released.set()
    assert await stopped == found
    other.dispose()


async def _stand_still(inside: asyncio.Event, released: asyncio.Event) -> None:
    inside.set()
    await released.wait()


def end_by(way: str, connection: Any) -> Any:
    """By a method, or as text."""
    return getattr(connection, way[:-2])() if way.endswith("()") else connection.execute(text(way))


@pytest.mark.hazard("half-an-effect")
@pytest.mark.parametrize("caught", [False, True])
@pytest.mark.parametrize("way", ["commit()", "rollback()", "COMMIT", "ROLLBACK", "begin ; commit"])
async def test_function_cannot_end_its_transaction(database: Database, way: str, *, caught: bool) -> None:
    """By SQLAlchemy or as text, also if it catches the error; nothing of it is committed later by the next user of its
    connection."""
    effects = database.effects()
    await claimed(effects)

    async def end_async(connection: AsyncConnection) -> None:
        await connection.execute(text("INSERT INTO invoices VALUES (5)"))
        with suppress(EffectMisuse) if caught else nullcontext():
            await end_by(way, connection)

    def end(connection: Any) -> None:
        connection.execute(text("INSERT INTO invoices VALUES (5)"))
        with suppress(EffectMisuse) if caught else nullcontext():
            end_by(way, connection)

    with pytest.raises(EffectMisuse, match="must not"):
        await effects.apply(SOURCE, at(0), at(1), end_async if isinstance(database.engine, AsyncEngine) else end)
    assert (await database.invoices(), await stored(effects)) == ([], at(0))


async def commit_by_driver(connection: Any, way: str) -> None:
    """The guard does not see it."""
    if isinstance(connection, AsyncConnection):
        driver: Any = (await connection.get_raw_connection()).driver_connection
        await (driver.commit() if way == "commit" else driver.executescript("SELECT 1"))
        await connection.execute(text("INSERT INTO invoices VALUES (6)"))
        return
    _commit_by_driver(connection, way)


def _commit_by_driver(connection: Any, way: str) -> None:
    dbapi = connection.connection
    if way == "commit":
        dbapi.commit()
    else:
        dbapi.dbapi_connection.executescript("SELECT 1")
    connection.execute(text("INSERT INTO invoices VALUES (6)"))


@pytest.mark.hazard("committed-by-the-driver")
@pytest.mark.parametrize("fails", [False, True])
@pytest.mark.parametrize("way", ["commit", "executescript"])
async def test_commit_by_the_connection_of_the_driver_is_told(database: Database, way: str, *, fails: bool) -> None:
    """The position is durable before the rest of the effect. A function that succeeds loses nothing of it; one that
    fails would leave a part behind, and the message would pass as applied."""
    if way == "executescript" and database.is_postgres:
        return
    effects = database.effects()
    await claimed(effects)

    async def write_async(connection: AsyncConnection) -> None:
        await connection.execute(text("INSERT INTO invoices VALUES (5)"))
        await commit_by_driver(connection, way)
        if fails:
            raise ValueError("behind it")

    def write(connection: Any) -> None:
        connection.execute(text("INSERT INTO invoices VALUES (5)"))
        _commit_by_driver(connection, way)
        if fails:
            raise ValueError("behind it")

    told = "a part of it is stored.* do not come again" if fails else "All of it is stored"
    with pytest.raises(EffectMisuse, match=rf"effect invoices of message 0 by the connection of its driver.*{told}"):
        await effects.apply(SOURCE, at(0), at(1), write_async if database.is_async else write)
    assert (await database.invoices(), await stored(effects)) == ([5] if fails else [5, 6], at(1))


@pytest.mark.hazard("committed-by-the-driver")
async def test_commit_by_the_driver_is_told_although_an_error_behind_it_was_caught(on_postgres: Database) -> None:
    """The look at the end fails, too."""
    effects = on_postgres.effects()
    await claimed(effects)

    def write(connection: Any) -> None:
        _commit_by_driver(connection, "commit")
        with suppress(IntegrityError):
            connection.execute(text("INSERT INTO invoices VALUES (6)"))

    with pytest.raises(EffectMisuse, match=r"a part of it is stored"):
        await effects.apply(SOURCE, at(0), at(1), write)
    assert (await on_postgres.invoices(), await stored(effects)) == ([], at(1))


async def test_other_connections_of_the_engine_may_commit_meanwhile(on_postgres: Database) -> None:
    """Only the connection of a function is guarded, while it runs; and once, however many stores the engine has."""
    engine, (effects, *_) = on_postgres.engine, [on_postgres.effects() for _ in range(3)]
    assert isinstance(engine, Engine)
    await claimed(effects)
    seen: list[str] = []

    def apply(connection: Any) -> None:
        with engine.begin() as other:
            other.execute(text("INSERT INTO invoices VALUES (8)"))
        with pytest.raises(EffectMisuse):
            connection.commit()
        seen.append("refused")

    with pytest.raises(EffectMisuse, match="must not commit"):
        await effects.apply(SOURCE, at(0), at(1), apply)
    assert (await on_postgres.invoices(), await stored(effects), seen) == ([8], at(0), ["refused"])


async def test_savepoints_are_allowed(database: Database) -> None:
    effects = database.effects()
    await claimed(effects)

    async def savepoint_async(connection: AsyncConnection) -> None:
        async with connection.begin_nested() as nested:
            await connection.execute(text("INSERT INTO invoices VALUES (6)"))
            await nested.rollback()
        async with connection.begin_nested():
            await connection.execute(text("INSERT INTO invoices VALUES (7)"))

    def savepoint(connection: Any) -> None:
        with connection.begin_nested() as nested:
            connection.execute(text("INSERT INTO invoices VALUES (6)"))
            nested.rollback()
        with connection.begin_nested():
            connection.execute(text("INSERT INTO invoices VALUES (7)"))

    is_async = isinstance(database.engine, AsyncEngine)
    await effects.apply(SOURCE, at(0), at(1), savepoint_async if is_async else savepoint)
    assert await database.invoices() == [7]


@pytest.mark.parametrize(
    ("statement", "ends"),
    [
        ("COMMIT", True), ("  -- why\n commit work", True), ("/* x */ROLLBACK", True), ("end", True), ("BEGIN", True),
        ("select 1; commit", True), ("START TRANSACTION", True), ("PREPARE TRANSACTION 'x'", True),
        ("ROLLBACK TO SAVEPOINT a", False), ("rollback work to a", False), ("SAVEPOINT a", False),
        ("PREPARE x AS SELECT 1", False), ("SELECT 'commit'", False), ("INSERT INTO commits VALUES (1)", False),
        ("SELECT begin FROM spans", False), ("commitment", False),
        ("INSERT INTO x VALUES ('first; end of story')", False),
        ('SELECT 1 AS "a; commit"', False), ("DO $$ BEGIN PERFORM 1; END $$", False), ("SELECT 'it''s; end'", False),
        ("DO $a$ BEGIN x := $$;end$$; END $a$; COMMIT", True), ("SELECT e'\\'; end'", False),
        ("SELECT $1; commit", True),
        ("SELECT '\\'; end", True), ("SELECT 1 -- it's\n; end", True), ("SELECT date'x'; abort", True),
        ("CREATE TRIGGER t AFTER INSERT ON a BEGIN UPDATE b SET c = CASE d WHEN 1 THEN 2 END; END", False),
        ("CREATE TRIGGER t AFTER INSERT ON a BEGIN DELETE FROM b; END; COMMIT", True),
        ("CREATE FUNCTION f() RETURNS int BEGIN ATOMIC SELECT 1; SELECT 2; END; SELECT 3", False),
        ("CREATE TRIGGER t AFTER INSERT ON a EXECUTE FUNCTION begin(); COMMIT", True), ("'' commit", False),
    ],
)  # fmt: skip
async def test_statements_that_end_a_transaction(statement: str, ends: bool) -> None:
    assert ends_transaction(statement) is ends


@pytest.mark.hazard("half-an-effect")
async def test_async_function_of_a_synchronous_engine_is_refused(on_sqlite: Database) -> None:
    """Its coroutine would never run, and the position would pass the message."""
    effects = on_sqlite.effects()
    await claimed(effects)

    async def insert(connection: Any) -> None:
        raise AssertionError("never runs")

    with pytest.raises(EffectMisuse, match="create_async_engine"):
        await effects.apply(SOURCE, at(0), at(1), insert)
    assert await stored(effects) == at(0)


def _not_async(connection: Any) -> None:
    connection.execute(text("INSERT INTO invoices VALUES (1)"))


async def _forgets_to_await(connection: Any) -> None:
    await connection.execute(text("INSERT INTO invoices VALUES (1)"))
    connection.execute(text("INSERT INTO invoices VALUES (2)"))


async def _forgets_and_keeps(connection: Any) -> Any:
    found = connection.scalar(text("INSERT INTO invoices VALUES (2)"))
    await connection.execute(text("INSERT INTO invoices VALUES (1)"))
    return found


@pytest.mark.hazard("half-an-effect")
@pytest.mark.parametrize(
    ("function", "told"),
    [
        (_not_async, "the engine is asynchronous, and the function is not"),
        (_forgets_to_await, r"execute of its connection without await.*await connection.execute\("),
        (_forgets_and_keeps, "scalar of its connection without await"),
    ],
)
async def test_statement_that_nobody_awaits_is_refused(database: Database, function: Any, told: str) -> None:
    """It does not run, and the position would pass the message."""
    if not database.is_async:
        return
    effects = database.effects()
    await claimed(effects)
    with pytest.raises(EffectMisuse, match=told):
        await effects.apply(SOURCE, at(0), at(1), function)
    assert (await database.invoices(), await stored(effects)) == ([], at(0))


async def test_statement_may_be_awaited_later(database: Database) -> None:
    """Behind another one, by a group, or by a task."""
    effects = database.effects()
    await claimed(effects)

    async def write(connection: AsyncConnection) -> None:
        first = connection.execute(text("INSERT INTO invoices VALUES (1)"))
        count = await connection.scalar(text("SELECT count(*) FROM invoices"))
        await asyncio.gather(first)
        third = text(f"INSERT INTO invoices VALUES ({count + 3})")
        await asyncio.create_task(connection.run_sync(lambda sync: sync.execute(third)))

    if database.is_async:
        await effects.apply(SOURCE, at(0), at(1), write)
        assert await database.invoices() == [1, 3]


@pytest.mark.hazard("swallowed-error-committed")
async def test_function_that_swallows_an_error_of_the_database_commits_nothing(database: Database) -> None:
    """PostgreSQL answers such a COMMIT with ROLLBACK, and drivers raise nothing; SQLite undoes the statement alone."""
    effects = database.effects()
    await claimed(effects)
    await database.run("INSERT INTO invoices VALUES (1)")
    twice = "INSERT INTO invoices VALUES (1)"

    async def swallow_async(connection: AsyncConnection) -> None:
        try:
            await connection.execute(text(twice))
        except IntegrityError:
            pass

    def swallow(connection: Any) -> None:
        try:
            connection.execute(text(twice))
        except IntegrityError:
            pass

    applied = effects.apply(
        SOURCE, at(0), at(1), swallow_async if isinstance(database.engine, AsyncEngine) else swallow
    )
    if database.is_postgres:
        with pytest.raises(EffectMisuse, match="has caught an error"):
            await applied
        assert await stored(effects) == at(0)
    else:
        await applied
        assert await stored(effects) == at(1)


def _leaves(connection: Any, doctor: int) -> None:
    """While another one is on duty."""
    if connection.execute(text("SELECT count(*) FROM duty")).scalar() > 1:
        connection.execute(text(f"DELETE FROM duty WHERE doctor = {doctor}"))


async def test_conflict_that_shows_at_the_last_look_is_tried_again(on_postgres: Database) -> None:
    """SERIALIZABLE may refuse any statement of a transaction, also one that the function has not asked for."""
    await on_postgres.run("CREATE TABLE duty (doctor int PRIMARY KEY)")
    await on_postgres.run("INSERT INTO duty VALUES (1), (2)")
    engine = create_engine(on_postgres.engine.url, isolation_level="SERIALIZABLE")
    effects: SqlEffects[Any] = SqlEffects(engine)
    await claimed(effects)

    def leave(connection: Any) -> None:
        with engine.connect() as other:
            _leaves(other, 2)
            _leaves(connection, 1)
            other.commit()

    with pytest.raises(StoreUnavailable, match="could not serialize"):
        await effects.apply(SOURCE, at(0), at(1), leave)
    assert (await stored(effects)).position == 0
    await effects.apply(SOURCE, at(0), at(1), lambda connection: _leaves(connection, 1))
    assert await on_postgres.run("SELECT doctor FROM duty") == [(1,)]
    engine.dispose()


@pytest.mark.hazard("store-does-not-roll-back")
async def test_store_that_does_not_roll_back_is_refused(on_postgres: Database) -> None:
    """SQLite's transactions are begun as text, so they roll back in any mode."""
    with pytest.raises(StoreNotTransactional, match="AUTOCOMMIT"):
        await SqlEffects(on_postgres.engine.execution_options(isolation_level="AUTOCOMMIT")).store_id()


async def test_sqlite_that_does_not_sync_is_refused(on_sqlite: Database) -> None:
    await on_sqlite.close()  # whatever is in the pool
    event.listen(on_sqlite.engine, "connect", lambda connection, _: connection.execute("PRAGMA synchronous = NORMAL"))
    with pytest.raises(StoreNotTransactional, match="synchronous"):
        await on_sqlite.effects().store_id()


async def test_commit_in_postgres_is_durable_when_it_is_answered(on_postgres: Database) -> None:
    """Whatever the connection's default is."""
    shown: list[object] = []
    await on_postgres.run("ALTER DATABASE postgres SET synchronous_commit = off")
    await on_postgres.close()
    effects = on_postgres.effects()
    await claimed(effects)
    show = text("SHOW synchronous_commit")
    await effects.apply(SOURCE, at(0), at(1), lambda connection: shown.append(connection.execute(show).scalar()))
    await on_postgres.run("ALTER DATABASE postgres RESET synchronous_commit")
    assert shown == ["on"]


@pytest.mark.hazard("dead-letter-beside-the-store")
async def test_message_that_was_given_up_is_owed_until_the_log_has_it(database: Database) -> None:
    """What was read before cannot be written after: nothing is applied while a dead letter is owed, and none is
    forgotten by a consumer that does not know of it."""
    effects = database.effects()
    await claimed(effects)
    owing = replace(at(1), pending_dead=0)
    await effects.apply(SOURCE, at(0), owing, None)
    assert await stored(effects) == owing
    for expected in (at(0), at(1), replace(at(1), pending_dead=1)):
        with pytest.raises(ClaimLost):
            await effects.apply(SOURCE, expected, at(2), database.function("INSERT INTO invoices VALUES (7)"))
    with pytest.raises(ClaimLost):
        await effects.apply(SOURCE, replace(at(1), claim="00" * 16), at(1), None)
    await effects.apply(SOURCE, owing, at(1), None)
    assert (await database.invoices(), await stored(effects)) == ([], at(1))


async def test_locked_database_is_busy(on_sqlite: Database) -> None:
    await claimed(on_sqlite.effects())
    holder, quick = (create_engine(on_sqlite.engine.url, connect_args={"timeout": 0}) for _ in range(2))
    with holder.connect() as connection:
        connection.exec_driver_sql("BEGIN IMMEDIATE")
        with pytest.raises(StoreBusy, match="locked"):
            await SqlEffects(quick, create_tables=False).claim(SOURCE, NAMES, lambda _: FIRST)
    holder.dispose()
    quick.dispose()


@pytest.mark.parametrize("settings", [{"prefix": "x; drop"}, {"stall_timeout": 0}, {"stall_timeout": 9e9}], ids=str)
async def test_bad_settings_are_refused(settings: dict[str, Any]) -> None:
    with pytest.raises(InvalidArgument) as error:
        SqlEffects(create_engine("sqlite://"), **settings)
    assert [error.value.details["field"]] == list(settings)
