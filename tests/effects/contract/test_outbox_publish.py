"""`outbox.publish`: a row in the transaction of the application, or an error."""

import uuid
from datetime import UTC, datetime
from typing import Any

import pytest
from sqlalchemy import create_engine
from sqlalchemy.exc import IntegrityError
from sqlalchemy.ext.asyncio import AsyncEngine, AsyncSession, create_async_engine
from sqlalchemy.orm import Session

from oncelog.core.errors import InvalidArgument, InvalidName, MessageTooLarge
from oncelog.core.outbox_errors import OutboxMisuse
from oncelog_effects import outbox
from tests.effects.contract.sql_database import Database

pytestmark = pytest.mark.asyncio
COLUMNS = "topic, message_key, value, event_time_ms, event_id, properties"


async def prepared(database: Database) -> None:
    tables = outbox.OutboxTables().metadata
    if isinstance(database.engine, AsyncEngine):
        async with database.engine.begin() as connection:
            await connection.run_sync(tables.create_all)
    else:
        tables.create_all(database.engine)


async def rows(database: Database) -> list[tuple[Any, ...]]:
    return await database.run(f"SELECT {COLUMNS} FROM oncelog_outbox ORDER BY id")


async def test_row_is_in_the_transaction(database: Database) -> None:
    """Of a connection and of a session; a rollback leaves nothing."""
    await prepared(database)
    time_ms = 1_935_360_000_000
    given: dict[str, Any] = {"key": "k", "properties": {"a": "é"}, "event_time_ms": time_ms}
    if isinstance(database.engine, AsyncEngine):
        async with database.engine.begin() as connection:
            first = await outbox.publish(connection, "orders", b"v", **given)
        async with AsyncSession(database.engine) as session, session.begin():
            second = await outbox.publish(session, "orders", b"w")
        async with database.engine.connect() as connection, connection.begin() as transaction:
            await outbox.publish(connection, "orders", b"x")
            await transaction.rollback()
    else:
        with database.engine.begin() as sync:
            first = outbox.publish(sync, "orders", b"v", **given)
        with Session(database.engine) as sync_session, sync_session.begin():
            second = outbox.publish(sync_session, "orders", b"w")
        with database.engine.connect() as sync, sync.begin() as sync_transaction:
            outbox.publish(sync, "orders", b"x")
            sync_transaction.rollback()
    found = await rows(database)
    assert [(row[0], row[1] and bytes(row[1]), bytes(row[2]), row[3]) for row in found] == [
        ("public/default/orders", b"k", b"v", time_ms),
        ("public/default/orders", None, b"w", None),
    ]
    assert [uuid.UUID(str(row[4])) for row in found] == [first, second]
    assert "é" in str(found[0][5]) or "\\u00e9" in str(found[0][5])


async def test_publish_without_a_transaction_is_refused(database: Database) -> None:
    await prepared(database)
    if isinstance(database.engine, AsyncEngine):
        async with database.engine.connect() as connection:
            with pytest.raises(OutboxMisuse, match="open transaction"):
                await outbox.publish(connection, "orders", b"v")
    else:
        with database.engine.connect() as sync, pytest.raises(OutboxMisuse, match="open transaction"):
            outbox.publish(sync, "orders", b"v")
        with Session(database.engine) as session, pytest.raises(OutboxMisuse, match=r"session.begin\(\)"):
            outbox.publish(session, "orders", b"v")
    assert await rows(database) == []


async def test_publish_with_autocommit_is_refused(database: Database) -> None:
    """It would be a message without the application's change."""
    await prepared(database)
    url = database.engine.url
    if isinstance(database.engine, AsyncEngine):
        engine = create_async_engine(url, isolation_level="AUTOCOMMIT")
        async with engine.begin() as connection:
            with pytest.raises(OutboxMisuse, match="AUTOCOMMIT"):
                await outbox.publish(connection, "orders", b"v")
        await engine.dispose()
    else:
        sync_engine = create_engine(url, isolation_level="AUTOCOMMIT")
        with sync_engine.begin() as sync, pytest.raises(OutboxMisuse, match="AUTOCOMMIT"):
            outbox.publish(sync, "orders", b"v")
        sync_engine.dispose()


async def test_second_row_with_an_event_id_is_a_violation(on_postgres: Database, on_sqlite: Database) -> None:
    """A double submit fails as a whole."""
    for database in (on_postgres, on_sqlite):
        await prepared(database)
        event_id = uuid.uuid5(uuid.NAMESPACE_URL, "order 17")
        for attempt in range(2):
            try:
                with database.engine.begin() as connection:  # type: ignore[union-attr]
                    assert outbox.publish(connection, "orders", b"v", event_id=event_id) == event_id
            except IntegrityError:
                assert attempt == 1
        assert len(await rows(database)) == 1


@pytest.mark.parametrize(
    ("arguments", "error", "field"),
    [
        ({"topic": "a b"}, InvalidName, "topic"),
        ({"value": "text"}, InvalidArgument, "value"),
        ({"value": bytes(5 * 1024 * 1024 + 1)}, MessageTooLarge, "value"),
        ({"key": 1}, InvalidArgument, "key"),
        ({"properties": {"a": 1}}, InvalidArgument, "properties"),
        ({"properties": [1]}, InvalidArgument, "properties"),
        ({"properties": {"oncelog.event_id": "x"}}, InvalidArgument, "properties"),
        ({"key": b"k" * 50_000}, InvalidArgument, "properties"),
        ({"event_id": "17"}, InvalidArgument, "event_id"),
        ({"event_time_ms": datetime(2031, 5, 1, tzinfo=UTC)}, InvalidArgument, "event_time_ms"),
        ({"event_time_ms": 1.5}, InvalidArgument, "event_time_ms"),
        ({"event_time_ms": 10**18}, InvalidArgument, "event_time_ms"),
        ({"connection": "postgresql://"}, InvalidArgument, "connection"),
    ],
    ids=lambda value: str(value)[:40],
)
async def test_wrong_arguments_are_refused_at_the_edge(
    on_sqlite: Database, arguments: dict[str, Any], error: type[InvalidArgument], field: str
) -> None:
    await prepared(on_sqlite)
    with on_sqlite.engine.begin() as connection:  # type: ignore[union-attr]
        given: dict[str, Any] = {"connection": connection, "topic": "orders", "value": b"v"} | arguments
        with pytest.raises(error) as refused:
            outbox.publish(**given)
    assert refused.value.details["field"] == field
    assert await rows(on_sqlite) == []


async def test_columns_that_postgres_fills_are_read_by_the_relay(on_postgres: Database) -> None:
    """Plain SQL names topic and value only."""
    await prepared(on_postgres)
    await on_postgres.run("INSERT INTO oncelog_outbox (topic, value) VALUES ('orders', '\\x00ff')")
    [row] = await rows(on_postgres)
    assert bytes(row[2]) == b"\x00\xff"
    assert isinstance(row[4], uuid.UUID)
