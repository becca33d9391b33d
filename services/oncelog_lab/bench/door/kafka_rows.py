"""Rows of clients of Kafka (see `door`)."""

import asyncio
import time
from functools import partial

from oncelog.client.client import AsyncClient
from oncelog_lab.bench.cpu import CpuMeter
from oncelog_lab.bench.door.alternation import alternated
from oncelog_lab.bench.door.bare_kafka import BareKafka
from oncelog_lab.bench.door.bare_rows import BareRows, new_topic
from oncelog_lab.bench.door.controls import SINGLES_SHARE, SINGLES_WINDOW, idle_row, us
from oncelog_lab.bench.figures import BenchRow, FigureTarget
from oncelog_lab.bench.running import Tell
from oncelog_lab.bench.settings import BenchSettings
from oncelog_lab.cluster import LabCluster

_CONSUMERS = 100
_MADE_PER_S = 300_000


async def kafka_rows(cluster: LabCluster, client: AsyncClient, settings: BenchSettings, tell: Tell) -> list[BenchRow]:
    """Eight rows."""
    connect = partial(BareKafka.connected, cluster.kafka_servers)
    bare = BareRows("Kafka", cluster, client, settings, tell, connect, made_per_s=_MADE_PER_S)
    return [
        *await bare.large_batches(),
        await bare.small_batches(),
        await _singles(bare, cluster, settings, tell),
        *await bare.reads(),
        await bare.idle(),
        await _quiet_consumers(cluster, settings, tell),
    ]


async def _singles(bare: BareRows, cluster: LabCluster, settings: BenchSettings, tell: Tell) -> BenchRow:
    size = settings.message_bytes
    tell(f"Kafka: publish {size} B messages, each in a batch")
    load = bare.replay(settings.messages // SINGLES_SHARE, 1, size, SINGLES_WINDOW)
    [found] = await alternated(cluster, settings.runs, [load])
    what = f"Kafka: publish, {size} B, one batch each, bare"
    return BenchRow(what, found.rate, "msg/s", None, FigureTarget(8_000), found.detail(), us(found))


async def _quiet_consumers(cluster: LabCluster, settings: BenchSettings, tell: Tell) -> BenchRow:
    """They ask again and again, as all clients do."""
    seconds = settings.idle_seconds
    tell(f"Kafka: {_CONSUMERS} consumers of a topic without messages for {seconds:g} s")
    topic = new_topic()
    clients = [await BareKafka.connected(cluster.kafka_servers, topic) for _ in range(_CONSUMERS)]
    await asyncio.gather(*(each.fetch(0) for each in clients))
    meter = CpuMeter(cluster)

    async def consume(client: BareKafka, until: float) -> None:
        while time.perf_counter() < until:
            await client.fetch(0)

    with meter:
        until = time.perf_counter() + seconds
        await asyncio.gather(*(consume(each, until) for each in clients))
    for each in clients:
        each.close()
    return idle_row(f"Kafka: the door with {_CONSUMERS} consumers of a quiet topic", meter)
