"""Reads the messages that are stored when the read begins, without waiting for new ones."""

from collections.abc import AsyncIterator

from oncelog.client.client import AsyncClient
from oncelog.client.messages import MessageBatch
from oncelog.client.reader import AsyncReader


async def batches_up_to_now(
    client: AsyncClient, reader: AsyncReader, *, timeout_s: float
) -> AsyncIterator[MessageBatch]:
    """The batches up to the message that is the last one of the topic now.

    timeout_s: of each batch. Raises DeadlineExceeded.
    """
    last = await client.last_message_id(reader.topic)
    if last is None or not await reader.has_message_available():
        return
    while (batch := await reader.batch_up_to(last, timeout=timeout_s)) is not None:
        yield batch
        end = batch.message_id(-1)
        if (end.ledger_id, end.entry_id) >= (last.ledger_id, last.entry_id):
            return
