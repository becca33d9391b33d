"""The recipe "Web shop": clients repeat their requests while the workers and the consumer are killed; each order is
stored once, and has one invoice."""

import asyncio
import sqlite3
import sys
from collections.abc import Awaitable, Callable
from contextlib import closing
from pathlib import Path

import httpx
import pytest

import oncelog
from oncelog.runtime.orphan_guard import guarded
from tests.cluster.programs import DEADLINE_S, Running, running
from tests.cluster.recipes.recipe_programs import Programs, Watched
from tests.cluster.until import until

pytestmark = pytest.mark.asyncio

ORDERS = 90
CUSTOMERS = 6


def invoices(path: Path) -> list[tuple[str, int]]:
    with closing(sqlite3.connect(path)) as database:
        if not database.execute("select 1 from sqlite_master where name = 'invoices'").fetchone():
            return []
        return database.execute("select order_key, cents from invoices order by message_index").fetchall()


async def place(http: httpx.AsyncClient, number: int) -> None:
    """Repeat the request until it is answered."""

    async def answered() -> bool:
        headers = {"Idempotency-Key": f"order-{number}"}
        try:
            answer = await http.post("/orders", json={"item": "cake", "cents": number}, headers=headers)
        except httpx.TransportError:
            return False  # the worker is killed, or not there yet
        assert answer.status_code in {200, 503}, answer.text
        return answer.status_code == 200

    await until(answered, DEADLINE_S, every_s=0.1, waiting_for=f"the answer for order {number}")


async def customer(http: httpx.AsyncClient, first: int) -> None:
    """Two requests for the same order at once, as after an impatient second click."""
    for number in range(first, ORDERS, CUSTOMERS):
        await asyncio.gather(place(http, number), place(http, number))


async def test_each_order_has_one_invoice(
    programs: Programs,
    watched: Callable[[str], Awaitable[Watched]],
    client: oncelog.AsyncClient,
    free_port: Callable[[], int],
) -> None:
    """Also when workers get the same request at the same time, and when all orders are delivered again."""
    topic = await watched("shop-orders")
    database = programs.directory / "invoices.db"
    port = str(free_port())
    uvicorn = [sys.executable, "-m", "uvicorn", "shop:app", "--workers", "2", "--port", port, "--log-level", "warning"]

    def start_shop() -> Running:
        return programs.start_command("shop.py", guarded(uvicorn))

    async with (
        httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}", timeout=DEADLINE_S, trust_env=False) as http,
        asyncio.TaskGroup() as tasks,
    ):
        customers = [tasks.create_task(customer(http, first)) for first in range(CUSTOMERS)]

        async def serve() -> None:
            await programs.killed_often(start_shop, lambda: topic.count, ORDERS)
            async with running(start_shop()):
                await asyncio.gather(*customers)

        tasks.create_task(serve())
        await programs.killed_often(
            lambda: programs.start("invoices.py", str(database)), lambda: len(invoices(database)), ORDERS
        )
    async with await client.subscribe("shop-orders", subscription="invoices") as consumer:
        await consumer.seek(oncelog.EARLIEST)  # every order is delivered again
    producer = await client.create_producer("shop-orders")
    await producer.send(b'{"cents": 0}', key="last")
    async with running(programs.start("invoices.py", str(database))) as consuming:
        await consuming.reaches(lambda: invoices(database)[-1:] == [("last", 0)], "the last invoice")
    assert sorted(invoices(database)[:-1]) == sorted((f"order-{number}", number) for number in range(ORDERS))
    assert len({message.key for message in topic.messages[:ORDERS]}) == ORDERS
