"""Keys over real processes: a metadata service dies during publishing, and its clients use the other replica."""

import asyncio
from collections import Counter
from pathlib import Path
from typing import Any

import httpx
import pytest

import oncelog
from tests.cluster.cluster_fixture import Cluster
from tests.cluster.until import until
from tests.contract.stores.redis_process import RedisProcess

pytestmark = pytest.mark.asyncio

TOPIC = "/topics/persistent/public/default/orders"
KEYS = [f"order-{number}" for number in range(60)]
SENDERS = 8


async def post(http: httpx.AsyncClient, address: str, key: str) -> httpx.Response:
    body = {"messages": [{"value": f"{key} a"}, {"value": f"{key} b"}]}
    return await http.post(f"http://{address}{TOPIC}", json=body, headers={"Idempotency-Key": key})


async def repeated(http: httpx.AsyncClient, address: str, key: str) -> list[dict[str, Any]]:
    """Repeat until a response arrives, like a client whose request failed."""

    async def tried() -> list[dict[str, Any]]:
        answer = await post(http, address, key)
        assert answer.status_code in {200, 409, 503, 504}, answer.text
        messages: list[dict[str, Any]] = answer.json()["messages"] if answer.status_code == 200 else []
        return messages

    return await until(tried, 40, every_s=0.2, waiting_for=f"the answer for {key}")


async def read(url: str, count: int) -> list[tuple[str, str]]:
    """(value, message id) of all messages."""
    async with await oncelog.connect(url) as client:
        last = await client.last_message_id("orders")
        assert last is not None
        reader = await client.create_reader("orders")
        found: list[tuple[str, str]] = []
        while not found or found[-1][1] != str(last):
            message = await reader.read_next()
            found.append((bytes(message.value).decode(), str(message.message_id)))
        assert len(found) >= count
        return found


@pytest.mark.hazard("key-without-message")
async def test_keys_survive_a_killed_publishing_process(tmp_path: Path) -> None:
    """kill -9 with requests in flight. Every key is repeated at the other replica, and each message is read back
    once."""
    with (
        RedisProcess.running(tmp_path / "redis") as redis,
        Cluster.running(tmp_path, metadata=2, redis_url=redis.url) as cluster,
    ):
        first, second = (cluster.serving(f"metadata-{number}", "http") for number in (1, 2))
        answers: dict[str, list[dict[str, Any]]] = {}
        left = list(KEYS)

        async with httpx.AsyncClient(timeout=30, trust_env=False) as http:

            async def send() -> None:
                while left:
                    key = left.pop(0)
                    try:
                        answer = await post(http, first, key)
                    except httpx.TransportError:
                        return  # it died while this request was in flight
                    if answer.status_code == 200:
                        answers[key] = answer.json()["messages"]

            await repeated(http, second, "before")
            with cluster.held():
                senders = [asyncio.ensure_future(send()) for _ in range(SENDERS)]
                await until(lambda: len(answers) >= 10, 40)
                await cluster.kill("metadata-1")
                await asyncio.gather(*senders)
                assert 10 <= len(answers) < len(KEYS)
                final = {key: await repeated(http, second, key) for key in KEYS}
                url = f"oncelog://{cluster.serving('metadata-2')}"
                stored = await read(url, 2 * len(KEYS) + 2)
        values = Counter(value for value, _ in stored)
        assert values == Counter(f"{key} {half}" for key in ["before", *KEYS] for half in "ab")
        assert {key: final[key] for key in answers} == answers
        places = dict(stored)
        for key, messages in final.items():
            assert [each["message_id"] for each in messages] == [places[f"{key} a"], places[f"{key} b"]]
