"""The program of docs/effects.md: its effects happen once, although it is killed, the topic moves, and the database is
restored from a backup."""

import shutil
import sqlite3
from contextlib import closing, suppress
from pathlib import Path

import pytest

import oncelog
from tests.cluster.cluster_fixture import Cluster
from tests.cluster.commands import command
from tests.cluster.kills import just_seen
from tests.cluster.programs import DEADLINE_S, Running, running
from tests.cluster.recipes.recipe_programs import Programs
from tests.cluster.until import until

pytestmark = pytest.mark.asyncio

ORDERS = 240


def invoices(path: Path) -> list[tuple[str, int]]:
    with closing(sqlite3.connect(path)) as database:
        if not database.execute("select 1 from sqlite_master where name = 'invoices'").fetchone():
            return []
        return database.execute("select order_key, cents from invoices order by rowid").fetchall()


@pytest.mark.hazard("gap-passed-over", "half-an-effect")
async def test_each_order_has_one_invoice(programs: Programs, cluster: Cluster, client: oncelog.AsyncClient) -> None:
    """In the order of the topic. What the restored database lacks takes effect again, and nothing else does. The
    program runs as it stands in the page, by itself and by `oncelog run`."""
    producer = await client.create_producer("sales")
    wanted = [(f"order-{n}", n) for n in range(ORDERS)]

    async def sell(count: int) -> None:
        """Up to this order."""
        for key, cents in wanted[producer.last_sequence_id + 1 : count]:
            await producer.send(b'{"cents": %d}' % cents, key=key)

    database, backup = programs.directory / "shop.db", programs.directory / "backup.db"
    programs.environment["SHOP_DATABASE"] = f"sqlite:///{database}"
    await programs.killed_often(lambda: programs.start("book.py"), lambda: len(invoices(database)), ORDERS, offer=sell)
    await sell(ORDERS)
    shutil.copy(database, backup)
    saved = len(invoices(backup))
    async with running(programs.start("book.py")) as booking:
        await cluster.kill(await cluster.owner_of("sales"), once=lambda: len(invoices(database)) > saved)
        await booking.reaches(lambda: len(invoices(database)) == ORDERS, "all invoices")

        async def acknowledged() -> bool:
            found = (await cluster.stats("sales")).get("subscriptions", {}).get("billing", {})
            return int(found.get("msg_backlog", -1)) == 0

        await until(acknowledged, DEADLINE_S, every_s=0.1, waiting_for="the acknowledgements")
    assert invoices(database) == wanted
    for name in ("shop.db", "shop.db-journal"):
        (programs.directory / name).unlink(missing_ok=True)
    shutil.copy(backup, database)
    assert len(invoices(database)) == saved
    serve = command("run", "book:book", "--health-port", "0")
    async with running(programs.start_command("run", serve)) as booking:
        await booking.reaches(lambda: len(invoices(database)) >= ORDERS, "what the backup lacks")
        await producer.send(b'{"cents": 0}', key="last")
        await booking.reaches(lambda: invoices(database)[-1] == ("last", 0), "a new order")
        async with running(programs.start_command("standby", serve)) as other:
            both = (booking, other)

            async def standbys() -> list[Running]:
                told = [each for each in both if "standby: another process is active for billing of" in each.text()]
                return [each for each in told if not (await each.health("/status"))[0]["active"]]

            # The order of their names decides which: a consumer of a better name takes over from one that runs.
            (waits,) = await until(standbys, DEADLINE_S, every_s=0.1, waiting_for="a standby")
            (active,) = (each for each in both if each is not waits)
            await waits.health("/readyz")
            await active.kill(once=just_seen)
            await waits.says("active: this process has taken over billing of public/default/sales")
            assert [each["active"] for each in await waits.health("/status")] == [True]
            await producer.send(b'{"cents": 1}', key="very last")
            await waits.reaches(lambda: invoices(database)[-1] == ("very last", 1), "an order after the takeover")
    assert invoices(database)[:-2] == wanted


async def test_the_program_of_the_readme_dies_and_charges_each_customer_once(
    programs: Programs, client: oncelog.AsyncClient
) -> None:
    """It kills itself in the middle of one message in ten, and is started again as the readme says."""
    producer = await client.create_producer("sold", producer_name="shop")
    database = programs.directory / "shop.db"
    customers: list[str] = []

    def charged() -> list[str]:
        if not database.exists():
            return []
        with closing(sqlite3.connect(database)) as reading, suppress(sqlite3.OperationalError):  # no table yet
            return [customer for (customer,) in reading.execute("select customer from charges order by rowid")]
        return []

    def all_are_charged() -> bool:
        return charged() == customers

    deaths = 0
    while not deaths:
        more = [str(number) for number in range(len(customers), len(customers) + 20)]
        await producer.send_many([each.encode() for each in more])
        customers.extend(more)
        while not all_are_charged():
            async with running(programs.start("charge.py")) as charging:
                await until(lambda: not charging.runs() or all_are_charged(), DEADLINE_S, every_s=0.02)
                deaths += not charging.runs()
    assert all_are_charged()
