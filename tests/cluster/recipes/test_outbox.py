"""The recipe "Outbox": what is committed is published once, although the relay is killed and doubled; a relay that goes
on behind the highest id loses rows of the same transactions."""

import random
from collections.abc import Awaitable, Callable, Iterator

import pytest

from tests.cluster.recipes.postgres_process import PostgresProcess
from tests.cluster.recipes.recipe_programs import DEADLINE_S, PAGE, Programs, Running, Watched, running
from tests.cluster.until import until
from tests.tidy.documents import fenced, text_of

pytestmark = pytest.mark.asyncio

WRITERS = 4
TRANSACTIONS = 300
#: Every transaction writes into both tables. The rows of this one stay, so it also has what must be published.
NAIVE = "create table naive_outbox (id bigserial primary key, value text not null)"


@pytest.fixture(scope="module")
def server() -> Iterator[PostgresProcess]:
    with PostgresProcess.running() as running_server:
        yield running_server


@pytest.fixture
def postgres(server: PostgresProcess) -> PostgresProcess:
    """With the tables of the page, new for each test."""
    (tables,) = fenced(text_of(PAGE), "sql")
    server.query("drop schema public cascade; create schema public")
    server.query(tables)
    server.query(NAIVE)
    return server


class NaivePoller:
    """What the page warns of: it asks for the rows behind the highest id that it has seen."""

    def __init__(self, postgres: PostgresProcess) -> None:
        self._postgres = postgres
        self.seen: list[int] = []

    def poll(self) -> None:
        last = max(self.seen, default=0)
        self.seen += map(int, self._postgres.query(f"select id from naive_outbox where id > {last} order by id"))


def insert(*values: str) -> str:
    rows = ", ".join(f"('{value}')" for value in values)
    return f"insert into outbox (value) values {rows}; insert into naive_outbox (value) values {rows};\n"


def script(writer: int) -> str:
    """Transactions that overlap with those of other writers; every fifth is rolled back, and leaves a gap of ids."""
    chance = random.Random(writer)
    lines = []
    for number in range(TRANSACTIONS):
        values = [f"{writer} {number} {row}" for row in range(chance.randint(1, 3))]
        lines.append(f"begin; {insert(*values)} select pg_sleep({chance.random() * 0.01});")
        lines.append("rollback;" if chance.random() < 0.2 else "commit;")
    return "\n".join(lines)


async def test_committed_rows_are_published_once(
    programs: Programs, watched: Callable[[str], Awaitable[Watched]], postgres: PostgresProcess
) -> None:
    """In their order within a transaction and a session."""
    topic = await watched("outbox-events")
    writers = [postgres.begin_script(script(writer)) for writer in range(WRITERS)]
    total = WRITERS * TRANSACTIONS  # about: some are rolled back, and most have more than one row
    await programs.killed_often(lambda: programs.start("outbox_relay.py", postgres.url), lambda: topic.count, total)
    async with (
        running(programs.start("outbox_relay.py", postgres.url)) as first,
        running(programs.start("outbox_relay.py", postgres.url)) as second,
    ):
        writers += [postgres.begin_script(script(writer)) for writer in range(WRITERS, 2 * WRITERS)]
        await until(lambda: not all(map(Running.runs, [first, second])), DEADLINE_S, waiting_for="one of two to end")
        fenced_one, other = (first, second) if second.runs() else (second, first)
        assert "ProducerFenced" in await fenced_one.ends(1)
        await other.reaches(lambda: not any(writer.poll() is None for writer in writers), "the end of the writers")
        committed = postgres.query("select value from naive_outbox")
        await other.reaches(lambda: topic.count >= len(committed), "every committed row")
    assert [writer.returncode for writer in writers] == [0] * len(writers)
    published = [value.decode() for value in topic.values]
    assert sorted(published) == sorted(committed)
    for writer in range(2 * WRITERS):
        own = [tuple(map(int, value.split()))[1:] for value in published if value.startswith(f"{writer} ")]
        assert own == sorted(own)


async def test_row_that_is_committed_late_is_lost_by_its_id_only(
    programs: Programs, watched: Callable[[str], Awaitable[Watched]], postgres: PostgresProcess
) -> None:
    """The picture of the page."""
    topic = await watched("outbox-events")
    naive = NaivePoller(postgres)
    async with running(programs.start("outbox_relay.py", postgres.url)) as relay:
        late = postgres.begin_session()
        assert late.stdin is not None
        assert late.stdout is not None
        late.stdin.write(f"begin; {insert('late')} \\echo inserted\n")
        late.stdin.flush()
        assert late.stdout.readline() == "inserted\n"
        postgres.query(insert("early"))
        naive.poll()
        await relay.reaches(lambda: topic.values[-1:] == [b"early"], "the row of the transaction that is over")
        late.communicate("commit;\n")
        assert late.returncode == 0
        naive.poll()
        await relay.reaches(lambda: topic.values[-2:] == [b"early", b"late"], "the row that was committed late")
    assert postgres.query("select id, value from naive_outbox order by id") == ["1|late", "2|early"]
    assert naive.seen == [2]
