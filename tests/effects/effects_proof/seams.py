"""`make effects-proof`: a program with effects at every seam, on PostgreSQL and SQLite. Too long for the default tests,
of which `test_killed_at_seams` is a sample.

- kill -9 at each seam, one after the other, in an order that the seed draws
- SIGSTOP at each seam; the owner dies, so that another program takes over, and the first one is woken after three
  effects of the second
- a proxy before PostgreSQL that passes on the n-th COMMIT and not its answer, n = 1 to 50: in one run a half of them,
  in another one the others

At the end of each run the database has one effect for each message: a count and a sum. EFFECTS_SEED (default 1) draws
the order of the seams, the number of each one's passing, and the halves.
"""

import os
import random
import signal
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

import oncelog
from tests.cluster.cluster_fixture import Cluster
from tests.cluster.kills import any_time
from tests.contract.sdk.fakes.slow_proxy import SlowProxy
from tests.effects.effects_proof.seam_program import LOCKED, SEAMS
from tests.effects.effects_proof.seam_runs import SeamRuns
from tests.effects.postgres_process import PostgresProcess

pytestmark = pytest.mark.asyncio

SEED = int(os.environ.get("EFFECTS_SEED", "1"))
COMMITS_MAX = 50
#: A seam that is passed once by each program.
ONCE = ("attach", "ask", "claim.lock", "claim.commit", "compare", "ack")


@pytest.fixture(scope="session")
def postgres() -> Iterator[PostgresProcess]:
    with PostgresProcess.running() as server:
        yield server


@pytest.fixture(params=["sqlite", "postgresql"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/seams.db"
    server: PostgresProcess = request.getfixturevalue("postgres")
    server.query("DROP SCHEMA public CASCADE; CREATE SCHEMA public")
    return server.url.replace("postgresql:", "postgresql+psycopg:")


@asynccontextmanager
async def prepared(
    cluster: Cluster,
    client: oncelog.AsyncClient,
    tmp_path: Path,
    url: str,
    *,
    messages: int,
    batch: int,
    pause_s: float,
) -> AsyncIterator[SeamRuns]:
    topic = f"seams-{os.urandom(4).hex()}"
    runs = SeamRuns(cluster, tmp_path, topic, url, messages=messages, batch=batch, pause_s=pause_s)
    await runs.publish(client)
    try:
        yield runs
    finally:
        runs.close()


async def test_killed_at_every_seam(cluster: Cluster, client: oncelog.AsyncClient, tmp_path: Path, url: str) -> None:
    draw = random.Random(f"{SEED}/{url.partition(':')[0]}")
    seams = [(seam, 1 if seam in ONCE else draw.randint(1, 3)) for seam in draw.sample(SEAMS, len(SEAMS))]
    async with prepared(cluster, client, tmp_path, url, messages=300, batch=4, pause_s=0.08) as runs:
        for seam, number in seams:
            await runs.killed_at(seam, number)
            print(f"seed {SEED}, {url.partition(':')[0]}: killed at {seam} ({number}): {len(runs.seen())} effects")
        last = runs.start()
        try:
            await runs.completes(last)
        finally:
            last.end()
        runs.check()
        print(f"seed {SEED}, {url.partition(':')[0]}: {len(seams)} kills, {runs.messages} messages, {sum(runs.seen())}")


@pytest.mark.parametrize("seam", SEAMS)
async def test_zombie_of_every_seam(
    cluster: Cluster, client: oncelog.AsyncClient, tmp_path: Path, url: str, seam: str
) -> None:
    """In SQLite a stopped process that holds the lock blocks everybody until it goes on: that is told in the docs."""
    blocks = url.startswith("sqlite") and seam in LOCKED
    async with prepared(cluster, client, tmp_path, url, messages=120, batch=4, pause_s=0.08) as runs:
        zombie = await runs.stopped_at(seam, 1)
        second = None
        try:
            before = len(runs.seen())
            second = runs.start()
            await cluster.kill(await cluster.owner_of(runs.topic), once=any_time)
            if not blocks:
                await second.reaches(lambda: len(runs.seen()) >= before + 3, "three effects of the second")
            zombie.process.send_signal(signal.SIGCONT)
            await runs.completes(second)
            assert zombie.runs(), zombie.log.read_text()[-2000:]
        finally:
            zombie.end()
            if second is not None:
                second.end()
        runs.check()
        print(f"{url.partition(':')[0]}: stopped at {seam}, woken: {runs.messages} messages, {sum(runs.seen())}")


@pytest.mark.parametrize("half", [0, 1])
async def test_lost_answer_of_the_nth_commit(
    cluster: Cluster, client: oncelog.AsyncClient, tmp_path: Path, postgres: PostgresProcess, half: int
) -> None:
    """Not of every second one: a program that commits twice for each attempt would never get an answer."""
    postgres.query("DROP SCHEMA public CASCADE; CREATE SCHEMA public")
    url = postgres.url.replace("postgresql:", "postgresql+psycopg:")
    drawn = random.Random(SEED).sample(range(1, COMMITS_MAX + 1), COMMITS_MAX)
    lost = drawn[half::2]
    commits: list[int] = []

    def drops(said: bytes) -> bool:
        if b"COMMIT" not in said:
            return False
        commits.append(len(commits) + 1)
        return commits[-1] in lost

    async with (
        prepared(cluster, client, tmp_path, url, messages=120, batch=2, pause_s=0.0) as runs,
        SlowProxy.running(postgres.port) as proxy,
    ):
        proxy.drops_answer = drops
        program = runs.start(url=url.replace(f":{postgres.port}/", f":{proxy.port}/"))
        try:
            await runs.completes(program)
        finally:
            program.end()
        assert len(commits) >= COMMITS_MAX
        runs.check()
        print(f"{len(lost)} answers lost of {len(commits)} COMMITs: {runs.messages} messages, {sum(runs.seen())}")
