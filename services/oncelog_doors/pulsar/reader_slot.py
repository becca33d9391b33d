"""One reader of one connection: a consumer whose subscription is not durable.

    SUBSCRIBE ─▶ opening ──▶ open ──▶ closed by either side, by a seek, or with the connection
                   └──────▶ refused

Entries go out in the order of the log, one while any permit is left and the client reads what it is sent. Nothing is
held for the client: what it acknowledges changes nothing, and a reader that comes back names where it wants to begin.

The first entry is made ready before SUBSCRIBE is answered. So a place that cannot be delivered refuses SUBSCRIBE, with
its reason, and the client tries again ever more slowly. Later in the log such a place closes the consumer, and the
client comes back with SUBSCRIBE.
"""

import asyncio
import logging
from typing import Any, Protocol

from oncelog.core.access import Caller
from oncelog.core.errors import LedgerUnavailable, OncelogError
from oncelog.core.names import TopicName
from oncelog.runtime.tasks import BackgroundTasks
from oncelog_doors.core.pulsar.connecting import message_bytes_max
from oncelog_doors.core.pulsar.deliveries import Delivery
from oncelog_doors.core.pulsar.message_ids import Start
from oncelog_doors.core.pulsar.permits import Permits
from oncelog_doors.core.pulsar.server_errors import refusal_of
from oncelog_doors.pulsar import replies
from oncelog_doors.pulsar.door_counts import DoorCounts
from oncelog_doors.pulsar.frames import Buffer, build_entry
from oncelog_doors.pulsar.ports import ClusterPort, ReaderPort, Timers
from oncelog_doors.wire.pulsar_commands_pb2 import Command, ConsumerStats, Subscribe
from oncelog_doors.wire.pulsar_values_pb2 import BrokerEntry

_LOG = logging.getLogger(__name__)

#: Above it an entry is made ready in another thread: it would delay all other clients.
PREPARED_HERE_BYTES_MAX = 64 * 1024
NO_PARTITION = -1


class ReaderSurroundings(Protocol):
    """What a reader needs of its connection and its door."""

    caller: Caller
    peer: str
    cluster: ClusterPort
    timers: Timers
    tasks: BackgroundTasks
    #: the client asks for append time and index of each entry
    wants_broker_entry: bool
    counts: DoorCounts

    @property
    def reads_along(self) -> bool:
        """Whether the client reads what it is sent: less than 1 MiB waits for it."""

    def write(self, answer: Command) -> None: ...
    def write_entry(self, front: Command, entry: Buffer, broker_entry: BrokerEntry | None) -> None: ...


class ReaderSlot:
    """From SUBSCRIBE to its end; then it writes nothing any more (hazard seek-behind-old-messages)."""

    def __init__(
        self, around: ReaderSurroundings, topic: TopicName, asked: Subscribe, start: Start, *, over: "Over"
    ) -> None:
        """over: called at the end, and when SUBSCRIBE has succeeded."""
        self.topic = topic
        self.subscription = asked.subscription
        self.consumer_id = asked.consumer_id
        self.is_open = False
        self._around = around
        self._asked = asked
        self._start = start
        self._over = over
        self._partition = NO_PARTITION if topic.partition is None else topic.partition
        self._permits = Permits()
        self._port: ReaderPort | None = None
        self._closed = False
        self._may_go_on = asyncio.Event()
        self._messages_out = self._bytes_out = 0
        self._task: asyncio.Task[None] | None = None

    def begin(self) -> None:
        self._task = self._around.tasks.start(self._run(), what=f"a reader of {self.topic}")

    # --- opening and delivering ---------------------------------------------------------------------------------------

    async def _run(self) -> None:
        port: ReaderPort | None = None
        try:
            port = await self._around.cluster.open_reader(
                self.topic, self._around.caller, self._start, may_create=self._asked.may_create
            )
            first = await self._next(port)
            self._port = port
            self._subscribed()
            await self._deliver(port, first)
        except OncelogError as error:
            self._failed(error)
        finally:
            if port is not None:
                port.close()

    def _subscribed(self) -> None:
        self.is_open = True
        self._around.write(replies.success(self._asked.request_id))
        self._over.opened(self)

    def _failed(self, error: OncelogError) -> None:
        if self._closed:
            return
        if self.is_open:
            _LOG.warning("%s: a reader of %s ends: %s", self._around.peer, self.topic, error)
            self._around.write(replies.close_consumer(self.consumer_id))
        else:
            self._around.write(replies.error(self._asked.request_id, refusal_of(error)))
        self._end()

    async def _deliver(self, port: ReaderPort, ready: Delivery | None) -> None:
        """Until this task is cancelled."""
        while True:
            if ready is None:
                try:
                    await port.arrival()
                except LedgerUnavailable as error:  # it goes on trying
                    _LOG.warning("%s: %s", self._around.peer, error)
                ready = await self._next(port)
                continue
            while not (self._permits.any and self._around.reads_along):
                self._may_go_on.clear()
                await self._may_go_on.wait()
            self._send(ready)
            ready = await self._next(port)

    async def _next(self, port: ReaderPort) -> Delivery | None:
        """The next entry, made ready; None when none is here."""
        taken: Any | None = port.take()
        if taken is None:
            return None
        bytes_max = message_bytes_max(self._around.cluster.batch_bytes_max)
        try:
            if port.size_of(taken) <= PREPARED_HERE_BYTES_MAX:
                return _with_checksum(port.prepare(taken, bytes_max))
            return await asyncio.to_thread(lambda: _with_checksum(port.prepare(taken, bytes_max)))
        except OncelogError:
            self._around.counts.undeliverable += 1
            raise

    def _send(self, ready: Delivery) -> None:
        assert ready.whole is not None, "its bytes are made"
        around = self._around
        self._permits.sent(ready.messages)
        self._messages_out += ready.messages
        self._bytes_out += len(ready.whole)
        around.counts.delivered(ready.messages, len(ready.whole))
        broker_entry = replies.broker_entry(ready) if around.wants_broker_entry else None
        around.write_entry(replies.message(self.consumer_id, ready, self._partition), ready.whole, broker_entry)

    # --- what the client sends ----------------------------------------------------------------------------------------

    def flow(self, permits: int) -> None:
        self._permits.flow(permits)
        self._may_go_on.set()

    def reads_again(self) -> None:
        """The client reads what it is sent."""
        self._may_go_on.set()

    async def answer_last_id(self, request_id: int) -> None:
        assert self._port is not None, "it is open"
        try:
            last = await self._port.last_id()
        except OncelogError as error:
            self._around.write(replies.error(request_id, refusal_of(error)))
        else:
            self._around.write(replies.last_message_id(request_id, last, self._port.before, self._partition))

    def stats(self, request_id: int) -> ConsumerStats:
        """What costs no request."""
        return ConsumerStats(
            request_id=request_id,
            consumer_name=self._asked.consumer_name,
            messages_out=self._messages_out,
            bytes_out=self._bytes_out,
            permits=max(0, self._permits.left),
            address=self._around.peer,
            type="Exclusive",
        )

    # --- ends ---------------------------------------------------------------------------------------------------------

    def close(self) -> None:
        """The client closes it or seeks, or the connection is gone."""
        self._end()
        if self._task is not None:
            self._task.cancel()

    def _end(self) -> None:
        if not self._closed:
            self._closed = True
            self.is_open = False
            self._over.ended(self)


class Over(Protocol):
    """Learns how a slot goes on."""

    def opened(self, slot: ReaderSlot) -> None: ...
    def ended(self, slot: ReaderSlot) -> None: ...


def _with_checksum(made: Delivery) -> Delivery:
    """Its bytes, if no client wrote them."""
    return made if made.whole is not None else made._replace(whole=build_entry(made.metadata, made.payload))
