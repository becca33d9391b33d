"""Publish: how many messages one client gets acknowledged, against the bare path's bytes of the same shape.

send_many            one producer, lists of eight 256 KiB batches, 8 MiB in flight: the way of bulk loads
one future each      send_nowait for every message and its future awaited: the way of requests that come one by one
1 KiB messages       the same as the first, where bytes cost more than messages
many producers       lists of one 64 KiB batch, of 16 producers through one connection; its ratio is to send_many's own
                     bytes a second, for small batches merged into frames should cost hardly more than large ones

A ratio divides acknowledged bytes of values by the bytes that the bare path moved with the same batches in flight; the
lengths beside the values, the batch's header and the entry's count against us.
"""

from collections.abc import Awaitable, Callable
from itertools import count

from oncelog.client.client import AsyncClient
from oncelog.client.producer import AsyncProducer
from oncelog.lab.bench.cluster import Cluster
from oncelog.lab.bench.cpu import CpuMeter
from oncelog.lab.bench.figures import Row, Target, median, rounded
from oncelog.lab.bench.limits import LARGE_BATCH_BYTES, PathClient, Throughput
from oncelog.lab.bench.loads import send_futures, send_lists
from oncelog.lab.bench.settings import BenchSettings, Shape

Tell = Callable[[str], None]
Measure = Callable[[], Awaitable[Throughput]]

SEND_MANY = "publish, send_many"
#: What one call of send_many is given, where one producer has the connection for itself.
LIST_BATCHES = 8
_TOPIC_NUMBERS = count(1)


async def new_producers(
    client: AsyncClient,
    number: int,
    *,
    namespace: str = "public/default",
    batch_bytes: int = LARGE_BATCH_BYTES,
) -> list[AsyncProducer]:
    """Producers on a topic of their own: each load begins with an empty one."""
    topic = f"{namespace}/bench-{next(_TOPIC_NUMBERS)}"
    return [
        await client.create_producer(topic, producer_name=f"bench-{each}", batch_bytes_max=batch_bytes)
        for each in range(number)
    ]


class Publish:
    """Runs each load in turns with the bare path."""

    def __init__(self, cluster: Cluster, path: PathClient, settings: BenchSettings, tell: Tell) -> None:
        self._cluster = cluster
        self._path = path
        self._settings = settings
        self._tell = tell

    async def rows(self) -> list[Row]:
        settings = self._settings
        async with await self._cluster.connect() as client:
            many = await self._row(
                f"{SEND_MANY}, {settings.message_bytes} B messages",
                self._lists(client, settings.message_bytes, settings.large, producers=1),
                settings.message_bytes,
                settings.large,
                Target(0.65, of_ratio=True, of="limits"),
            )
            futures = await self._row(
                f"publish, one future each, {settings.message_bytes} B messages",
                self._futures(client),
                settings.message_bytes,
                settings.large,
                Target(250_000),
            )
            large = await self._row(
                f"{SEND_MANY}, {settings.large_message_bytes} B messages",
                self._lists(client, settings.large_message_bytes, settings.large, producers=1),
                settings.large_message_bytes,
                settings.large,
                Target(0.7, of_ratio=True, of="limits"),
            )
            small = await self._row(
                f"publish, {settings.small.batch_bytes // 1024} KiB batches of {settings.producers} producers",
                self._lists(client, settings.message_bytes, settings.small, producers=settings.producers),
                settings.message_bytes,
                settings.small,
                Target(0.8, of_ratio=True, of="send_many"),
                against=self._lists(client, settings.message_bytes, settings.large, producers=1),
            )
        return [many, futures, large, small]

    def _lists(self, client: AsyncClient, message_bytes: int, shape: Shape, *, producers: int) -> Measure:
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
        shape: Shape,
        target: Target,
        *,
        against: Measure | None = None,
    ) -> Row:
        """Runs of ours and of the bare path, in turns. against: a load in the same turns that the ratio divides by."""
        self._tell(what)
        ours, limits, others = [], [], []
        meter = CpuMeter(self._cluster)
        for _ in range(self._settings.runs):
            bare = await self._path.publish(
                frame_bytes=shape.batch_bytes, window=shape.window, seconds=self._settings.seconds
            )
            limits.append(bare.bytes_per_s / message_bytes)
            if against is not None:
                others.append((await against()).bytes_per_s / message_bytes)
            with meter:
                ours.append((await measure()).bytes_per_s / message_bytes)
        figure = median(ours)
        detail: dict[str, object] = {
            "runs": rounded(ours),
            "limits_runs": rounded(limits),
            "mb_per_s": round(figure * message_bytes / 1e6, 1),
            "shape": str(shape),
            "cores": meter.cores(),
        }
        note = f"{figure * message_bytes / 1e6:.0f} MB/s"
        if others:
            detail["against_runs"] = rounded(others)
            note += f"; {figure / median(limits):.2f} x limits of this shape"
        return Row(what, figure, "msg/s", median(others or limits), target, detail, note)
