"""`oncelog bench effects`: functions whose writes to a database happen once, against the same writes without a mark.

The control feeds the same inserts and commits from read_batch: a loop that forgets where it was when it is killed.
Product and control alternate, on the same database and the same messages.
"""

import asyncio
import time
from collections.abc import Sequence
from pathlib import Path

from sqlalchemy import Connection, Engine, create_engine, text

import oncelog
from oncelog import EARLIEST
from oncelog.client.client import AsyncClient
from oncelog_effects import SqlEffects
from oncelog_lab.bench.baseline import DRAIN_S
from oncelog_lab.bench.effects.stores import killed_holder_row, redis_row, topic_row
from oncelog_lab.bench.figures import BenchRow, FigureTarget, median, rounded
from oncelog_lab.bench.running import BenchStack, Tell
from oncelog_lab.bench.settings import BenchSettings
from oncelog_lab.bench.subscribe import filled
from oncelog_lab.failures import LabFailed

#: messages of one transaction: (what a row says, its reach)
_BATCHES = {500: 0.8, 1: 0.6}
#: A transaction for each message takes about so many times as long.
_FEWER = 20
_SLOWEST_COMMITS_PER_S = 20
_INSERT = text("INSERT INTO bench_effects VALUES (:value)")


async def effects_rows(stack: BenchStack, settings: BenchSettings, tell: Tell) -> list[BenchRow]:
    """One row for each size of transactions, and those of other stores."""
    directory = stack.new_directory()
    directory.mkdir(parents=True)
    engine = create_engine(settings.database or sqlite_url(directory))
    cluster = await stack.cluster()
    rows: list[BenchRow] = []
    try:
        async with await cluster.connect() as client:
            for batch, reach in _BATCHES.items():
                total = settings.messages if batch > 1 else max(1, settings.messages // _FEWER)
                tell(f"apply {total:,} messages, {batch} in a transaction, to {engine.dialect.name}")
                with_mark, control = list[float](), list[float]()
                for run in range(settings.runs):
                    topic = await filled(client, settings, total)
                    pair = [(_controlled, control), (_applied, with_mark)]
                    for measure, figures in pair if run % 2 else reversed(pair):
                        _empty(engine)
                        figures.append(await measure(client, topic, engine, total, batch))
                        _check(engine, total)
                rows.append(
                    BenchRow(
                        f"effects in {engine.dialect.name}, batch {batch}",
                        median(with_mark),
                        "msg/s",
                        median(control),
                        FigureTarget(reach, of_ratio=True, of="no mark"),
                        {"runs": rounded(with_mark, 0), "control_runs": rounded(control, 0)},
                        f"without a mark {median(control):,.0f} msg/s",
                    )
                )
            few = max(1, settings.messages // _FEWER)
            rows.append(await redis_row(client, directory, settings, few, tell))
            rows.append(await topic_row(client, settings, settings.messages, tell))
            rows.append(await killed_holder_row(client, cluster.url, engine, settings, tell))
    finally:
        engine.dispose()
    return rows


def sqlite_url(directory: Path) -> str:
    return f"sqlite:///{directory}/effects.db"


def _empty(engine: Engine) -> None:
    with engine.begin() as connection:
        connection.execute(text("CREATE TABLE IF NOT EXISTS bench_effects (value varchar(2000))"))
        connection.execute(text("DELETE FROM bench_effects"))


def _check(engine: Engine, total: int) -> None:
    with engine.begin() as connection:
        found = connection.execute(text("SELECT count(*) FROM bench_effects")).scalar_one()
    if found != total:
        raise LabFailed(f"{total} messages have {found} effects")


def _deadline_s(total: int, batch: int) -> float:
    return total / batch / _SLOWEST_COMMITS_PER_S + DRAIN_S


async def _controlled(client: AsyncClient, topic: str, engine: Engine, total: int, batch: int) -> float:
    """Messages per second, from the opening of a reader to the last commit."""
    began, done, rows = time.perf_counter(), 0, list[dict[str, str]]()

    def commit(some: list[dict[str, str]]) -> None:
        with engine.begin() as connection:
            connection.execute(_INSERT, some)

    async with asyncio.timeout(_deadline_s(total, batch)):
        async with await client.create_reader(topic, start=EARLIEST) as reader:
            while done < total:
                rows += [{"value": value.hex()} for value in (await reader.read_batch()).values]
                while len(rows) >= batch or done + len(rows) == total > done:
                    some, rows = rows[:batch], rows[batch:]
                    await asyncio.to_thread(commit, some)
                    done += len(some)
    return total / (time.perf_counter() - began)


async def _applied(client: AsyncClient, topic: str, engine: Engine, total: int, batch: int) -> float:
    """Messages per second, from the subscribing to the end of the function's last run."""
    began, loop, done = time.perf_counter(), asyncio.get_running_loop(), asyncio.Event()
    left = total

    @oncelog.process(topic, subscription="bench", effects=SqlEffects(engine), batch=batch)
    def book(messages: Sequence[oncelog.Message], connection: Connection) -> None:
        nonlocal left
        connection.execute(_INSERT, [{"value": message.value.hex()} for message in messages])
        left -= len(messages)
        if not left:
            loop.call_soon_threadsafe(done.set)

    running, all_done = asyncio.ensure_future(book.run(client)), asyncio.ensure_future(done.wait())
    try:
        async with asyncio.timeout(_deadline_s(total, batch)):
            await asyncio.wait([running, all_done], return_when=asyncio.FIRST_COMPLETED)
            if running.done():
                await running  # raises what ended it
            return total / (time.perf_counter() - began)
    except TimeoutError as late:
        raise LabFailed(f"{topic} did not take effect in time") from late
    finally:
        running.cancel()  # after the transaction that is open
        await asyncio.gather(running, all_done, return_exceptions=True)
