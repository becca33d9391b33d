"""The databases that a store of effects is tested with."""

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
import pytest_asyncio
from sqlalchemy import create_engine
from sqlalchemy.ext.asyncio import create_async_engine

from tests.contract.stores.redis_process import RedisProcess
from tests.effects.contract.benches import Bench, FileBench, MemoryBench, RedisBench, SqlBench
from tests.effects.contract.sql_database import Database
from tests.effects.postgres_process import PostgresProcess


@pytest.fixture(scope="session")
def postgres() -> Iterator[PostgresProcess]:
    with PostgresProcess.running() as server:
        yield server


@pytest_asyncio.fixture(params=["sqlite", "sqlite-async", "postgresql", "postgresql-async"])
async def database(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Database]:
    """Empty, but for the application's table."""
    async for found in _made(str(request.param), request, tmp_path):
        yield found


@pytest_asyncio.fixture(
    params=["sqlite", "sqlite-async", "postgresql", "postgresql-async", "redis", "redis-async", "file", "memory"]
)
async def bench(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Bench]:
    """Every store, empty."""
    param = str(request.param)
    if param == "file":
        (tmp_path / "files").mkdir()
        found: Bench = FileBench(tmp_path / "files")
        yield found
        await found.close()
    elif param.startswith("redis"):
        with RedisProcess.running(tmp_path / "redis") as server:
            found = RedisBench(server, is_async=param == "redis-async")
            yield found
            await found.close()
    elif param == "memory":
        yield MemoryBench()
    else:
        async for database in _made(param, request, tmp_path):
            yield SqlBench(database)


@pytest_asyncio.fixture
async def on_sqlite(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Database]:
    async for found in _made("sqlite", request, tmp_path):
        yield found


@pytest_asyncio.fixture
async def on_postgres(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Database]:
    async for found in _made("postgresql", request, tmp_path):
        yield found


async def _made(param: str, request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Database]:
    kind, _, way = param.partition("-")
    if kind == "sqlite":
        url = f"sqlite+aiosqlite:///{tmp_path}/effects.db" if way else f"sqlite:///{tmp_path}/effects.db"
    else:
        server: PostgresProcess = request.getfixturevalue("postgres")
        server.query("DROP SCHEMA public CASCADE; CREATE SCHEMA public")
        url = server.url.replace("postgresql:", "postgresql+psycopg:")
    database = Database(create_async_engine(url) if way else create_engine(url))
    await database.run("CREATE TABLE invoices (id integer PRIMARY KEY)")
    yield database
    await database.close()


@pytest_asyncio.fixture(params=["redis", "redis-async"])
async def on_redis(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[RedisBench]:
    with RedisProcess.running(tmp_path / "redis") as server:
        found = RedisBench(server, is_async=request.param == "redis-async")
        yield found
        await found.close()
