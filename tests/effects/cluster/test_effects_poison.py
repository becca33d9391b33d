"""Messages whose function fails, or kills its process: each becomes one dead letter, the others take effect once."""

import asyncio
import json
import signal
import sqlite3
from collections.abc import Awaitable, Callable
from contextlib import closing, suppress
from functools import partial
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import pytest
from sqlalchemy import Connection, create_engine, text

import oncelog
from oncelog.client.rest_calls import rest
from oncelog_effects import FileEffects, Output, Process, SqlEffects, TopicEffects, source
from oncelog_effects.core.effects.ordered import Source, StoredPosition
from oncelog_effects.processes import run_processes
from oncelog_effects.status import SourceStatus
from oncelog_effects.store import SourceNames
from tests.cluster.commands import command
from tests.cluster.loads import read_all
from tests.cluster.programs import DEADLINE_S, Running
from tests.cluster.recipes.recipe_programs import Programs
from tests.cluster.until import until

pytestmark = pytest.mark.asyncio

PARCELS = """
import os, signal
from sqlalchemy import create_engine, text
import oncelog
from oncelog_effects import SqlEffects

engine = create_engine(os.environ["DATABASE"])
with engine.begin() as connection:
    connection.execute(text("create table if not exists parcels (value text)"))

@oncelog.process("lost-parcels", subscription="billing", effects=SqlEffects(engine), batch=50, max_attempts=1)
def book(messages, connection):
    for message in messages:
        connection.execute(text("insert into parcels values (:value)"), {"value": message.value.decode()})
        if message.value == b"kills":
            os.kill(os.getpid(), signal.SIGKILL)
        if message.value == b"raises":
            raise ValueError("no parcel \\ud83d" + "!" * 2_000)
"""


def rows(path: Path, table: str) -> list[str]:
    with closing(sqlite3.connect(path)) as database:
        if not database.execute("select 1 from sqlite_master where name = ?", [table]).fetchone():
            return []
        return [value for (value,) in database.execute(f"select value from {table} order by rowid")]


@pytest.mark.hazard("given-up-beside-a-poison")
async def test_message_that_kills_its_process_becomes_a_dead_letter(
    programs: Programs, client: oncelog.AsyncClient, free_port: Callable[[], int]
) -> None:
    """And none of those that were in work beside it. It kills two or three processes: the first time it was one of
    many, and the log may not have learned that it was begun."""
    producer = await client.create_producer("lost-parcels", compression="zstd")
    values = [f"{number}" for number in range(30)]
    values[3], values[20] = "kills", "raises"
    await producer.send_many([value.encode() for value in values])
    (programs.directory / "parcels.py").write_text(PARCELS)
    database = programs.directory / "parcels.db"
    programs.environment["DATABASE"] = f"sqlite:///{database}"
    port = free_port()

    def start() -> Running:
        return programs.start_command("parcels", command("run", "parcels:book", "--health-port", str(port)))

    kills, last = 0, start()
    while len(rows(database, "parcels")) < 28:
        ended = partial(lambda one: not one.runs() or len(rows(database, "parcels")) == 28, last)
        await until(ended, DEADLINE_S, every_s=0.01)
        if not last.runs():
            kills += 1
            last = start()
    assert kills in (2, 3)

    async def letters() -> bool:
        return len(await read_all(client, "lost-parcels-billing-DLQ")) == 2

    await until(letters, DEADLINE_S, every_s=0.1, waiting_for="both dead letters")

    def told(path: str) -> str:
        with urlopen(f"http://127.0.0.1:{port}{path}", timeout=DEADLINE_S) as answer:
            return bytes(answer.read()).decode()

    (status,) = json.loads(await asyncio.to_thread(told, "/status"))
    assert (status["effect"], status["active"], status["position"], status["stuck"]) == ("billing", True, 30, None)
    assert status["dead_letters"] == 2
    labels = 'effect="billing",partition="-1",topic="public/default/lost-parcels"'
    assert f"oncelog_effects_dead_letters_total{{{labels}}} 2.0" in await asyncio.to_thread(told, "/metrics")
    assert json.loads(await asyncio.to_thread(told, "/readyz"))["status"] == "ok"
    last.signal(signal.SIGTERM)
    await last.ends()
    assert rows(database, "parcels") == [value for value in values if value.isdigit()]
    found = [
        (each.value, each.properties["dead_letter.reason"])
        for each in await read_all(client, "lost-parcels-billing-DLQ")
    ]
    assert found == [
        (b"kills", "its function began 1 times in processes that ended"),
        (b"raises", ("ValueError: no parcel \\ud83d" + "!" * 2_000)[:999] + "…"),
    ]


async def test_first_message_that_fails_shows_as_lag(client: oncelog.AsyncClient, tmp_path: Path) -> None:
    """Also of a program that has never applied anything: an alarm on either lag fires."""
    await (await client.create_producer("tickets")).send_many([b"bad", b"good"])

    @oncelog.process("tickets", subscription="s", effects=FileEffects(tmp_path / "tickets"))
    def fail(message: oncelog.Message, append: object) -> None:
        raise ValueError("bad")

    running = asyncio.ensure_future(run_processes(client, [fail]))

    def stuck() -> bool:
        assert not running.done(), running.result()
        return any(each.stuck == 0 and each.attempts >= 2 for each in fail.statuses.values())

    await until(stuck, DEADLINE_S, waiting_for="the second run of the function")
    (status,) = fail.statuses.values()
    assert status.lag_messages == 2
    assert status.lag_s(status.waiting_publish_ms / 1000 + 90) == 90
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)


async def test_message_that_an_operator_skips_is_left_out_by_the_next_start(
    client: oncelog.AsyncClient, tmp_path: Path
) -> None:
    """It was skipped while no program ran."""
    await (await client.create_producer("coupons")).send_many([b"bad", b"good"])

    @oncelog.process("coupons", subscription="s", effects=FileEffects(tmp_path / "coupons"))
    def fail(message: oncelog.Message, append: Any) -> None:
        if message.value == b"bad":
            raise ValueError("bad")
        print("good", file=append)

    async def runs_until(done: Callable[[SourceStatus], bool]) -> None:
        running = asyncio.ensure_future(run_processes(client, [fail]))

        def is_done() -> bool:
            assert not running.done(), running.result()
            return any(done(status) for status in fail.statuses.values())

        await until(is_done, DEADLINE_S, waiting_for="the function")
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)

    await runs_until(lambda status: status.stuck == 0)
    await rest(client, "POST", "/admin/v2/persistent/public/default/coupons/subscription/s/skip/1")
    await runs_until(lambda status: status.position == 2)


@pytest.mark.parametrize("keeps_nothing", [False, True])
async def test_running_program_leaves_out_what_an_operator_skips(
    client: oncelog.AsyncClient, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, keeps_nothing: bool
) -> None:
    """In the middle of a pause that is longer than this test. The line in the log about a function that fails gives the
    advice to skip, and it had to add: then start the program again. A store of topics keeps no position of its own, and
    takes all four messages at once: the first one was not acknowledged in the pause, and skipped in place of the second
    one."""
    monkeypatch.setattr(source, "PAUSE_S_MIN", 10 * DEADLINE_S)
    monkeypatch.setattr(source, "PAUSE_S_MAX", 10 * DEADLINE_S)
    topic = f"vouchers-{keeps_nothing}"
    await (await client.create_producer(topic)).send_many([b"good", b"bad", b"good", b"bad"])

    def checked(message: oncelog.Message) -> str:
        if message.value == b"bad":
            raise ValueError("bad")
        return str(message.index)

    def publish(message: oncelog.Message) -> list[Output]:
        return [Output(f"{topic}-out", checked(message).encode())]

    def append(message: oncelog.Message, file: Any) -> None:
        print(checked(message), file=file)

    program: Process[Any] = (
        Process(publish, topic, subscription="s", effects=TopicEffects([f"{topic}-out"]))
        if keeps_nothing
        else Process(append, topic, subscription="s", effects=FileEffects(tmp_path / topic))
    )
    running = asyncio.ensure_future(run_processes(client, [program]))

    async def reaches(what: str, done: Callable[[SourceStatus], bool]) -> None:
        def is_done() -> bool:
            assert not running.done(), running.result()
            return any(done(status) for status in program.statuses.values())

        await until(is_done, DEADLINE_S, waiting_for=what)

    async def skip() -> None:
        await rest(client, "POST", f"/admin/v2/persistent/public/default/{topic}/subscription/s/skip/1")

    await reaches("the first message that fails", lambda status: status.stuck == 1)
    await skip()
    await reaches("the second one", lambda status: status.stuck == 3)
    await skip()
    await reaches("the end", lambda status: status.lag_messages == 0 and status.stuck is None and not status.trouble)
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    if keeps_nothing:
        assert [each.value for each in await read_all(client, f"{topic}-out")] == [b"0", b"2"]
    else:
        assert (tmp_path / topic).read_text().splitlines() == ["0", "2"]


class _Killed(BaseException):
    """Ends a process at a step."""


class _KilledAt:
    """A store whose user is killed once, before or behind the n-th write without a function."""

    def __init__(self, store: SqlEffects[Any], write: int, *, behind: bool) -> None:
        self._store, self._writes_left, self._behind = store, write, behind

    async def store_id(self) -> str:
        return await self._store.store_id()

    async def claim(
        self, source: Source, names: SourceNames, decide: Callable[[StoredPosition | None], StoredPosition]
    ) -> StoredPosition:
        return await self._store.claim(source, names, decide)

    async def apply(
        self,
        source: Source,
        claimed: StoredPosition,
        following: StoredPosition,
        run: Callable[[Connection], Awaitable[None] | None] | None,
    ) -> None:
        self._writes_left -= run is None
        killed = run is None and self._writes_left == 0
        if killed and not self._behind:
            raise _Killed
        await self._store.apply(source, claimed, following, run)
        if killed:
            raise _Killed


@pytest.mark.hazard("dead-letter-beside-the-store")
async def test_dead_letter_is_stored_once_wherever_its_process_ends(
    client: oncelog.AsyncClient, tmp_path: Path
) -> None:
    """Before the store has given the message up, before the owner was asked, before the store knows its answer, and
    before the message is acknowledged. The next process finishes it, also if it would give nothing up by itself."""

    async def killed_at(write: int, *, behind: bool) -> None:
        topic = f"bills-{write}-{behind}"
        database = tmp_path / f"{topic}.db"
        store: SqlEffects[Connection] = SqlEffects(create_engine(f"sqlite:///{database}"))
        await (await client.create_producer(topic)).send_many([b"0", b"bad", b"2"])

        def book(message: oncelog.Message, connection: Connection) -> None:
            connection.execute(text("create table if not exists bills (value text)"))
            connection.execute(text("insert into bills values (:value)"), {"value": message.value.decode()})
            if message.value == b"bad":
                raise ValueError("bad")

        async def begin(store: Any, max_attempts: int | None) -> None:
            made = Process(book, topic, subscription="billing", effects=store, max_attempts=max_attempts)
            await run_processes(client, [made])

        with suppress(_Killed, BaseExceptionGroup):
            await begin(_KilledAt(store, write, behind=behind), 1)
        was_given_up = (write, behind) != (1, False)
        following = asyncio.ensure_future(begin(store, None if was_given_up else 1))

        async def done() -> bool:
            assert not following.done(), following.result()
            return rows(database, "bills") == ["0", "2"] and len(await read_all(client, f"{topic}-billing-DLQ")) == 1

        await until(done, DEADLINE_S, every_s=0.1, waiting_for=f"{topic} to be done")
        following.cancel()
        await asyncio.gather(following, return_exceptions=True)
        (letter,) = await read_all(client, f"{topic}-billing-DLQ")
        assert (letter.value, letter.properties["dead_letter.index"]) == (b"bad", "1")

    await asyncio.gather(*(killed_at(write, behind=behind) for write in (1, 2) for behind in (False, True)))
