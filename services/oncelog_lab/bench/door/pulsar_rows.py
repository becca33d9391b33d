"""Rows of clients of Pulsar (see `door`)."""

import asyncio
import time
from functools import partial
from uuid import uuid4

from oncelog.client.client import AsyncClient
from oncelog_lab.bench.cpu import CpuMeter
from oncelog_lab.bench.door.alternation import Load, Measured, alternated
from oncelog_lab.bench.door.bare_pulsar import BarePulsar, recorded_sends
from oncelog_lab.bench.door.controls import (
    CONNECTIONS,
    LARGE_MESSAGES,
    SINGLES_SHARE,
    SINGLES_WINDOW,
    SMALL_MESSAGES,
    WINDOW,
    batches_read,
    filled_topic,
    idle_row,
    large_rows,
    lists,
    read_rows,
    small_row,
    us,
)
from oncelog_lab.bench.door.python_client import PythonClient
from oncelog_lab.bench.figures import BenchRow, FigureTarget, Latencies, median, rounded
from oncelog_lab.bench.loads import send_paced
from oncelog_lab.bench.publish import new_producers
from oncelog_lab.bench.running import Tell
from oncelog_lab.bench.settings import BenchSettings
from oncelog_lab.cluster import LabCluster
from oncelog_lab.peer_bench.loads import MESSAGES_PER_S

_PING_EVERY_S = 30.0
_WARM_UP_S = 0.5
_MADE_PER_S = 400_000


async def pulsar_rows(cluster: LabCluster, client: AsyncClient, settings: BenchSettings, tell: Tell) -> list[BenchRow]:
    """Twelve rows."""
    bench = _PulsarBench(cluster, client, settings, tell)
    return [
        *await bench.large_batches(),
        await bench.small_batches(),
        *await bench.singles(),
        await bench.latency(),
        *await bench.deliveries(),
        *await bench.consumed(),
        await bench.idle(),
    ]


class _PulsarBench:
    def __init__(self, cluster: LabCluster, client: AsyncClient, settings: BenchSettings, tell: Tell) -> None:
        self._cluster, self._client, self._settings, self._tell = cluster, client, settings, tell
        self._python = PythonClient(cluster.pulsar_url)

    async def large_batches(self) -> list[BenchRow]:
        size = self._settings.large_message_bytes
        self._tell(f"Pulsar: publish {size} B messages in batches of {LARGE_MESSAGES}")
        frames = self._recorded(LARGE_MESSAGES, size, self._settings.messages * self._settings.message_bytes // size)
        door, native = await self._against_lists(frames, LARGE_MESSAGES, size)
        return large_rows("Pulsar", door, native, size)

    async def small_batches(self) -> BenchRow:
        size = self._settings.message_bytes
        self._tell(f"Pulsar: publish {size} B messages in batches of {SMALL_MESSAGES}")
        frames = self._recorded(SMALL_MESSAGES, size, self._settings.messages)
        door, native = await self._against_lists(frames, SMALL_MESSAGES, size)
        return small_row("Pulsar", door, native, size)

    def _recorded(self, batch: int, message_bytes: int, messages: int) -> list[bytes]:
        return recorded_sends(max(1, messages // batch), messages=batch, message_bytes=message_bytes)

    async def _against_lists(self, frames: list[bytes], batch: int, message_bytes: int) -> list[Measured]:
        """Frames through the door, and send_many with the same batches."""
        total = len(frames) * batch

        async def door(meter: CpuMeter) -> tuple[int, float]:
            return total, await self._replay(_new_topic(), frames, WINDOW, meter)

        native = lists(self._client, total, batch=batch, message_bytes=message_bytes)
        return await alternated(self._cluster, self._settings.runs, [door, native])

    async def _replay(self, topic: str, frames: list[bytes], window: int, meter: CpuMeter) -> float:
        """Returns seconds."""
        bare = await BarePulsar.connected(self._cluster.pulsar_url)
        try:
            await bare.open_producer(topic)
            with meter:
                return await bare.publish(frames, window)
        finally:
            bare.close()

    async def singles(self) -> list[BenchRow]:
        """Without batches; and the client for Python with its own batches."""
        size, seconds = self._settings.message_bytes, self._settings.seconds
        self._tell(f"Pulsar: publish {size} B messages one by one, and as the client for Python packs them")
        frames = self._recorded(1, size, self._settings.messages // SINGLES_SHARE)

        async def bare(meter: CpuMeter) -> tuple[int, float]:
            return len(frames), await self._replay(_new_topic(), frames, SINGLES_WINDOW, meter)

        async def singles(meter: CpuMeter) -> tuple[int, float]:
            return await self._python.publish(_new_topic(), meter, message_bytes=size, seconds=seconds, lone=True)

        async def batches(meter: CpuMeter) -> tuple[int, float]:
            return await self._python.publish(_new_topic(), meter, message_bytes=size, seconds=seconds, lone=False)

        names = ("one SEND each, bare", "one SEND each", "batches of the client")
        targets = (None, FigureTarget(12_000), None)
        found = await alternated(self._cluster, self._settings.runs, [bare, singles, batches])
        return [
            BenchRow(f"publish, {size} B, {name}", each.rate, "msg/s", None, target, each.detail(), us(each))
            for name, target, each in zip(names, targets, found, strict=True)
        ]

    async def latency(self) -> BenchRow:
        seconds, size = self._settings.seconds, self._settings.message_bytes
        self._tell(f"Pulsar: latency at {MESSAGES_PER_S} msg/s")
        door: list[float] = []
        native: list[float] = []
        (producer,) = await new_producers(self._client, 1)

        async def one(seconds: float, *, through_door: bool) -> float:
            if through_door:
                return await self._python.p50_ms(_new_topic(), message_bytes=size, seconds=seconds)
            found: Latencies = await send_paced(
                producer, message_bytes=size, per_second=MESSAGES_PER_S, seconds=seconds
            )
            return found.p50_ms

        async with producer:
            for through_door in (True, False):
                await one(_WARM_UP_S, through_door=through_door)
            for run in range(self._settings.runs):
                for through_door in (True, False) if run % 2 else (False, True):
                    (door if through_door else native).append(await one(seconds, through_door=through_door))
        return BenchRow(
            "latency of a message, p50", median(door), "ms", None,
            FigureTarget(round(median(native) + 1, 2), at_most=True),
            {"runs_ms": rounded(door, 3), "native_runs_ms": rounded(native, 3)}, f"SDK {median(native):.2f} ms",
        )  # fmt: skip

    async def deliveries(self) -> list[BenchRow]:
        total, size = self._settings.messages // SMALL_MESSAGES * SMALL_MESSAGES, self._settings.message_bytes
        self._tell(f"Pulsar: deliver {total:,} messages")
        theirs = _new_topic()
        await self._replay(theirs, self._recorded(SMALL_MESSAGES, size, total), WINDOW, CpuMeter(self._cluster))
        ours = await filled_topic(self._client, total, message_bytes=size)

        async def read_bare(topic: str, meter: CpuMeter) -> tuple[int, float]:
            bare = await BarePulsar.connected(self._cluster.pulsar_url)
            try:
                with meter:
                    return total, await bare.read(topic, total)
            finally:
                bare.close()

        loads: list[Load] = [
            partial(read_bare, theirs), partial(read_bare, ours), batches_read(self._client, ours, total)
        ]  # fmt: skip
        as_came, made, control = await alternated(self._cluster, self._settings.runs, loads)
        return read_rows("Pulsar", as_came, made, control, _MADE_PER_S)

    async def consumed(self) -> list[BenchRow]:
        total = self._settings.messages // SINGLES_SHARE
        self._tell(f"Pulsar: consume {total:,} messages that are no batches")
        topic = _new_topic()
        await self._replay(
            topic, self._recorded(1, self._settings.message_bytes, total), SINGLES_WINDOW, CpuMeter(self._cluster)
        )

        loads = [partial(self._python.read, topic, total), partial(self._python.consume, topic, total)]
        found = await alternated(self._cluster, self._settings.runs, loads)
        return [
            BenchRow(f"the door's CPU for a message to a {name}", each.cpu_us["door"], "us", None, None, each.detail(),
                     f"{each.rate:,.0f} msg/s; {us(each)}")
            for name, each in zip(("reader", "shared consumer, acknowledged"), found, strict=True)
        ]  # fmt: skip

    async def idle(self) -> BenchRow:
        self._tell(f"Pulsar: {CONNECTIONS:,} idle connections for {self._settings.idle_seconds:g} s")
        clients = [await BarePulsar.connected(self._cluster.pulsar_url) for _ in range(CONNECTIONS)]
        meter = CpuMeter(self._cluster)
        began = time.perf_counter()
        with meter:
            sent = 0
            while (passed := time.perf_counter() - began) < self._settings.idle_seconds:
                while sent < CONNECTIONS * passed / _PING_EVERY_S:
                    clients[sent % CONNECTIONS].ping()
                    sent += 1
                await asyncio.sleep(_PING_EVERY_S / CONNECTIONS)
        for each in clients:
            each.check()
            each.close()
        return idle_row(f"Pulsar: the door with {CONNECTIONS:,} idle connections", meter)


def _new_topic() -> str:
    return f"persistent://public/default/bench-{uuid4().hex[:12]}"
