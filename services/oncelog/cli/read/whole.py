"""Reads the messages that are stored when the read begins, without waiting for new ones."""

import asyncio
from collections.abc import AsyncGenerator, Callable

from oncelog.client.client import AsyncClient
from oncelog.client.reading.reader import AsyncReader
from oncelog.client.values.messages import MessageBatch
from oncelog.core.errors import DeadlineExceeded, LedgerUnavailable


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
    clock = asyncio.get_running_loop().time
    last = await client.last_message_id(reader.topic)
    if last is None or not await reader.has_message_available():
        return
    deadline_s = clock() + timeout_s
    while True:
        try:
            batch = await reader.batch_up_to(last, timeout=max(0.0, deadline_s - clock()))
        except LedgerUnavailable as error:
            unavailable(error)
            if clock() >= deadline_s:
                raise
            continue
        except DeadlineExceeded as error:
            if isinstance(error.__cause__, LedgerUnavailable):
                raise error.__cause__ from error
            raise
        if batch is None:
            return
        yield batch
        deadline_s = clock() + timeout_s
        end = batch.message_id(-1)
        if (end.ledger_id, end.entry_id) >= (last.ledger_id, last.entry_id):
            return
