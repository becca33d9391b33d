"""The programs of docs/effects-stores.md: their effects happen once, although they are killed."""

from collections import Counter
from pathlib import Path

import pytest
import redis

import oncelog
from tests.cluster.loads import read_all
from tests.cluster.programs import running
from tests.cluster.recipes.recipe_programs import Programs
from tests.contract.stores.redis_process import RedisProcess

pytestmark = pytest.mark.asyncio

ORDERS = 60


async def test_each_order_is_in_the_file_and_in_redis_once(
    programs: Programs, client: oncelog.AsyncClient, tmp_path: Path
) -> None:
    """In the order of the topic."""
    producer = await client.create_producer("sales")
    former = len(await read_all(client, "sales"))  # other programs of the pages sell, too
    total = former + ORDERS

    async def sell(count: int) -> None:
        """Up to this one of all orders."""
        for n in range(producer.last_sequence_id + 1, count - former):
            await producer.send(b'{"cents": %d}' % n, key=b"%d" % (n % 3))

    path = programs.directory / "orders-all.jsonl"

    def exported() -> list[bytes]:
        return path.read_bytes().splitlines() if path.exists() else []

    with RedisProcess.running(tmp_path / "redis") as server, redis.Redis(port=server.port) as stock:
        await programs.killed_often(lambda: programs.start("export.py"), lambda: len(exported()), total, offer=sell)
        programs.environment["STOCK_REDIS"] = server.url
        await programs.killed_often(
            lambda: programs.start("stock.py"), lambda: int(stock.llen("sold")), total, offer=sell
        )
        await sell(total)
        sold = await read_all(client, "sales")
        wanted = [order.value for order in sold]
        async with running(programs.start("export.py")) as exporting:
            await exporting.reaches(lambda: len(exported()) == len(wanted), "all orders in the file")
        async with running(programs.start("stock.py")) as selling:
            await selling.reaches(lambda: int(stock.llen("sold")) == len(wanted), "all orders in Redis")
        assert exported() == wanted
        assert stock.lrange("sold", 0, -1) == wanted
        counted = Counter(order.key for order in sold)
        assert stock.hgetall("stock") == {key: b"%d" % -count for key, count in counted.items()}


async def test_function_of_the_page_is_proved(programs: Programs) -> None:
    command = ["-m", "pytest", "-q", "-p", "no:cacheprovider", "test_book.py"]
    proving = programs.start_command("test_book.py", programs.command(command[0], *command[1:]))
    assert "1 passed" in await proving.ends()
