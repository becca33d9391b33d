"""A client of Oncelog that runs one load until it is killed, as `peer_client` does for Kafka and Pulsar.

    python -m oncelog_lab.peer_bench.own_client URL LOAD SECONDS MESSAGES

The loads are those of the other benchmarks, with their sizes of lists and batches. Unlike the other benchmarks it runs
on the event loop that asyncio has by default, as a user's first program does.
"""

import asyncio
import sys
from collections.abc import AsyncGenerator

from oncelog.client.client import AsyncClient
from oncelog.client.connecting import connect
from oncelog.client.producing.producer import AsyncProducer
from oncelog.core.errors import OncelogError
from oncelog_lab.bench.consume import count_batches, count_objects, fill, read_whole
from oncelog_lab.bench.loads import batch_count, send_callbacks, send_futures, send_lists, send_paced
from oncelog_lab.bench.publish import LIST_BATCHES, new_producers
from oncelog_lab.bench.settings import LARGE
from oncelog_lab.peer_bench.loads import MESSAGES_PER_S, SHAPES, PeerLoad, Run, run_line
from oncelog_lab.running import quiet_grpc
from oncelog_lab.values import make_values


async def runs_of(client: AsyncClient, load: PeerLoad, seconds: float, messages: int) -> AsyncGenerator[Run, None]:
    """The figures of one run after the other. Raises errors of the SDK, and LabFailed."""
    message_bytes = SHAPES[load].message_bytes
    if not SHAPES[load].messages:
        (producer,) = await new_producers(client, 1)
        async with producer:
            while True:
                yield await _publish_for(producer, load, seconds, message_bytes)
    values = make_values(message_bytes, LIST_BATCHES * batch_count(message_bytes, LARGE.batch_bytes))
    count = count_objects if load is PeerLoad.READ_OBJECTS else count_batches
    topic = ""
    while True:
        if load is PeerLoad.READ_1K or not topic:
            (producer,) = await new_producers(client, 1)
            async with producer:
                await fill(producer, values, messages)
            topic = producer.topic
        yield (await read_whole(client, topic, messages, count),)


async def _publish_for(producer: AsyncProducer, load: PeerLoad, seconds: float, message_bytes: int) -> Run:
    if load is PeerLoad.LATENCY:
        found = await send_paced(producer, message_bytes=message_bytes, per_second=MESSAGES_PER_S, seconds=seconds)
        return found.p50_ms, found.p99_ms
    if load is PeerLoad.CALLBACKS:
        done = await send_callbacks(producer, message_bytes=message_bytes, seconds=seconds)
    elif load is PeerLoad.FUTURES:
        done = await send_futures(producer, message_bytes=message_bytes, seconds=seconds)
    else:
        done = await send_lists(
            [producer],
            message_bytes=message_bytes,
            batch_bytes=LARGE.batch_bytes,
            list_batches=LIST_BATCHES,
            window=LARGE.window,
            seconds=seconds,
        )
    return (done.bytes_per_s / message_bytes,)


async def _run(url: str, load: PeerLoad, seconds: float, messages: int) -> None:
    async with await connect(url) as client:
        async for run in runs_of(client, load, seconds, messages):
            print(run_line(run), flush=True)


def main(url: str, name: str, seconds: str, messages: str) -> None:
    quiet_grpc()
    try:
        asyncio.run(_run(url, PeerLoad(name), float(seconds), int(messages)))
    except OncelogError as error:
        sys.exit(f"error: {error}")


if __name__ == "__main__":
    main(*sys.argv[1:])
