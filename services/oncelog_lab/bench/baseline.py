"""The limits path: its processes, and the loads on it.

`bytes_per_s` is the throughput of one client from its first frame to its last answer, with `window` frames in flight.
Latencies are those of single frames at a fixed rate, from the write to the answer.
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

from oncelog_lab.bench.baseline_path import NUMBER, open_channel, open_stream
from oncelog_lab.bench.figures import Latencies
from oncelog_lab.child_process import LabChild
from oncelog_lab.cluster import STORAGE_NODES
from oncelog_lab.failures import LabFailed

START_DEADLINE_S = 60.0
#: Time for the last answers after the end of a load.
DRAIN_S = 20.0
_MODULE = "oncelog_lab.bench.baseline_path"


@dataclass(frozen=True, slots=True)
class Throughput:
    """One run of a load."""

    bytes_per_s: float
    seconds: float

    def messages(self, message_bytes: int) -> tuple[int, float]:
        """(messages of this size, seconds)."""
        return round(self.bytes_per_s * self.seconds / message_bytes), self.seconds


class BaselineClient:
    """One client of the limits path."""

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
                raise LabFailed("the limits path has ended its stream")
            await self._answered.wait()

    async def publish(self, *, frame_bytes: int, window: int, seconds: float) -> Throughput:
        """Send frames of one size for so long, `window` of them in flight. Raises LabFailed."""
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
            raise LabFailed(f"the limits path did not answer all frames within {DRAIN_S:.0f} s") from error
        took = time.perf_counter() - began
        return Throughput(count * frame_bytes / took, took)

    async def latencies(self, *, frame_bytes: int, per_second: float, seconds: float) -> Latencies:
        """Send single frames at a fixed rate. Raises LabFailed."""
        body = os.urandom(frame_bytes)
        self._seconds.clear()
        try:
            async with asyncio.timeout(seconds + DRAIN_S):
                async for _ in ticks(per_second=per_second, seconds=seconds):
                    await self._write(body)
                await self._until_in_flight(0)
        except TimeoutError as error:
            raise LabFailed(f"the limits path did not answer all frames within {DRAIN_S:.0f} s") from error
        return Latencies.of(self._seconds)

    async def close(self) -> None:
        await self._stream.done_writing()
        await self._reading
        await self._channel.close()


async def ticks(*, per_second: float, seconds: float) -> AsyncIterator[int]:
    """Yield 0, 1, 2 … at fixed times. A tick that is late comes at once and does not delay the next ones."""
    began = time.perf_counter()
    for number in range(round(per_second * seconds)):
        wait = began + number / per_second - time.perf_counter()
        if wait > 0:
            await asyncio.sleep(wait)
        yield number


async def _start(stack: AsyncExitStack, directory: Path, name: str, *arguments: str) -> str:
    """Start a process that ends with `stack`. Returns its address. Raises LabFailed."""
    child = await LabChild.start(
        f"{name} of the limits run",
        (sys.executable, "-m", _MODULE, *arguments),
        log=directory / f"limits-{name}.log",
        announces="serving",
        deadline_s=START_DEADLINE_S,
    )
    stack.push_async_callback(child.stop)
    return str(child.announced["serving"]["address"])


@asynccontextmanager
async def baseline_cluster(directory: Path) -> AsyncIterator[BaselineClient]:
    """Start the processes of the limits path, and connect a client. Raises LabFailed."""
    async with AsyncExitStack() as stack:
        nodes = [
            await _start(stack, directory, f"storage-{number}", "storage", str(directory / f"limits-segment-{number}"))
            for number in range(1, STORAGE_NODES + 1)
        ]
        client = BaselineClient(await _start(stack, directory, "owner", "owner", *nodes))
        stack.push_async_callback(client.close)
        yield client


@asynccontextmanager
async def bare_pair(directory: Path) -> AsyncIterator[BaselineClient]:
    """Start a process that answers each frame at once, and connect a client. Raises LabFailed."""
    async with AsyncExitStack() as stack:
        client = BaselineClient(await _start(stack, directory, "pair", "pair"))
        stack.push_async_callback(client.close)
        yield client
