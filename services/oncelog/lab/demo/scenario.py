"""The demo's story: a cluster, a deduplicated topic, a producer, kills at fixed fractions, and the comparison.

The producer and the owner are killed apart: each is back at work before the next dies. Nothing here helps the cluster
along: the supervisor starts its processes again, the producer finds its place by itself, or forgets and is refused.
"""

import asyncio
import time
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from oncelog.cli.admin.places import namespace_path, topic_path
from oncelog.cli.admin.rest import AdminApi, Answer
from oncelog.cli.read.whole import batches_up_to_now
from oncelog.client.client import connect
from oncelog.lab.demo.cluster import DemoCluster, kill_9
from oncelog.lab.demo.comparison import Comparison, Verdict
from oncelog.lab.demo.kills import FORGOTTEN, Kill, Victim
from oncelog.lab.demo.publisher import DemoFailed, Publisher
from oncelog.lab.demo.report import Report, Takeover
from oncelog.lab.demo.view import View

NAMESPACE = "public/demo"
TOPIC = f"{NAMESPACE}/flights"
PRODUCER = "importer"
#: Far above what any step takes; a demo that hangs says where.
STEP_DEADLINE_S = 90.0
RESTART_DEADLINE_S = 30.0
READ_TIMEOUT_S = 30.0
_LOOK_EVERY_S = 0.05


@dataclass(frozen=True, slots=True)
class Story:
    """What to publish and how: the file as lines, the time it should take, and what is killed."""

    path: Path
    lines: Sequence[bytes]
    offsets: Sequence[int]
    seconds: float
    kills: Sequence[Kill]
    storage_node_count: int = 3
    owner_count: int = 2


@dataclass(frozen=True, slots=True)
class _SeenTakeover:
    killed_at_s: float
    served_at_s: float
    ms: float
    replayed_entries: int


class Scenario:
    """Carries the story out on one cluster."""

    def __init__(self, story: Story, cluster: DemoCluster, publisher: Publisher, view: View) -> None:
        self._story = story
        self._cluster = cluster
        self._publisher = publisher
        self._view = view
        self._takeovers: list[_SeenTakeover] = []

    async def run(self) -> Report:
        """Raises DemoFailed when a step cannot be carried out, OncelogError."""
        await self._prepare()
        await self._publish()
        verdict = await self._compare()
        acks = self._publisher.acks
        takeovers = [
            Takeover(seen.ms, seen.replayed_entries, acks.gap_ms(seen.killed_at_s, seen.served_at_s))
            for seen in self._takeovers
        ]
        return Report(verdict, acks.duplicates, takeovers)

    async def _prepare(self) -> None:
        def enable(api: AdminApi) -> Answer:
            api.put(namespace_path(NAMESPACE))
            api.post(f"{namespace_path(NAMESPACE)}/deduplication", True)
            return None

        await self._cluster.call(enable)
        self._view.tell(f"deduplication is on in namespace {NAMESPACE}")

    async def _publish(self) -> None:
        story, publisher, view = self._story, self._publisher, self._view
        view.tell(f"publishing {len(story.lines):,} lines of {story.path.name} in about {story.seconds:.0f} s")
        await publisher.start()
        watching = asyncio.create_task(self._watch())
        try:
            for kill in story.kills:
                number = max(1, int(kill.at * len(story.lines)))
                await publisher.until(story.offsets[number], STEP_DEADLINE_S + story.seconds)
                match kill.victim:
                    case Victim.PRODUCER:
                        await self._kill_producer(kill)
                    case Victim.OWNER:
                        await self._kill_owner()
                    case Victim.STORAGE:
                        await self._kill_storage_node()
                await self._going_on()
            await publisher.finish(STEP_DEADLINE_S + story.seconds)
        finally:
            watching.cancel()
        view.acknowledged(self._acknowledged)
        view.tell(f"published: {self._acknowledged:,} lines acknowledged")

    @property
    def _acknowledged(self) -> int:
        """Lines before the first byte that is not acknowledged."""
        return bisect_left(self._story.offsets, self._publisher.acks.offset)

    async def _watch(self) -> None:
        while True:
            self._view.acknowledged(self._acknowledged)
            await asyncio.sleep(_LOOK_EVERY_S)

    async def _going_on(self) -> None:
        """Return when lines are acknowledged that were not before: what was killed last is overcome."""
        if self._acknowledged < len(self._story.lines):
            await self._publisher.until(self._publisher.acks.offset + 1, STEP_DEADLINE_S)

    async def _kill_producer(self, kill: Kill) -> None:
        publisher = self._publisher
        await publisher.kill()
        forgotten = int(FORGOTTEN * len(self._story.lines)) if kill.forgets else 0
        memory = f"forgets its last {forgotten:,} lines and sends them again" if forgotten else "goes on by itself"
        self._view.tell(f"kill -9 the producer at {self._acknowledged:,} lines; run again, it {memory}")
        await publisher.start(replay_lines=forgotten)

    async def _kill_owner(self) -> None:
        before = await self._cluster.get(f"{topic_path(TOPIC)}/stats")
        owner = self._cluster.serving_as(str(before["owner"]))
        killed_at_s = time.monotonic()
        pid = kill_9(owner)
        self._view.tell(f"kill -9 the topic's owner, {owner['name']}, at {self._acknowledged:,} lines")
        epoch = before["owner_epoch"]
        assert isinstance(epoch, int), "as the REST interface describes it"
        self._takeovers.append(await self._takeover(epoch, killed_at_s))
        await self._cluster.restarted(str(owner["name"]), pid, RESTART_DEADLINE_S)

    async def _takeover(self, epoch_before: int, killed_at_s: float) -> _SeenTakeover:
        """Wait until a new owner serves, and take its own account of how it got there."""
        while time.monotonic() < killed_at_s + STEP_DEADLINE_S:
            stats = await self._cluster.get(f"{topic_path(TOPIC)}/stats")
            epoch, takeovers = stats["owner_epoch"], stats.get("takeovers")
            assert isinstance(epoch, int), "as the REST interface describes it"
            if stats["phase"] == "serving" and epoch > epoch_before and isinstance(takeovers, list) and takeovers:
                last = takeovers[-1]
                self._view.tell(
                    f"another owner serves: {last['replayed_entries']:,} entries replayed, "
                    f"took over in {last['ms']:.0f} ms"
                )
                await self._going_on()
                return _SeenTakeover(killed_at_s, time.monotonic(), float(last["ms"]), int(last["replayed_entries"]))
            await asyncio.sleep(_LOOK_EVERY_S)
        raise DemoFailed(f"no owner serves {TOPIC} again after {STEP_DEADLINE_S:.0f} s")

    async def _kill_storage_node(self) -> None:
        node = next(process for process in self._cluster.processes() if process["role"] == "storage")
        pid = kill_9(node)
        self._view.tell(f"kill -9 {node['name']} at {self._acknowledged:,} lines")
        await self._cluster.restarted(str(node["name"]), pid, RESTART_DEADLINE_S)

    async def _compare(self) -> Verdict:
        self._view.tell("reading everything back and comparing it with the file, line by line")
        comparison = Comparison(self._story.lines, self._story.offsets)
        async with await connect(self._cluster.url) as client:
            reader = await client.create_reader(TOPIC)
            async for batch in batches_up_to_now(client, reader, timeout_s=READ_TIMEOUT_S):
                comparison.add(batch.values, batch.sequence_ids)
        return comparison.verdict()
