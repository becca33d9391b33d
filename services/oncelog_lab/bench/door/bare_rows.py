"""Rows that the bare clients of every protocol have (see `door`)."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Protocol
from uuid import uuid4

from oncelog.client.client import AsyncClient
from oncelog_lab.bench.cpu import CpuMeter
from oncelog_lab.bench.door.alternation import Load, Measured, alternated
from oncelog_lab.bench.door.controls import (
    CONNECTIONS,
    LARGE_MESSAGES,
    SMALL_MESSAGES,
    WINDOW,
    batches_read,
    filled_topic,
    idle_row,
    large_rows,
    lists,
    read_rows,
    small_row,
)
from oncelog_lab.bench.figures import BenchRow
from oncelog_lab.bench.running import Tell
from oncelog_lab.bench.settings import BenchSettings
from oncelog_lab.cluster import LabCluster

#: How often an idle client says that it lives.
_ALIVE_EVERY_S = 30.0


class BareClient(Protocol):
    """A connection for one topic. Each method raises LabFailed."""

    async def open_producer(self) -> None: ...
    def recorded(self, frames: int, *, messages: int, message_bytes: int) -> list[bytes]:
        """Frames of the open producer. messages: of each frame."""

    async def publish(self, frames: list[bytes], window: int) -> float:
        """Returns seconds."""

    async def read(self, total: int) -> float:
        """Read so many messages from the first one on. Returns seconds."""

    async def keep_alive(self) -> None: ...
    def check(self) -> None:
        """Raises LabFailed if the connection is lost."""

    def close(self) -> None: ...


class BareRows:
    """of: whose clients. connect: to a topic. made_per_s: what batches of the SDK should be read with."""

    def __init__(
        self, of: str, cluster: LabCluster, client: AsyncClient, settings: BenchSettings, tell: Tell,
        connect: Callable[[str], Awaitable[BareClient]], *, made_per_s: float,
    ) -> None:  # fmt: skip
        self._of = of
        self._cluster, self._client, self._settings, self._tell = cluster, client, settings, tell
        self._connect = connect
        self._made_per_s = made_per_s

    async def large_batches(self) -> list[BenchRow]:
        size = self._settings.large_message_bytes
        self._tell(f"{self._of}: publish {size} B messages in batches of {LARGE_MESSAGES}")
        door, native = await self._against_lists(
            self._settings.messages * self._settings.message_bytes // size, LARGE_MESSAGES, size
        )
        return large_rows(self._of, door, native, size)

    async def small_batches(self) -> BenchRow:
        size = self._settings.message_bytes
        self._tell(f"{self._of}: publish {size} B messages in batches of {SMALL_MESSAGES}")
        door, native = await self._against_lists(self._settings.messages, SMALL_MESSAGES, size)
        return small_row(self._of, door, native, size)

    async def _against_lists(self, messages: int, batch: int, message_bytes: int) -> list[Measured]:
        """Frames through the door, and send_many with the same batches."""
        total = _whole(messages, batch)
        control = lists(self._client, total, batch=batch, message_bytes=message_bytes)
        replay = self.replay(total, batch, message_bytes, WINDOW)
        return await alternated(self._cluster, self._settings.runs, [replay, control])

    def replay(self, total: int, batch: int, message_bytes: int, window: int) -> Load:
        """Publish to a new topic."""

        async def replay(meter: CpuMeter) -> tuple[int, float]:
            return total, await self.fill(new_topic(), meter, total, batch, message_bytes, window)

        return replay

    async def fill(self, topic: str, meter: CpuMeter, total: int, batch: int, message_bytes: int, window: int) -> float:
        """Returns seconds."""
        bare = await self._connect(topic)
        try:
            await bare.open_producer()
            frames = bare.recorded(total // batch, messages=batch, message_bytes=message_bytes)
            with meter:
                return await bare.publish(frames, window)
        finally:
            bare.close()

    async def reads(self) -> list[BenchRow]:
        size = self._settings.message_bytes
        total = _whole(self._settings.messages, SMALL_MESSAGES)
        self._tell(f"{self._of}: read {total:,} messages")
        theirs = new_topic()
        await self.fill(theirs, CpuMeter(self._cluster), total, SMALL_MESSAGES, size, WINDOW)
        ours = await filled_topic(self._client, total, message_bytes=size)

        async def read_bare(topic: str, meter: CpuMeter) -> tuple[int, float]:
            bare = await self._connect(topic)
            try:
                with meter:
                    return total, await bare.read(total)
            finally:
                bare.close()

        loads: list[Load] = [
            partial(read_bare, theirs), partial(read_bare, ours), batches_read(self._client, ours, total)
        ]  # fmt: skip
        as_came, made, control = await alternated(self._cluster, self._settings.runs, loads)
        return read_rows(self._of, as_came, made, control, self._made_per_s)

    async def idle(self) -> BenchRow:
        seconds = self._settings.idle_seconds
        self._tell(f"{self._of}: {CONNECTIONS:,} idle connections for {seconds:g} s")
        topic = new_topic()
        clients = [await self._connect(topic) for _ in range(CONNECTIONS)]
        meter = CpuMeter(self._cluster)
        began = time.perf_counter()
        with meter:
            sent = 0
            while (passed := time.perf_counter() - began) < seconds:
                while sent < CONNECTIONS * passed / _ALIVE_EVERY_S:
                    await clients[sent % CONNECTIONS].keep_alive()
                    sent += 1
                await asyncio.sleep(_ALIVE_EVERY_S / CONNECTIONS)
        for each in clients:
            each.check()
            each.close()
        return idle_row(f"{self._of}: the door with {CONNECTIONS:,} idle connections", meter)


def _whole(messages: int, batch: int) -> int:
    """Of whole batches, at least one."""
    return max(batch, messages // batch * batch)


def new_topic() -> str:
    return f"public/default/bench-{uuid4().hex[:12]}"
