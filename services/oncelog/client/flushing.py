"""What a client waits for before it closes."""

import asyncio
from collections.abc import Iterable

from oncelog.client.consuming.consumer import AsyncConsumer
from oncelog.client.producing.producer import AsyncProducer
from oncelog.core.errors import DeadlineExceeded, OncelogError


async def flush_all(
    producers: Iterable[AsyncProducer], consumers: Iterable[AsyncConsumer], seconds: float | None
) -> DeadlineExceeded | None:
    """Wait until all producers and acknowledgements are answered, at most so long. Returns the error when some are
    not."""
    living = [producer for producer in producers if producer.failure is None]
    open_consumers = list(consumers)
    try:
        async with asyncio.timeout(seconds):
            pending = [producer.all_answered() for producer in living]
            await asyncio.gather(*pending, *(consumer.all_settled() for consumer in open_consumers))
    except TimeoutError as error:
        left = {p.producer_name: p.pending_bytes for p in living if p.pending_bytes}
        unsettled = [consumer.subscription for consumer in open_consumers if consumer.unsettled]
        waits = next((p.last_error for p in living if p.pending_bytes and p.last_error is not None), None)
        late = DeadlineExceeded(_unanswered(left, unsettled, seconds, waits))
        late.__cause__ = error
        return late
    return None


def _unanswered(left: dict[str, int], unsettled: list[str], seconds: float | None, waits: OncelogError | None) -> str:
    """What a client left behind when it was closed, for the error that says so.

    left: {producer: its bytes that were not answered}. unsettled: subscriptions with pending acknowledgements.
    waits: why a producer could not publish."""
    parts = []
    if left:
        parts.append(
            f"{sum(left.values())} bytes were not answered within {seconds:g} s when the client was closed, of "
            f"producers {', '.join(map(repr, left))}: the error of each send says whether its message may be stored"
        )
    if waits is not None:
        parts.append(f"the last reason for the delay: {waits.message}")
    if unsettled:
        parts.append(
            f"acknowledgements of subscriptions {', '.join(map(repr, unsettled))} were not answered within {seconds:g} "
            "s: their messages may be delivered again"
        )
    return "; ".join(parts)
