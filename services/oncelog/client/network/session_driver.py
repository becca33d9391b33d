"""The shell of one session, of a producer or a consumer: it performs the core's effects and feeds their completions
back as events. What the two have in common; `producer_driver` and `consumer_driver` perform the other effects."""

import asyncio
import random
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterable
from typing import Any, Generic, Protocol, TypeVar

from oncelog.client.network.lookup import Route
from oncelog.client.network.network import Network
from oncelog.client.values.results import TopicPartition
from oncelog.core.errors import OncelogError
from oncelog.core.formats.message_id import NO_PARTITION
from oncelog.core.ids import OwnerEpoch, TopicId
from oncelog.core.names import TopicName
from oncelog.core.sdk.owner_attempts import (
    AttemptEvent,
    EpochSeen,
    LookUp,
    LookUpFailed,
    OwnerAttempts,
    OwnerFound,
    SessionTimerFired,
    StartSessionTimer,
    TimerKey,
)

EventT = TypeVar("EventT")
EventT_contra = TypeVar("EventT_contra", contravariant=True)
EffectT = TypeVar("EffectT")
StreamT = TypeVar("StreamT", bound="PartingStream")
#: How long a closing producer or consumer waits until the owners have answered that it is gone.
FAREWELL_S = 1.0


class PartingStream(Protocol):
    """A stream to an owner."""

    async def parted(self) -> None: ...


class SessionTimers:
    """The timers of one session. They end with it: one of 30 seconds would keep a closed producer in memory for so
    long, and a program that opens a thousand producers a second would keep 30,000 of them.

    fired: called when a time is up.
    """

    def __init__(self, fired: Callable[[SessionTimerFired], None]) -> None:
        self._fired = fired
        self._running: dict[TimerKey, asyncio.TimerHandle] = {}

    def __len__(self) -> int:
        return len(self._running)

    def start(self, effect: StartSessionTimer) -> None:
        share = random.uniform(0.5, 1.0) if effect.jitter else 1.0
        loop = asyncio.get_running_loop()
        self._running[effect.key] = loop.call_later(effect.after_ms * share / 1000, self._fire, effect.key)

    def _fire(self, key: TimerKey) -> None:
        self._running.pop(key, None)
        self._fired(SessionTimerFired(key))

    def cancel(self, key: TimerKey) -> None:
        """What this timer is for has happened."""
        timer = self._running.pop(key, None)
        if timer is not None:
            timer.cancel()

    def cancel_all(self) -> None:
        """The session is over."""
        for timer in self._running.values():
            timer.cancel()
        self._running.clear()


class SessionCore(Protocol[EventT_contra, EffectT]):
    """ProducerSession or ConsumerSession."""

    #: the error that ended the session; the one that it retries
    error: OncelogError | None
    trouble: OncelogError | None

    @property
    def opening(self) -> OwnerAttempts: ...

    @property
    def is_bound(self) -> bool: ...

    def handle(self, event: EventT_contra | AttemptEvent, /) -> list[EffectT]: ...


class SessionDriver(ABC, Generic[EventT, EffectT, StreamT]):
    """One session on the network. It handles one event at a time; events that effects cause wait their turn."""

    core: SessionCore[EventT, EffectT]
    #: whether it creates a missing topic when it is opened
    creates_topic = True

    def __init__(
        self,
        topic: TopicName,
        network: Network,
        stream_to: Callable[[Route], StreamT],
        *,
        changed: Callable[[], None],
    ) -> None:
        """stream_to: the stream to an owner. changed: called after each event; it must not feed events."""
        self.topic = topic
        self.topic_partition = TopicPartition(TopicId(""), NO_PARTITION if topic.partition is None else topic.partition)
        self._network = network
        self._stream_to = stream_to
        self._changed = changed
        #: {attempt: its stream}, of the latest attempt and a few before it
        self._streams: dict[int, StreamT] = {}
        self._timers = SessionTimers(self.feed)
        self._events: deque[EventT | AttemptEvent] = deque()
        self._busy = self._is_out = False

    @property
    @abstractmethod
    def what(self) -> str:
        """This session, for the log."""

    @property
    def stream(self) -> StreamT | None:
        """The stream of the current session or attempt."""
        return self._streams.get(self.core.opening.attempt)

    def feed(self, event: EventT | AttemptEvent) -> None:
        """Handle an event and perform its effects; events that come up meanwhile are handled after them."""
        self._events.append(event)
        if self._busy:
            return
        self._busy = True
        core, epochs, seen = self.core, self._network.epochs, OwnerEpoch(0)
        try:
            while self._events:
                # A higher owner_epoch that another user of this client has seen counts before any answer is handled.
                seen = epochs.highest(self.topic_partition.topic_id)
                if seen > core.opening.owner_epoch:
                    self._perform(core.handle(EpochSeen(seen)))
                self._perform(core.handle(self._events.popleft()))
            # An answer may have brought an owner_epoch that is new to this client: readers leave a deposed owner, too.
            if core.opening.owner_epoch > seen:
                epochs.learn(self.topic_partition.topic_id, core.opening.owner_epoch)
        finally:
            self._busy = False
        if core.trouble is not None or self._is_out:
            self._report(core.trouble)
        if core.error is not None:
            self._end()
        self._changed()

    def _report(self, trouble: OncelogError | None) -> None:
        """An application that waits for its sends or its messages sees nothing of an outage."""
        outages, self._is_out = self._network.outages, trouble is not None and self.core.error is None
        if trouble is None or not self._is_out:
            outages.is_over(self, works=self.core.error is None)
        elif self.core.is_bound:
            outages.lasts(self, self.what, trouble, asyncio.get_running_loop().time())

    async def parted(self) -> None:
        """Return when the owner has answered that this session is over, or cannot."""
        if self.stream is not None:
            await self.stream.parted()

    @abstractmethod
    def _perform(self, effects: list[EffectT]) -> None: ...

    def _end(self) -> None:
        """The session is over."""
        self._timers.cancel_all()

    def _bound_to(self, topic_id: TopicId) -> None:
        """The topic of this name was found."""
        self.topic_partition = self.topic_partition._replace(topic_id=topic_id)

    def _start_look_up(self, effect: LookUp) -> None:
        self._network.background.start(self._look_up(effect), what=f"look-up of {self.topic}")

    async def _look_up(self, effect: LookUp) -> None:
        try:
            route = await self._network.route(
                self.topic,
                fresh=effect.fresh,
                owner_epoch=effect.owner_epoch,
                create=self.creates_topic and not self.core.is_bound,
            )
            stream = self._stream_to(route)
        except OncelogError as error:
            self.feed(LookUpFailed(effect.attempt, error))
            return
        for attempt in [attempt for attempt in self._streams if attempt < effect.attempt - 3]:
            del self._streams[attempt]
        self._streams[effect.attempt] = stream
        known = self.topic_partition.topic_id
        if route.topic_id != known and not (known and self.core.is_bound) and self.core.error is None:
            self._bound_to(route.topic_id)
        self.feed(OwnerFound(effect.attempt, route.owner_epoch, another_topic=known not in ("", route.topic_id)))


async def parted(drivers: Iterable[SessionDriver[Any, Any, Any]]) -> None:
    """Return when the owners have answered that these sessions are over, or after a second: an owner that does not
    answer notices that the connection is lost."""
    try:
        async with asyncio.timeout(FAREWELL_S):
            await asyncio.gather(*(driver.parted() for driver in drivers))
    except TimeoutError:
        pass
