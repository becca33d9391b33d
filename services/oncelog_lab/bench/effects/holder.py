"""One of two consumers of a failover subscription, of which the benchmark kills the active one.

    python -m oncelog_lab.bench.effects.holder URL TOPIC [DATABASE]

With a database its messages take effect there. It prints the time of the monotonic clock at each message, and is slow.
"""

import asyncio
import sys
import time

from sqlalchemy import Connection, create_engine

import oncelog
from oncelog import EARLIEST
from oncelog.client.connecting import connect
from oncelog_effects import SqlEffects
from oncelog_lab.running import quiet_grpc

_PAUSE_S = 0.02
_SUBSCRIPTION = "bench"


def _handle() -> None:
    print(time.monotonic(), flush=True)


async def _hold(url: str, topic: str) -> None:
    async with (
        await connect(url) as client,
        await client.subscribe(topic, subscription=_SUBSCRIPTION, type="failover", start=EARLIEST) as consumer,
    ):
        while True:
            message = await consumer.receive()
            _handle()
            await consumer.ack(message)
            await asyncio.sleep(_PAUSE_S)


async def _hold_with_effects(url: str, topic: str, database: str) -> None:
    @oncelog.process(topic, subscription=_SUBSCRIPTION, effects=SqlEffects(create_engine(database)))
    def book(_: oncelog.Message, __: Connection) -> None:
        _handle()
        time.sleep(_PAUSE_S)

    async with await connect(url) as client:
        await book.run(client)


if __name__ == "__main__":
    quiet_grpc()
    asyncio.run(_hold(*sys.argv[1:]) if len(sys.argv) == 3 else _hold_with_effects(*sys.argv[1:]))
