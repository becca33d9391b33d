"""What one log has stored by now: a topic without partitions, or one partition.

A program that publishes again after a crash asks what its producer has stored behind a place, up to an id. Messages of
one producer lie in the order of their ids, so reading ends there. The program knows where the place comes from, whether
the ids have gaps, and what another message under an id means.
"""

from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Literal

from oncelog.client.client import AsyncClient
from oncelog.client.values.messages import Message, MessageBatch
from oncelog.core.formats.message_id import EARLIEST, Index, MessageId


async def stored_batches(
    client: AsyncClient,
    topic: str,
    start: MessageId | Index = EARLIEST,
    *,
    inclusive: bool = False,
    timeout_s: float | None = None,
    on_encrypted: Literal["raise", "pass"] = "raise",
) -> AsyncGenerator[MessageBatch, None]:
    """From a place on, up to the last message that is stored now. timeout_s: of each batch. on_encrypted: as in
    `create_reader`. Raises as readers."""
    last = await client.last_message_id(topic)
    if last is None:
        return
    async with await client.create_reader(topic, start=start, inclusive=inclusive, on_encrypted=on_encrypted) as reader:
        if isinstance(start, Index) and not await reader.has_message_available():
            return  # the reader would wait for a message of this index
        while (batch := await reader.batch_up_to(last, timeout=timeout_s)) is not None:
            yield batch


async def stored_by(
    client: AsyncClient,
    topic: str,
    producer_name: str,
    start: MessageId,
    last_id: int,
    *,
    inclusive: bool = False,
    timeout_s: float | None = None,
) -> AsyncGenerator[MessageBatch, None]:
    """The batches of one producer from a place on, up to the one that reaches a sequence id. It may have ids above."""
    async with aclosing(stored_batches(client, topic, start, inclusive=inclusive, timeout_s=timeout_s)) as batches:
        async for batch in batches:
            if batch.producer_name == producer_name:
                yield batch
                if batch.sequence_ids[-1] >= last_id:
                    return


async def stored_message(
    client: AsyncClient,
    topic: str,
    place: MessageId | Index,
    *,
    timeout_s: float | None = None,
    on_encrypted: Literal["raise", "pass"] = "raise",
) -> Message | None:
    """The message at a place; None: it is not stored, or not kept any more. on_encrypted: as in `create_reader`."""
    async with aclosing(
        stored_batches(client, topic, place, inclusive=True, timeout_s=timeout_s, on_encrypted=on_encrypted)
    ) as batches:
        batch = await anext(batches, None)
    if batch is None or place not in (batch.message_id(0), Index(batch.first_index)):
        return None
    return batch[0]


async def end_of(client: AsyncClient, topic: str) -> int:
    """The index behind the last message that is stored; 0: there is none."""
    last = await client.last_message_id(topic)
    found = None if last is None else await stored_message(client, topic, last, on_encrypted="pass")
    return 0 if found is None else found.index + 1
