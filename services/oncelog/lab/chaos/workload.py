"""The workload: producers, readers and HTTP publishers on a few topics, through whatever happens, and then the verdict.

It lasts until it is told to end. Then the clients are closed, everything is read back, and what was promised is held
against it. It says what it sees as JSON lines (`report_lines`) and strikes nothing itself.
"""

import asyncio
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from oncelog.core.errors import DeadlineExceeded
from oncelog.lab.chaos.access import Access, Rest
from oncelog.lab.chaos.checker import Checker, Fate, ReaderTrail, Verdict, message_value
from oncelog.lab.chaos.http_publisher import HttpPublisher, why_no_http
from oncelog.lab.chaos.producers import AutomaticProducer, NamedProducer, Publisher, SteadyProducer
from oncelog.lab.chaos.readers import FollowingReader, read_back
from oncelog.lab.chaos.report_lines import STEADY, Record, Say, say
from oncelog.lab.chaos.topic_watch import watch_topic

_BEAT_S = 0.5
_BEGIN_DEADLINE_S = 90.0
_CATCH_UP_DEADLINE_S = 60.0
_AGAIN_S = 0.5
_HTTP_NAME = "http-1"


@dataclass(frozen=True, slots=True)
class WorkloadSettings:
    """run: makes the names of the topics, so that each run has topics of its own."""

    access: Access
    run: str
    seed: int = 1
    namespace: str = "public/chaos"
    topic_count: int = 2
    history: Path | None = None

    @property
    def topics(self) -> list[str]:
        return [f"{self.namespace}/{self.run}-{number}" for number in range(1, self.topic_count + 1)]


class Workload:
    """One run. `end` is set by whoever ends it."""

    def __init__(self, settings: WorkloadSettings, tell: Say = say) -> None:
        self.end = asyncio.Event()
        self._settings = settings
        self._say = tell
        self._record = Record(settings.history)
        self._publishers: list[Publisher | HttpPublisher] = []
        self._readers: list[FollowingReader] = []

    async def run(self) -> Verdict:
        """Raises OncelogError: the cluster cannot be used at all, or cannot be read back."""
        settings = self._settings
        rest = settings.access.rest()
        try:
            await self._prepare(rest)
            async with asyncio.TaskGroup() as tasks:
                watching = [tasks.create_task(watch_topic(rest, topic, self._say)) for topic in settings.topics]
                watching.append(tasks.create_task(self._beat()))
                reading = [tasks.create_task(reader.run()) for reader in self._readers]
                publishing = [tasks.create_task(publisher.run()) for publisher in self._publishers]
                await self.end.wait()
                for publisher in self._publishers:
                    publisher.stopping.set()
                await asyncio.gather(*publishing)
                verdict = await self._check(settings.topics)
                for task in (*watching, *reading):
                    task.cancel()
            if verdict.perfect:
                await self._clear_away(rest)
        finally:
            await rest.close()
            self._record.close()
        self._say("verdict", **asdict(verdict))
        return verdict

    async def _prepare(self, rest: Rest) -> None:
        """A namespace with deduplication, its topics, and the clients. Raises DeadlineExceeded."""
        settings = self._settings
        namespace = f"/admin/v2/namespaces/{settings.namespace}"
        tenant = settings.namespace.partition("/")[0]
        await self._until_done(rest, "PUT", f"/admin/v2/tenants/{tenant}")
        await self._until_done(rest, "PUT", namespace)
        await self._until_done(rest, "POST", f"{namespace}/deduplication", body=True)
        for topic in settings.topics:
            await self._until_done(rest, "PUT", f"/admin/v2/persistent/{topic}")
        left_out = await self._make_clients(rest)
        clients = [publisher.name for publisher in self._publishers]
        self._say("ready", topics=settings.topics, clients=clients, left_out=left_out)

    async def _until_done(self, rest: Rest, method: str, path: str, body: object = None) -> None:
        ends_at = time.monotonic() + _BEGIN_DEADLINE_S
        said = None
        while True:
            answer = await rest.call(method, path, body)
            if answer.ok or answer.status == 409:  # it is there already
                return
            retriable = answer.status in {0, 408, 429} or answer.status >= 500
            if not retriable or time.monotonic() > ends_at:
                raise DeadlineExceeded(f"{method} {path} answers {answer.status}: {answer.detail}")
            if answer.detail != said:
                said = answer.detail
                self._say("trouble", client="REST", error=said)
            await asyncio.sleep(_AGAIN_S)

    async def _make_clients(self, rest: Rest) -> dict[str, str]:
        settings = self._settings
        for number, topic in enumerate(settings.topics, start=1):
            common = (topic, settings.access, self._record, self._say, settings.seed)
            self._publishers.append(SteadyProducer(f"{STEADY}{number}", *common))
            self._publishers.append(NamedProducer(f"named-{number}", *common))
            self._publishers.append(AutomaticProducer(f"automatic-{number}", *common))
            for name, from_start in ((f"from-start-{number}", True), (f"from-end-{number}", False)):
                trail = ReaderTrail(name, topic, from_start=from_start)
                self._readers.append(FollowingReader(trail, settings.access, self._record, self._say))
        topic = settings.topics[0]
        http = HttpPublisher(_HTTP_NAME, topic, settings.access, self._record, self._say, settings.seed)
        self._record.invoke(_HTTP_NAME, 0, 1)
        reason = await why_no_http(rest, topic, http.key(0), message_value(_HTTP_NAME, 0, settings.seed))
        if reason is not None:
            return {"HTTP publishers": reason}
        self._record.answer(_HTTP_NAME, 0, 1, Fate.STORED)
        self._publishers.append(http)
        return {}

    async def _beat(self) -> None:
        while True:
            await asyncio.sleep(_BEAT_S)
            pulse = self._record.pulse
            acked = self._record.promises.stored_count
            self._say("beat", acked=acked, steady_gap_ms_p999=pulse.steady_gap_ms_p999, clients=pulse.take())

    async def _check(self, topics: Sequence[str]) -> Verdict:
        """Read everything back, let the readers catch up with it, and judge."""
        self._say("checking", acked=self._record.promises.stored_count)
        checker = Checker(self._record.promises, self._settings.seed)
        ends: dict[str, int] = {}
        for topic in topics:
            async for entry in read_back(self._settings.access, topic):
                checker.add([entry])
                ends[topic] = entry.first_index + len(entry.values)
        await self._caught_up(ends)
        for reader in self._readers:
            checker.compare(reader.trail, reader.failure)
        return checker.verdict()

    async def _clear_away(self, rest: Rest) -> None:
        """Delete the topics: those of a run in which something was wrong are kept, to be looked into."""
        for topic in self._settings.topics:
            answer = await rest.call("DELETE", f"/admin/v2/persistent/{topic}")
            if not answer.ok:
                self._say("trouble", client="REST", error=f"{topic} stays: {answer.status}: {answer.detail}")

    async def _caught_up(self, ends: dict[str, int]) -> None:
        """Return when every reader is where the log ends, or has failed, or the time for it is over."""
        ends_at = time.monotonic() + _CATCH_UP_DEADLINE_S
        while time.monotonic() < ends_at:
            trails = [reader.trail for reader in self._readers if reader.failure is None]
            if all(trail.next_index >= ends.get(trail.topic, 0) for trail in trails):
                return
            await asyncio.sleep(_AGAIN_S / 10)
