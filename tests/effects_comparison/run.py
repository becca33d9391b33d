"""One system under one fault."""

import asyncio
import os
import random
import signal
import subprocess
import sys
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple
from urllib.parse import urlsplit

import psycopg
import redis
from sqlalchemy import create_engine

import oncelog
from oncelog.runtime.orphan_guard import guarded
from oncelog_effects.outbox.tables import OutboxTables
from tests.cluster.cluster_fixture import Cluster
from tests.cluster.kills import any_time
from tests.cluster.programs import Running, started
from tests.cluster.until import until
from tests.contract.sdk.fakes.slow_proxy import SlowProxy
from tests.effects_comparison.servers import HERE, own_path
from tests.effects_comparison.systems import System

FAULTS = ("kills", "stop", "restore")
PROGRAMS = HERE / "programs"
#: A system that makes no progress for so long is at its end: longer than a session, a lease, a visibility timeout.
QUIET_S = 12.0
_REACH_S = 60.0
_STOPPED_AT, _WOKEN_AFTER = 40, 5
_COPIED_AT, _RESTORED_AFTER = 40, 20
#: Of the outbox: how long the transaction with the lower id stays open behind the one with the higher id.
_OPEN_S = 0.02
_COMMIT_S = 1.0
#: The outbox gets rows while fewer than so many have no effect; or after so many waits of _OPEN_S.
_AHEAD, _PATIENCE = 10, 25
#: A program that ends by itself is started again so often.
_STARTS = 3


class Places(NamedTuple):
    python: Path
    directory: Path
    postgres: str
    redis: str
    kafka: str
    cluster: Cluster


@dataclass(slots=True)
class Result:
    lost: int
    doubled: int
    note: str


def _last_error(program: Running) -> str:
    lines = [line for line in program.log.read_text(errors="replace").splitlines() if line.strip()]
    return lines[-1] if lines else "no output"


class Run:
    def __init__(
        self, places: Places, system: System, fault: str, draw: random.Random, *, count: int, kills: int
    ) -> None:
        self._places = places
        self._system = system
        self._fault = fault
        self._draw = draw
        self._count = count
        self._kill_count = kills
        self._topic = f"{system.program.replace('_', '-')}-{fault}-{os.urandom(3).hex()}"
        self._directory = places.directory / self._topic
        self._directory.mkdir()
        self._programs: list[Running] = []
        self._database = psycopg.connect(places.postgres, autocommit=True)
        self._notes: list[str] = []
        self._proxy = SlowProxy(0)
        self._postgres = places.postgres
        self._feeding: threading.Thread | None = None
        self._inserting = threading.Lock()
        #: of an outbox: numbers that are committed; and those that the restored database has lost by itself
        self._committed: set[int] = set()
        self._excused: set[int] = set()

    async def result(self) -> Result:
        port = urlsplit(self._places.postgres).port
        assert port is not None
        async with SlowProxy.running(port) as proxy:
            self._proxy = proxy
            self._postgres = self._places.postgres.replace(f":{port}/", f":{proxy.port}/")
            return await self._result()

    async def _result(self) -> Result:
        try:
            self._prepare()
            self._feed()
            if self._system.observe:
                self._start_command(self._words(self._system.observe, f"{self._topic}-out"), "observer.log")
            await getattr(self, f"_{self._fault}")()
            await self._until_quiet()
            found = [row[0] for row in self._database.execute(f"SELECT n FROM {self._system.counted}")]
            lost = set(range(self._count)) - set(found) - self._excused
            return Result(len(lost), len(found) - len(set(found)), "; ".join(dict.fromkeys(self._notes)))
        finally:
            for each in self._programs:
                each.end()
            if self._feeding is not None:
                self._feeding.join()
            self._database.close()

    # --- faults -------------------------------------------------------------------------------------------------------

    async def _kills(self) -> None:
        for wanted in sorted(self._draw.sample(range(1, self._count - 10), self._kill_count)):
            program = self._start()
            await self._reach(wanted, program)
            if not self._system.observe:
                await self._lose_answer(program)
            program.end()  # where it was just seen to be
        self._start()

    async def _lose_answer(self, program: Running) -> None:
        """The next COMMIT reaches PostgreSQL, and its answer does not reach the program: it ends in between."""
        begun = asyncio.Event()

        def is_next(said: bytes) -> bool:
            if b"COMMIT" not in said or begun.is_set():
                return False
            begun.set()
            return True

        before = self._counts()[0]
        self._proxy.drops_answer = is_next
        await until(lambda: begun.is_set() or not program.runs(), _REACH_S, every_s=0.001, waiting_for="a COMMIT")
        try:
            await until(lambda: self._counts()[0] > before, _COMMIT_S, every_s=0.001, waiting_for="the effect")
        except AssertionError:
            self._notes.append("a COMMIT without an effect")

    async def _stop(self) -> None:
        zombie = self._start()
        await self._reach(_STOPPED_AT, zombie)
        zombie.signal(signal.SIGSTOP)
        before = self._counts()[0]
        second = self._start()
        if self._system.program in ("oncelog_sql", "oncelog_topic"):
            await self._places.cluster.kill(await self._places.cluster.owner_of(self._topic), once=any_time)
        await self._reach(before + _WOKEN_AFTER, second)
        zombie.signal(signal.SIGCONT)

    async def _restore(self) -> None:
        program = self._start()
        await self._reach(_COPIED_AT, program)
        with self._inserting:
            await asyncio.to_thread(self._copy)  # the proxy goes on meanwhile
            before = set(self._committed)
        await self._reach(min(self._counts()[0] + _RESTORED_AFTER, self._count), program)
        program.end()
        with self._inserting:
            await asyncio.to_thread(self._put_back)
            self._excused = self._committed - before
        self._start()

    def _copy(self) -> None:
        with self._database.transaction():
            self._database.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
            self._database.execute("CREATE SCHEMA copied")
            for table in self._tables("public"):
                self._database.execute(f'CREATE TABLE copied."{table}" AS SELECT * FROM public."{table}"')

    def _put_back(self) -> None:
        """The database is as it was, with its constraints. Numbers that an outbox gets from now on are inserted after
        that, and are not those that the copy lacks."""
        copied = self._tables("copied")
        with self._database.transaction():
            for table in self._tables("public"):
                self._database.execute(f'TRUNCATE public."{table}"')
                if table in copied:
                    self._database.execute(f'INSERT INTO public."{table}" SELECT * FROM copied."{table}"')

    def _tables(self, schema: str) -> list[str]:
        found = self._database.execute("SELECT tablename FROM pg_tables WHERE schemaname = %s", [schema])
        return [row[0] for row in found]

    # --- programs -----------------------------------------------------------------------------------------------------

    def _words(self, program: str, *arguments: str) -> list[str]:
        python = sys.executable if program.startswith("oncelog") else str(self._places.python)
        return [python, str(PROGRAMS / f"{program}.py"), *arguments]

    def _start(self) -> Running:
        words = self._words(self._system.program)
        if self._system.program == "relay":
            words = [*self._relay(), "run", *self._relay_options(), "--lease", "2s", "--url", self._places.cluster.url]
        return self._start_command(words, f"program-{len(self._programs)}.log")

    def _relay(self) -> list[str]:
        return [sys.executable, "-m", "oncelog.cli", "relay"]

    def _relay_options(self) -> list[str]:
        return ["--database", self._postgres.replace("postgresql:", "postgresql+psycopg:")]

    def _start_command(self, words: list[str], log: str) -> Running:
        environment = {**os.environ, **self._environment(words)}
        program = started(self._directory / log, guarded(words), environment, self._directory)
        self._programs.append(program)
        return program

    def _environment(self, words: list[str]) -> dict[str, str]:
        places = self._places
        own = own_path() if words[0] == sys.executable else {"PYTHONPATH": str(PROGRAMS)}
        return own | {
            "PG_URL": self._postgres, "REDIS_URL": places.redis, "KAFKA": places.kafka, "TOPIC": self._topic,
            "ONCELOG_URL": places.cluster.url, "PYTHONUNBUFFERED": "1",
        }  # fmt: skip

    # --- effects ------------------------------------------------------------------------------------------------------

    def _prepare(self) -> None:
        for schema in ("public", "observed", "copied"):
            self._database.execute(f"DROP SCHEMA IF EXISTS {schema} CASCADE")
        for schema in ("public", "observed"):
            self._database.execute(f"CREATE SCHEMA {schema}")
            self._database.execute(f"CREATE TABLE {schema}.effects (n integer)")

    def _counts(self) -> tuple[int, int]:
        found = self._database.execute(f"SELECT count(n), count(DISTINCT n) FROM {self._system.counted}").fetchone()
        assert found is not None
        return found[0], found[1]

    async def _reach(self, wanted: int, program: Running) -> None:
        """A program that ends, or comes to its end before, is noted."""
        try:
            await until(
                lambda: not program.runs() or self._counts()[0] >= wanted,
                _REACH_S,
                every_s=0.001,
                waiting_for="effects",
            )
        except AssertionError:
            self._notes.append(f"no {wanted} effects in {_REACH_S:.0f} s")

    async def _until_quiet(self) -> None:
        """A supervisor starts the last program again when it has ended; the operator of a relay resumes."""
        starts, clock = 0, asyncio.get_running_loop().time
        known, since = self._counts(), clock()
        while clock() - since < QUIET_S:
            last = self._programs[-1]
            if not last.runs() and starts < _STARTS:
                starts += 1
                self._notes.append(f"ended: {_last_error(last)[:100]}")
                if self._system.program == "relay":
                    words = [*self._relay(), "resume", "--after-restore", *self._relay_options()]
                    resume = self._start_command([*words, "--url", self._places.cluster.url], "resume.log")
                    await until(lambda: not resume.runs(), _REACH_S, waiting_for="resume")  # noqa: B023
                self._start()
                since = clock()
            found = self._counts()
            if found != known or (self._feeding is not None and self._feeding.is_alive()):
                known, since = found, clock()
            await asyncio.to_thread(threading.Event().wait, 0.1)

    # --- feeds --------------------------------------------------------------------------------------------------------

    def _feed(self) -> None:
        match self._system.feed:
            case "oncelog":
                with (
                    oncelog.Client(self._places.cluster.url) as client,
                    client.create_producer(self._topic) as producer,
                ):
                    producer.send_many([str(number).encode() for number in range(self._count)])
                    if self._system.observe:
                        client.create_producer(f"{self._topic}-out", producer_name="first").close()
            case "redis":
                store = redis.Redis.from_url(self._places.redis)
                store.xgroup_create(self._topic, "effects", "0", mkstream=True)
                for number in range(self._count):
                    store.xadd(self._topic, {"n": number})
            case "celery":
                code = f"import celery_late as c; [c.effect.delay(n) for n in range({self._count})]"
                self._perform([str(self._places.python), "-c", code])
            case "kafka":
                self._perform(self._words("kafka_feed", self._topic, str(self._count)))
            case "kafka-outbox":
                self._perform(self._words("kafka_feed", self._topic, "0"))
                self._database.execute("CREATE TABLE outbox (id bigserial PRIMARY KEY, value bytea)")
                self._feed_outbox("INSERT INTO outbox (value) VALUES (%s)")
            case "oncelog-outbox":
                engine = create_engine(self._places.postgres.replace("postgresql:", "postgresql+psycopg:"))
                OutboxTables().metadata.create_all(engine)
                engine.dispose()
                with oncelog.Client(self._places.cluster.url) as client:
                    client.create_producer(f"{self._topic}-out", producer_name="first").close()
                self._feed_outbox(f"INSERT INTO oncelog_outbox (topic, value) VALUES ('{self._topic}-out', %s)")

    def _perform(self, words: list[str]) -> None:
        environment = {**os.environ, **self._environment(words)}
        subprocess.run(words, env=environment, check=True, capture_output=True, timeout=_REACH_S)

    def _feed_outbox(self, statement: str) -> None:
        """Two transactions at a time: the one with the lower id commits last. Not far ahead of the effects."""

        def insert() -> None:
            with psycopg.connect(self._places.postgres) as slow, psycopg.connect(self._places.postgres) as fast:
                for number in range(0, self._count, 2):
                    for _ in range(_PATIENCE):
                        row = fast.execute(f"SELECT count(*) FROM {self._system.counted}").fetchone()
                        fast.commit()
                        if row is None or len(self._committed) < row[0] + _AHEAD:
                            break
                        threading.Event().wait(_OPEN_S)
                    with self._inserting:
                        slow.execute(statement, [str(number).encode()])
                        fast.execute(statement, [str(number + 1).encode()])
                        fast.commit()
                        threading.Event().wait(_OPEN_S)
                        slow.commit()
                        self._committed |= {number, number + 1}
                    threading.Event().wait(_OPEN_S)

        self._feeding = threading.Thread(target=insert)
        self._feeding.start()
