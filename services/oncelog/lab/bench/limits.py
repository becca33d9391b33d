"""The limits run: the bare path's processes, and the loads that it is given.

`bytes_per_s` is what one client gets through, from its first frame to its last answer, with `window` frames in flight;
the latencies are those of single frames at a fixed rate, from the write to the answer.
"""

import asyncio
import os
import sys
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grpc

from oncelog.lab.bench.figures import Latencies, Row, median, rounded
from oncelog.lab.bench.limits_path import NUMBER, open_channel, open_stream
from oncelog.lab.bench.processes import BenchFailed, Child
from oncelog.rpc.options import FRAME_BYTES_TARGET

STORAGE_NODES = 3
START_DEADLINE_S = 60.0
#: After the load has ended, its last answers have so long.
DRAIN_S = 20.0
#: The shape of a load of many small batches, and of one of large batches.
LARGE_BATCH_BYTES, LARGE_WINDOW = 256 * 1024, 32
SMALL_BATCH_BYTES, SMALL_WINDOW = 64 * 1024, 128
LATENCY_BYTES = 100
_MODULE = "oncelog.lab.bench.limits_path"


@dataclass(frozen=True, slots=True)
class Throughput:
    """One run of a load."""

    bytes_per_s: float
    seconds: float


class PathClient:
    """One client of the bare path."""

    def __init__(self, address: str) -> None:
        self._channel = open_channel(address)
        self._stream: Any = open_stream(self._channel)
        self._last_number = 0
        #: {number: when it was written}
        self._written: dict[int, float] = {}
        self._seconds: list[float] = []
        self._answered = asyncio.Event()
        self._reading = asyncio.get_running_loop().create_task(self._read())

    async def _read(self) -> None:
        while (answer := await self._stream.read()) is not grpc.aio.EOF:
            now = time.perf_counter()
            for (number,) in NUMBER.iter_unpack(answer):
                self._seconds.append(now - self._written.pop(number))
            self._answered.set()

    async def _write(self, body: bytes) -> None:
        self._last_number += 1
        self._written[self._last_number] = time.perf_counter()
        await self._stream.write(NUMBER.pack(self._last_number) + body)

    async def _until_in_flight(self, count: int) -> None:
        while len(self._written) > count:
            self._answered.clear()
            if self._reading.done():
                raise BenchFailed("the bare path has ended its stream")
            await self._answered.wait()

    async def publish(self, *, frame_bytes: int, window: int, seconds: float) -> Throughput:
        """Frames of one size, `window` of them in flight, for so long. Raises BenchFailed."""
        body = os.urandom(frame_bytes)
        count = 0
        try:
            async with asyncio.timeout(seconds + DRAIN_S):
                began = time.perf_counter()
                while time.perf_counter() - began < seconds:
                    await self._until_in_flight(window - 1)
                    await self._write(body)
                    count += 1
                await self._until_in_flight(0)
        except TimeoutError as error:
            raise BenchFailed(f"the bare path left frames unanswered for {DRAIN_S:.0f} s") from error
        took = time.perf_counter() - began
        return Throughput(count * frame_bytes / took, took)

    async def latencies(self, *, frame_bytes: int, per_second: float, seconds: float) -> Latencies:
        """Single frames at a fixed rate. Raises BenchFailed."""
        body = os.urandom(frame_bytes)
        self._seconds.clear()
        try:
            async with asyncio.timeout(seconds + DRAIN_S):
                async for _ in ticks(per_second=per_second, seconds=seconds):
                    await self._write(body)
                await self._until_in_flight(0)
        except TimeoutError as error:
            raise BenchFailed(f"the bare path left frames unanswered for {DRAIN_S:.0f} s") from error
        return Latencies.of(self._seconds)

    async def close(self) -> None:
        await self._stream.done_writing()
        await self._reading
        await self._channel.close()


async def ticks(*, per_second: float, seconds: float) -> AsyncIterator[int]:
    """Yield 0, 1, 2 … at fixed moments; one that comes late comes at once, and moves none of those after it."""
    began = time.perf_counter()
    for number in range(round(per_second * seconds)):
        wait = began + number / per_second - time.perf_counter()
        if wait > 0:
            await asyncio.sleep(wait)
        yield number


@asynccontextmanager
async def limits_cluster(directory: Path) -> AsyncIterator[PathClient]:
    """Start the bare path's processes, give a client of it, end them. Raises BenchFailed."""
    async with AsyncExitStack() as stack:

        async def start(name: str, *arguments: str) -> str:
            child = await Child.start(
                f"{name} of the limits run",
                (sys.executable, "-m", _MODULE, *arguments),
                log=directory / f"limits-{name}.log",
                announces="serving",
                deadline_s=START_DEADLINE_S,
            )
            stack.push_async_callback(child.stop)
            return str(child.announced["serving"]["address"])

        nodes = [
            await start(f"storage-{number}", "storage", str(directory / f"limits-segment-{number}"))
            for number in range(1, STORAGE_NODES + 1)
        ]
        client = PathClient(await start("owner", "owner", *nodes))
        stack.push_async_callback(client.close)
        yield client


async def measure_limits(
    client: PathClient, *, batch_bytes: int, window: int, message_bytes: int, seconds: float, runs: int
) -> list[Row]:
    """The limits by themselves: throughput of one shape of load, latency of single messages at 200 a second.

    Beside it what the same bytes in flight reach in frames of the size that the product fills its own up to: what is
    above the first figure is what coalescing frames can win, and no ratio counts it.
    """
    throughputs, coalesced, latencies = [], [], []
    fewer = max(1, batch_bytes * window // FRAME_BYTES_TARGET)
    for _ in range(runs):
        throughputs.append(await client.publish(frame_bytes=batch_bytes, window=window, seconds=seconds))
        coalesced.append(await client.publish(frame_bytes=FRAME_BYTES_TARGET, window=fewer, seconds=seconds))
        latencies.append(await client.latencies(frame_bytes=LATENCY_BYTES, per_second=200, seconds=seconds))
    bytes_per_s = [run.bytes_per_s for run in throughputs]
    shape = f"{batch_bytes // 1024} KiB frames, {window} in flight"
    detail: dict[str, object] = {"mb_per_s": rounded([run / 1e6 for run in bytes_per_s])}
    return [
        Row(f"limits: {shape}", median(bytes_per_s) / 1e6, "MB/s", detail=detail),
        Row(f"limits: as messages of {message_bytes} B", median(bytes_per_s) / message_bytes, "msg/s"),
        Row(
            f"limits: {FRAME_BYTES_TARGET // 1024} KiB frames, {fewer} in flight",
            median([run.bytes_per_s for run in coalesced]) / 1e6,
            "MB/s",
        ),
        Row("limits: latency at 200 msg/s, p50", median([run.p50_ms for run in latencies]), "ms"),
        Row("limits: latency at 200 msg/s, p99", median([run.p99_ms for run in latencies]), "ms"),
    ]
