"""The shell of one producer session: performs the core's effects and brings their completions back as events."""

import asyncio
import random
import secrets
from collections import deque
from typing import Protocol

from crc32c import crc32c

from oncelog.client.network import Network
from oncelog.client.owner_connection import OwnerConnection
from oncelog.client.results import TopicPlace
from oncelog.core.errors import OncelogError, TopicNotFound
from oncelog.core.formats.message_id import NO_PARTITION
from oncelog.core.ids import INSTANCE_ID_BYTES, InstanceId, TopicId
from oncelog.core.names import TopicName
from oncelog.core.producer.events import (
    Complete,
    Fail,
    FailProducer,
    ProducerEffect,
    ProducerEvent,
    ReportOpen,
)
from oncelog.core.producer.opening import (
    CloseSession,
    EpochSeen,
    LookUp,
    LookUpFailed,
    OpenProducer,
    OpenRefused,
    OwnerFound,
    ProducerSettings,
    SessionTimerFired,
    StartSessionTimer,
    StreamLost,
    WithdrawOpening,
)
from oncelog.core.producer.pending_batches import SendBatches
from oncelog.core.producer.session import ProducerSession
from oncelog.rpc.owner_codec import OpenRequest


class SessionNews(Protocol):
    """What a session tells its producer."""

    def opened(self, report: ReportOpen) -> None: ...
    def completed(self, effect: Complete) -> None: ...
    def failed(self, effect: Fail) -> None: ...
    def over(self, error: OncelogError) -> None: ...
    def moved(self) -> None: ...


class SessionDriver:
    """One ProducerSession on the network. Events are handled one after the other, also those raised by effects."""

    def __init__(self, settings: ProducerSettings, topic: TopicName, network: Network, news: SessionNews) -> None:
        # Random, so that no other instance has it: not one of this process, and not one made from a copy of its state.
        self.core = ProducerSession(settings, crc32c, InstanceId(secrets.token_bytes(INSTANCE_ID_BYTES)))
        self.place = TopicPlace(TopicId(""), NO_PARTITION if topic.partition is None else topic.partition)
        #: the last reason why there is no session, for whoever gives up waiting
        self.trouble: OncelogError | None = None
        self._topic = topic
        self._network = network
        self._news = news
        #: {attempt: the connection it asked on}; the latest alone, and the one before for what is late
        self._routes: dict[int, OwnerConnection] = {}
        #: {attempt: the open id of its request on its connection}; the latest alone
        self._asked: dict[int, int] = {}
        self._events: deque[ProducerEvent] = deque()
        self._busy = False

    @property
    def connection(self) -> OwnerConnection | None:
        """Where the current session is, or will be."""
        return self._routes.get(self.core.opening.attempt)

    def feed(self, event: ProducerEvent) -> None:
        """Handle an event and perform its effects; an event that comes up meanwhile is handled after them."""
        if isinstance(event, OpenRefused):
            self.trouble = event.error
        elif isinstance(event, StreamLost) and (lost := self._routes.get(event.attempt)) is not None:
            self.trouble = lost.failure or self.trouble
        self._events.append(event)
        if self._busy:
            return
        self._busy = True
        try:
            while self._events:
                self._heed_epochs()
                for effect in self.core.handle(self._events.popleft()):
                    self._perform(effect)
            # Higher than what anybody knows where an answer told it: readers leave a deposed owner, too.
            self._network.epochs.learn(self.place.topic_id, self.core.opening.owner_epoch)
        finally:
            self._busy = False
        self._news.moved()

    def _heed_epochs(self) -> None:
        """What anybody of this client knows of the topic's owners comes before any answer of one of them."""
        seen = self._network.epochs.highest(self.place.topic_id)
        if seen > self.core.opening.owner_epoch:
            for effect in self.core.handle(EpochSeen(seen)):
                self._perform(effect)

    def _perform(self, effect: ProducerEffect) -> None:
        match effect:
            case SendBatches():
                self._routes[effect.attempt].send(effect.session, effect.batches)
            case Complete():
                self._news.completed(effect)
            case Fail():
                self._news.failed(effect)
            case ReportOpen():
                self._news.opened(effect)
            case FailProducer():
                self._news.over(effect.error)
            case LookUp():
                self._network.background.start(self._look_up(effect), name=f"look-up of {self._topic}")
            case OpenProducer():
                self._open(effect)
            case WithdrawOpening(attempt):
                if (open_id := self._asked.pop(attempt, None)) is not None:
                    self._routes[attempt].withdraw(open_id)
            case CloseSession():
                if (connection := self._routes.get(effect.attempt)) is not None:
                    connection.end_session(effect.session)
            case StartSessionTimer():
                share = random.uniform(0.5, 1.0) if effect.jitter else 1.0
                loop = asyncio.get_running_loop()
                loop.call_later(effect.after_ms * share / 1000, self.feed, SessionTimerFired(effect.key))

    async def _look_up(self, effect: LookUp) -> None:
        # Once a session was granted the topic is that one: its name made anew is another log, with ids of its own.
        bound = self.core.opening.instance is not None
        try:
            route = await self._network.route(
                self._topic, fresh=effect.fresh, owner_epoch=effect.owner_epoch, create=not bound
            )
            another = self.place.topic_id not in ("", route.topic_id)
            if bound and another:
                raise TopicNotFound(f"{self._topic} was deleted and created anew: what this producer wrote is gone")
            connection = self._network.connection(route)
        except OncelogError as error:
            self.trouble = error
            self.feed(LookUpFailed(effect.attempt, error))
            return
        for attempt in [attempt for attempt in self._routes if attempt < effect.attempt - 3]:
            del self._routes[attempt]
        self._routes[effect.attempt] = connection
        self.place = self.place._replace(topic_id=route.topic_id)
        self.feed(OwnerFound(effect.attempt, route.owner_epoch, another_topic=another))

    def _open(self, effect: OpenProducer) -> None:
        request = OpenRequest(
            0,
            str(self._topic),
            self.place.topic_id,
            effect.name,
            effect.mode,
            effect.on_conflict,
            effect.resume,
            effect.present,
            effect.owner_epoch,
            effect.instance_id,
            effect.on_behalf_of,
        )
        self._asked = {effect.attempt: self._routes[effect.attempt].open(request, self, effect.attempt)}
