"""Programs that begin at once create the tables that they share once."""

import asyncio
from collections.abc import Iterator

import pytest
from sqlalchemy import Engine, MetaData, create_engine, inspect

from oncelog_effects.outbox.tables import OutboxTables
from oncelog_effects.sql_tables import EffectsTables
from tests.cluster.cluster_fixture import DEADLINE_S
from tests.cluster.until import until
from tests.effects.postgres_process import PostgresProcess

pytestmark = pytest.mark.asyncio
TABLES = {
    "outbox": lambda: OutboxTables().metadata,
    "effects": lambda: EffectsTables(schema=None, prefix="oncelog").metadata,
}


@pytest.fixture
def engine(postgres: PostgresProcess) -> Iterator[Engine]:
    postgres.query("DROP SCHEMA public CASCADE; CREATE SCHEMA public")
    engine = create_engine(postgres.url.replace("postgresql:", "postgresql+psycopg:"))
    yield engine
    engine.dispose()


@pytest.mark.parametrize("kind", sorted(TABLES))
async def test_tables_are_created_once_by_two_programs(engine: Engine, postgres: PostgresProcess, kind: str) -> None:
    """The second one waits for the transaction of the first one, and finds the tables. Its user calls `create_all`
    with an engine, as the documentation of SQLAlchemy does."""
    waiting = "select count(*) from pg_stat_activity where wait_event_type = 'Lock'"
    with engine.connect() as first:
        TABLES[kind]().create_all(first)
        second = asyncio.create_task(asyncio.to_thread(TABLES[kind]().create_all, engine))
        await until(lambda: postgres.query(waiting) == ["1"], DEADLINE_S, waiting_for="the second program")
        first.commit()
    await asyncio.wait_for(second, DEADLINE_S)
    metadata: MetaData = TABLES[kind]()
    assert set(inspect(engine).get_table_names()) == set(metadata.tables)


async def test_tables_of_sqlite_need_no_lock(tmp_path: object) -> None:
    """SQLite has one writer at a time."""
    engine = create_engine(f"sqlite:///{tmp_path}/shop.db")
    for _ in range(2):
        OutboxTables().metadata.create_all(engine)
    assert "oncelog_outbox" in inspect(engine).get_table_names()
    engine.dispose()
