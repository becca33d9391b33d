"""The programs of docs/outbox.md, and `oncelog relay`: what is committed is published once, whatever is killed,
stopped, doubled or restored."""

import json
import random
import shutil
import signal
import sqlite3
import uuid
from collections.abc import Awaitable, Callable, Iterator
from contextlib import closing, suppress
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.cluster.cluster_fixture import Cluster, rest_path
from tests.cluster.kills import any_time, idle, just_seen
from tests.cluster.programs import DEADLINE_S, Running, running
from tests.cluster.recipes.recipe_programs import OUTBOX_PAGE, Programs, Watched
from tests.cluster.until import until
from tests.effects.postgres_process import PostgresProcess
from tests.tidy.documents import fenced, text_of

pytestmark = pytest.mark.asyncio

ORDERS = 60
WRITERS = 4
TRANSACTIONS = 150
BACKLOG = 10_000
LEASE_S = 1
#: Every transaction of the writers writes into both tables. The rows of this one stay: it has what must be published.
NAIVE = "create table naive_outbox (id bigserial primary key, value text not null)"


@pytest.fixture(scope="module")
def server() -> Iterator[PostgresProcess]:
    with PostgresProcess.running() as running_server:
        yield running_server


@pytest.fixture
def postgres(server: PostgresProcess) -> PostgresProcess:
    server.query("drop schema public cascade; create schema public")
    return server


class Relays:
    """`oncelog relay` of one database."""

    def __init__(self, programs: Programs, url: str) -> None:
        self._programs = programs
        self.url = url.replace("postgresql:", "postgresql+psycopg:")

    def start(self, *options: str, log: str = "relay") -> Running:
        return self.command("run", "--lease", f"{LEASE_S}s", *options, log=log)

    def standby(self) -> Running:
        """With a log and a health port of its own."""
        words = ("run", "--database", self.url, "--lease", f"{LEASE_S}s", "--health-port", "0")
        return self._programs.start_forked("standby", "relay", *words)

    def command(self, name: str, *options: str, log: str = "relay") -> Running:
        return self._programs.start_forked(log, "relay", name, "--database", self.url, *options)

    async def status(self) -> dict[str, Any]:
        log = self._programs.directory / "relay.log"
        before = len(log.read_text()) if log.exists() else 0
        await self.command("status", "-o", "json").ends()
        return dict(json.loads(log.read_text()[before:].splitlines()[-1]))


async def order(http: httpx.AsyncClient, shop: Running, port: int, number: int) -> None:
    """As a customer who repeats the request until it is answered."""

    async def ordered() -> bool:
        assert shop.runs(), shop.log.read_text()[-3000:]
        with suppress(httpx.TransportError):
            place = f"http://127.0.0.1:{port}/{uuid.UUID(int=number)}"
            return (await http.put(place, json={"cents": number})).status_code == 204
        return False

    await until(ordered, DEADLINE_S, every_s=0.02, waiting_for=f"order {number}")


async def test_each_order_has_one_invoice(
    programs: Programs, cluster: Cluster, postgres: PostgresProcess, free_port: Callable[[], int]
) -> None:
    """Shop, relay, standby, invoicer and the topic's owner are killed while customers order."""
    postgres.query("create database billing")
    shop_url = postgres.url.replace("postgresql:", "postgresql+psycopg:")
    billing = postgres.url.removesuffix("/postgres") + "/billing"
    programs.environment["BILLING_DATABASE"] = billing.replace("postgresql:", "postgresql+psycopg:")
    port, relays = free_port(), Relays(programs, postgres.url)
    starts: dict[str, Callable[[], Running]] = {
        "shop": lambda: programs.start("webshop.py", shop_url, str(port)),
        "invoicer": lambda: programs.start("invoice.py"),
        "relay": relays.start,
        "standby": lambda: relays.start(log="standby"),
    }

    def invoices() -> bool:
        """Whether the first one is written."""
        there = _query(postgres, billing, "select to_regclass('invoices')") == ["invoices"]
        return there and _query(postgres, billing, "select count(*) from invoices") != ["0"]

    # Each victim is at work: of the two relays one has the claim, and it is killed, too.
    works: dict[str, Callable[[], object]] = {
        "shop": just_seen,
        "invoicer": invoices,
        "relay": lambda: _claimed(alive["relay"]) is not None,
        "standby": lambda: _claimed(alive["standby"]) is not None,
    }
    alive = {name: start() for name, start in starts.items()}

    async def relayed() -> bool:
        return (await cluster.request("GET", f"{rest_path('web-orders')}/stats")).status_code == 200

    try:
        async with httpx.AsyncClient(timeout=5, verify=False) as http:
            for number in range(ORDERS):
                await order(http, alive["shop"], port, number)
                if number % 15 == 10:
                    victim = sorted(starts)[number // 15]
                    await alive[victim].kill(once=works[victim])
                    alive[victim] = starts[victim]()
                if number == ORDERS // 2:
                    await until(relayed, DEADLINE_S, every_s=0.1, waiting_for="a relay to create the topic")
                    await cluster.kill(await cluster.owner_of("web-orders"), once=any_time)
        sums = "select count(*), sum(cents) from "
        assert postgres.query(f"{sums} orders") == [f"{ORDERS}|{sum(range(ORDERS))}"]
        postgres.query(fenced(text_of(OUTBOX_PAGE), "sql")[0])  # one order more, of 1999 cents
        wanted = [f"{ORDERS + 1}|{sum(range(ORDERS)) + 1999}"]

        def invoiced() -> bool:
            assert all(each.runs() for each in alive.values()), alive["relay"].log.read_text()[-3000:]
            return _query(postgres, billing, f"{sums} invoices") == wanted

        await until(invoiced, DEADLINE_S, every_s=0.2, waiting_for="all invoices")
        assert _query(postgres, billing, "select count(distinct order_id) from invoices") == [str(ORDERS + 1)]
        assert postgres.query("select count(*) from oncelog_outbox") == ["0"]
    finally:
        for each in alive.values():
            each.end()
    _query(postgres, postgres.url, "drop database billing with (force)")


def _query(postgres: PostgresProcess, url: str, sql: str) -> list[str]:
    known, postgres.url = postgres.url, url
    try:
        return postgres.query(sql)
    finally:
        postgres.url = known


def insert(*values: str) -> str:
    rows = ", ".join(f"('outbox-events', '{value}')" for value in values)
    naive = ", ".join(f"('{value}')" for value in values)
    return (
        f"insert into oncelog_outbox (topic, value) values {rows}; insert into naive_outbox (value) values {naive};\n"
    )


def script(writer: int) -> str:
    """Transactions that overlap with those of other writers; every fifth is rolled back, and leaves a gap of ids."""
    chance = random.Random(writer)
    lines = []
    for number in range(TRANSACTIONS):
        values = [f"{writer} {number} {row}" for row in range(chance.randint(1, 3))]
        lines.append(f"begin; {insert(*values)} select pg_sleep({chance.random() * 0.01});")
        lines.append("rollback;" if chance.random() < 0.2 else "commit;")
    return "\n".join(lines)


@pytest.mark.hazard("row-committed-behind-a-higher-number", "row-too-large-for-the-log")
async def test_committed_rows_are_published_once(
    programs: Programs, watched: Callable[[str], Awaitable[Watched]], postgres: PostgresProcess
) -> None:
    """In their order within a transaction and a session, from a backlog on, while relays are killed, stopped for longer
    than their lease, and wake up. A row that is too large stays, and says why."""
    topic = await watched("outbox-events")
    relays = Relays(programs, postgres.url)
    postgres.query(await programs.start_forked("ddl", "relay", "ddl").ends())
    postgres.query(NAIVE)
    many = f"select 'outbox-events', convert_to('0 0 ' || n, 'UTF8') from generate_series(1, {BACKLOG}) n"
    postgres.query(f"insert into oncelog_outbox (topic, value) {many}")
    postgres.query(
        "insert into oncelog_outbox (topic, value) values ('outbox-events', convert_to(repeat('x', 6000000), 'UTF8'))"
    )
    writers = [postgres.begin_script(script(writer)) for writer in range(1, WRITERS + 1)]
    await programs.killed_often(relays.start, lambda: topic.count, BACKLOG)
    async with running(relays.start(log="first")) as first, running(relays.start(log="second")) as second:
        await first.reaches(lambda: _claimed(first) or _claimed(second), "one of them to have the claim")
        active, other = (first, second) if _claimed(first) else (second, first)
        for _ in range(3):
            active.process.send_signal(signal.SIGSTOP)
            postgres.query(insert(mark := f"9 {topic.count} 0"))
            await until(partial(_has, topic, mark), DEADLINE_S, waiting_for="the other relay")
            active.process.send_signal(signal.SIGCONT)
            active, other = other, active
        await first.reaches(lambda: not any(writer.poll() is None for writer in writers), "the end of the writers")
        committed = [f"0 0 {n}" for n in range(1, BACKLOG + 1)] + postgres.query("select value from naive_outbox")
        await first.reaches(lambda: topic.count >= len(committed), "every committed row")
        assert second.runs()
    assert [writer.returncode for writer in writers] == [0] * len(writers)
    published = [value.decode() for value in topic.values]
    assert sorted(published) == sorted(committed)
    for writer in range(WRITERS + 1):
        own = [tuple(map(int, value.split()))[1:] for value in published if value.startswith(f"{writer} ")]
        assert own == sorted(own)
    status = await relays.status()
    assert (status["waiting"], status["refused"]) == (0, 1)
    (refused,) = status["refused_rows"]
    assert "6000000 bytes" in refused["reason"]


@pytest.mark.hazard("numbers-given-twice-after-a-restore", "restored-row-sent-again")
async def test_restored_database_ends_the_relay_until_it_is_told(
    programs: Programs, watched: Callable[[str], Awaitable[Watched]]
) -> None:
    """Then rows that the log has are left out, others are sent, and lost ones are named."""
    topic = await watched("outbox-restored")
    database, backup = programs.directory / "shop.db", programs.directory / "backup.db"
    relays = Relays(programs, f"sqlite:///{database}")

    def rows(*values: str) -> None:
        with closing(sqlite3.connect(database)) as connection, connection:
            for value in values:
                row = (uuid.uuid5(uuid.NAMESPACE_URL, value).hex, "outbox-restored", value)
                connection.execute("insert into oncelog_outbox (event_id, topic, value) values (?, ?, ?)", row)

    async with running(relays.start()) as relay:
        await relay.reaches(lambda: _has_tables(database), "the tables")
        rows("a", "b")
        await relay.reaches(lambda: topic.has(2) and not _left(database), "the first rows")
    rows("c", "d")
    shutil.copy(database, backup)
    rows("lost")
    async with running(relays.start()) as relay:
        await relay.reaches(lambda: topic.has(5) and not _left(database), "the rows behind the backup")
    shutil.copy(backup, database)
    rows("e")
    ended = await relays.start().ends(1)
    assert "OutboxRestored" in ended or "outbox_restored" in ended
    assert "oncelog relay resume --after-restore" in ended
    assert [value for value, _ in _left(database)] == ["c", "d", "e"]
    told = await relays.command("resume", "--after-restore").ends()
    assert f"the log has event {uuid.uuid5(uuid.NAMESPACE_URL, 'lost').hex}" in told
    async with running(relays.start()) as relay:
        await relay.reaches(lambda: topic.has(6), "the row that is new")
        async with running(relays.standby()) as standby:
            await standby.says("another relay has the claim of oncelog_outbox: this one waits")
            await standby.health("/readyz")
            assert (await standby.health("/status"))["active"] is False
            await relay.kill(once=idle)
            rows("f")
            await standby.reaches(lambda: topic.has(7) and not _left(database), "a row behind it")
            assert (await standby.health("/status"))["active"] is True
    assert topic.values == [b"a", b"b", b"c", b"d", b"lost", b"e", b"f"]


def _claimed(relay: Running) -> bool | None:
    """Whether this relay has the claim, by the last word of its log about it; None: it has not tried yet."""
    lines = [line for line in relay.text().splitlines() if "claimed the outbox" in line or "has the claim" in line]
    return "claimed the outbox" in lines[-1] if lines else None


def _has(topic: Watched, mark: str) -> bool:
    return mark.encode() in topic.values


def _has_tables(path: Path) -> bool:
    with closing(sqlite3.connect(path)) as connection:
        return bool(connection.execute("select 1 from sqlite_master where name = 'oncelog_outbox_streams'").fetchone())


def _left(path: Path) -> list[tuple[str, str]]:
    with closing(sqlite3.connect(path)) as connection:
        return connection.execute("select value, event_id from oncelog_outbox order by id").fetchall()
