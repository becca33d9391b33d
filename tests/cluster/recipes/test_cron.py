"""The recipe "Cron": runs that are late, doubled, missing and killed publish each hour's report once."""

import asyncio
import json
import sqlite3
from collections.abc import Awaitable, Callable

import pytest

from tests.cluster.programs import Running
from tests.cluster.recipes.recipe_programs import Programs, Watched
from tests.cluster.until import until

pytestmark = pytest.mark.asyncio

FIRST_HOUR = 490_000
HOURS = 300
HOUR_S = 3600


async def test_each_hour_is_reported_once(programs: Programs, watched: Callable[[str], Awaitable[Watched]]) -> None:
    """The first run reports the hour before it. A second run, and one whose clock is slow, add nothing."""
    database = sqlite3.connect(programs.directory / "sales.db")
    with database:
        database.execute("create table sales (at integer, cents integer)")
        sales = [(FIRST_HOUR * HOUR_S + step * 1_000, step) for step in range(HOURS * 4)]
        database.executemany("insert into sales values (?, ?)", sales)
    database.close()
    topic = await watched("hourly-reports")

    def start(hours: int) -> Running:
        return programs.start("hourly_report.py", "sales.db", str((FIRST_HOUR + hours) * HOUR_S + 300))

    await start(1).ends()
    await programs.killed_often(lambda: start(HOURS), lambda: topic.count, HOURS)
    twice = [start(HOURS), start(HOURS)]
    await asyncio.gather(*(run.ends() for run in twice))
    await start(HOURS - 5).ends()
    await until(lambda: topic.count >= HOURS, 30)
    reports = [json.loads(value) for value in topic.values]
    assert [report["hour"] for report in reports] == list(range(FIRST_HOUR, FIRST_HOUR + HOURS))
    plain = [[cents for at, cents in sales if at // HOUR_S == report["hour"]] for report in reports]
    assert [(report["sales"], report["cents"]) for report in reports] == [(len(each), sum(each)) for each in plain]
