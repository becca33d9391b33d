"""Rows of clients of Pulsar (see `door`)."""

from functools import partial

from oncelog.client.client import AsyncClient
from oncelog_lab.bench.cpu import CpuMeter
from oncelog_lab.bench.door.alternation import alternated
from oncelog_lab.bench.door.bare_pulsar import BarePulsar
from oncelog_lab.bench.door.bare_rows import BareRows, new_topic
from oncelog_lab.bench.door.controls import SINGLES_SHARE, SINGLES_WINDOW, us
from oncelog_lab.bench.door.python_client import PythonClient
from oncelog_lab.bench.figures import BenchRow, FigureTarget, Latencies, median, rounded
from oncelog_lab.bench.loads import send_paced
from oncelog_lab.bench.publish import new_producers
from oncelog_lab.bench.running import Tell
from oncelog_lab.bench.settings import BenchSettings
from oncelog_lab.cluster import LabCluster
from oncelog_lab.peer_bench.loads import MESSAGES_PER_S

_WARM_UP_S = 0.5
_MADE_PER_S = 400_000


async def pulsar_rows(cluster: LabCluster, client: AsyncClient, settings: BenchSettings, tell: Tell) -> list[BenchRow]:
    """Twelve rows."""
    connect = partial(BarePulsar.connected, cluster.pulsar_url)
    bare = BareRows("Pulsar", cluster, client, settings, tell, connect, made_per_s=_MADE_PER_S)
    library = _LibraryRows(bare, cluster, client, settings, tell)
    return [
        *await bare.large_batches(),
        await bare.small_batches(),
        *await library.singles(),
        await library.latency(),
        *await bare.reads(),
        *await library.consumed(),
        await bare.idle(),
    ]


class _LibraryRows:
    """Rows of the client for Python."""

    def __init__(
        self, bare: BareRows, cluster: LabCluster, client: AsyncClient, settings: BenchSettings, tell: Tell
    ) -> None:
        self._bare = bare
        self._cluster, self._client, self._settings, self._tell = cluster, client, settings, tell
        self._python = PythonClient(cluster.pulsar_url)

    async def singles(self) -> list[BenchRow]:
        """Without batches, beside the bare client; and with its own batches."""
        size, seconds = self._settings.message_bytes, self._settings.seconds
        self._tell(f"Pulsar: publish {size} B messages one by one, and as the client for Python packs them")
        bare = self._bare.replay(self._singles_count, 1, size, SINGLES_WINDOW)

        async def singles(meter: CpuMeter) -> tuple[int, float]:
            return await self._python.publish(
                _address(new_topic()), meter, message_bytes=size, seconds=seconds, lone=True
            )

        async def batches(meter: CpuMeter) -> tuple[int, float]:
            return await self._python.publish(
                _address(new_topic()), meter, message_bytes=size, seconds=seconds, lone=False
            )

        names = ("one SEND each, bare", "one SEND each", "batches of the client")
        targets = (None, FigureTarget(12_000), None)
        found = await alternated(self._cluster, self._settings.runs, [bare, singles, batches])
        return [
            BenchRow(f"publish, {size} B, {name}", each.rate, "msg/s", None, target, each.detail(), us(each))
            for name, target, each in zip(names, targets, found, strict=True)
        ]

    @property
    def _singles_count(self) -> int:
        return max(1, self._settings.messages // SINGLES_SHARE)

    async def latency(self) -> BenchRow:
        seconds, size = self._settings.seconds, self._settings.message_bytes
        self._tell(f"Pulsar: latency at {MESSAGES_PER_S} msg/s")
        door: list[float] = []
        native: list[float] = []
        (producer,) = await new_producers(self._client, 1)

        async def one(seconds: float, *, through_door: bool) -> float:
            if through_door:
                return await self._python.p50_ms(_address(new_topic()), message_bytes=size, seconds=seconds)
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

    async def consumed(self) -> list[BenchRow]:
        total = self._singles_count
        self._tell(f"Pulsar: consume {total:,} messages that are no batches")
        topic = new_topic()
        await self._bare.fill(topic, CpuMeter(self._cluster), total, 1, self._settings.message_bytes, SINGLES_WINDOW)
        address = _address(topic)
        loads = [partial(self._python.read, address, total), partial(self._python.consume, address, total)]
        found = await alternated(self._cluster, self._settings.runs, loads)
        return [
            BenchRow(f"the door's CPU for a message to a {name}", each.cpu_us["door"], "us", None, None, each.detail(),
                     f"{each.rate:,.0f} msg/s; {us(each)}")
            for name, each in zip(("reader", "shared consumer, acknowledged"), found, strict=True)
        ]  # fmt: skip


def _address(topic: str) -> str:
    return f"persistent://{topic}"
