"""Reads the messages that are stored when the read begins, without waiting for new ones."""

from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing

from oncelog.client.client import AsyncClient
from oncelog.client.reading.reader import AsyncReader
from oncelog.client.reading.search import batches_up_to
from oncelog.client.values.messages import MessageBatch
from oncelog.core.errors import LedgerUnavailable


async def batches_up_to_now(
    client: AsyncClient,
    reader: AsyncReader,
    *,
    timeout_s: float,
    unavailable: Callable[[LedgerUnavailable], None] = lambda _error: None,
) -> AsyncGenerator[MessageBatch, None]:
    """The batches up to the message that is the last one of the topic now.

    timeout_s: of each batch. unavailable: called when no live storage node has the next entries; they are waited for
    until the timeout. Raises DeadlineExceeded, LedgerUnavailable.
    """
    last = await client.last_message_id(reader.topic)
    async with aclosing(batches_up_to(reader, last, timeout_s=timeout_s, unavailable=unavailable)) as batches:
        async for batch in batches:
            yield batch
