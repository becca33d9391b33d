"""Small: what a message costs when the application gives messages one by one, or a few at a time.

lone message         one message every 5 ms, one producer: the CPU of each message
callback             send_nowait with on_result for every message, as fast as the limits of pending messages allow
future               the same without; each future has a callback, or is awaited
lists of 20          send_many of 20 messages, one call at a time for each of 64 producers
one in flight        1,000 producers of one topic; each sends its next message after the answer to the last

The CPU of a message is that of the client, the owner and all storage nodes together. It depends less on what else the
machine does than the rate.
"""

from collections.abc import Awaitable, Callable

from oncelog.client.client import AsyncClient
from oncelog.client.producing.producer import AsyncProducer
from oncelog_lab.bench.cpu import CpuMeter
from oncelog_lab.bench.figures import BenchRow, FigureTarget, median, rounded
from oncelog_lab.bench.loads import send_callbacks, send_futures, send_in_turn, send_paced
from oncelog_lab.bench.publish import new_producers
from oncelog_lab.bench.running import BenchStack, Tell
from oncelog_lab.bench.settings import BenchSettings
from oncelog_lab.cluster import LabCluster

_LIST_MESSAGES, _LIST_PRODUCERS = 20, 64
_SINGLE_PRODUCERS = 1000

#: Runs once; returns (messages, seconds).
Load = Callable[[list[AsyncProducer]], Awaitable[tuple[int, float]]]


async def small_rows(stack: BenchStack, settings: BenchSettings, tell: Tell) -> list[BenchRow]:
    """Six rows."""
    cluster = await stack.cluster()
    size, seconds = settings.message_bytes, settings.seconds

    async def lone(own: list[AsyncProducer]) -> tuple[int, float]:
        latencies = await send_paced(own[0], message_bytes=size, per_second=settings.rate, seconds=settings.seconds)
        return latencies.count, settings.seconds

    async def futures(own: list[AsyncProducer]) -> tuple[int, float]:
        return (await send_futures(own[0], message_bytes=size, seconds=seconds)).messages(size)

    async def callbacks(own: list[AsyncProducer]) -> tuple[int, float]:
        return (await send_callbacks(own[0], message_bytes=size, seconds=seconds)).messages(size)

    async def future_callbacks(own: list[AsyncProducer]) -> tuple[int, float]:
        load = await send_callbacks(own[0], message_bytes=size, seconds=seconds, futures=True)
        return load.messages(size)

    async def lists(own: list[AsyncProducer]) -> tuple[int, float]:
        return (await send_in_turn(own, message_bytes=size, count=_LIST_MESSAGES, seconds=seconds)).messages(size)

    async def singles(own: list[AsyncProducer]) -> tuple[int, float]:
        return (await send_in_turn(own, message_bytes=size, count=1, seconds=seconds)).messages(size)

    async with await cluster.connect(keep_memory=not settings.return_memory) as client:
        bench = _SmallBench(cluster, client, settings.runs, tell)
        return [
            await bench.cpu_row(f"CPU of a lone message at {settings.rate:g} msg/s", 1, lone),
            await bench.row("one callback each", 1, callbacks, FigureTarget(400_000)),
            await bench.row("one future with a callback each", 1, future_callbacks),
            await bench.row("one future each", 1, futures, FigureTarget(600_000)),
            await bench.cpu_row(
                f"CPU of a message in lists of {_LIST_MESSAGES}, {_LIST_PRODUCERS} producers",
                _LIST_PRODUCERS, lists, FigureTarget(10, at_most=True),
            ),
            await bench.row(
                f"{_SINGLE_PRODUCERS:,} producers, one message in flight each", _SINGLE_PRODUCERS, singles,
                FigureTarget(40_000),
            ),
        ]  # fmt: skip


class _SmallBench:
    """Runs each load several times, with new producers on a new topic."""

    def __init__(self, cluster: LabCluster, client: AsyncClient, runs: int, tell: Tell) -> None:
        self._cluster = cluster
        self._client = client
        self._runs = runs
        self._tell = tell

    async def row(self, what: str, producers: int, load: Load, target: FigureTarget | None = None) -> BenchRow:
        """The rate, with the CPU of a message as its note."""
        rates, cpu, detail = await self._measure(what, producers, load)
        return BenchRow(what, median(rates), "msg/s", None, target, detail, _shown(cpu))

    async def cpu_row(self, what: str, producers: int, load: Load, target: FigureTarget | None = None) -> BenchRow:
        """The CPU of a message, with the rate as its note."""
        rates, cpu, detail = await self._measure(what, producers, load)
        note = f"{_shown(cpu)}; {median(rates):,.0f} msg/s"
        return BenchRow(what, sum(cpu.values()), "us", None, target, detail, note)

    async def _measure(
        self, what: str, producers: int, load: Load
    ) -> tuple[list[float], dict[str, float], dict[str, object]]:
        """Returns the messages per second of each run, {role: us of CPU of a message}, and the detail of the row."""
        self._tell(what)
        rates, total = [], 0
        meter = CpuMeter(self._cluster)
        for _ in range(self._runs):
            own = await new_producers(self._client, producers)
            with meter:
                count, seconds = await load(own)
            total += count
            rates.append(count / seconds)
            for producer in own:
                await producer.close()
        return rates, meter.us_each(total), {"runs": rounded(rates), **meter.detail(total)}


def _shown(cpu: dict[str, float]) -> str:
    return "CPU us: " + ", ".join(f"{role} {us:.3g}" for role, us in cpu.items() if us >= 0.05)
