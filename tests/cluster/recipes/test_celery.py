"""The recipe "Celery": worker processes are killed while they run tasks, and each bill is published once."""

import json
import random
import sys
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path

import pytest
import redis

from tests.cluster.cluster_fixture import children_of
from tests.cluster.kills import alive, kill
from tests.cluster.programs import DEADLINE_S, running
from tests.cluster.recipes.recipe_programs import Programs, Watched
from tests.cluster.until import until
from tests.contract.stores.redis_process import RedisProcess

pytestmark = pytest.mark.asyncio

ACCOUNTS = 60
FIRST_MONTH = 24_380
MONTHS = 6
#: The tasks of two months, every third of them twice. Both months of an account are at work at the same time, and the
#: later one is sent first: Celery has no order.
SEND = """
from billing import bill
for account in range({accounts}):
    for _ in range(1 + (account % 3 == 0)):
        for month in ({month} + 1, {month}):
            bill.delay(account, month, account * 100)
"""


async def test_each_bill_is_published_once(
    programs: Programs, watched: Callable[[str], Awaitable[Watched]], tmp_path: Path
) -> None:
    """One worker process is killed in each pair of months; Celery starts another one, and delivers its tasks again."""
    topic = await watched("account-bills")
    chance = random.Random(7)
    celery = [sys.executable, "-m", "celery", "-A", "billing", "worker", "--concurrency", "2", "--loglevel", "INFO"]
    with RedisProcess.running(tmp_path / "broker") as broker, redis.Redis.from_url(broker.url) as queue:
        programs.environment["BROKER_URL"] = broker.url
        async with running(programs.start_command("billing.py", celery)) as worker:
            for month in range(FIRST_MONTH, FIRST_MONTH + MONTHS, 2):
                done = topic.count
                send = SEND.format(accounts=ACCOUNTS, month=month)
                sending = programs.start_command("send", [sys.executable, "-c", send])
                some = done + chance.randint(1, ACCOUNTS)
                await worker.reaches(partial(topic.has, some), f"{some} bills")
                # What is not acknowledged is in the hands of the worker processes.
                processes = [each for each in children_of(worker.process.pid) if alive(each)]
                victim = chance.choice(processes)
                await kill(victim, once=partial(queue.exists, "unacked"))
                await worker.reaches(
                    partial(topic.has, done + 2 * ACCOUNTS), f"all bills of two months from {month} on"
                )
                await sending.ends()
            await until(lambda: not queue.exists("celery", "unacked"), DEADLINE_S, waiting_for="the tasks to be done")
            worker.process.terminate()
            await worker.ends()
    bills = sorted((json.loads(value)["account"], json.loads(value)["month"]) for value in topic.values)
    assert bills == [(account, FIRST_MONTH + month) for account in range(ACCOUNTS) for month in range(MONTHS)]
    assert "raised unexpected" not in worker.log.read_text()
