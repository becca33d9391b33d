"""A database whose host vanishes: no answer, and no end of the connection."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio
from sqlalchemy import Engine, create_engine, text
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine, create_async_engine

from oncelog.core.errors import StoreUnavailable
from oncelog_effects.outbox.database import OutboxDatabase
from oncelog_effects.outbox.tables import OutboxTables
from oncelog_effects.sql_store import SqlEffects
from tests.contract.stores.cut_proxy import CutProxy
from tests.effects.contract.positions import SOURCE, at, claimed, stored
from tests.effects.contract.sql_database import Database

pytestmark = pytest.mark.asyncio


@pytest_asyncio.fixture
async def proxy(on_postgres: Database) -> AsyncIterator[CutProxy]:
    port = on_postgres.engine.url.port
    assert port is not None
    async with CutProxy.running(port) as found:
        yield found


@pytest_asyncio.fixture(params=["sync", "async"])
async def engine(request: pytest.FixtureRequest, on_postgres: Database, proxy: CutProxy) -> AsyncIterator[Any]:
    """Its connections go through the proxy."""
    url = on_postgres.engine.url.set(port=proxy.port)
    found: Engine | AsyncEngine = create_async_engine(url) if request.param == "async" else create_engine(url)
    yield found
    if isinstance(found, AsyncEngine):
        await found.dispose()
    else:
        found.dispose()


@pytest.mark.hazard("silent-database")
async def test_transaction_of_a_silent_database_ends(engine: Any, proxy: CutProxy) -> None:
    """The limit is told; so does each claim end, which has to connect first; and the source goes on behind it."""
    effects: SqlEffects[Any] = SqlEffects(engine, transaction_timeout=3.0)
    await claimed(effects)
    loop = asyncio.get_running_loop()

    async def write_async(connection: AsyncConnection) -> None:
        proxy.hold()
        await connection.execute(text("INSERT INTO invoices VALUES (1)"))

    def write(connection: Any) -> None:
        loop.call_soon_threadsafe(proxy.hold)
        for _ in range(1_000):
            connection.execute(text("INSERT INTO invoices VALUES (1) ON CONFLICT DO NOTHING"))

    async with asyncio.timeout(60):
        with pytest.raises(StoreUnavailable, match=r"longer than 3 s.*transaction_timeout"):
            await effects.apply(SOURCE, at(0), at(1), write_async if isinstance(engine, AsyncEngine) else write)
        with pytest.raises(StoreUnavailable):
            await claimed(effects)
    proxy.release()
    assert await stored(effects) == at(0)


@pytest.mark.hazard("silent-database")
async def test_relay_of_a_silent_database_connects_again(on_postgres: Database, proxy: CutProxy) -> None:
    url = on_postgres.engine.url.set(port=proxy.port).render_as_string(hide_password=False)
    outbox = OutboxDatabase(url, OutboxTables(), limit_s=3.0)
    async with asyncio.timeout(60):
        await outbox.connect()
        assert await outbox.claim("c1" * 16) is not None
        proxy.hold()
        with pytest.raises(StoreUnavailable, match="longer than 3 s"):
            await outbox.renew("c1" * 16)
        await outbox.disconnect()
        proxy.release()
        await outbox.connect()
        assert await outbox.claim("c1" * 16) is not None
        await outbox.close()
