"""What the tests of a mirror share: a mirror as a process or in this one, and what is at both sides."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import oncelog
from oncelog.client.rest_calls import rest
from oncelog.client.two_clusters import two_clusters
from oncelog.client.values.corruption import OnCorrupt
from oncelog.core.names import parse_topic
from oncelog_effects.consumer import EffectsConsumer, Subscribing
from oncelog_effects.mirror.mirror import Mirror
from oncelog_effects.mirror.store import MirrorEffects
from oncelog_effects.mirror.topics import Choice, subscription_of
from tests.cluster.cluster_fixture import DEADLINE_S
from tests.cluster.commands import environment
from tests.cluster.forked_program import start_forked
from tests.cluster.programs import Running
from tests.cluster.until import until


async def read_all(client: oncelog.AsyncClient, topic: str) -> list[oncelog.Message]:
    """All that the topic has now."""
    messages: list[oncelog.Message] = []
    async with await client.create_reader(topic) as reader:
        while await reader.has_message_available():
            messages.append(await reader.read_next())
    return messages


def start(path: Path, *words: str) -> Running:
    with (path / "mirror.log").open("ab") as log:
        return Running(start_forked(["mirror", *words], environment(), log), path / "mirror.log")


def mirror(source: oncelog.AsyncClient, target: oncelog.AsyncClient, topic: str, **settings: Any) -> Mirror:
    return Mirror(source, target, Choice((parse_topic(topic),)), **settings)


async def once(source: oncelog.AsyncClient, target: oncelog.AsyncClient, topic: str, **settings: Any) -> Mirror:
    found = mirror(source, target, topic, **settings)
    try:
        await asyncio.wait_for(found.run_once(), DEADLINE_S)
    except BaseExceptionGroup as errors:
        raise errors.exceptions[0] from None
    return found


async def acknowledge(consumer: oncelog.AsyncConsumer, count: int) -> None:
    """The next `count` messages."""
    messages = [await consumer.receive(timeout=DEADLINE_S) for _ in range(count)]
    await consumer.ack_cumulative(messages[-1])


async def connected(client: oncelog.AsyncClient, topic: str, *, producers: int | None = None, consumers: int) -> None:
    """Return once the topic's owner sees so many: a client that closes one of them waits for no answer."""

    async def seen() -> bool:
        stats = await rest(client, "GET", f"/admin/v2/persistent/public/default/{topic}/stats")
        found = sum(each["consumer_count"] for each in stats["subscriptions"].values())
        return found == consumers and producers in {None, stats["connected_producer_count"]}

    await until(seen, DEADLINE_S, waiting_for=f"{producers} producers and {consumers} consumers of {topic}")


@asynccontextmanager
async def connected_mirror(
    source: oncelog.AsyncClient, target: oncelog.AsyncClient, topic: str
) -> AsyncIterator[EffectsConsumer]:
    """The consumer of a mirror that copies nothing."""
    name = subscription_of((await two_clusters(source, target, None)).target)
    effects = MirrorEffects(target, parse_topic(topic), allow_gap=False, compression=None)
    how = Subscribing(name, name, "failover", "", OnCorrupt.RAISE)
    store_id = await effects.opened(source).store_id()
    consumer = await EffectsConsumer.attach(source, parse_topic(topic), 0, how, store_id, dead_letters=False)
    await consumer.until_active()
    yield consumer
    await consumer.close()
