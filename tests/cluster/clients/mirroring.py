"""What the tests of a mirror share: a mirror as a process or in this one, and what is at both sides."""

import asyncio
from pathlib import Path
from typing import Any

import oncelog
from oncelog.core.names import parse_topic
from oncelog.effects.mirror.copying import Mirror
from oncelog.effects.mirror.topics import Choice
from tests.cluster.cluster_fixture import DEADLINE_S
from tests.cluster.commands import command, environment
from tests.cluster.recipes.recipe_programs import Running, started


async def read_all(client: oncelog.AsyncClient, topic: str) -> list[oncelog.Message]:
    """All that the topic has now."""
    messages: list[oncelog.Message] = []
    async with await client.create_reader(topic) as reader:
        while await reader.has_message_available():
            messages.append(await reader.read_next())
    return messages


def start(path: Path, *words: str) -> Running:
    return started(path / "mirror.log", command("mirror", *words), environment(), path)


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
