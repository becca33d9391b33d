"""The programs of docs/effects-stores.md: their effects happen once, although they are killed."""

from pathlib import Path

import pytest
import redis

import oncelog
from tests.cluster.recipes.recipe_programs import Programs, running
from tests.contract.stores.redis_process import RedisProcess

pytestmark = pytest.mark.asyncio

ORDERS = 60


async def test_each_order_is_in_the_file_and_in_redis_once(
    programs: Programs, client: oncelog.AsyncClient, tmp_path: Path
) -> None:
    """In the order of the topic."""
    producer = await client.create_producer("sales")
    wanted = [b'{"cents": %d}' % n for n in range(ORDERS)]
    await producer.send_many(wanted, keys=[b"%d" % (n % 3) for n in range(ORDERS)])
    path = programs.directory / "orders-all.jsonl"

    def exported() -> list[bytes]:
        return path.read_bytes().splitlines() if path.exists() else []

    with RedisProcess.running(tmp_path / "redis") as server, redis.Redis(port=server.port) as stock:
        await programs.killed_often(lambda: programs.start("export.py"), lambda: len(exported()), ORDERS)
        programs.environment["STOCK_REDIS"] = server.url
        await programs.killed_often(lambda: programs.start("stock.py"), lambda: int(stock.llen("sold")), ORDERS)
        async with running(programs.start("export.py")) as exporting:
            await exporting.reaches(lambda: len(exported()) >= ORDERS, "all orders in the file")
        async with running(programs.start("stock.py")) as selling:
            await selling.reaches(lambda: int(stock.llen("sold")) >= ORDERS, "all orders in Redis")
        assert exported() == wanted
        assert stock.lrange("sold", 0, -1) == wanted
        assert stock.hgetall("stock") == {b"%d" % n: b"%d" % -(ORDERS // 3) for n in range(3)}


async def test_function_of_the_page_is_proved(programs: Programs) -> None:
    command = ["-m", "pytest", "-q", "-p", "no:cacheprovider", "test_book.py"]
    proving = programs.start_command("test_book.py", programs.command(command[0], *command[1:]))
    assert "1 passed" in await proving.ends()
