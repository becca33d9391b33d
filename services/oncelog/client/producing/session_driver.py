"""The shell of one producer session: performs the core's effects and feeds their completions back as events."""

import secrets
from collections import deque
from collections.abc import Callable

from crc32c import crc32c

from oncelog.client.network.network import Network
from oncelog.client.network.owner_connection import OwnerConnection
from oncelog.client.network.session_timers import SessionTimers
from oncelog.client.producing.pending_results import OnUnverified, PendingResults
from oncelog.client.values.results import TopicPartition
from oncelog.core.errors import OncelogError, TopicNotFound
from oncelog.core.formats.message_id import NO_PARTITION
from oncelog.core.ids import INSTANCE_ID_BYTES, InstanceId, OwnerEpoch, TopicId
from oncelog.core.names import TopicName
from oncelog.core.sdk.owner_attempts import (
    EpochSeen,
    LookUp,
    LookUpFailed,
    OwnerFound,
    StartSessionTimer,
    TimerKey,
    TimerKind,
)
from oncelog.core.sdk.producer.events import Complete, Fail, FailProducer, ProducerEffect, ProducerEvent, ReportOpen
from oncelog.core.sdk.producer.opening import (
    CloseSession,
    OpenProducer,
    ProducerSettings,
    WithdrawOpening,
)
from oncelog.core.sdk.producer.pending_batches import SendBatches
from oncelog.core.sdk.producer.session import ProducerSession
from oncelog.rpc.owner_codec import OpenRequest


class SessionDriver:
    """One ProducerSession on the network. It handles one event at a time; events that effects cause wait their turn.

    changed: called after each event.
    """

    def __init__(
        self,
        settings: ProducerSettings,
        topic: TopicName,
        network: Network,
        *,
        on_unverified: OnUnverified,
        changed: Callable[[], None],
    ) -> None:
        # Random, because no other instance may have the same id, in this process or in a copy of its memory.
        self.core = ProducerSession(settings, crc32c, InstanceId(secrets.token_bytes(INSTANCE_ID_BYTES)))
        self.results = PendingResults(str(topic), on_unverified)
        self.topic_partition = TopicPartition(TopicId(""), NO_PARTITION if topic.partition is None else topic.partition)
        self._topic = topic
        self._network = network
        self._changed = changed
        #: {attempt: its connection}, of the latest attempt and a few before it
        self._connections: dict[int, OwnerConnection] = {}
        #: {attempt: the open id of its request on its connection}, of the latest attempt only
        self._open_ids: dict[int, int] = {}
        self._timers = SessionTimers(self.feed)
        self._has_deadlines = settings.send_timeout_ms is not None
        self._events: deque[ProducerEvent] = deque()
        self._busy = False

    @property
    def connection(self) -> OwnerConnection | None:
        """The connection of the current session or attempt."""
        return self._connections.get(self.core.opening.attempt)

    def feed(self, event: ProducerEvent) -> None:
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
        if core.error is not None:
            self._timers.cancel_all()
        self._changed()

    def _perform(self, effects: list[ProducerEffect]) -> None:
        for effect in effects:
            match effect:
                case SendBatches():
                    self._connections[effect.attempt].send(effect.session, effect.batches)
                case Complete():
                    self._settled(effect.request)
                    self.results.complete(effect, self.topic_partition, self.core.opening.name or "")
                case Fail():
                    self._settled(effect.request)
                    self.results.fail(effect.request, effect.error.of_send(effect.stored))
                case ReportOpen() | FailProducer():
                    pass  # `changed` follows, and the core has the producer's name and error
                case LookUp():
                    self._network.background.start(self._look_up(effect), what=f"look-up of {self._topic}")
                case OpenProducer():
                    self._open(effect)
                case WithdrawOpening(attempt):
                    if (open_id := self._open_ids.pop(attempt, None)) is not None:
                        self._connections[attempt].withdraw(open_id)
                case CloseSession():
                    if (connection := self._connections.get(effect.attempt)) is not None:
                        connection.end_session(effect.session)
                case StartSessionTimer():
                    self._timers.start(effect)

    def _settled(self, request: int) -> None:
        """A batch has its answer: its deadline, if there is one, is over."""
        if self._has_deadlines:
            self._timers.cancel(TimerKey(TimerKind.SEND, request))

    async def _look_up(self, effect: LookUp) -> None:
        # After the first grant the producer belongs to that topic. A topic created anew under the same name is another
        # log with other ids, so it must not be created or used.
        bound = self.core.opening.instance is not None
        try:
            route = await self._network.route(
                self._topic, fresh=effect.fresh, owner_epoch=effect.owner_epoch, create=not bound
            )
            another = self.topic_partition.topic_id not in ("", route.topic_id)
            if bound and another:
                raise TopicNotFound(
                    f"{self._topic} was deleted and created again; the messages of this producer are gone"
                )
            connection = self._network.connection(route)
        except OncelogError as error:
            self.feed(LookUpFailed(effect.attempt, error))
            return
        for attempt in [attempt for attempt in self._connections if attempt < effect.attempt - 3]:
            del self._connections[attempt]
        self._connections[effect.attempt] = connection
        self.topic_partition = self.topic_partition._replace(topic_id=route.topic_id)
        self.feed(OwnerFound(effect.attempt, route.owner_epoch, another_topic=another))

    def _open(self, effect: OpenProducer) -> None:
        request = OpenRequest(
            0,
            str(self._topic),
            self.topic_partition.topic_id,
            effect.name,
            effect.mode,
            effect.on_conflict,
            effect.resume,
            effect.present,
            effect.owner_epoch,
            effect.instance_id,
            effect.on_behalf_of,
            effect.growths,
        )
        self._open_ids = {effect.attempt: self._connections[effect.attempt].open(request, self, effect.attempt)}
