"""Rows of `oncelog bench effects` beside those of databases: effects in Redis and in a topic, and a killed holder.

The control of Redis runs the same command in MULTI, one message at a time; that of a topic sends what read_batch has
returned. Both forget where they were when they are killed. The control of the killed holder is a failover subscription
without effects: from kill -9 of the active consumer until the next one has a message.
"""

import asyncio
import shutil
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import redis.asyncio as redis
from redis.exceptions import RedisError
from sqlalchemy import Engine

import oncelog
from oncelog import EARLIEST
from oncelog.client.client import AsyncClient
from oncelog.runtime.port_claim import claim_port, port_of
from oncelog_effects import RedisEffects, TopicEffects
from oncelog_effects.processes import Process
from oncelog_effects.topic_store import Output
from oncelog_lab.bench.baseline import DRAIN_S
from oncelog_lab.bench.effects.mirror import copied_by_hand
from oncelog_lab.bench.figures import BenchRow, FigureTarget, median, rounded
from oncelog_lab.bench.running import Tell
from oncelog_lab.bench.settings import BenchSettings
from oncelog_lab.bench.subscribe import filled
from oncelog_lab.child_process import LabChild
from oncelog_lab.failures import LabFailed
from oncelog_lab.waiting import until

_KEY = "bench"
_SLOWEST_MSG_PER_S = 50
_START_S = 20.0
_SUBSCRIPTION = "bench"
TOPIC_MESSAGE_BYTES = 1024
_SETTLED_S = 1.5
#: Messages of a topic whose holder is killed: more than it takes until then.
_HELD_MESSAGES = 5_000


# --- Redis -----------------------------------------------------------------------------------------------------------


@asynccontextmanager
async def _redis(directory: Path) -> AsyncIterator["redis.Redis"]:
    """A server on a free port, without files. Raises LabFailed."""
    program = shutil.which("redis-server")
    if program is None:
        raise LabFailed("redis-server is not in the search path: install it")
    with claim_port("127.0.0.1") as claim:
        async with _redis_at(program, port_of(claim), directory) as client:
            yield client


@asynccontextmanager
async def _redis_at(program: str, port: int, directory: Path) -> AsyncIterator["redis.Redis"]:
    words = ["--port", str(port), "--bind", "127.0.0.1", "--save", "", "--dir", str(directory)]
    server = await LabChild.start("redis-server", [program, *words])
    client = redis.Redis(port=port)

    async def answers() -> bool:
        server.check_running()
        try:
            return bool(await client.ping())
        except RedisError:
            return False

    try:
        await until(answers, _START_S, "redis-server to answer")
        yield client
    finally:
        await client.aclose()
        await server.kill()


async def redis_row(client: AsyncClient, directory: Path, settings: BenchSettings, total: int, tell: Tell) -> BenchRow:
    with_mark, control = list[float](), list[float]()
    tell(f"apply {total:,} messages, one in a script, to Redis")
    async with _redis(directory) as store:
        for run in range(settings.runs):
            topic = await filled(client, settings, total)
            pair = [(_multi, control), (_scripts, with_mark)]
            for measure, figures in pair if run % 2 else reversed(pair):
                await store.delete(_KEY)
                figures.append(await measure(client, store, topic, total))
                found = int(await store.get(_KEY) or 0)
                if found != total:
                    raise LabFailed(f"{total} messages have {found} effects")
    return _row("effects in redis, batch 1", with_mark, control, 0.5, "MULTI")


async def _multi(client: AsyncClient, store: "redis.Redis", topic: str, total: int) -> float:
    began, done = time.perf_counter(), 0
    async with await client.create_reader(topic, start=EARLIEST) as reader:
        while done < total:
            for _ in (await reader.read_batch()).values:
                async with store.pipeline(transaction=True) as pipe:
                    pipe.incr(_KEY)
                    await pipe.execute()
                done += 1
    return total / (time.perf_counter() - began)


async def _scripts(client: AsyncClient, store: "redis.Redis", topic: str, total: int) -> float:
    left, done = total, asyncio.Event()

    @oncelog.process(topic, subscription=_SUBSCRIPTION, effects=RedisEffects(store))
    def book(_: oncelog.Message, pipe: "redis.client.Pipeline") -> None:
        nonlocal left
        pipe.incr(_KEY)
        left -= 1
        if not left:
            done.set()

    return await _rate(client, book, done, total)


async def _rate(client: AsyncClient, process: "Process[Any]", done: asyncio.Event, total: int) -> float:
    """Messages per second from the subscribing until `done` and one more acknowledgement of the store."""
    began = time.perf_counter()
    running, all_done = asyncio.ensure_future(process.run(client)), asyncio.ensure_future(done.wait())
    try:
        async with asyncio.timeout(total / _SLOWEST_MSG_PER_S + DRAIN_S):
            await asyncio.wait([running, all_done], return_when=asyncio.FIRST_COMPLETED)
            if running.done():
                await running  # raises what ended it
            rate = total / (time.perf_counter() - began)
    finally:
        running.cancel()  # after what is under way
        await asyncio.gather(running, all_done, return_exceptions=True)
    return rate


# --- topic -----------------------------------------------------------------------------------------------------------


async def topic_row(client: AsyncClient, settings: BenchSettings, total: int, tell: Tell) -> BenchRow:
    with_mark, control = list[float](), list[float]()
    tell(f"copy {total:,} messages of {TOPIC_MESSAGE_BYTES} bytes to a topic")
    for run in range(settings.runs):
        topic = await filled(client, BenchSettings(message_bytes=TOPIC_MESSAGE_BYTES), total)
        for by_hand in (True, False) if run % 2 else (False, True):
            if by_hand:
                control.append(await copied_by_hand(client, client, topic, total))
            else:
                with_mark.append(await _outputs(client, topic, total))
    return _row(f"effects in a topic, {TOPIC_MESSAGE_BYTES} B", with_mark, control, 0.5, "read_batch + send_many")


async def _outputs(client: AsyncClient, topic: str, total: int) -> float:
    """Messages per second until the output topic has all of them."""
    output, done = f"{topic}-output", asyncio.Event()

    @oncelog.process(topic, subscription=_SUBSCRIPTION, effects=TopicEffects([output]))
    def copy(message: oncelog.Message) -> Any:
        yield Output(output, message.value)

    async def count() -> None:
        found = 0
        async with await client.create_reader(output, start=EARLIEST) as reader:
            while found < total:
                found += len((await reader.read_batch()).values)
        done.set()

    await (await client.create_producer(output, producer_name="bench")).close()
    counting = asyncio.ensure_future(count())
    try:
        return await _rate(client, copy, done, total)
    finally:
        counting.cancel()


# --- a killed holder --------------------------------------------------------------------------------------------------


async def killed_holder_row(
    client: AsyncClient, url: str, engine: Engine, settings: BenchSettings, tell: Tell
) -> BenchRow:
    """engine: its database has the table of the effects."""
    database = engine.url.render_as_string(hide_password=False)
    with_mark, control = list[float](), list[float]()
    tell(f"kill -9 for the holder of a failover subscription, {2 * settings.runs} times")
    for run in range(settings.runs):
        for effects in (True, False) if run % 2 else (False, True):
            topic = await filled(client, settings, _HELD_MESSAGES)
            words = ["-m", "oncelog_lab.bench.effects.holder", url, topic, *([database] if effects else [])]
            (with_mark if effects else control).append(await _pause_ms([sys.executable, *words]))
    return BenchRow(
        "holder killed, to the first effect",
        median(with_mark),
        "ms",
        median(control),
        FigureTarget(1.5, at_most=True, of_ratio=True, of="no effects"),
        {"runs_ms": rounded(with_mark, 1), "control_runs_ms": rounded(control, 1)},
        f"to the first message without effects {median(control):.1f} ms",
    )


def _note(times: list[float], line: bytes) -> None:
    times.append(float(line))


async def _pause_ms(command: list[str]) -> float:
    """Of two consumers, from the kill of the active one until the other one has its first message."""
    handled: list[list[float]] = [[], []]
    children: list[LabChild] = []
    try:
        for times in handled:
            children.append(await LabChild.start("holder", command, on_line=partial(_note, times)))
            await until(lambda: any(handled), _START_S, "a consumer to be active")
        await asyncio.sleep(_SETTLED_S)  # both are attached, and one of them is active
        active = max(range(2), key=lambda each: max(handled[each], default=0.0))
        children[1 - active].check_running()
        killed = time.monotonic()
        await children[active].kill()
        await until(lambda: max(handled[1 - active], default=0.0) > killed, DRAIN_S, "the other consumer")
        return (next(each for each in handled[1 - active] if each > killed) - killed) * 1000
    finally:
        for child in children:
            await child.kill()


def _row(what: str, with_mark: list[float], control: list[float], reach: float, of: str) -> BenchRow:
    return BenchRow(
        what,
        median(with_mark),
        "msg/s",
        median(control),
        FigureTarget(reach, of_ratio=True, of=of),
        {"runs": rounded(with_mark, 0), "control_runs": rounded(control, 0)},
        f"{of} {median(control):,.0f} msg/s",
    )
