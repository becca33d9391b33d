"""Much of everything: topics, producers of one topic, subscriptions of one topic, names as long as they may be."""

import asyncio
from collections.abc import Callable, Coroutine, Iterable
from typing import TypeVar

import httpx

import oncelog
from tests.cluster.cluster_fixture import Cluster, rest_path
from tests.console_proof.busy_cluster import MARKUP
from tests.contract.process.security_world import bearer

NAMESPACE = "public/large"
PRODUCERS, SUBSCRIPTIONS = f"{NAMESPACE}/producers", f"{NAMESPACE}/subscriptions"
LONG = f"{NAMESPACE}/{'long-name' * 28}abc"
#: A role creates half of the subscriptions that a topic may have.
ROLES = ("root", "operator")
_AT_ONCE = 64
_REQUEST_S = 30.0
Thing = TypeVar("Thing")


async def fill_large(
    cluster: Cluster, client: oncelog.AsyncClient, *, topics: int, producers: int, subscriptions: int
) -> None:
    await cluster.change("PUT", f"/admin/v2/namespaces/{NAMESPACE}")

    async def write(topic: str, producer_name: str) -> None:
        async with await client.create_producer(topic, producer_name=producer_name) as producer:
            await producer.send(b"x")

    await _each((f"{NAMESPACE}/topic-{number}" for number in range(topics)), lambda topic: write(topic, "importer"))
    await write(LONG, (MARKUP * 2)[:255])
    await write(SUBSCRIPTIONS, "importer")
    await _each((f"{MARKUP[:40]}-{number}" for number in range(producers)), lambda name: write(PRODUCERS, name))
    async with httpx.AsyncClient(base_url=cluster.admin_url, timeout=_REQUEST_S, trust_env=False) as rest:

        async def subscribe(number: int) -> None:
            path = f"{rest_path(SUBSCRIPTIONS)}/subscription/{number:04}{'-' * 200}"
            answer = await rest.put(path, headers=bearer(ROLES[number % len(ROLES)]))
            assert answer.status_code == 204, answer.text

        await _each(range(subscriptions), subscribe)


async def _each(things: Iterable[Thing], do: Callable[[Thing], Coroutine[None, None, None]]) -> None:
    left = iter(things)

    async def work() -> None:
        for thing in left:
            await do(thing)

    async with asyncio.TaskGroup() as tasks:
        for _ in range(_AT_ONCE):
            tasks.create_task(work())
