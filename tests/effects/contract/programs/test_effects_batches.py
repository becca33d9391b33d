"""Effects as a loop of the application: what is committed when a block ends, however it does."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from sqlalchemy import Connection, create_engine, text
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine, create_async_engine

import oncelog
from oncelog.core.effect_errors import EffectMisuse
from oncelog_effects import SqlEffects, batches, process
from oncelog_effects.processes import run_processes
from oncelog_effects.programs.batches import EffectsBatches
from tests.cluster.until import until

pytest_plugins = ["tests.contract.sdk.fakes.client_fixtures"]
pytestmark = pytest.mark.asyncio
#: When the batch is cancelled. It never ends by itself; a slow machine may cancel it before it has written.
ABANDONED_S = 1.0


@pytest_asyncio.fixture
async def engine(tmp_path: Path) -> AsyncIterator[AsyncEngine]:
    made = create_async_engine(f"sqlite+aiosqlite:///{tmp_path}/effects.db")
    async with made.begin() as connection:
        await connection.execute(text("CREATE TABLE invoices (id integer PRIMARY KEY)"))
    yield made
    await made.dispose()


async def booked(engine: AsyncEngine) -> list[int]:
    async with engine.begin() as connection:
        return [row[0] for row in await connection.execute(text("SELECT id FROM invoices ORDER BY id"))]


async def fill(client: oncelog.AsyncClient) -> None:
    await (await client.create_producer("flights")).send_many([b"%d" % number for number in range(5)])


def source_of(client: oncelog.AsyncClient, engine: Any, **settings: Any) -> EffectsBatches[AsyncConnection]:
    return batches(client, "flights", subscription="billing", effects=SqlEffects(engine), **settings)


async def book(connection: AsyncConnection, message: oncelog.Message) -> None:
    await connection.execute(text("INSERT INTO invoices VALUES (:id)"), {"id": message.index})


async def test_end_of_a_block_commits(client: oncelog.AsyncClient, engine: AsyncEngine) -> None:
    """And the next loop goes on behind it."""
    await fill(client)
    seen: list[list[int]] = []
    for end in (2, 5):
        async with source_of(client, engine, batch=2) as source:
            async for batch in source:
                async with batch as connection:
                    for message in batch:
                        await book(connection, message)
                assert (batch.committed, await booked(engine)) == (True, list(range(batch.messages[-1].index + 1)))
                if batch.messages[-1].index < 4:  # the loop may do something else while the next one waits for it
                    await until(source._offered.qsize, 60, waiting_for="the next batch")
                seen.append([message.index for message in batch])
                if batch.messages[-1].index + 1 == end:
                    break
    assert seen == [[0, 1], [2, 3], [4]]


async def test_what_leaves_a_block_rolls_back(client: oncelog.AsyncClient, engine: AsyncEngine) -> None:
    """The loop may go on: the messages come again, one by one."""
    await fill(client)
    sizes: list[int] = []
    async with source_of(client, engine) as source:
        async for batch in source:
            sizes.append(len(batch))
            try:
                async with batch as connection:
                    for message in batch:
                        await book(connection, message)
                        if message.index == 1 and len(sizes) < 4:
                            raise ValueError("not yet")
            except ValueError:
                assert not batch.committed
            if batch.committed and batch.messages[-1].index == 4:
                break
    assert (sizes[:3], await booked(engine)) == ([5, 1, 1], [0, 1, 2, 3, 4])


async def _fail() -> None:
    raise asyncio.InvalidStateError("ends the program")


async def test_loop_that_ends_inside_of_a_batch_commits_nothing_of_it(
    client: oncelog.AsyncClient, engine: AsyncEngine
) -> None:
    """By leaving the loop without the block, by an error that nobody catches, and by a cancellation."""
    await fill(client)
    async with source_of(client, engine) as source:
        async for _ in source:
            break

    async def ends_by(way: Callable[[], Awaitable[object]]) -> None:
        async with source_of(client, engine) as source:
            async for batch in source:
                async with batch as connection:
                    await book(connection, batch.messages[0])
                    await way()

    with pytest.raises(asyncio.InvalidStateError):
        await ends_by(_fail)
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(ends_by(asyncio.Event().wait), ABANDONED_S)
    assert await booked(engine) == []


async def test_misuse_is_told(client: oncelog.AsyncClient, engine: AsyncEngine, tmp_path: Path) -> None:
    """A batch that is not entered, or twice; a source that is not entered; an engine whose functions are not async."""
    await fill(client)
    async with source_of(client, engine) as source:
        batch = await anext(source)
        with pytest.raises(EffectMisuse, match="before the next one"):
            await anext(source)
        async with batch:
            pass
        with pytest.raises(EffectMisuse, match="entered once"):
            async with batch:
                pass
    with pytest.raises(EffectMisuse, match="use `async with` for the source"):
        await anext(source_of(client, engine))
    plain = create_engine(f"sqlite:///{tmp_path}/plain.db")
    with pytest.raises(EffectMisuse, match="create_async_engine"):
        async with batches(client, "flights", subscription="other", effects=SqlEffects(plain)) as other:
            await anext(other)
    plain.dispose()


def _generator(message: oncelog.Message, connection: object) -> Any:
    yield message


async def _async_generator(message: oncelog.Message, connection: object) -> Any:
    yield message


def _list(message: oncelog.Message, connection: object) -> Any:
    return [message]


@pytest.mark.parametrize("function", [_generator, _async_generator, _list])
async def test_function_that_yields_to_a_store_without_outputs_is_refused(
    client: oncelog.AsyncClient, engine: AsyncEngine, function: Any
) -> None:
    """A generator's body never runs: its messages would be acknowledged without an effect."""
    await fill(client)
    made = process("flights", subscription="billing", effects=SqlEffects(engine))(function)
    with pytest.raises(EffectMisuse, match=r"effects billing .*only that of TopicEffects"):
        await asyncio.wait_for(run_processes(client, [made]), 60)
    async with source_of(client, engine) as source:
        async for batch in source:
            assert batch.messages[0].index == 0
            break


async def test_function_may_return_the_result_of_its_statement(
    client: oncelog.AsyncClient, engine: AsyncEngine, tmp_path: Path
) -> None:
    """It can be iterated, and is no output."""
    await fill(client)
    made_sync = create_engine(f"sqlite:///{tmp_path}/effects.db")

    @process("flights", subscription="billing", effects=SqlEffects(made_sync))
    def book_it(message: oncelog.Message, connection: Connection) -> Any:
        return connection.execute(text("INSERT INTO invoices VALUES (:id)"), {"id": message.index})

    running = asyncio.ensure_future(run_processes(client, [book_it]))
    try:

        async def is_booked() -> bool:
            return running.done() or await booked(engine) == [0, 1, 2, 3, 4]

        await until(is_booked, 60, waiting_for="all invoices")
        assert not running.done(), running.exception()
    finally:
        running.cancel()
        await asyncio.wait([running])
        made_sync.dispose()
