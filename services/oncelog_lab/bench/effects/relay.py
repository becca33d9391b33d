"""`oncelog bench relay`: the outbox relay against a loop that deletes rows and sends them.

The control is what an application would write: DELETE … RETURNING of 1,000 rows, send_many, COMMIT. When it is killed
between the last two, rows are sent twice. Relay and control alternate, on the same database and the same rows.

The latency of the relay is the time from the answer of the transaction's COMMIT until the log has stored the row. Rows
are inserted one by one, so a row waits for half a poll in the middle, and is then published.
"""

import asyncio
import random
import time
from collections.abc import Sequence

from sqlalchemy import Engine, create_engine, delete, func, insert, select, text

from oncelog.client.client import AsyncClient
from oncelog_effects.core.outbox.relay import OutboxRelay
from oncelog_effects.outbox.database import OutboxDatabase
from oncelog_effects.outbox.log import RelayLog, Sent
from oncelog_effects.outbox.relay import RelayProcess
from oncelog_effects.outbox.row_reading import OutboxRow
from oncelog_effects.outbox.tables import OutboxTables
from oncelog_lab.bench.baseline import DRAIN_S
from oncelog_lab.bench.effects.sql import sqlite_url
from oncelog_lab.bench.figures import BenchRow, FigureTarget, Latencies, median, rounded
from oncelog_lab.bench.loads import send_paced
from oncelog_lab.bench.publish import new_producers
from oncelog_lab.bench.running import BenchStack, Tell
from oncelog_lab.bench.settings import BenchSettings
from oncelog_lab.failures import LabFailed
from oncelog_lab.values import make_values
from oncelog_lab.waiting import until

_ROWS = 1_000
_SLOWEST_ROWS_PER_S = 100
POLL_MS = 50
#: Rows of the latency, per second.
_PACE = 15
_TABLES = OutboxTables(name="bench_outbox")
_OUTBOX = _TABLES.rows
_TAKEN = (
    delete(_OUTBOX).where(_OUTBOX.c.id.in_(select(_OUTBOX.c.id).order_by(_OUTBOX.c.id).limit(_ROWS)))
    .returning(_OUTBOX.c.value)
)  # fmt: skip


class _TimedLog(RelayLog):
    """It notes when the log has stored each row. {event id: of perf_counter}"""

    def __init__(self, client: AsyncClient, outbox_id: str, table: str, stored: dict[str, float]) -> None:
        super().__init__(client, outbox_id, table)
        self._stored = stored

    async def send(self, topic: str, attempt: int, rows: Sequence[OutboxRow]) -> Sent:
        sent = await super().send(topic, attempt, rows)
        now = time.perf_counter()
        self._stored.update((row.event_id, now) for row in rows)
        return sent


class _Running:
    """A relay in this process."""

    def __init__(self, client: AsyncClient, url: str) -> None:
        self.stored: dict[str, float] = {}
        database = OutboxDatabase(url, _TABLES)
        relay = RelayProcess(
            lambda outbox_id, table: _TimedLog(client, outbox_id, table, self.stored), database, OutboxRelay(
                poll_ms_min=POLL_MS, poll_ms_max=POLL_MS
            ),
        )  # fmt: skip
        self._task = asyncio.ensure_future(relay.run())

    async def until_stored(self, count: int, deadline_s: float) -> None:
        late_at = time.perf_counter() + deadline_s
        while len(self.stored) < count:
            if self._task.done():
                await self._task  # raises what ended it
            if time.perf_counter() > late_at:
                raise LabFailed(f"the relay has stored {len(self.stored)} of {count} rows in time")
            await asyncio.sleep(0.002)

    async def end(self) -> None:
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)


async def relay_rows(stack: BenchStack, settings: BenchSettings, tell: Tell) -> list[BenchRow]:
    """Two rows: the rate, and the latency of single rows."""
    directory = stack.new_directory()
    directory.mkdir(parents=True)
    url = settings.database or sqlite_url(directory)
    engine = create_engine(url)
    cluster = await stack.cluster()
    total = settings.messages
    rates, controls = list[float](), list[float]()
    try:
        async with await cluster.connect() as client:
            _TABLES.metadata.drop_all(engine)
            _TABLES.metadata.create_all(engine)
            tell(f"relay {total:,} rows of {settings.message_bytes} bytes in {engine.dialect.name}")
            for run in range(settings.runs):
                pair = [(_controlled, controls), (_relayed, rates)]
                for measure, figures in pair if run % 2 else reversed(pair):
                    (producer,) = await new_producers(client, 1)
                    await producer.close()
                    _insert(engine, producer.topic, make_values(settings.message_bytes, total))
                    figures.append(await measure(client, url, engine, producer.topic, total))
                    _check_empty(engine)
            tell(f"latency of {_PACE} rows per second")
            latency = await _latency(client, url, engine, settings)
    finally:
        engine.dispose()
    return [
        BenchRow(
            f"relay from {engine.dialect.name}",
            median(rates),
            "rows/s",
            median(controls),
            FigureTarget(0.5, of_ratio=True, of="DELETE + send_many"),
            {"runs": rounded(rates, 0), "control_runs": rounded(controls, 0)},
            f"DELETE + send_many {median(controls):,.0f} rows/s",
        ),
        latency,
    ]


def _insert(engine: Engine, topic: str, values: Sequence[bytes]) -> None:
    with engine.begin() as connection:
        rows = [{"topic": topic, "value": value} for value in values]
        connection.execute(insert(_OUTBOX), rows)
    if engine.dialect.name == "postgresql":
        with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
            connection.execute(text(f"VACUUM ANALYZE {_TABLES.name}"))


def _check_empty(engine: Engine) -> None:
    with engine.begin() as connection:
        left = connection.execute(select(func.count()).select_from(_OUTBOX)).scalar_one()
    if left:
        raise LabFailed(f"{left} rows are left in the outbox")


async def _relayed(client: AsyncClient, url: str, engine: Engine, topic: str, total: int) -> float:
    """Rows per second, from the start of the relay until every row is stored and deleted."""
    began, running = time.perf_counter(), _Running(client, url)
    try:
        await running.until_stored(total, total / _SLOWEST_ROWS_PER_S + DRAIN_S)
        await until(lambda: _is_empty(engine), DRAIN_S, "the relay to delete its rows")
        return total / (time.perf_counter() - began)
    finally:
        await running.end()


def _is_empty(engine: Engine) -> bool:
    with engine.begin() as connection:
        return connection.execute(select(_OUTBOX.c.id).limit(1)).first() is None


async def _controlled(client: AsyncClient, url: str, engine: Engine, topic: str, total: int) -> float:
    """Rows per second, from the first DELETE to the last COMMIT."""
    began, done = time.perf_counter(), 0
    async with await client.create_producer(topic) as producer:
        with engine.connect() as connection:
            while done < total:
                taken = await asyncio.to_thread(lambda: [bytes(row[0]) for row in connection.execute(_TAKEN)])
                await producer.send_many(taken)
                await asyncio.to_thread(connection.commit)
                done += len(taken)
    return total / (time.perf_counter() - began)


async def _latency(client: AsyncClient, url: str, engine: Engine, settings: BenchSettings) -> BenchRow:
    (producer,) = await new_producers(client, 1)
    seconds = settings.latency_seconds
    publish = await send_paced(producer, message_bytes=settings.message_bytes, per_second=_PACE, seconds=seconds)
    await producer.close()
    running = _Running(client, url)
    value = make_values(settings.message_bytes, 1)[0]
    committed: dict[str, float] = {}
    draw = random.Random(1)
    try:
        for _ in range(int(_PACE * seconds)):
            event_id = await asyncio.to_thread(_insert_one, engine, producer.topic, value)
            committed[event_id] = time.perf_counter()
            await asyncio.sleep(draw.uniform(0.5, 1.5) / _PACE)  # not in step with the polls
        await running.until_stored(len(committed), DRAIN_S)
    finally:
        await running.end()
    found = Latencies.of([running.stored[each] - at for each, at in list(committed.items())[_PACE:]])
    bound = POLL_MS / 2 + 2 * publish.p50_ms
    return BenchRow(
        f"relay, COMMIT to stored at {_PACE} rows/s, p50",
        found.p50_ms,
        "ms",
        bound,
        FigureTarget(1.0, at_most=True, of_ratio=True, of="poll/2 + 2 publish"),
        {"p99_ms": round(found.p99_ms, 3), "publish_p50_ms": round(publish.p50_ms, 3), "poll_ms": POLL_MS},
        f"publish {publish.p50_ms:.2f} ms, poll {POLL_MS} ms",
    )


def _insert_one(engine: Engine, topic: str, value: bytes) -> str:
    with engine.begin() as connection:
        made = insert(_OUTBOX).values(topic=topic, value=value).returning(_OUTBOX.c.event_id)
        return str(connection.execute(made).scalar_one())
