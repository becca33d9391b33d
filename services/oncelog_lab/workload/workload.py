"""The workload of a chaos run: publishers, readers and consumers on a few topics, and at the end the verdict.

It runs until `end` is set. Then the clients close, the log is read back, and the verdict compares it with the
record. The workload prints events (`events`) and injects no faults.
"""

import asyncio
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from oncelog_lab.access import ClusterAccess, RestClient
from oncelog_lab.acknowledgements import STEADY, AckRecord, SendFate
from oncelog_lab.verdict import LogChecker, LogVerdict, ReaderTrail
from oncelog_lab.workload.consumers import (
    CONSUMERS,
    WorkloadConsumer,
    WorkloadSubscription,
    receive_rest,
    with_consumers,
)
from oncelog_lab.workload.events import Emit, emit
from oncelog_lab.workload.http_publisher import HttpPublisher, why_no_http
from oncelog_lab.workload.messages import message_value, parse_value
from oncelog_lab.workload.publishers import (
    AutomaticPublisher,
    ClientSetup,
    NamedPublisher,
    SteadyPublisher,
    WorkloadPublisher,
)
from oncelog_lab.workload.readers import FollowingReader, read_back
from oncelog_lab.workload.topic_watch import watch_topic

_BEAT_S = 0.5
_CATCH_UP_DEADLINE_S = 60.0
_CHECK_EVERY_S = 0.05
_HTTP_NAME = "http-1"


@dataclass(frozen=True, slots=True)
class WorkloadSettings:
    """run: begins the names of the topics, so that each run has topics of its own."""

    access: ClusterAccess
    run: str
    seed: int = 1
    namespace: str = "public/chaos"
    topic_count: int = 2
    history: Path | None = None

    @property
    def topics(self) -> list[str]:
        return [f"{self.namespace}/{self.run}-{number}" for number in range(1, self.topic_count + 1)]


class Workload:
    """One run. Set `end` to end it."""

    def __init__(self, settings: WorkloadSettings, emit: Emit = emit) -> None:
        self.end = asyncio.Event()
        self._settings = settings
        self._emit = emit
        self._record = AckRecord(settings.history)
        self._publishers: list[WorkloadPublisher | HttpPublisher] = []
        self._readers: list[FollowingReader] = []
        self._subscriptions: list[WorkloadSubscription] = []
        self._consumers: list[WorkloadConsumer] = []

    async def run(self) -> LogVerdict:
        """Raises OncelogError if the cluster cannot be used at all, or cannot be read back."""
        settings = self._settings
        rest = settings.access.rest()
        try:
            await self._prepare(rest)
            async with asyncio.TaskGroup() as tasks:
                watching = [tasks.create_task(watch_topic(rest, topic, self._emit)) for topic in settings.topics]
                watching.append(tasks.create_task(self._beat()))
                reading = [tasks.create_task(reader.run()) for reader in self._readers]
                consuming = [tasks.create_task(consumer.run()) for consumer in self._consumers]
                publishing = [tasks.create_task(publisher.run()) for publisher in self._publishers]
                await self.end.wait()
                for publisher in self._publishers:
                    publisher.stopping.set()
                await asyncio.gather(*publishing)
                verdict, ends = await self._check(settings.topics)
                for consumer in self._consumers:
                    consumer.stopping.set()
                await asyncio.gather(*consuming)
                verdict = await self._consumed(verdict, ends)
                for task in (*watching, *reading):
                    task.cancel()
            if verdict.perfect:
                await self._delete_topics(rest)
        finally:
            await rest.close()
            self._record.close()
        self._emit("verdict", **verdict.to_json())
        return verdict

    async def _prepare(self, rest: RestClient) -> None:
        """Create a namespace with deduplication, its topics, and the clients. Raises LabFailed."""
        settings = self._settings
        namespace = f"/admin/v2/namespaces/{settings.namespace}"
        await rest.put_in_place("PUT", f"/admin/v2/tenants/{settings.namespace.partition('/')[0]}")
        await rest.put_in_place("PUT", namespace)
        await rest.put_in_place("POST", f"{namespace}/deduplication", body=True)
        for topic in settings.topics:
            await rest.put_in_place("PUT", f"/admin/v2/persistent/{topic}")
        left_out = await self._create_clients(rest)
        clients = [publisher.name for publisher in self._publishers]
        self._emit("ready", topics=settings.topics, clients=clients, left_out=left_out)

    async def _create_clients(self, rest: RestClient) -> dict[str, str]:
        """Returns {client that is left out: why}."""
        settings, record = self._settings, self._record
        setups = [ClientSetup(topic, settings.access, record, self._emit, settings.seed) for topic in settings.topics]
        for number, setup in enumerate(setups, start=1):
            self._publishers.append(SteadyPublisher(f"{STEADY}{number}", setup))
            self._publishers.append(NamedPublisher(f"named-{number}", setup))
            self._publishers.append(AutomaticPublisher(f"automatic-{number}", setup))
            for name, from_start in ((f"from-start-{number}", True), (f"from-end-{number}", False)):
                trail = ReaderTrail(name, setup.topic, from_start=from_start)
                self._readers.append(FollowingReader(trail, setup))
        self._create_consumers(setups[0])
        http = HttpPublisher(_HTTP_NAME, setups[0])
        record.sent(_HTTP_NAME, 0, 1)
        value = message_value(_HTTP_NAME, 0, settings.seed)
        reason = await why_no_http(rest, setups[0].topic, http.key(0), value)
        if reason is not None:
            return {"HTTP publishers": reason}
        record.answered(_HTTP_NAME, 0, 1, SendFate.ACKNOWLEDGED)
        self._publishers.append(http)
        return {}

    def _create_consumers(self, setup: ClientSetup) -> None:
        """A subscription of each type, on one topic: consumers of all would be most of the workload."""
        for kind, count in CONSUMERS.items():
            subscription = WorkloadSubscription(kind, setup.topic)
            self._subscriptions.append(subscription)
            names = [f"{kind}-{number}" for number in range(1, count + 1)]
            self._consumers += [WorkloadConsumer(name, subscription, setup) for name in names]

    async def _beat(self) -> None:
        while True:
            await asyncio.sleep(_BEAT_S)
            pauses, acked = self._record.pauses, self._record.acknowledged_count
            self._emit("beat", acked=acked, steady_gap_ms_p999=pauses.steady_gap_ms_p999, clients=pauses.take())

    async def _check(self, topics: Sequence[str]) -> tuple[LogVerdict, dict[str, int]]:
        """Read everything back, let the readers catch up, and compare. And how many messages each topic has."""
        self._emit("checking", acked=self._record.acknowledged_count)
        checker = LogChecker(self._record, lambda value, _: parse_value(value, self._settings.seed))
        ends: dict[str, int] = {}
        async with await self._settings.access.connect() as client:
            for topic in topics:
                async for entry in read_back(client, topic):
                    checker.add([entry])
                    ends[topic] = entry.first_index + len(entry.values)
        await self._caught_up(ends)
        for reader in self._readers:
            checker.compare(reader.trail, reader.failure)
        return checker.verdict(), ends

    async def _consumed(self, verdict: LogVerdict, ends: dict[str, int]) -> LogVerdict:
        """The verdict with what the consumers got, and with what is left for new ones."""
        async with await self._settings.access.connect() as client:
            await asyncio.gather(*(receive_rest(client, each) for each in self._subscriptions))
        return with_consumers(verdict, self._subscriptions, ends)

    async def _delete_topics(self, rest: RestClient) -> None:
        """Only after a run without violations: otherwise the topics are kept for an analysis."""
        for topic in self._settings.topics:
            answer = await rest.call("DELETE", f"/admin/v2/persistent/{topic}")
            if not answer.ok:
                self._emit("error", client="REST", error=f"{topic} is not deleted: {answer.status}: {answer.detail}")

    async def _caught_up(self, ends: dict[str, int]) -> None:
        """Return when every reader has reached the end of its log or has failed, and every subscription has got
        everything, or after a deadline."""
        ends_at = time.monotonic() + _CATCH_UP_DEADLINE_S
        while time.monotonic() < ends_at:
            trails = [reader.trail for reader in self._readers if reader.failure is None]
            read = all(trail.next_index >= ends.get(trail.topic, 0) for trail in trails)
            waiting = [each for each in self._subscriptions if each.account.never_delivered(ends.get(each.topic, 0))]
            if read and not waiting:
                return
            await asyncio.sleep(_CHECK_EVERY_S)
