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
from typing import Any, NamedTuple, Protocol

from oncelog.core.errors import LedgerUnavailable, OncelogError
from oncelog.core.names import TopicName
from oncelog_doors.core.pulsar.deliveries import Delivery
from oncelog_doors.core.pulsar.message_ids import Start
from oncelog_doors.core.pulsar.server_errors import refusal_of
from oncelog_doors.pulsar import replies
from oncelog_doors.pulsar.entry_sender import ConsumerSurroundings, EntrySender
from oncelog_doors.pulsar.ports import ChunksPort, ReaderPort
from oncelog_doors.wire.pulsar_commands_pb2 import Ack, Redeliver, Subscribe

_LOG = logging.getLogger(__name__)


class ReaderSlot:
    """From SUBSCRIBE to its end; then it writes nothing any more (hazard seek-behind-old-messages)."""

    def __init__(
        self, around: ConsumerSurroundings, topic: TopicName, asked: Subscribe, start: Start, *, over: "Over"
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
        self._sender = EntrySender(around, self.consumer_id, topic)
        self._port: ReaderPort | None = None
        self._closed = False
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

    async def _deliver(self, port: ReaderPort, ready: "_Ready | None") -> None:
        """Until this task is cancelled."""
        while True:
            if ready is None:
                try:
                    await port.arrival()
                except LedgerUnavailable as error:  # it goes on trying
                    _LOG.warning("%s: %s", self._around.peer, error)
                ready = await self._next(port)
                continue
            await self._send(ready)
            ready = await self._next(port)

    async def _send(self, ready: "_Ready") -> None:
        last: Delivery | None = ready.first
        if ready.chunks is None:
            await self._sender.until_wanted()
        else:
            try:
                last = await self._sender.last_chunk(ready.chunks, ready.first, lambda: not self._closed)
            except OncelogError:
                self._around.counts.undeliverable += 1
                raise
        if last is not None:
            self._sender.send(last)

    async def _next(self, port: ReaderPort) -> "_Ready | None":
        """The next entry, made ready; None when none is here."""
        taken: Any | None = port.take()
        if taken is None:
            return None
        try:
            chunks = port.chunks_of(taken)
            if chunks is not None:
                return _Ready(await self._sender.chunk(chunks, 0), chunks)
            size = port.size_of(taken)
            return _Ready(await self._sender.ready(size, lambda bytes_max: port.prepare(taken, bytes_max)))
        except OncelogError:
            self._around.counts.undeliverable += 1
            raise

    # --- what the client sends ----------------------------------------------------------------------------------------

    def flow(self, permits: int) -> None:
        self._sender.flow(permits)

    def reads_again(self) -> None:
        self._sender.reads_again()

    def acknowledge(self, ack: Ack) -> None:
        """Nothing is held, so nothing changes."""
        if ack.HasField("request_id"):
            self._around.write(replies.ack_response(self.consumer_id, ack.request_id))

    def redeliver(self, _body: Redeliver) -> None:
        """Nothing is held, so there is nothing to send again."""

    def seek(self, start: Start, request_id: int) -> None:
        self._over.sought(self, start)
        self.disconnected()
        self._around.write(replies.close_consumer(self.consumer_id))
        self._around.write(replies.success(request_id))

    async def answer_last_id(self, request_id: int) -> None:
        assert self._port is not None, "it is open"
        await self._sender.answer_last_id(request_id, self._port, self._port)

    async def answer_stats(self, request_id: int) -> None:
        self._sender.answer_stats(request_id, self._asked.consumer_name, "Exclusive")

    # --- ends ---------------------------------------------------------------------------------------------------------

    def close(self, request_id: int) -> None:
        """The client closes it, or unsubscribes: no subscription is left either way."""
        self.disconnected()
        self._around.write(replies.success(request_id))

    def unsubscribe(self, request_id: int) -> None:
        self.close(request_id)

    def disconnected(self, *, client_lost: bool = False) -> None:
        """The connection is gone, or the client subscribes again. Nothing is held for a client that is lost."""
        self._end()
        if self._task is not None:
            self._task.cancel()

    async def gone(self) -> None:
        """Return when nothing of this reader is left: there is nothing in the cluster."""

    def _end(self) -> None:
        if not self._closed:
            self._closed = True
            self.is_open = False
            self._over.ended(self)


class _Ready(NamedTuple):
    """What is sent next: an entry, or the first chunk of a message."""

    first: Delivery
    chunks: ChunksPort | None = None


class Over(Protocol):
    """Learns how a slot goes on."""

    def opened(self, slot: ReaderSlot) -> None: ...
    def sought(self, slot: ReaderSlot, start: Start) -> None:
        """The client goes on from there, with its next SUBSCRIBE."""

    def ended(self, slot: ReaderSlot) -> None: ...
