"""Consumers of whole entries of the tests: what they consume, and what comes."""

import asyncio
from collections.abc import Iterable
from typing import Any

import pytest

import oncelog
from oncelog.client.gateways import (
    ConsumedEntry,
    ConsumerStart,
    EntryConsumer,
    StartEdge,
    open_entry_consumer,
)
from oncelog.core.acks.changes import IndexRange
from oncelog.core.sdk.consumer.index_set import IndexSet

DEADLINE_S = 30.0
#: Whether something comes that must not: a slow machine finds less surely that it does.
MOMENT_S = 0.1
#: Messages of an entry. Entry 0 is the grant of the producer.
EACH = 4


async def fill(client: oncelog.AsyncClient, entries: int, *, key: bytes | None = None) -> None:
    """Entries of four messages each, b"0", b"1" …"""
    async with await client.create_producer("flights") as producer:
        for number in range(entries):
            values = [b"%d" % (number * EACH + at) for at in range(EACH)]
            await producer.send_many(values, keys=None if key is None else [key] * EACH)


async def opened(
    client: oncelog.AsyncClient, kind: Any = "exclusive", name: str = "c", *, permits: int = 0,
    start: ConsumerStart = StartEdge.EARLIEST, **more: Any,
) -> EntryConsumer:  # fmt: skip
    consumer = await open_entry_consumer(
        client, "flights", "billing", kind, name, start=start, window_bytes=1_000_000, timeout=DEADLINE_S, **more
    )
    consumer.permits(permits)
    return consumer


async def taken(consumer: EntryConsumer, count: int) -> list[ConsumedEntry]:
    """The next deliveries."""
    found: list[ConsumedEntry] = []
    async with asyncio.timeout(DEADLINE_S):
        while len(found) < count:
            entry = consumer.take()
            if entry is None:
                await consumer.arrival()
            else:
                found.append(entry)
    return found


def indexes(entries: Iterable[ConsumedEntry]) -> list[list[int]]:
    return [[i for first, last in each.ranges for i in range(first, last + 1)] for each in entries]


def four(*numbers: int) -> list[list[int]]:
    """The messages of whole entries."""
    return [list(range(number * EACH, number * EACH + EACH)) for number in numbers]


def ranges(*indexes: int) -> tuple[IndexRange, ...]:
    return tuple(IndexSet(IndexRange(index, index) for index in indexes))


async def comes_nothing(consumer: EntryConsumer) -> None:
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(MOMENT_S):
            await taken(consumer, 1)
