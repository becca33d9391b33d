"""A consumer as a process of its own, which may be killed at any moment.

    python -m oncelog_lab.consumer_program URL TOPIC SUBSCRIPTION TYPE NAME

Prints a JSON object per line: {"received": [[first, last], …], "empty_at": s} before it acknowledges them, and
{"acked": [[first, last], …], "at": s} when that is durable. Indexes are those of the topic; times are of the monotonic
clock. Ends at SIGTERM, and with exit code 1 and a message when the consumer fails.
"""

import asyncio
import json
import signal
import sys
import time
from collections.abc import Sequence
from itertools import groupby

from oncelog.client.connecting import connect
from oncelog.client.consuming.consumer import AsyncConsumer
from oncelog.client.consuming.subscribing import SubscriptionTypeName
from oncelog.client.values.consumer_batch import ConsumerBatch
from oncelog.core.errors import OncelogError
from oncelog.core.formats.message_id import EARLIEST
from oncelog_lab.running import quiet_grpc

_BATCH_MESSAGES = 1_000
_OPERATION_TIMEOUT_S = 120.0


def ranges_of(indexes: Sequence[int]) -> list[list[int]]:
    """Ascending ranges [first, last] of distinct indexes."""
    runs = [[pair[1] for pair in run] for _, run in groupby(enumerate(sorted(indexes)), lambda pair: pair[1] - pair[0])]
    return [[run[0], run[-1]] for run in runs]


async def consume(
    url: str, topic: str, subscription: str, kind: SubscriptionTypeName, name: str, stopped: asyncio.Event
) -> None:
    """Receive, report, acknowledge, report, until `stopped`."""
    async with (
        await connect(url, operation_timeout=_OPERATION_TIMEOUT_S) as client,
        await client.subscribe(
            topic, subscription=subscription, type=kind, start=EARLIEST, consumer_name=name,
            receive_window=2 * _BATCH_MESSAGES,
        ) as consumer,
    ):  # fmt: skip
        empty_at = time.monotonic()
        stopping = asyncio.ensure_future(stopped.wait())
        while not stopped.is_set():
            batch = await consumer.receive_batch(_BATCH_MESSAGES, max_wait=0)
            if not len(batch):
                empty_at = time.monotonic()
                receiving = asyncio.ensure_future(consumer.receive_batch(_BATCH_MESSAGES))
                await asyncio.wait((receiving, stopping), return_when=asyncio.FIRST_COMPLETED)
                if not receiving.done():
                    receiving.cancel()
                    break
                batch = receiving.result()
                empty_at = time.monotonic()  # it was empty until these arrived
            await _handle(consumer, batch, empty_at)


async def _handle(consumer: AsyncConsumer, batch: ConsumerBatch, empty_at: float) -> None:
    indexes = [part.first_index + number for part in batch.batches for number in range(part.count)]
    ranges = ranges_of(indexes)
    print(json.dumps({"received": ranges, "empty_at": empty_at}), flush=True)
    await consumer.ack(batch)
    print(json.dumps({"acked": ranges, "at": time.monotonic()}), flush=True)


async def _run(arguments: Sequence[str]) -> None:
    stopped = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stopped.set)
    url, topic, subscription, kind, name = arguments
    await consume(url, topic, subscription, kind, name, stopped)  # type: ignore[arg-type]  # checked by `subscribe`


def main() -> None:
    quiet_grpc()
    try:
        asyncio.run(_run(sys.argv[1:]))
    except OncelogError as error:
        sys.exit(f"{error.code}: {error.message}")


if __name__ == "__main__":
    main()
