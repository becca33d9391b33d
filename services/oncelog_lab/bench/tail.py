"""Tail: the latency of single messages while the topic carries half of what it can, and something else goes on.

Each scenario is a cluster of its own with one owner: in a quiet one nothing else happens, in each of the others one
thing happens about once a second. The ratio of a row is to the quiet cluster.

quiet             no snapshot, no roll
snapshots         a snapshot of the topic's dedup state
ledger rolls      the topic's ledger is closed and the next one is opened
segment rolls     all storage nodes begin another segment file
takeovers         other topics of the same owner are unloaded and taken over again
"""

import asyncio
import itertools
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

from oncelog.cli.admin.rest_paths import topic_path
from oncelog.client.client import AsyncClient
from oncelog_lab.bench.baseline import ticks
from oncelog_lab.bench.figures import BenchRow, Latencies, median, rounded
from oncelog_lab.bench.loads import batch_count, send_lists, send_paced
from oncelog_lab.bench.running import BenchStack, Tell
from oncelog_lab.bench.settings import SMALL, BenchSettings
from oncelog_lab.cluster import LabCluster, standalone_cluster
from oncelog_lab.failures import LabFailed
from oncelog_lab.values import make_values

TOPIC = "public/default/bench-tail"
_OTHER_TOPICS = 10
#: The load comes in so many bursts, whose batches share frames as at full load. Batches that are sent one by one cost
#: twice as much CPU, and half of the full rate would be all that the machine can do.
_BURSTS_PER_S = 100
_SEGMENT_BYTES = 32 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class _Scenario:
    """settings: environment variables of the cluster's processes."""

    name: str
    settings: dict[str, str]


_QUIET = {
    "ONCELOG_SNAPSHOT_ENTRIES_MAX": "10000000",
    "ONCELOG_LEDGER_ENTRIES_MAX": "10000000",
    "ONCELOG_SEGMENT_BYTES": str(1 << 30),
}
_SCENARIOS = (
    _Scenario("quiet", _QUIET),
    _Scenario("snapshots", _QUIET | {"ONCELOG_SNAPSHOT_ENTRIES_MAX": "100"}),
    _Scenario("ledger rolls", _QUIET | {"ONCELOG_LEDGER_ENTRIES_MAX": "1000"}),
    _Scenario("segment rolls", _QUIET | {"ONCELOG_SEGMENT_BYTES": str(_SEGMENT_BYTES)}),
    _Scenario("takeovers", _QUIET),
)


async def tail_rows(stack: BenchStack, settings: BenchSettings, tell: Tell) -> list[BenchRow]:
    """Two rows of each scenario: p50 and p99. Raises LabFailed if what a scenario is about did not happen."""
    rows: list[BenchRow] = []
    quiet: list[float] = []
    for scenario in _SCENARIOS:
        tell(f"latency under half load: {scenario.name}")
        async with (
            standalone_cluster(stack.new_directory(), owners=1, settings=scenario.settings) as cluster,
            await cluster.connect() as client,
        ):
            runs, happened = await _TailBench(cluster, client, settings).measure(scenario.name)
        p50, p99 = median([run.p50_ms for run in runs]), median([run.p99_ms for run in runs])
        quiet = quiet or [p50, p99]
        detail: dict[str, object] = {
            "p99_runs_ms": rounded([run.p99_ms for run in runs]), "max_ms": round(max(run.max_ms for run in runs), 2),
        }  # fmt: skip
        rows += [
            BenchRow(f"{scenario.name}, p50", p50, "ms", quiet[0], None, detail, happened),
            BenchRow(f"{scenario.name}, p99", p99, "ms", quiet[1], None, detail, f"max {detail['max_ms']} ms"),
        ]
    return rows


class _TailBench:
    """One scenario on its cluster."""

    def __init__(self, cluster: LabCluster, client: AsyncClient, settings: BenchSettings) -> None:
        self._cluster = cluster
        self._client = client
        self._settings = settings

    async def measure(self, scenario: str) -> tuple[list[Latencies], str]:
        """Returns (the latencies of each run, what happened meanwhile)."""
        settings = self._settings
        await self._write_to_others()
        async with (
            await self._client.create_producer(TOPIC, producer_name="load", batch_bytes_max=SMALL.batch_bytes) as load,
            await self._client.create_producer(TOPIC, producer_name="probe") as probe,
        ):
            shape = {"message_bytes": settings.message_bytes, "batch_bytes": SMALL.batch_bytes}
            full = await send_lists([load], **shape, list_batches=1, window=SMALL.window, seconds=settings.seconds)
            half = full.bytes_per_s / 2 / (batch_count(**shape) * settings.message_bytes)
            values = make_values(settings.message_bytes, max(1, round(half / _BURSTS_PER_S)) * batch_count(**shape))

            async def send_half() -> None:
                async for _ in ticks(per_second=_BURSTS_PER_S, seconds=settings.latency_seconds):
                    running.add(task := asyncio.create_task(load.send_many(values)))
                    task.add_done_callback(running.discard)
                await asyncio.gather(*running)

            before, runs = await self._counts(), []
            for _ in range(settings.runs):
                running: set[asyncio.Task[object]] = set()
                async with _unloads(self._cluster, on=scenario == "takeovers"), asyncio.TaskGroup() as tasks:
                    tasks.create_task(send_half())
                    runs.append(
                        await send_paced(
                            probe, message_bytes=settings.message_bytes, per_second=settings.rate,
                            seconds=settings.latency_seconds,
                        )
                    )  # fmt: skip
            return runs, _happened(scenario, before, await self._counts(), half)

    async def _write_to_others(self) -> None:
        for number in range(_OTHER_TOPICS):
            async with await self._client.create_producer(_other(number)) as producer:
                await producer.send(b"x")

    async def _counts(self) -> dict[str, int]:
        """How often each thing has happened so far."""
        async with self._cluster.rest() as rest:
            internal = (await rest.call("GET", f"{topic_path(TOPIC)}/internalStats")).body
        if not isinstance(internal, dict):
            raise LabFailed(f"no internal statistics of {TOPIC}")
        storage = self._cluster.directory_of(self._cluster.serving("storage")[0])
        others = [await self._cluster.stats(_other(number)) for number in range(_OTHER_TOPICS)]
        return {
            "snapshots": internal["snapshot"]["number"],
            "ledger rolls": internal["ledgers"][-1]["ledger_id"],
            "segment rolls": max(int(path.stem, 16) for path in storage.glob("**/*.seg")),
            "takeovers": sum(other["owner_epoch"] for other in others),
        }


def _other(number: int) -> str:
    return f"public/default/bench-tail-other-{number}"


def _happened(scenario: str, before: dict[str, int], after: dict[str, int], half: float) -> str:
    if scenario == "quiet":
        return f"{half:,.0f} batches of {SMALL.batch_bytes // 1024} KiB a second"
    count = after[scenario] - before[scenario]
    if count <= 0:
        raise LabFailed(f"there were no {scenario} while latencies were measured: let it run longer (--seconds)")
    return f"{count} {scenario}"


@asynccontextmanager
async def _unloads(cluster: LabCluster, *, on: bool) -> AsyncIterator[None]:
    """on: unload one of the other topics each 100 ms, and have it served again."""

    async def unload() -> None:
        async with cluster.rest() as rest:
            for number in itertools.cycle(range(_OTHER_TOPICS)):
                await rest.call("PUT", f"{topic_path(_other(number))}/unload")
                await cluster.stats(_other(number))
                await asyncio.sleep(0.1)

    unloading = asyncio.create_task(unload() if on else asyncio.sleep(0))
    try:
        yield
    finally:
        unloading.cancel()
        await asyncio.wait([unloading])
        if not unloading.cancelled():
            unloading.result()
