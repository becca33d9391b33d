"""Rows with values of any type that the database takes: what cannot be sent is refused alone, with the reason."""

import pytest
from sqlalchemy.exc import IntegrityError

from oncelog.core.outbox_errors import OutboxDiverged, OutboxMisuse
from oncelog_effects.core.outbox.resume import Happened
from tests.effects.contract.outbox import Log, Outbox
from tests.effects.contract.sql_database import Database

pytestmark = pytest.mark.asyncio

#: {columns and values: what the reason says}; the table has no CHECK, as those of before.
OF_SQLITE = {
    "topic, value) VALUES ('orders', 1999": "value is 1999, of type int",
    "topic, value) VALUES ('orders', 1.5": "value is 1.5, of type float",
    "topic, value) VALUES ('orders', -5": "value is -5, of type int",
    "topic, value, message_key) VALUES ('orders', 'x', 17": "message_key is 17, of type int",
    "topic, value, message_key) VALUES ('orders', 'x', 1e300": "message_key is 1e+300, of type float",
    "topic, value, event_time_ms) VALUES ('orders', 'x', 'tomorrow'": "event_time_ms is 'tomorrow', of type str",
    "topic, value, event_time_ms) VALUES ('orders', 'x', 1.5": "event_time_ms is 1.5, of type float",
    "topic, value, event_time_ms) VALUES ('orders', 'x', x'01'": "event_time_ms is b'\\x01', of type bytes",
    "topic, value, event_time_ms) VALUES ('orders', 'x', 1e15": "in the years 1 to 9999",
    "topic, value, properties) VALUES ('orders', 'x', CAST(x'7b2261223a22ff227d' AS TEXT)": "valid Unicode",
    "topic, value, properties) VALUES ('orders', 'x', x'ff00ff'": "no JSON",
    "topic, value, properties) VALUES ('orders', 'x', 5": "no JSON object",
    "topic, value, event_id) VALUES ('orders', 'x', x'0102'": "event_id is b'\\x01\\x02', of type bytes",
    "topic, value, event_id) VALUES ('orders', 'x', CAST(x'ff' AS TEXT)": "valid Unicode",
    "topic, value) VALUES (x'6f', 'x'": "topic is b'o', of type bytes",
    "topic, value) VALUES (CAST(x'6fff' AS TEXT), 'x'": "character outside",
    "topic, value) VALUES ('or' || char(0) || 'ders', 'x'": "character outside",
}
OF_POSTGRES = {
    "topic, value, properties) VALUES ('orders', 'x', '[1]'": "no JSON object",
    "topic, value, properties) VALUES ('orders', 'x', 'null'": "no JSON object",
    "topic, value, properties) VALUES ('orders', 'x', '{\"a\": null}'": "must be a string",
    "topic, value, event_time_ms) VALUES ('orders', 'x', 9223372036854775807": "in the years 1 to 9999",
    "topic, value) VALUES (E'o\\u0001', 'x'": "character outside",
}


@pytest.fixture(params=["on_sqlite", "on_postgres"])
def shop(request: pytest.FixtureRequest) -> Database:
    found: Database = request.getfixturevalue(request.param)
    return found


async def without_checks(shop: Database) -> None:
    """The table of rows as older versions have created it."""
    ((ddl,),) = await shop.run("SELECT sql FROM sqlite_master WHERE name = 'oncelog_outbox'")
    kept = [line for line in ddl.splitlines() if "typeof" not in line]
    assert len(kept) < len(ddl.splitlines())
    await shop.run("DROP TABLE oncelog_outbox")
    await shop.run("\n".join(kept).replace(":", "\\:"))


async def tables(outbox: Outbox) -> None:
    database = outbox.database()
    await database.connect()
    await database.close()


@pytest.mark.hazard("row-of-another-type")
async def test_row_of_a_wrong_type_is_refused_and_others_are_sent(shop: Database) -> None:
    outbox = Outbox(shop, Log(), 0)
    await tables(outbox)
    if not shop.is_postgres:
        await without_checks(shop)
    bad = OF_POSTGRES if shop.is_postgres else OF_SQLITE
    wanted = []
    for n, columns in enumerate(bad):
        await shop.run(f"INSERT INTO oncelog_outbox ({columns})")
        await outbox.insert(f"good {n}")
        wanted.append(b"good %d" % n)
    await outbox.send_those_that_can()
    assert outbox.log.values == wanted
    reasons = [str(row[0]) for row in await shop.run("SELECT refused FROM oncelog_outbox ORDER BY id")]
    for reason, says in zip(reasons, bad.values(), strict=True):
        assert says in reason


async def test_text_counts_as_its_bytes(on_sqlite: Database) -> None:
    """Also if it is no UTF-8: a value is bytes."""
    outbox = Outbox(on_sqlite, Log(), 0)
    await tables(outbox)
    await on_sqlite.run("INSERT INTO oncelog_outbox (topic, value) VALUES ('orders', CAST(x'ff00fe' AS TEXT))")
    await on_sqlite.run("INSERT INTO oncelog_outbox (topic, value) VALUES ('orders', 'ä')")
    await outbox.send_those_that_can()
    assert outbox.log.values == [b"\xff\0\xfe", "ä".encode()]


@pytest.mark.parametrize("columns", [each for each, why in OF_SQLITE.items() if "of type" in why])
async def test_new_tables_of_sqlite_refuse_other_types(on_sqlite: Database, columns: str) -> None:
    await tables(Outbox(on_sqlite, Log(), 0))
    with pytest.raises(IntegrityError, match="CHECK"):
        await on_sqlite.run(f"INSERT INTO oncelog_outbox ({columns})")


async def test_numbered_row_of_a_wrong_type_names_the_way_out(on_sqlite: Database) -> None:
    """An older relay has given it a number."""
    outbox = Outbox(on_sqlite, Log(), 0)
    await tables(outbox)
    await without_checks(on_sqlite)
    await outbox.send_all("a")
    await on_sqlite.run("INSERT INTO oncelog_outbox (topic, value, stream, number) VALUES ('orders', 1999, 1, 1)")
    await on_sqlite.run("UPDATE oncelog_outbox_streams SET next_number = 2")
    error = await outbox.refused()
    assert isinstance(error, OutboxDiverged)
    assert "value is 1999" in str(error)
    assert "--after-restore" in str(error)
    await outbox.resume(Happened.RESTORED)
    await outbox.insert("b")
    await outbox.send_those_that_can()
    assert outbox.log.values == [b"a", b"b"]


async def test_time_of_no_clock_stops_nothing(on_postgres: Database) -> None:
    """The age of the oldest row is unknown then."""
    outbox = Outbox(on_postgres, Log(), 0)
    await tables(outbox)
    for when in ("infinity", "-infinity"):
        await on_postgres.run(f"INSERT INTO oncelog_outbox (topic, value, created_at) VALUES ('orders', 'x', '{when}')")
    database = outbox.database()
    await database.connect()
    try:
        assert (await database.backlog()).oldest_s == 0
    finally:
        await database.close()
    await outbox.send_those_that_can()
    assert outbox.log.values == [b"x", b"x"]


@pytest.mark.parametrize(
    ("column", "kind"), [("value", "integer"), ("message_key", "uuid"), ("event_time_ms", "numeric"), ("topic", "oid")]
)
async def test_column_of_another_type_is_told_at_the_start(on_postgres: Database, column: str, kind: str) -> None:
    """An administrator has created the tables by hand."""
    outbox = Outbox(on_postgres, Log(), 0)
    await tables(outbox)
    await on_postgres.run(f"ALTER TABLE oncelog_outbox DROP COLUMN {column}, ADD COLUMN {column} {kind}")
    with pytest.raises(OutboxMisuse, match=f"column {column} of oncelog_outbox has type {kind}"):
        await tables(outbox)


async def test_columns_of_text_are_sent_as_bytes(on_postgres: Database) -> None:
    outbox = Outbox(on_postgres, Log(), 0)
    await tables(outbox)
    await on_postgres.run(
        "ALTER TABLE oncelog_outbox ALTER COLUMN value TYPE text USING '', ALTER COLUMN message_key TYPE text "
        "USING '', ALTER COLUMN properties TYPE json"
    )
    await on_postgres.run("INSERT INTO oncelog_outbox (topic, value, message_key) VALUES ('orders', 'ä', 'ö')")
    await outbox.send_those_that_can()
    assert outbox.log.values == ["ä".encode()]
