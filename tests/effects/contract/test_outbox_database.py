"""The tables of an outbox in PostgreSQL and SQLite: what the relay's core relies on."""

import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from sqlalchemy import Engine

from oncelog.core.effect_errors import StoreSchemaTooNew
from oncelog.core.errors import InvalidArgument, StoreUnavailable
from oncelog.core.outbox_errors import OutboxDiverged, OutboxMisuse
from oncelog_effects.core.outbox.events import Assigned, Refused
from oncelog_effects.core.outbox.relay import LEASE_MS
from oncelog_effects.core.outbox.resume import StoredRow
from oncelog_effects.core.outbox.rows import EXTRAS_BYTES_MAX, NumberedRow, check_row
from oncelog_effects.core.outbox.streams import Stream
from oncelog_effects.outbox.database import ClaimLost, OutboxDatabase
from oncelog_effects.outbox.tables import OutboxTables, ddl_of
from tests.effects.contract.sql_database import Database

pytestmark = pytest.mark.asyncio

MINE, OTHER = "c1" * 16, "c2" * 16
TOPIC = "public/default/orders"


@pytest.fixture(params=["sqlite", "postgresql"])
def shop(request: pytest.FixtureRequest) -> Database:
    found: Database = request.getfixturevalue("on_sqlite" if request.param == "sqlite" else "on_postgres")
    return found


@asynccontextmanager
async def opened(shop: Database, *, keep_ms: int = 0) -> AsyncIterator[OutboxDatabase]:
    url = shop.engine.url.render_as_string(hide_password=False)
    outbox = OutboxDatabase(url, OutboxTables(), keep_ms=keep_ms)
    try:
        await outbox.connect()
        yield outbox
    finally:
        await outbox.close()


async def insert(shop: Database, *values: str, topic: str = "orders") -> None:
    """As any language does."""
    for value in values:
        word = f"'{value}'" if not shop.is_postgres else f"convert_to('{value}', 'UTF8')"
        await shop.run(f"INSERT INTO oncelog_outbox (topic, value) VALUES ('{topic}', {word})")


async def numbered(outbox: OutboxDatabase) -> Stream:
    """All rows that wait, in a new stream."""
    assert await outbox.claim(MINE) is not None
    stream = await outbox.create_stream(MINE, TOPIC, "0f" * 16)
    rows = await outbox.look(100, ())
    assert await outbox.number(MINE, [Assigned(row.id, stream.number, n) for n, row in enumerate(rows)], [])
    return stream


async def test_claim_is_of_one_relay_until_its_lease_is_over(shop: Database) -> None:
    """By the clock of the database; a time far in the future was written before the clock was set back."""
    async with opened(shop) as one, opened(shop) as other:
        assert one.outbox_id == other.outbox_id
        assert await one.claim(MINE) == ((), {})
        assert await one.claim(MINE) == ((), {})
        assert await other.claim(OTHER) is None
        assert await other.has_relay()
        await one.release(OTHER)
        assert await other.claim(OTHER) is None
        await one.release(MINE)
        assert not await other.has_relay()
        assert await other.claim(OTHER) == ((), {})
        for offset in (-LEASE_MS - 1_000, 10 * LEASE_MS):
            assert await one.claim(MINE) is None
            await shop.run(f"UPDATE oncelog_outbox_relay SET claim = '{OTHER}', alive_at_ms = alive_at_ms + {offset}")
            assert await one.claim(MINE) == ((), {})
            await one.release(MINE)
            assert await other.claim(OTHER) is not None


@pytest.mark.hazard("restored-to-before-the-first-relay")
@pytest.mark.parametrize("by", ["metadata", "ddl"])
async def test_outbox_has_its_id_before_its_first_relay(shop: Database, by: str) -> None:
    """A backup of then, with rows, is of the same outbox: the log knows its producers."""
    tables = OutboxTables()
    if by == "ddl":
        for statement in ddl_of(tables, shop.engine.dialect.name).split(";"):
            await shop.run(statement)
    else:
        assert isinstance(shop.engine, Engine)
        tables.metadata.create_all(shop.engine)
    await insert(shop, "a")
    ((before,),) = await shop.run("SELECT outbox_id FROM oncelog_outbox_relay")
    assert re.fullmatch("[0-9a-f]{32}", before)
    async with opened(shop) as outbox:
        assert outbox.outbox_id == before


async def test_relay_without_the_claim_writes_nothing(shop: Database) -> None:
    """A relay that was stopped for longer than its lease, and wakes up."""
    async with opened(shop) as outbox:
        await insert(shop, "a", "b")
        stream = await numbered(outbox)
        for attempt in (
            outbox.renew(OTHER),
            outbox.create_stream(OTHER, "public/default/other", "0f" * 16),
            outbox.number(OTHER, [Assigned(1, stream.number, 2)], []),
            outbox.number(OTHER, [], [Refused(1, "why")]),
            outbox.confirm(OTHER, stream.number, 1, "1:2:3"),
            outbox.prune(OTHER, 10),
            outbox.forget_numbers(OTHER, stream.number, -1),
            outbox.delete_stream(OTHER, stream.number),
        ):
            with pytest.raises(ClaimLost):
                await attempt
        assert await outbox.streams() == (stream._replace(next_number=2),)
        assert len(await outbox.load(stream.number, 0, 1)) == 2


async def test_rows_are_numbered_loaded_and_deleted(shop: Database) -> None:
    async with opened(shop) as outbox:
        await insert(shop, "first", "second", "third")
        assert (await outbox.backlog()).waiting == 3
        stream = await numbered(outbox)
        backlog = await outbox.renew(MINE)
        assert (backlog.waiting, backlog.refused) == (0, 0)
        loaded = await outbox.load(stream.number, 0, 2)
        assert [(row.number, row.value, row.key, row.properties) for row in loaded] == [
            (0, b"first", None, None), (1, b"second", None, None), (2, b"third", None, None),
        ]  # fmt: skip
        found = await outbox.claim(MINE)
        assert found is not None
        assert found[1] == {
            stream.number: tuple(NumberedRow(row.number, row.event_id, len(row.value)) for row in loaded)
        }
        await outbox.confirm(MINE, stream.number, 1, "1:2:3")
        assert await shop.run("SELECT number FROM oncelog_outbox") == [(2,)]
        (stored,) = await outbox.streams()
        assert stored == Stream(stream.number, TOPIC, "0f" * 16, 3, 1, "1:2:3")
        with pytest.raises(StoreUnavailable, match="changed by hand"):
            await outbox.load(stream.number, 1, 2)


async def test_row_that_was_deleted_meanwhile_gets_no_number(shop: Database) -> None:
    """Nor does any other row of the same transaction: numbers have no gaps."""
    async with opened(shop) as outbox:
        await insert(shop, "a", "b", "c")
        assert await outbox.claim(MINE) is not None
        stream = await outbox.create_stream(MINE, TOPIC, "0f" * 16)
        rows = await outbox.look(100, ())
        await shop.run(f"DELETE FROM oncelog_outbox WHERE id = {rows[1].id}")
        assert not await outbox.number(MINE, [Assigned(row.id, stream.number, n) for n, row in enumerate(rows)], [])
        assert len(await outbox.look(100, ())) == 2
        assert (await outbox.streams())[0].next_number == 0


async def test_look_sees_what_is_needed_to_refuse_a_row(shop: Database) -> None:
    """Without reading what is too large."""
    async with opened(shop) as outbox:
        await insert(shop, "a", topic="bad topic")
        await insert(shop, "b")
        await insert(shop, "c", topic="left-out")
        large = "k" * (EXTRAS_BYTES_MAX + 100)
        key = f"convert_to('{large}', 'UTF8')" if shop.is_postgres else f"'{large}'"
        await shop.run(f"UPDATE oncelog_outbox SET message_key = {key} WHERE topic = 'orders'")
        await insert(shop, "d")
        which = "topic = 'orders' AND message_key IS NULL"
        await shop.run(f'UPDATE oncelog_outbox SET properties = \'{{"a": "{large}"}}\' WHERE {which}')
        rows = await outbox.look(100, ["left-out"])
        assert [row.topic for row in rows] == ["bad topic", "orders", "orders"]
        assert [row.size_bytes for row in rows] == [1, 1, 1]
        assert len(rows[1].key or b"") == EXTRAS_BYTES_MAX + 1
        assert rows[2].properties == ""
        reasons = [str(check_row(row)) for row in rows]
        assert await outbox.claim(MINE) is not None
        assert await outbox.number(MINE, [], [Refused(row.id, why) for row, why in zip(rows, reasons, strict=True)])
        backlog = await outbox.renew(MINE)
        assert (backlog.waiting, backlog.refused) == (1, 3)
        assert [reason for _, reason in await outbox.refused_rows(10)] == reasons[::-1]


async def test_look_leaves_out_any_number_of_topics(shop: Database) -> None:
    """More than a statement takes parameters; their names have any characters that a row can have."""
    async with opened(shop) as outbox:
        for topic in ('quote"d', "back\\slash", "ümlaut", "topic 69999"):
            await insert(shop, "a", topic=topic)
        await insert(shop, "b")
        names = ['quote"d', "back\\slash", "ümlaut", *(f"topic {n}" for n in range(70_000))]
        assert [row.topic for row in await outbox.look(10, names)] == ["orders"]
        assert len(await outbox.look(10, names[:3])) == 2


@pytest.mark.hazard("row-committed-behind-a-higher-number")
async def test_row_of_an_open_transaction_is_seen_after_its_commit(on_postgres: Database) -> None:
    """Its id is lower than that of a row that was sent before."""
    async with opened(on_postgres) as outbox:
        late = on_postgres.engine.connect()
        late.exec_driver_sql("INSERT INTO oncelog_outbox (topic, value) VALUES ('orders', 'late')")
        await insert(on_postgres, "early")
        assert [row.id for row in await outbox.look(10, ())] == [2]
        await numbered(outbox)
        late.commit()
        late.close()
        assert [row.id for row in await outbox.look(10, ())] == [1]


async def test_kept_rows_stay_for_a_while(shop: Database) -> None:
    async with opened(shop, keep_ms=3_600_000) as outbox:
        await insert(shop, "a", "b")
        stream = await numbered(outbox)
        await outbox.confirm(MINE, stream.number, 0, "1:2:3")
        assert await outbox.prune(MINE, 10) == 0
        found = await outbox.claim(MINE)
        assert found is not None
        assert [row.number for row in found[1][stream.number]] == [1]
        await shop.run("UPDATE oncelog_outbox SET stored_at_ms = stored_at_ms - 3700000 WHERE number = 0")
        assert await outbox.prune(MINE, 10) == 1
        assert await shop.run("SELECT number FROM oncelog_outbox") == [(1,)]


async def test_resume_forgets_numbers_and_settles_rows_by_event(shop: Database) -> None:
    for keep_ms in (0, 60_000):
        async with opened(shop, keep_ms=keep_ms) as outbox:
            await shop.run("DELETE FROM oncelog_outbox")
            await shop.run("DELETE FROM oncelog_outbox_streams")
            await insert(shop, "a", "b", "c")
            stream = await numbered(outbox)
            events = [row.event_id for row in await outbox.load(stream.number, 0, 2)]
            assert await outbox.numbers_above(stream.number, 0) == (1, 2)
            assert await outbox.forget_numbers(MINE, stream.number, -1) == 3
            rows = await outbox.rows_of(MINE, [events[1], "no uuid", ""])
            assert list(rows) == [events[1]]
            await outbox.settle(MINE, stream.number, [StoredRow(rows[events[1]], 0)])
            await outbox.write_stream(MINE, stream._replace(next_number=1, confirmed=0, confirmed_message="1:2:3"))
            assert [row.event_id for row in await outbox.look(10, ())] == [events[0], events[2]]
            kept = await shop.run("SELECT number FROM oncelog_outbox WHERE number IS NOT NULL")
            assert kept == ([(0,)] if keep_ms else [])
            await outbox.release(MINE)


async def test_rows_of_streams_that_are_gone_are_not_forgotten(shop: Database) -> None:
    """The table of streams was dropped, or restored without the rows."""
    async with opened(shop) as outbox:
        await insert(shop, "a")
        await numbered(outbox)
        await shop.run("DELETE FROM oncelog_outbox_streams")
        with pytest.raises(OutboxDiverged, match="restore that table"):
            await outbox.claim(MINE)


async def test_broken_connection_is_unavailable_and_can_be_replaced(on_postgres: Database) -> None:
    async with opened(on_postgres) as outbox:
        others = "pid <> pg_backend_pid() AND datname = 'postgres'"
        kill = f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE {others}"
        assert await outbox.claim(MINE) is not None
        await on_postgres.run(kill)
        with pytest.raises(StoreUnavailable):
            await outbox.renew(MINE)
        await outbox.disconnect()
        with pytest.raises(StoreUnavailable, match="closed"):
            await outbox.renew(MINE)
        await outbox.connect()
        assert await outbox.claim(MINE) is not None


async def test_relay_creates_nothing_in_a_database_that_is_being_restored(shop: Database) -> None:
    """It has begun before, so a missing table or an empty one is on its way back."""
    names = ("oncelog_outbox", "oncelog_outbox_relay", "oncelog_outbox_streams")
    async with opened(shop) as outbox:
        before = outbox.outbox_id
        await outbox.disconnect()
        await shop.run("DELETE FROM oncelog_outbox_relay")
        with pytest.raises(StoreUnavailable, match="no row in oncelog_outbox_relay any more"):
            await outbox.connect()
        await outbox.disconnect()
        for name in names:
            await shop.run(f"DROP TABLE {name}")
        with pytest.raises(StoreUnavailable, match=r"no table oncelog_outbox.* any more"):
            await outbox.connect()
        await outbox.disconnect()
        async with opened(shop) as restored:
            await shop.run(f"UPDATE oncelog_outbox_relay SET outbox_id = '{before}'")
            assert restored.outbox_id != before
        await outbox.connect()
        assert outbox.outbox_id == before


async def test_commits_are_durable_and_stalls_end(on_postgres: Database) -> None:
    """Whatever the server's defaults are."""
    await on_postgres.run("ALTER ROLE oncelog SET synchronous_commit = off")
    try:
        async with opened(on_postgres) as outbox:
            settings = await outbox._transact(  # the connection is the outbox's own
                lambda connection: [
                    connection.exec_driver_sql(f"SHOW {name}").scalar_one()
                    for name in ("synchronous_commit", "idle_in_transaction_session_timeout")
                ]
            )
            assert settings == ["on", "15s"]
    finally:
        await on_postgres.run("ALTER ROLE oncelog RESET synchronous_commit")


async def test_ids_from_a_cache_are_refused(on_postgres: Database) -> None:
    """They do not say which transaction came first."""
    async with opened(on_postgres):
        await on_postgres.run("ALTER SEQUENCE oncelog_outbox_id_seq CACHE 10")
    with pytest.raises(OutboxMisuse, match="CACHE 1"):
        async with opened(on_postgres):
            pass


async def test_newer_tables_are_refused(shop: Database) -> None:
    async with opened(shop):
        await shop.run("UPDATE oncelog_outbox_relay SET schema_version = 99")
    with pytest.raises(StoreSchemaTooNew, match="upgrade oncelog"):
        async with opened(shop):
            pass


@pytest.mark.parametrize("url", ["nonsense", "mysql://x/y", "postgresql+asyncpg://x/y", "sqlite+aiosqlite:///x"])
async def test_addresses_that_are_of_no_use_are_refused(url: str) -> None:
    with pytest.raises(InvalidArgument) as refused:
        OutboxDatabase(url, OutboxTables())
    assert refused.value.details["field"] == "database"


@pytest.mark.parametrize("name", ["", "a b", 'x"', "x" * 41, "é"])
async def test_bad_names_of_tables_are_refused(name: str) -> None:
    with pytest.raises(InvalidArgument, match="1 to 40 characters"):
        OutboxTables(name=name)
