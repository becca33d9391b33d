"""Requests with any values in them: each is answered, or its connection is closed, and the door goes on.

What a handler raises that is no error of the log would end the door's process.
"""

import asyncio
from random import Random
from typing import Any

import pytest

from oncelog_doors.kafka.apis import KNOWN
from oncelog_doors.kafka.codec import Body
from oncelog_doors.wire.kafka_tables import REQUESTS
from tests.cluster.until import until
from tests.doors.kafka.any_bodies import any_body
from tests.doors.kafka.raw_client import KafkaWorld, kafka_world, raw_client
from tests.doors.raw_connection import DEADLINE_S

pytestmark = pytest.mark.asyncio

REQUESTS_EACH = 40
#: Longer than any request may wait.
ALL_WAITS_MS = 400_000


@pytest.mark.parametrize("api", KNOWN)
async def test_requests_with_any_values_are_answered_or_end_their_connection(api: str) -> None:
    raised: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: raised.append(context))
    random = Random(api)
    async with kafka_world() as world:
        for version in range(KNOWN[api].first, KNOWN[api].last + 1):
            for _ in range(REQUESTS_EACH):
                body = any_body(REQUESTS[api].fields, version, random)
                await _answered_or_closed(world, api, version, body)
                assert not raised, (version, body, raised)
        async with raw_client(world.port) as other:
            assert await other.ask("ApiVersions", 0, {})


async def _answered_or_closed(world: KafkaWorld, api: str, version: int, body: Body) -> None:
    async with raw_client(world.port) as client:
        client.send(api, version, body)
        answer = asyncio.ensure_future(client.read(api, version))

        def answered() -> bool:
            world.timers.advance(ALL_WAITS_MS)
            return answer.done()

        await until(answered, DEADLINE_S, every_s=0.002, closely=True)
        if answer.exception() is not None:
            assert isinstance(answer.exception(), EOFError | ConnectionError), answer.exception()
