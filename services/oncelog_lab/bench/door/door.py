"""Clients of Pulsar in front of a door, against the SDK in the same run.

publish      batches of 64 KiB against send_many of the same batches; batches of 1,000 small messages; single messages;
             and what such batches cost the owner
latency      a message that the client of Pulsar for Python sends each 5 ms, against one of the SDK
deliver      a topic of 1,000 messages a batch: stored by a client of Pulsar, which goes out as it came, and by the SDK,
             which is converted; against read_batch
consume      messages that are no batches, to the reader and to the consumer of the client for Python, which
             acknowledges each
idle         connections that only send a PING each 30 s

The CPU of a message, by process, depends less on what else the machine does than the rate. Rows with "bare" have a
client that replays frames (`bare_client`). The others have the client for Python, which is the library for C++.
"""

import asyncio
import time
from functools import partial
from uuid import uuid4

from oncelog.client.client import AsyncClient
from oncelog.core.formats.columns import LENGTH_BYTES
from oncelog_lab.bench.consume import count_batches, fill, read_whole
from oncelog_lab.bench.cpu import CpuMeter
from oncelog_lab.bench.door.alternation import Load, Measured, alternated
from oncelog_lab.bench.door.bare_client import BareClient, recorded_sends
from oncelog_lab.bench.door.python_client import PythonClient
from oncelog_lab.bench.figures import BenchRow, FigureTarget, Latencies, median, rounded
from oncelog_lab.bench.loads import send_paced
from oncelog_lab.bench.publish import LIST_BATCHES, new_producers
from oncelog_lab.bench.running import BenchStack, Tell
from oncelog_lab.bench.settings import BenchSettings
from oncelog_lab.cluster import LabCluster, standalone_cluster
from oncelog_lab.peer_bench.loads import MESSAGES_PER_S
from oncelog_lab.values import make_values

#: Messages of a batch, and batches in flight.
_LARGE_MESSAGES, _SMALL_MESSAGES, _WINDOW = 64, 1000, 32
_SINGLES_WINDOW = 1000
#: Of all messages, those that are sent one by one.
_SINGLES_SHARE = 50
_CONNECTIONS = 1000
_PING_EVERY_S = 30.0
_WARM_UP_S = 0.5


async def door_rows(stack: BenchStack, settings: BenchSettings, tell: Tell) -> list[BenchRow]:
    """Twelve rows."""
    async with (
        standalone_cluster(stack.new_directory(), owners=1, door=True) as cluster,
        await cluster.connect() as client,
    ):
        bench = DoorBench(cluster, client, settings, tell)
        return [
            *await bench.large_batches(),
            *await bench.small_batches(),
            *await bench.singles(),
            await bench.latency(),
            *await bench.deliveries(),
            *await bench.consumed(),
            await bench.idle(),
        ]


class DoorBench:
    def __init__(self, cluster: LabCluster, client: AsyncClient, settings: BenchSettings, tell: Tell) -> None:
        self._cluster, self._client, self._settings, self._tell = cluster, client, settings, tell
        self._python = PythonClient(cluster.pulsar_url)

    async def large_batches(self) -> list[BenchRow]:
        size = self._settings.large_message_bytes
        self._tell(f"publish {size} B messages in batches of {_LARGE_MESSAGES}")
        frames = self._recorded(_LARGE_MESSAGES, size, self._settings.messages * self._settings.message_bytes // size)
        door, native = await self._against_lists(frames, _LARGE_MESSAGES, size)
        return [
            BenchRow(
                f"publish, bare, {_LARGE_MESSAGES} x {size} B", door.rate * size / 1e6, "MB/s",
                native.rate * size / 1e6,
                FigureTarget(0.5, of_ratio=True, of="send_many"), _both(door, native), _us(door, native),
            ),
            BenchRow(
                "the owner's CPU for such a batch", door.cpu_us["owner"] * _LARGE_MESSAGES, "us",
                native.cpu_us["owner"] * _LARGE_MESSAGES,
                FigureTarget(1.05, at_most=True, of_ratio=True, of="the SDK's"),
            ),
        ]  # fmt: skip

    async def small_batches(self) -> list[BenchRow]:
        size = self._settings.message_bytes
        self._tell(f"publish {size} B messages in batches of {_SMALL_MESSAGES}")
        frames = self._recorded(_SMALL_MESSAGES, size, self._settings.messages)
        door, native = await self._against_lists(frames, _SMALL_MESSAGES, size)
        return [
            BenchRow(
                f"publish, bare, {_SMALL_MESSAGES:,} x {size} B", door.rate, "msg/s", native.rate,
                FigureTarget(400_000), _both(door, native), _us(door, native),
            )
        ]  # fmt: skip

    def _recorded(self, batch: int, message_bytes: int, messages: int) -> list[bytes]:
        return recorded_sends(max(1, messages // batch), messages=batch, message_bytes=message_bytes)

    async def _against_lists(self, frames: list[bytes], batch: int, message_bytes: int) -> list[Measured]:
        """Frames through the door, and send_many with the same batches."""
        total = len(frames) * batch
        values = make_values(message_bytes, LIST_BATCHES * batch)

        async def native(meter: CpuMeter) -> tuple[int, float]:
            batch_bytes = batch * (message_bytes + LENGTH_BYTES)
            (producer,) = await new_producers(self._client, 1, batch_bytes=batch_bytes)
            async with producer:
                with meter:
                    rate = await fill(producer, values, total)
            return total, total / rate

        async def door(meter: CpuMeter) -> tuple[int, float]:
            return total, await self._replay(_new_topic(), frames, _WINDOW, meter)

        return await alternated(self._cluster, self._settings.runs, [door, native])

    async def _replay(self, topic: str, frames: list[bytes], window: int, meter: CpuMeter) -> float:
        """Returns seconds."""
        bare = await BareClient.connected(self._cluster.pulsar_url)
        try:
            await bare.open_producer(topic)
            with meter:
                return await bare.publish(frames, window)
        finally:
            bare.close()

    async def singles(self) -> list[BenchRow]:
        """Without batches; and the client for Python with its own batches."""
        size, seconds = self._settings.message_bytes, self._settings.seconds
        self._tell(f"publish {size} B messages one by one, and as the client for Python packs them")
        frames = self._recorded(1, size, self._settings.messages // _SINGLES_SHARE)

        async def bare(meter: CpuMeter) -> tuple[int, float]:
            return len(frames), await self._replay(_new_topic(), frames, _SINGLES_WINDOW, meter)

        async def singles(meter: CpuMeter) -> tuple[int, float]:
            return await self._python.publish(_new_topic(), meter, message_bytes=size, seconds=seconds, lone=True)

        async def batches(meter: CpuMeter) -> tuple[int, float]:
            return await self._python.publish(_new_topic(), meter, message_bytes=size, seconds=seconds, lone=False)

        names = ("one SEND each, bare", "one SEND each", "batches of the client")
        targets = (None, FigureTarget(12_000), None)
        found = await alternated(self._cluster, self._settings.runs, [bare, singles, batches])
        return [
            BenchRow(f"publish, {size} B, {name}", each.rate, "msg/s", None, target, each.detail(), _us(each))
            for name, target, each in zip(names, targets, found, strict=True)
        ]

    async def latency(self) -> BenchRow:
        seconds, size = self._settings.seconds, self._settings.message_bytes
        self._tell(f"latency at {MESSAGES_PER_S} msg/s")
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
        total, size = self._settings.messages // _SMALL_MESSAGES * _SMALL_MESSAGES, self._settings.message_bytes
        self._tell(f"deliver {total:,} messages")
        theirs = _new_topic()
        await self._replay(theirs, self._recorded(_SMALL_MESSAGES, size, total), _WINDOW, CpuMeter(self._cluster))
        (producer,) = await new_producers(self._client, 1, batch_bytes=_SMALL_MESSAGES * (size + LENGTH_BYTES))
        async with producer:
            await fill(producer, make_values(size, LIST_BATCHES * _SMALL_MESSAGES), total)
        ours = producer.topic

        async def read_bare(topic: str, meter: CpuMeter) -> tuple[int, float]:
            bare = await BareClient.connected(self._cluster.pulsar_url)
            try:
                with meter:
                    return total, await bare.read(topic, total)
            finally:
                bare.close()

        async def native(meter: CpuMeter) -> tuple[int, float]:
            with meter:
                return total, total / await read_whole(self._client, ours, total, count_batches)

        loads: list[Load] = [partial(read_bare, theirs), partial(read_bare, ours), native]
        as_came, made, control = await alternated(self._cluster, self._settings.runs, loads)
        return [
            BenchRow(
                "deliver, bare, batches of Pulsar's clients", as_came.rate, "msg/s", control.rate,
                FigureTarget(0.6, of_ratio=True, of="read_batch"), _both(as_came, control), _us(as_came, control),
            ),
            BenchRow(
                "deliver, bare, batches of the SDK", made.rate, "msg/s", control.rate, FigureTarget(400_000),
                _both(made, control), _us(made, control),
            ),
        ]  # fmt: skip

    async def consumed(self) -> list[BenchRow]:
        total = self._settings.messages // _SINGLES_SHARE
        self._tell(f"consume {total:,} messages that are no batches")
        topic = _new_topic()
        await self._replay(
            topic, self._recorded(1, self._settings.message_bytes, total), _SINGLES_WINDOW, CpuMeter(self._cluster)
        )

        loads = [partial(self._python.read, topic, total), partial(self._python.consume, topic, total)]
        found = await alternated(self._cluster, self._settings.runs, loads)
        return [
            BenchRow(f"the door's CPU for a message to a {name}", each.cpu_us["door"], "us", None, None, each.detail(),
                     f"{each.rate:,.0f} msg/s; {_us(each)}")
            for name, each in zip(("reader", "shared consumer, acknowledged"), found, strict=True)
        ]  # fmt: skip

    async def idle(self) -> BenchRow:
        self._tell(f"{_CONNECTIONS:,} idle connections for {self._settings.idle_seconds:g} s")
        clients = [await BareClient.connected(self._cluster.pulsar_url) for _ in range(_CONNECTIONS)]
        meter = CpuMeter(self._cluster)
        began = time.perf_counter()
        with meter:
            sent = 0
            while (passed := time.perf_counter() - began) < self._settings.idle_seconds:
                while sent < _CONNECTIONS * passed / _PING_EVERY_S:
                    clients[sent % _CONNECTIONS].ping()
                    sent += 1
                await asyncio.sleep(_PING_EVERY_S / _CONNECTIONS)
        for each in clients:
            each.check()
            each.close()
        return BenchRow(
            f"the door with {_CONNECTIONS:,} idle connections", meter.cores()["door"] * 100, "% CPU", None,
            FigureTarget(2, at_most=True),
        )  # fmt: skip


def _new_topic() -> str:
    return f"persistent://public/default/bench-{uuid4().hex[:12]}"


def _both(door: Measured, native: Measured) -> dict[str, object]:
    return {**door.detail(), "native": native.detail()}


def _us(door: Measured, native: Measured | None = None) -> str:
    """The CPU of a message."""
    return f"CPU us: {door.shown()}" + (f"; SDK: {native.shown()}" if native is not None else "")
