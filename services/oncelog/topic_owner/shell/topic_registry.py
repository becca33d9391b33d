"""The topics of this owner: their runners, the view of the storage nodes that they share, and draining."""

import asyncio
import logging
import time
from collections.abc import Callable, Iterator
from functools import partial
from itertools import count

from oncelog.core.errors import NotOwner, TooManyRequests, TopicNotFound
from oncelog.core.ids import OwnerEpoch, SessionNumber, TopicId
from oncelog.core.ledger.member_selection import StorageNodesUpdated
from oncelog.core.topic.takeover_admission import TakeoverAdmission
from oncelog.core.topic.topic import Phase
from oncelog.core.topic_events.events import DrainRequested, TopicAssigned
from oncelog.topic_owner.shell.namespace_producers import NamespaceProducers
from oncelog.topic_owner.shell.topic_runner import TopicRunner

logger = logging.getLogger(__name__)

#: Each ownership of a topic has a slot in the upper bits of its session numbers, so topics never share a number.
SESSIONS_PER_SLOT_BITS = 40
SLOTS_MAX = 1 << 23
#: A drain waits this long for metadata services to unload the next topic.
HAND_OVER_IDLE_MS = 2_000

#: A topic that was closed here is not taken again at the same epoch for this time, because the process that unloaded it
#: places it anew. If that process died, this owner serves the topic again afterwards.
RETAKE_AFTER_MS = 2_000

#: (the runner, whether it has closed its topic on request)
Finished = Callable[[TopicRunner, bool], None]
NewRunner = Callable[[TopicId, StorageNodesUpdated, SessionNumber, Finished], TopicRunner]


class TopicRegistry:
    """{topic id: runner}. A lost or closed topic leaves at once; a new assignment creates a new runner.

    A new runner waits for its turn to take its topic over (`core.topic.takeover_admission`). Requests to open a
    producer wait in it meanwhile.
    """

    def __init__(
        self, new_runner: NewRunner, *, topics_max: int = 10_000, admission: TakeoverAdmission | None = None
    ) -> None:
        self._new_runner = new_runner
        self._topics_max = topics_max
        self._runners: dict[TopicId, TopicRunner] = {}
        self._nodes = StorageNodesUpdated(())
        self._slots = count(1)
        self._one_left = asyncio.Event()
        self.producers = NamespaceProducers(self._runners.values)
        #: {closed topic: (its epoch, until when it is not taken again at that epoch, in ms)}
        self._given_up: dict[TopicId, tuple[OwnerEpoch, int]] = {}
        self.draining = False
        self._admission = admission or TakeoverAdmission()
        #: looks for slots that are held for too long, while topics wait
        self._overdue: asyncio.TimerHandle | None = None

    def __iter__(self) -> Iterator[TopicRunner]:
        return iter(list(self._runners.values()))

    def __len__(self) -> int:
        return len(self._runners)

    def find(self, topic_id: TopicId) -> TopicRunner | None:
        return self._runners.get(topic_id)

    def runner(self, topic_id: TopicId, topic: str = "") -> TopicRunner:
        """The runner for a request. topic: empty for a service, which knows the id. Raises NotOwner; TopicNotFound if
        the id belongs to another name."""
        runner = self._runners.get(topic_id)
        if runner is None:
            raise NotOwner(f"this process does not serve {topic or topic_id}: look it up again")
        if topic and runner.name and runner.name != topic:
            raise TopicNotFound(f"topic id {topic_id} is {runner.name}, not {topic}: look it up again")
        self._admission.wanted(topic_id)
        return runner

    def assign(self, topic_id: TopicId) -> None:
        """Start a runner, which reads the topic record to confirm the assignment. Raises TooManyRequests."""
        if self.draining:
            return
        runner = self._runners.get(topic_id)
        if runner is None:
            if len(self._runners) >= self._topics_max:
                raise TooManyRequests(
                    f"this owner already has {self._topics_max} topics, its limit", limit=self._topics_max
                )
            first = SessionNumber(next(self._slots) % SLOTS_MAX << SESSIONS_PER_SLOT_BITS)
            runner = self._new_runner(topic_id, self._nodes, first, self._left)
            self._runners[topic_id] = runner
            runner.takeover_ended = partial(self._takeover_ended, topic_id)
            runner.turn_wanted = partial(self._turn_wanted, topic_id)
            self._turn_wanted(topic_id)
        elif not self._admission.waits(topic_id):
            self._assigned(runner)

    def _assigned(self, runner: TopicRunner) -> None:
        self._given_up = {known: given for known, given in self._given_up.items() if given[1] > _now_ms()}
        given_up, _ = self._given_up.get(runner.topic_id, (OwnerEpoch(0), 0))
        runner.assigned(given_up)

    def _turn_wanted(self, topic_id: TopicId) -> None:
        """A new topic, or one whose takeover has failed and is due again."""
        self._take(self._admission.assigned(topic_id, _now_ms()))

    def _take(self, topic_ids: list[TopicId]) -> None:
        """Their turn has come, unless they have left."""
        for topic_id in topic_ids:
            runner = self._runners.get(topic_id)
            if runner is None:
                continue
            if runner.core.phase is Phase.WAITING:
                runner.retry()
            else:
                self._assigned(runner)
        if len(self._admission) and self._overdue is None:
            loop = asyncio.get_running_loop()
            self._overdue = loop.call_later(self._admission.slot_ms / 1000, self._take_overdue)

    def _take_overdue(self) -> None:
        self._overdue = None
        self._take(self._admission.due(_now_ms()))

    def _takeover_ended(self, topic_id: TopicId) -> None:
        # In a step of its own: this comes from the runner of a topic, in the middle of its effects.
        asyncio.get_running_loop().call_soon(self._take, self._admission.ended(topic_id, _now_ms()))

    def _left(self, runner: TopicRunner, closed: bool) -> None:
        if self._runners.get(runner.topic_id) is runner:
            del self._runners[runner.topic_id]
            self._one_left.set()
            if closed:
                self._given_up[runner.topic_id] = (runner.owner_epoch, _now_ms() + RETAKE_AFTER_MS)

    def update_nodes(self, nodes: StorageNodesUpdated) -> None:
        """Pass a new view of the storage nodes to every topic."""
        self._nodes = nodes
        for runner in self:
            runner.post(nodes)

    def look_again(self) -> None:
        """Make every topic read its record again: it may name another owner by now."""
        for runner in self:
            if not self._admission.waits(runner.topic_id):
                runner.post(TopicAssigned())

    async def unload(self, topic_id: TopicId) -> None:
        """Close one topic cleanly. Raises NotOwner if this process does not serve it."""
        runner = self._runners.get(topic_id)
        if runner is None:
            raise NotOwner(f"this process does not serve topic {topic_id}")
        runner.post(DrainRequested())
        await runner.progress.until_ended()

    async def hand_over(self, *, patience_ms: int) -> int:
        """Wait while the metadata services unload the topics one by one, so that each topic pauses only for its own
        hand-over; return how many they unloaded. Ends when no topic is left, when none was unloaded for
        HAND_OVER_IDLE_MS, or after `patience_ms`.
        """
        self.draining = True
        before = len(self)
        try:
            async with asyncio.timeout(patience_ms / 1000):
                while self._runners:
                    self._one_left.clear()
                    async with asyncio.timeout(HAND_OVER_IDLE_MS / 1000):
                        await self._one_left.wait()
        except TimeoutError:
            logger.info("no metadata service took the last %d topics in time; closing them", len(self))
        return before - len(self)

    async def drain(self, *, deadline_ms: int) -> int:
        """Close every topic cleanly; return how many were not closed in time. Their next owner recovers those."""
        self.draining = True
        runners = list(self._runners.values())
        for runner in runners:
            runner.post(DrainRequested())
        waiting = [asyncio.ensure_future(runner.progress.until_ended()) for runner in runners]
        if not waiting:
            return 0
        _, late = await asyncio.wait(waiting, timeout=deadline_ms / 1000)
        for task in late:
            task.cancel()
        if late:
            logger.warning("%d topics were not closed in %d ms; their next owner recovers them", len(late), deadline_ms)
        return len(late)

    @property
    def serving_count(self) -> int:
        return sum(runner.core.phase is Phase.SERVING for runner in self)


def _now_ms() -> int:
    return int(time.monotonic() * 1000)
