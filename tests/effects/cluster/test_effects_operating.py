"""The operating section of docs/effects.md: what an operator does about a database in which messages take effect."""

import asyncio
import json
import shutil
import sqlite3
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing, suppress
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import create_engine, text

import oncelog
from oncelog.core.errors import StoreMismatch
from oncelog_effects import Process, SqlEffects
from oncelog_effects.processes import run_processes
from tests.cluster.cluster_fixture import DEADLINE_S, Cluster
from tests.cluster.until import until
from tests.tidy.documents import fenced, text_of

pytestmark = pytest.mark.asyncio

TOPIC = "bookings"


class Shop:
    """One topic, one subscription, and databases."""

    def __init__(self, cluster: Cluster, client: oncelog.AsyncClient, directory: Path) -> None:
        self.cluster = cluster
        self.client = client
        self.directory = directory
        self.sent = 0

    def path(self, database: str) -> Path:
        return self.directory / f"{database}.db"

    def url(self, database: str) -> str:
        return f"sqlite:///{self.path(database)}"

    def execute(self, database: str, sql: str) -> list[Any]:
        with closing(sqlite3.connect(self.path(database))) as connection, connection:
            return connection.execute(sql).fetchall()

    def invoices(self, database: str) -> list[int]:
        return [row[0] for row in self.execute(database, "select number from invoices order by rowid")]

    async def send(self, count: int) -> None:
        async with await self.client.create_producer(TOPIC) as producer:
            await producer.send_many([b"%d" % number for number in range(self.sent, self.sent + count)])
        self.sent += count

    def process(self, database: str) -> "Process[Any]":
        self.execute(database, "create table if not exists invoices (number integer)")
        engine = create_engine(self.url(database))

        @oncelog.process(TOPIC, subscription="billing", effects=SqlEffects(engine), batch=10)
        def book(messages: Any, connection: Any) -> None:
            for message in messages:
                connection.execute(text("insert into invoices values (:n)"), {"n": int(message.value)})

        return book

    @asynccontextmanager
    async def running(self, database: str) -> AsyncIterator[None]:
        """A program on this database, until the end of the block; then everything is acknowledged."""
        task = asyncio.ensure_future(run_processes(self.client, [self.process(database)]))
        try:
            yield
        finally:
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task

    async def books(self, database: str, wanted: list[int]) -> None:
        """A program on this database comes to these invoices."""
        async with self.running(database):
            await until(lambda: len(self.invoices(database)) >= len(wanted), DEADLINE_S, every_s=0.05)
        assert self.invoices(database) == wanted

    async def is_refused(self, database: str) -> str:
        with pytest.raises(StoreMismatch) as error:
            await run_processes(self.client, [self.process(database)])
        return str(error.value)

    async def run(self, *words: str, code: int = 0) -> str:
        """The output of `oncelog effects …`, or its error. Consumers may be connected for a moment after their end."""
        answers: list[tuple[int, str]] = []

        async def done() -> bool:
            answer = await asyncio.to_thread(self.cluster.run, "effects", *words)
            answers.append((answer.returncode, (answer.stdout or answer.stderr).decode()))
            return "connected consumer" not in answers[-1][1]

        await until(done, DEADLINE_S, waiting_for="the end of the consumers")
        assert answers[-1][0] == code, answers[-1][1]
        return answers[-1][1]

    async def status(self, database: str, *words: str, code: int = 0) -> dict[str, Any]:
        """Of the only source."""
        report = json.loads(await self.run("status", *words, "--database", self.url(database), "-o", "json", code=code))
        (source,) = report["sources"]
        return dict(source)


async def test_operator_looks_redoes_moves_and_cleans_up(
    cluster: Cluster, client: oncelog.AsyncClient, tmp_path: Path
) -> None:
    """Each message has its effect once in each database, whatever is restored, moved and copied."""
    shop = Shop(cluster, client, tmp_path)
    await shop.send(4)
    await shop.books("shop", list(range(4)))
    shutil.copy(shop.path("shop"), shop.path("backup"))
    await shop.send(6)
    await shop.books("shop", list(range(10)))
    seen = await shop.status("shop")
    assert (seen["state"], seen["lag"], seen["lost"], seen["store"]["position"]) == ("ok", 0, [], 10)

    # restored from a backup: seen before a program runs, and delivered again by it
    shutil.copy(shop.path("backup"), shop.path("shop"))
    seen = await shop.status("shop")
    assert (seen["state"], seen["lag"], seen["lost"]) == ("lost", 6, [[4, 9]])
    await shop.books("shop", list(range(10)))

    # redo: not under a program that runs
    async with shop.running("shop"):
        await until(lambda: _connected(shop), DEADLINE_S)
        refused = await asyncio.to_thread(
            cluster.run, "effects", "redo", TOPIC, "billing", "--from-index", "3", "--yes"
        )
        assert b"stop the programs" in refused.stderr
    await shop.run("redo", TOPIC, "billing", "--from-index", "3", "--yes")
    shop.execute("shop", "delete from invoices where number >= 3")
    await shop.books("shop", list(range(10)))
    assert (await shop.status("shop"))["store"]["redo_epoch"] > 0

    # restored to before a redo: it lacks what is before the redo's place, too
    await shop.run("redo", TOPIC, "billing", "--from-index", "8", "--yes")
    shop.execute("shop", "delete from invoices where number >= 8")
    await shop.books("shop", list(range(10)))
    shutil.copy(shop.path("backup"), shop.path("shop"))
    assert (await shop.status("shop"))["lost"] == [[4, 9]]
    await shop.books("shop", list(range(10)))

    # a new database, with the positions of the former one
    shop.execute("new", "create table invoices (number integer)")
    with closing(sqlite3.connect(shop.path("new"))) as connection, connection:
        connection.execute(f"attach '{shop.path('shop')}' as old")
        connection.execute("insert into invoices select number from old.invoices order by rowid")
    rebind = ("rebind", TOPIC, "billing", "--database", shop.url("new"), "--yes")
    assert "copy it with --from-database" in await shop.run(*rebind, code=1)
    await shop.run(*rebind, "--from-database", shop.url("shop"))
    assert "is bound to" in await shop.run(*rebind, "--from-database", shop.url("shop"))
    assert "oncelog effects rebind" in await shop.is_refused("shop")
    await shop.send(2)
    await shop.books("new", list(range(12)))

    # a copy for staging
    shutil.copy(shop.path("new"), shop.path("staging"))
    with closing(sqlite3.connect(shop.path("staging"))) as connection:
        connection.executescript(documented("a store id of its own, SQLite"))
    await shop.is_refused("staging")
    assert (await shop.status("staging", code=1))["state"] == "store_mismatch"

    # the row is lost, and the operator knows what the database has
    shop.execute("new", "delete from oncelog_effects")
    missing = await shop.status("new", TOPIC, "billing", code=1)
    assert (missing["state"], missing["store"]) == ("store_missing", None)
    adopt = ("adopt", TOPIC, "billing", "--database", shop.url("new"), "--yes")
    assert "say with --position" in await shop.run(*adopt, code=1)
    await shop.run(*adopt, "--position", "12")
    await shop.send(1)
    await shop.books("new", list(range(13)))
    assert "nothing to adopt" in await shop.run(*adopt, code=1)

    # everything once more, in a database without effects
    shop.execute("empty", "create table invoices (number integer)")
    await shop.run("rebind", TOPIC, "billing", "--database", shop.url("empty"), "--empty", "--yes")
    await shop.books("empty", list(range(13)))

    # the topic is gone
    assert cluster.run("admin", "topics", "delete", TOPIC, "--yes").returncode == 0
    gone = await shop.status("empty")
    assert gone["state"] == "gone"
    shop.execute("empty", documented("rows of a deleted topic").replace("TOPIC_ID", gone["store"]["topic_id"]))
    assert shop.execute("empty", "select count(*) from oncelog_effects") == [(0,)]
    assert shop.invoices("empty") == list(range(13))


def documented(title: str) -> str:
    """The statements of docs/effects.md below this comment."""
    (block,) = [block for block in fenced(text_of("docs/effects.md"), "sql") if block.startswith(f"-- {title}\n")]
    return block


async def _connected(shop: Shop) -> bool:
    return bool((await shop.status("shop"))["log"]["consumers"])
