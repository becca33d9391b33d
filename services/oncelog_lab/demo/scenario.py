"""The scenario of the demo: a cluster, a topic with deduplication, a producer, kills, and the verdict.

The producer and the owner are killed at different times: each has recovered before the next kill. The demo does not
help the cluster: its supervisor restarts its processes, and the producer finds its position by itself. Two of the
producers are started as if they had lost their position, and the cluster refuses what they send again.
"""

import asyncio
import time
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from oncelog.cli.admin.rest_paths import topic_path
from oncelog.verify.violation import Violation
from oncelog_lab.acknowledgements import AckRecord, SendFate, longest_pause_ms
from oncelog_lab.cluster import LabCluster
from oncelog_lab.consumption import Consumption
from oncelog_lab.demo.consumer_process import ConsumerProcess
from oncelog_lab.demo.producer_process import ProducerProcess
from oncelog_lab.demo.report import DemoConsumption, DemoReport, DemoTakeover
from oncelog_lab.demo.timeline import Timeline
from oncelog_lab.demo.view import DemoView
from oncelog_lab.faults.kinds import Fault, FaultKind
from oncelog_lab.faults.process_injector import ProcessFaultInjector
from oncelog_lab.verdict import LogChecker, LogVerdict
from oncelog_lab.waiting import until
from oncelog_lab.workload.readers import read_back

NAMESPACE = "public/demo"
TOPIC = f"{NAMESPACE}/flights"
PRODUCER = "importer"
SUBSCRIPTION = "billing"
CONSUMERS = 2
STEP_DEADLINE_S = 90.0
RESTART_DEADLINE_S = 30.0
#: How long a consumer waits in vain at the end for a message that was acknowledged.
SILENCE_S = 3.0
#: Between two looks at what is acknowledged.
SAMPLE_S = 0.05


@dataclass(frozen=True, slots=True)
class DemoKill:
    """at: share of all lines that are acknowledged before the kill. fault: None: the producer is killed, or a consumer.

    repeats: the share of all lines that the next producer sends again. consumer: the number of the one that is killed.
    """

    at: float
    fault: FaultKind | None = None
    repeats: float = 0.0
    consumer: int | None = None


KILLS = (
    DemoKill(0.10),
    DemoKill(0.16, consumer=0),
    DemoKill(0.22, FaultKind.OWNER_KILL),
    DemoKill(0.34, repeats=0.03),
    DemoKill(0.46, FaultKind.OWNER_KILL),
    DemoKill(0.52, consumer=1),
    DemoKill(0.58, FaultKind.STORAGE_KILL),
    DemoKill(0.70, repeats=0.03),
    DemoKill(0.76, consumer=0),
    DemoKill(0.82, FaultKind.OWNER_KILL),
)


@dataclass(frozen=True, slots=True)
class DemoFile:
    """The file as lines. offsets: of the first byte of each line, which is its sequence id."""

    path: Path
    lines: Sequence[bytes]
    offsets: Sequence[int]


class DemoScenario:
    """Runs on one cluster. seconds: how long the producer should take."""

    def __init__(
        self,
        file: DemoFile,
        seconds: float,
        cluster: LabCluster,
        producer: ProducerProcess,
        consumers: Sequence[ConsumerProcess],
        account: Consumption,
        view: DemoView,
    ) -> None:
        """account: of what the consumers report."""
        self.timeline = Timeline()
        self._began_s = time.monotonic()
        self._file = file
        self._seconds = seconds
        self._cluster = cluster
        self._injector = ProcessFaultInjector(cluster)
        self._producer = producer
        self._consumers = consumers
        self._account = account
        self._view = view
        self._takeovers: list[DemoTakeover] = []

    async def run(self) -> DemoReport:
        """Raises LabFailed if a step cannot be carried out, OncelogError."""
        async with self._cluster.rest() as rest:
            await rest.put_in_place("PUT", f"/admin/v2/namespaces/{NAMESPACE}")
            await rest.put_in_place("POST", f"/admin/v2/namespaces/{NAMESPACE}/deduplication", True)
        self._view.tell(f"deduplication is enabled in namespace {NAMESPACE}")
        watching = asyncio.create_task(self._watch())
        try:
            await self._publish()
            consumed = await self._consumed()
        finally:
            watching.cancel()
        self._view.tell("reading everything back and comparing it with the file, line by line")
        verdict = await self._compare()
        return DemoReport(len(self._file.lines), verdict, self._producer.duplicates, self._takeovers, consumed)

    async def _publish(self) -> None:
        file, producer, view = self._file, self._producer, self._view
        view.tell(f"publishing {len(file.lines):,} lines of {file.path.name} in about {self._seconds:.0f} s")
        await producer.start()
        for consumer in self._consumers:
            await consumer.start()
        for kill in KILLS:
            number = max(1, int(kill.at * len(file.lines)))
            await producer.until(file.offsets[number], STEP_DEADLINE_S + self._seconds)
            if kill.consumer is not None:
                await self._kill_consumer(self._consumers[kill.consumer])
            elif kill.fault is None:
                await self._kill_producer(kill)
            else:
                await self._kill_process(kill.fault)
            await self._until_progress()
        await producer.finish(STEP_DEADLINE_S + self._seconds)
        view.acknowledged(self._acknowledged)
        view.tell(f"published: {self._acknowledged:,} lines acknowledged")

    @property
    def _acknowledged(self) -> int:
        """Number of lines before the first byte that is not acknowledged."""
        return bisect_left(self._file.offsets, self._producer.offset)

    async def _watch(self) -> None:
        while True:
            self._view.acknowledged(self._acknowledged)
            self.timeline.sample(self._elapsed_s, self._acknowledged, self._account.acked.count)
            await asyncio.sleep(SAMPLE_S)

    @property
    def _elapsed_s(self) -> float:
        return time.monotonic() - self._began_s

    async def _until_progress(self) -> None:
        """Return when another line is acknowledged, so the last kill is survived."""
        if self._acknowledged < len(self._file.lines):
            await self._producer.until(self._producer.offset + 1, STEP_DEADLINE_S)

    async def _kill_producer(self, kill: DemoKill) -> None:
        await self._producer.kill()
        self.timeline.killed(self._elapsed_s, "producer")
        repeated = int(kill.repeats * len(self._file.lines))
        how = f"sends its last {repeated:,} lines again" if repeated else "continues by itself"
        self._view.tell(f"kill -9 the producer at {self._acknowledged:,} lines; started again, it {how}")
        await self._producer.start(replay_lines=repeated)
        # Where everything was acknowledged before, nothing else waits for the repeated lines.
        await self._producer.repeated(repeated, STEP_DEADLINE_S)

    async def _kill_consumer(self, consumer: ConsumerProcess) -> None:
        """Its next process has acknowledged something when this returns, unless the file is published: what is left
        may all go to the other consumer."""
        await consumer.kill()
        self.timeline.killed(self._elapsed_s, "consumer")
        before = consumer.acked
        self._view.tell(f"kill -9 {consumer.name} at {self._account.acked.count:,} acknowledged messages")
        await consumer.start()

        def recovered() -> bool:
            consumer.check_running()
            return consumer.acked > before or self._acknowledged >= len(self._file.lines)

        await until(recovered, STEP_DEADLINE_S, f"acknowledgements of {consumer.name}")

    async def _consumed(self) -> DemoConsumption:
        """Wait until everything is acknowledged, and look whether anything comes again after one more takeover."""
        lines = len(self._file.lines)
        self._view.tell("waiting until the consumers have acknowledged everything")

        async def backlog_is_empty() -> bool:
            for consumer in self._consumers:
                consumer.check_running()
            stats = (await self._cluster.stats(TOPIC)).get("subscriptions", {}).get(SUBSCRIPTION, {})
            return bool(stats) and stats["mark_delete"] == lines

        await until(backlog_is_empty, STEP_DEADLINE_S, f"an empty backlog of {SUBSCRIPTION}")
        for consumer in self._consumers:
            await consumer.stop()
        async with self._cluster.rest() as rest:
            await rest.put_in_place("PUT", f"{topic_path(TOPIC)}/unload")
        async with (
            await self._cluster.connect() as client,
            await client.subscribe(TOPIC, subscription=SUBSCRIPTION, type="shared") as late,
        ):
            again = await late.receive_batch(lines, max_wait=SILENCE_S)
        account = self._account
        return DemoConsumption(
            account.delivered, account.redelivered, lines, account.acked_seen_again + len(again),
            account.never_delivered(lines),
        )  # fmt: skip

    async def _kill_process(self, kind: FaultKind) -> None:
        before = await self._cluster.stats(TOPIC)
        killed_at_s = time.monotonic()
        injected = await self._injector.inject(Fault(kind, pick=0), [before["owner_address"]])
        victim = "owner" if kind is FaultKind.OWNER_KILL else "storage node"
        self.timeline.killed(killed_at_s - self._began_s, victim)
        what = f"the topic's owner, {injected.victim}," if kind is FaultKind.OWNER_KILL else injected.victim
        self._view.tell(f"kill -9 {what} at {self._acknowledged:,} lines")
        if kind is FaultKind.OWNER_KILL:
            self._takeovers.append(await self._takeover(before["owner_epoch"], killed_at_s))

        async def healthy() -> bool:
            return await self._injector.unhealthy() is None

        await until(healthy, RESTART_DEADLINE_S, f"{injected.victim} to serve again")

    async def _takeover(self, epoch_before: int, killed_at_s: float) -> DemoTakeover:
        """Wait until a new owner serves. Returns the takeover as the new owner reports it."""

        async def by_new_owner() -> dict[str, float] | None:
            stats = await self._cluster.stats(TOPIC)
            return stats["takeovers"][-1] if stats["owner_epoch"] > epoch_before and stats["takeovers"] else None

        takeover = await until(by_new_owner, STEP_DEADLINE_S, f"a new owner of {TOPIC}")
        entries, ms = int(takeover["replayed_entries"]), takeover["ms"]
        self._view.tell(f"another owner serves: {entries:,} entries replayed, took over in {ms:.0f} ms")
        await self._until_progress()
        gap_ms = longest_pause_ms(self._producer.pauses.pauses, killed_at_s, time.monotonic())
        return DemoTakeover(ms, entries, gap_ms)

    async def _compare(self) -> LogVerdict:
        checker = file_checker(self._file)
        async with await self._cluster.connect() as client:
            async for entry in read_back(client, TOPIC):
                checker.add([entry])
        return checker.verdict()


def file_checker(file: DemoFile) -> LogChecker:
    """A checker that expects each line once, in the order of the file. Lines count from 1 in its messages."""
    record = AckRecord()
    record.note("line", 1, len(file.lines), SendFate.ACKNOWLEDGED)
    numbers = {offset: number for number, offset in enumerate(file.offsets)}

    def identify(value: bytes, sequence_id: int) -> tuple[str, int]:
        number = numbers.get(sequence_id)
        if number is None or file.lines[number] != value:
            raise Violation("unexpected", f"not a line of the file: offset {sequence_id}, {value[:60]!r}")
        return "line", number + 1

    return LogChecker(record, identify)
