"""A program that is killed: it appends the numbers 0 to COUNT - 1 to a list in Redis, and adds them to a sum.

python -m tests.effects.contract.redis_numbers PORT COUNT
"""

import asyncio
import os
import sys
from collections.abc import Callable
from dataclasses import replace

import redis.asyncio

from oncelog.core.errors import StoreUnavailable
from oncelog_effects.core.effects.ordered import StoredPosition
from oncelog_effects.redis_commands import EffectPipeline
from oncelog_effects.redis_store import RedisEffects
from oncelog_effects.store import ClaimLost
from tests.effects.contract.positions import FIRST, NAMES, SOURCE, at


async def append_numbers(client: "redis.asyncio.Redis", count: int) -> None:
    """As a source does: after anything unknown the next claim decides."""
    effects = RedisEffects(client)
    while True:
        try:
            claim = os.urandom(16).hex()
            row = await effects.claim(SOURCE, NAMES, taking(claim))
            for number in range(row.position, count):
                await effects.apply(SOURCE, at(number, claim), at(number + 1, claim), appending(number))
            return
        except (StoreUnavailable, ClaimLost):
            pass


def taking(claim: str) -> Callable[[StoredPosition | None], StoredPosition]:
    return lambda found: replace(found or FIRST, claim=claim)


def appending(number: int) -> Callable[[EffectPipeline], None]:
    def run(pipe: EffectPipeline) -> None:
        pipe.rpush("numbers", number)
        pipe.incrby("sum", number)

    return run


async def main(port: int, count: int) -> None:
    async with redis.asyncio.Redis(port=port) as client:
        await append_numbers(client, count)


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1]), int(sys.argv[2])))
