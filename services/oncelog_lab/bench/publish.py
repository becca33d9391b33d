"""Publish: acknowledged messages per second of one client, against the bytes of the limits path in the same shape.

send_many            one producer, lists of eight 256 KiB batches, 8 MiB in flight: a bulk load
one future each      send_nowait for every message, and each future awaited: single requests
1 KiB messages       send_many with larger messages, where the cost of bytes dominates
many producers       lists of one 64 KiB batch, from 16 producers through one connection. The ratio is to send_many's
                     bytes per second: small batches are merged into frames and should cost little more

A ratio divides the acknowledged bytes of values by the bytes that the limits path moved with the same batches in
flight. The lengths beside the values and the headers of batch and entry are not counted as throughput.
"""

from collections.abc import Awaitable, Callable
from uuid import uuid4

from oncelog.client.client import AsyncClient
from oncelog.client.producing.producer import AsyncProducer
from oncelog_lab.bench.baseline import BaselineClient, Throughput
from oncelog_lab.bench.cpu import CpuMeter
from oncelog_lab.bench.figures import BenchRow, FigureTarget, median, rounded
from oncelog_lab.bench.loads import send_futures, send_lists
from oncelog_lab.bench.running import BenchStack, Tell
from oncelog_lab.bench.settings import LARGE, BenchSettings, LoadShape
from oncelog_lab.cluster import LabCluster

Measure = Callable[[], Awaitable[Throughput]]

SEND_MANY = "publish, send_many"
#: Batches of one send_many call of a single producer.
LIST_BATCHES = 8


async def new_producers(
    client: AsyncClient,
    number: int,
    *,
    namespace: str = "public/default",
    batch_bytes: int = LARGE.batch_bytes,
) -> list[AsyncProducer]:
    """Open producers on a new, empty topic, also where benchmarks ran before."""
    topic = f"{namespace}/bench-{uuid4().hex[:12]}"
    return [
        await client.create_producer(topic, producer_name=f"bench-{each}", batch_bytes_max=batch_bytes)
        for each in range(number)
    ]


async def publish_rows(stack: BenchStack, settings: BenchSettings, tell: Tell) -> list[BenchRow]:
    """Four rows."""
    return await PublishBench(await stack.cluster(), await stack.path(), settings, tell).rows()


class PublishBench:
    """Runs each load alternating with the limits path."""

    def __init__(self, cluster: LabCluster, path: BaselineClient, settings: BenchSettings, tell: Tell) -> None:
        self._cluster = cluster
        self._path = path
        self._settings = settings
        self._tell = tell

    async def rows(self) -> list[BenchRow]:
        settings = self._settings
        async with await self._cluster.connect(keep_memory=not settings.return_memory) as client:
            many = await self._row(
                f"{SEND_MANY}, {settings.message_bytes} B messages",
                self._lists(client, settings.message_bytes, settings.large, producers=1),
                settings.message_bytes,
                settings.large,
                FigureTarget(0.65, of_ratio=True, of="limits"),
            )
            futures = await self._row(
                f"publish, one future each, {settings.message_bytes} B messages",
                self._futures(client),
                settings.message_bytes,
                settings.large,
                FigureTarget(250_000),
            )
            large = await self._row(
                f"{SEND_MANY}, {settings.large_message_bytes} B messages",
                self._lists(client, settings.large_message_bytes, settings.large, producers=1),
                settings.large_message_bytes,
                settings.large,
                FigureTarget(0.7, of_ratio=True, of="limits"),
            )
            small = await self._row(
                f"publish, {settings.small.batch_bytes // 1024} KiB batches of {settings.producers} producers",
                self._lists(client, settings.message_bytes, settings.small, producers=settings.producers),
                settings.message_bytes,
                settings.small,
                FigureTarget(0.8, of_ratio=True, of="send_many"),
                against=self._lists(client, settings.message_bytes, settings.large, producers=1),
            )
        return [many, futures, large, small]

    def _lists(self, client: AsyncClient, message_bytes: int, shape: LoadShape, *, producers: int) -> Measure:
        async def measure() -> Throughput:
            own = await new_producers(client, producers, batch_bytes=shape.batch_bytes)
            result = await send_lists(
                own,
                message_bytes=message_bytes,
                batch_bytes=shape.batch_bytes,
                list_batches=LIST_BATCHES if producers == 1 else 1,
                window=shape.window,
                seconds=self._settings.seconds,
            )
            for producer in own:
                await producer.close()
            return result

        return measure

    def _futures(self, client: AsyncClient) -> Measure:
        async def measure() -> Throughput:
            (producer,) = await new_producers(client, 1)
            async with producer:
                return await send_futures(
                    producer, message_bytes=self._settings.message_bytes, seconds=self._settings.seconds
                )

        return measure

    async def _row(
        self,
        what: str,
        measure: Measure,
        message_bytes: int,
        shape: LoadShape,
        target: FigureTarget,
        *,
        against: Measure | None = None,
    ) -> BenchRow:
        """Alternate the load with the limits path. against: another load that the ratio divides by instead."""
        self._tell(what)
        ours, limits, others, total = [], [], [], 0
        meter = CpuMeter(self._cluster)
        for _ in range(self._settings.runs):
            bare = await self._path.publish(
                frame_bytes=shape.batch_bytes, window=shape.window, seconds=self._settings.seconds
            )
            limits.append(bare.bytes_per_s / message_bytes)
            if against is not None:
                others.append((await against()).bytes_per_s / message_bytes)
            with meter:
                load = await measure()
            ours.append(load.bytes_per_s / message_bytes)
            total += load.messages(message_bytes)[0]
        figure = median(ours)
        detail: dict[str, object] = {
            "runs": rounded(ours),
            "limits_runs": rounded(limits),
            "mb_per_s": round(figure * message_bytes / 1e6, 1),
            "shape": str(shape),
            "cores": meter.cores(),
            **meter.detail(total),
        }
        note = f"{figure * message_bytes / 1e6:.0f} MB/s"
        if others:
            detail["against_runs"] = rounded(others)
            note += f"; {figure / median(limits):.2f} x limits of this shape"
        return BenchRow(what, figure, "msg/s", median(others or limits), target, detail, note)
