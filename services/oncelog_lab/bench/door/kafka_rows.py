"""Rows of clients of Kafka (see `door`)."""

import asyncio
import time
from functools import partial
from uuid import uuid4

from oncelog.client.client import AsyncClient
from oncelog_lab.bench.cpu import CpuMeter
from oncelog_lab.bench.door.alternation import Load, alternated
from oncelog_lab.bench.door.bare_kafka import BareKafka
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
from oncelog_lab.bench.figures import BenchRow, FigureTarget
from oncelog_lab.bench.running import Tell
from oncelog_lab.bench.settings import BenchSettings
from oncelog_lab.cluster import LabCluster

_METADATA_EVERY_S = 30.0
_CONSUMERS = 100
_MADE_PER_S = 300_000


async def kafka_rows(cluster: LabCluster, client: AsyncClient, settings: BenchSettings, tell: Tell) -> list[BenchRow]:
    """Eight rows."""
    bench = _KafkaBench(cluster, client, settings, tell)
    return [
        *await bench.large_batches(),
        await bench.small_batches(),
        await bench.singles(),
        *await bench.reads(),
        await bench.idle(),
        await bench.quiet_consumers(),
    ]


class _KafkaBench:
    def __init__(self, cluster: LabCluster, client: AsyncClient, settings: BenchSettings, tell: Tell) -> None:
        self._cluster, self._client, self._settings, self._tell = cluster, client, settings, tell

    async def large_batches(self) -> list[BenchRow]:
        size = self._settings.large_message_bytes
        self._tell(f"Kafka: publish {size} B messages in batches of {LARGE_MESSAGES}")
        total = self._whole(self._settings.messages * self._settings.message_bytes // size, LARGE_MESSAGES)
        replay = self._replay(total, LARGE_MESSAGES, size, WINDOW)
        control = lists(self._client, total, batch=LARGE_MESSAGES, message_bytes=size)
        door, native = await alternated(self._cluster, self._settings.runs, [replay, control])
        return large_rows("Kafka", door, native, size)

    async def small_batches(self) -> BenchRow:
        size = self._settings.message_bytes
        self._tell(f"Kafka: publish {size} B messages in batches of {SMALL_MESSAGES}")
        total = self._whole(self._settings.messages, SMALL_MESSAGES)
        replay = self._replay(total, SMALL_MESSAGES, size, WINDOW)
        control = lists(self._client, total, batch=SMALL_MESSAGES, message_bytes=size)
        door, native = await alternated(self._cluster, self._settings.runs, [replay, control])
        return small_row("Kafka", door, native, size)

    async def singles(self) -> BenchRow:
        size = self._settings.message_bytes
        self._tell(f"Kafka: publish {size} B messages, each in a batch")
        load = self._replay(self._settings.messages // SINGLES_SHARE, 1, size, SINGLES_WINDOW)
        [found] = await alternated(self._cluster, self._settings.runs, [load])
        what = f"Kafka: publish, {size} B, one batch each, bare"
        return BenchRow(what, found.rate, "msg/s", None, FigureTarget(8_000), found.detail(), us(found))

    @staticmethod
    def _whole(messages: int, batch: int) -> int:
        """Of whole batches, at least one."""
        return max(batch, messages // batch * batch)

    def _replay(self, total: int, batch: int, message_bytes: int, window: int) -> Load:
        """Publish to a new topic."""

        async def replay(meter: CpuMeter) -> tuple[int, float]:
            bare = await self._filling(_new_topic(), meter, total, batch, message_bytes, window)
            return total, bare

        return replay

    async def _filling(
        self, topic: str, meter: CpuMeter, total: int, batch: int, message_bytes: int, window: int
    ) -> float:
        """Returns seconds."""
        bare = await self._connected(topic)
        try:
            await bare.open_producer()
            frames = bare.recorded(total // batch, messages=batch, message_bytes=message_bytes)
            with meter:
                return await bare.publish(frames, window)
        finally:
            bare.close()

    async def _connected(self, topic: str) -> BareKafka:
        return await BareKafka.connected(self._cluster.kafka_servers, topic)

    async def reads(self) -> list[BenchRow]:
        size = self._settings.message_bytes
        total = self._whole(self._settings.messages, SMALL_MESSAGES)
        self._tell(f"Kafka: read {total:,} messages")
        theirs = _new_topic()
        await self._filling(theirs, CpuMeter(self._cluster), total, SMALL_MESSAGES, size, WINDOW)
        ours = await filled_topic(self._client, total, message_bytes=size)

        async def read_bare(topic: str, meter: CpuMeter) -> tuple[int, float]:
            bare = await self._connected(topic)
            try:
                with meter:
                    return total, await bare.read(total)
            finally:
                bare.close()

        loads: list[Load] = [
            partial(read_bare, theirs), partial(read_bare, ours), batches_read(self._client, ours, total)
        ]  # fmt: skip
        as_came, made, control = await alternated(self._cluster, self._settings.runs, loads)
        return read_rows("Kafka", as_came, made, control, _MADE_PER_S)

    async def idle(self) -> BenchRow:
        seconds = self._settings.idle_seconds
        self._tell(f"Kafka: {CONNECTIONS:,} idle connections for {seconds:g} s")
        topic = _new_topic()
        clients = [await self._connected(topic) for _ in range(CONNECTIONS)]
        meter = CpuMeter(self._cluster)
        began = time.perf_counter()
        with meter:
            asked = 0
            while (passed := time.perf_counter() - began) < seconds:
                while asked < CONNECTIONS * passed / _METADATA_EVERY_S:
                    await clients[asked % CONNECTIONS].ask_metadata()
                    asked += 1
                await asyncio.sleep(_METADATA_EVERY_S / CONNECTIONS)
        for each in clients:
            each.check()
            each.close()
        return idle_row(f"Kafka: the door with {CONNECTIONS:,} idle connections", meter)

    async def quiet_consumers(self) -> BenchRow:
        """They ask again and again, as all clients do."""
        seconds = self._settings.idle_seconds
        self._tell(f"Kafka: {_CONSUMERS} consumers of a topic without messages for {seconds:g} s")
        topic = _new_topic()
        clients = [await self._connected(topic) for _ in range(_CONSUMERS)]
        await asyncio.gather(*(each.fetch(0) for each in clients))
        meter = CpuMeter(self._cluster)

        async def consume(client: BareKafka, until: float) -> None:
            while time.perf_counter() < until:
                await client.fetch(0)

        with meter:
            until = time.perf_counter() + seconds
            await asyncio.gather(*(consume(each, until) for each in clients))
        for each in clients:
            each.close()
        return idle_row(f"Kafka: the door with {_CONSUMERS} consumers of a quiet topic", meter)


def _new_topic() -> str:
    return f"public/default/bench-{uuid4().hex[:12]}"
