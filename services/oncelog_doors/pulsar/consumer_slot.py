"""One consumer of a subscription, of one connection.

    SUBSCRIBE ─▶ opening ──▶ open ──▶ closed by either side, by a seek, or with the connection
                   └──────▶ refused

`core.pulsar.outstanding` knows what the client was sent, and what its acknowledgements mean. An entry goes out whole
while any permit is left and the client reads what it is sent. What the client holds when the consumer ends goes to the
other consumers of the subscription at once.

If anything but this client's own seek moves the subscription, its client shows messages that are void. So the door
closes the consumer, and the client comes back with SUBSCRIBE and an empty queue.
"""

import asyncio
import logging
import secrets
from collections.abc import Sequence
from typing import Literal, Protocol

from oncelog.core.acks.changes import IndexRange
from oncelog.core.errors import CorruptEntry, MessageTooLarge, OncelogError
from oncelog.core.formats.batch import read_cost
from oncelog.core.ids import SeekEpoch
from oncelog.core.names import TopicName
from oncelog_doors.core.pulsar.consuming.acknowledgements import LATER_DELAY_MS, UNREADABLE_DELAY_MS
from oncelog_doors.core.pulsar.consuming.arrivals import Arrived
from oncelog_doors.core.pulsar.consuming.outstanding import Arrival, Outgoing, Outstanding
from oncelog_doors.core.pulsar.deliveries import Delivery, delivery_of
from oncelog_doors.core.pulsar.message_ids import Start
from oncelog_doors.core.pulsar.parts import can_be_cut, part_of
from oncelog_doors.core.pulsar.server_errors import refusal_of
from oncelog_doors.core.pulsar.subscribing import Subscription, consumer_name_of
from oncelog_doors.pulsar import replies
from oncelog_doors.pulsar.consumer_acks import ConsumerAcks
from oncelog_doors.pulsar.entry_sender import ConsumerSurroundings, EntrySender, Front
from oncelog_doors.pulsar.named_ids import named_ids
from oncelog_doors.pulsar.ports import ConsumerCallbacks, ConsumerPort, TakenEntry
from oncelog_doors.wire.pulsar_commands_pb2 import Ack, Redeliver, Subscribe

_LOG = logging.getLogger(__name__)

#: How long a consumer that its client closes waits for its acknowledgements.
CLOSING_S = 5.0
#: Messages that wait for others of their entries to be acknowledged: above it nothing more is taken.
WAITING_MAX = 1000
#: Hexadecimal digits that make the name of a consumer unlike those of others.
_SUFFIX_BYTES = 3
_SHOWN = {"exclusive": "Exclusive", "failover": "Failover", "shared": "Shared", "key_shared": "Key_Shared"}


class ConsumerSlot:
    """From SUBSCRIBE to its end; then it writes no message any more (hazard seek-behind-old-messages)."""

    def __init__(
        self,
        around: ConsumerSurroundings,
        topic: TopicName,
        asked: Subscribe,
        subscription: Subscription,
        *,
        former: "Leaving | None",
        over: "ConsumerOver",
    ) -> None:
        """former: the consumer of this number whose place this one takes. over: called when SUBSCRIBE has succeeded,
        and when nothing of this consumer is left."""
        self.topic = topic
        self.consumer_id = asked.consumer_id
        self.is_open = False
        self._around = around
        self._asked = asked
        self._subscription = subscription
        self._former = former
        self._over = over
        self._sender = EntrySender(around, self.consumer_id, topic)
        self._keeps_order = subscription.type != "shared"
        self._table: Outstanding[TakenEntry] = Outstanding(
            cumulative=subscription.type in ("exclusive", "failover"), keeps_order=self._keeps_order
        )
        self._table.consumer_epoch = asked.consumer_epoch
        self._has_epoch = asked.HasField("consumer_epoch")
        self._port: ConsumerPort | None = None
        #: the client hears what is written to this consumer
        self._heard = around.family.knows_consumer_before_flow
        #: the client gets no more messages: the subscription begins elsewhere, or this consumer ends
        self._halted = False
        #: nothing is written any more
        self._ended = False
        self._client_lost = False
        #: the client's own request that moves or deletes the subscription is on its way
        self._changing = False
        #: nothing was here when the port was asked last
        self._is_empty = False
        #: what the port was given last
        self._permitted = 0
        #: messages of entries that cannot be read
        self._unread = 0
        self._arrival: asyncio.Future[None] | None = None
        self._acks = ConsumerAcks(around, self.consumer_id, self._table, self._changed)
        self._task: asyncio.Task[None] | None = None

    def begin(self) -> None:
        what = f"a consumer of {self._asked.subscription} on {self.topic}"
        self._task = self._around.consuming.start(self._run(), what=what)
        self._task.add_done_callback(lambda _: self._over.ended(self))

    # --- opening and delivering ---------------------------------------------------------------------------------------

    async def _run(self) -> None:
        port: ConsumerPort | None = None
        try:
            if self._former is not None:
                await self._former.gone()
            port = await self._open()
            self._subscribed(port)
            await self._deliver(port)
        except OncelogError as error:
            self._failed(error)
        finally:
            self._halted = True
            if self._arrival is not None:
                self._arrival.cancel()
            if port is not None:
                await self._leave(port)

    async def _open(self) -> ConsumerPort:
        return await self._around.cluster.open_consumer(
            self.topic,
            self._around.caller,
            self._asked.subscription,
            consumer_name_of(self._asked.consumer_name, secrets.token_hex(_SUFFIX_BYTES)),
            self._subscription,
            ConsumerCallbacks(self._activated, self._recalled, self._sought, self._wanted),
            may_create=self._asked.may_create,
        )

    def _subscribed(self, port: ConsumerPort) -> None:
        self._port = port
        self.is_open = True
        if port.created:
            self._table.created()
        self._around.write(replies.success(self._asked.request_id))
        self._activated(port.active)
        self._permit(port)
        self._over.opened(self)

    def _failed(self, error: OncelogError) -> None:
        if self._ended or self._changing:
            return
        if self.is_open:
            _LOG.warning("%s: a consumer of %s ends: %s", self._around.peer, self.topic, error)
            self._around.write(replies.close_consumer(self.consumer_id))
        else:
            self._around.write(replies.error(self._asked.request_id, refusal_of(error)))
        self._stop()

    def _close_at_client(self) -> None:
        """Its client subscribes again, with an empty queue."""
        if not self._ended:
            self._around.write(replies.close_consumer(self.consumer_id))
            self._end()

    def _end(self) -> None:
        assert self._task is not None, "it was begun"
        if not self._ended:  # else it is leaving
            self._task.cancel()
        self._stop()

    def _stop(self) -> None:
        self.is_open = False
        self._halted = self._ended = True

    async def _leave(self, port: ConsumerPort) -> None:
        """Give back what the client holds, behind the acknowledgements that it has sent."""
        try:
            async with asyncio.timeout(0 if self._client_lost else CLOSING_S):
                await self._acks.settled()
        except TimeoutError:
            pass  # they may be done or not, as when a connection is lost
        await port.close(client_lost=self._client_lost)

    async def _deliver(self, port: ConsumerPort) -> None:
        """Until this task is cancelled."""
        while True:
            outgoing = self._next(port)
            if self._table.must_close:
                self._close_at_client()
            if outgoing is None:
                await self._until_changed(port)
                continue
            ready = await self._made(port, outgoing)
            if ready is not None and self._table.may_go(outgoing):
                self._sender.send(ready, self._shown(outgoing))

    def _next(self, port: ConsumerPort) -> Outgoing[TakenEntry] | None:
        """The next entry for the client; None: none before something changes."""
        self._is_empty = False
        table = self._table
        while not self._halted and self._sender.is_wanted:
            outgoing = table.next()
            if outgoing is not None:
                return outgoing
            if table.must_close or table.blocked or table.waiting >= (1 if self._keeps_order else WAITING_MAX):
                return None
            try:
                taken = port.take()
            except (CorruptEntry, MessageTooLarge) as error:  # its messages stay unacknowledged
                _LOG.error("%s: %s", self.topic, error)
                self._around.counts.undeliverable += 1
                continue
            if taken is None:
                self._is_empty = True
                return None
            self._arrived(port, taken)
        return None

    def _arrived(self, port: ConsumerPort, taken: TakenEntry) -> None:
        entry = taken.raw.entry
        try:
            cuts = can_be_cut(taken.raw)
        except OncelogError as error:
            self._unread += sum(each.last - each.first + 1 for each in taken.ranges)
            self._give_up(port, taken, error)
            return
        arrival = self._table.arrived(
            Arrived(taken, entry.position, entry.base_index, entry.count, taken.ranges, taken.seek_epoch, cuts)
        )
        if arrival is Arrival.ACKNOWLEDGED:
            self._acks.taken_before(port, entry.position)
        self._permit(port)

    async def _made(self, port: ConsumerPort, outgoing: Outgoing[TakenEntry]) -> Delivery | None:
        """Its bytes; None: it has none, and waits for a minute. Of a message in chunks those of the last one: the
        others are sent here."""
        taken = outgoing.arrived.entry
        raw, sends = taken.raw, None if outgoing.all else outgoing.sends
        try:
            chunks = port.chunks_of(taken)
            if chunks is not None:  # acknowledged before the last one is sent, it means an earlier delivery
                first = await self._sender.chunk(chunks, 0)
                return await self._sender.last_chunk(chunks, first, self._goes_on, self._shown(outgoing))
            made = await self._sender.ready(
                read_cost(raw.batch, raw.body),
                lambda top: delivery_of(raw, top) if sends is None else part_of(raw, sends, top),
            )
        except OncelogError as error:
            self._recalled(outgoing.arrived.ranges)
            self._give_up(port, taken, error)
            return None
        return made._replace(messages=outgoing.messages)

    def _goes_on(self) -> bool:
        """Whether the client gets more messages."""
        return not self._halted and not self._table.must_close

    def _give_up(self, port: ConsumerPort, taken: TakenEntry, error: OncelogError) -> None:
        """This entry cannot be delivered now, and perhaps never. It stays unacknowledged, and is tried again."""
        _LOG.error("%s: entry %s cannot be delivered: %s", self.topic, taken.raw.entry.position, error)
        self._around.counts.undeliverable += 1
        port.nack(taken.ranges, delay_ms=UNREADABLE_DELAY_MS)
        self._permit(port)

    def _shown(self, outgoing: Outgoing[TakenEntry]) -> Front:
        epoch = self._table.consumer_epoch
        return Front(
            outgoing.arrived.entry.delivery_count - 1, outgoing.mask, epoch if self._has_epoch or epoch else None
        )

    async def _until_changed(self, port: ConsumerPort) -> None:
        """Return when a message may go. Raises what ends the port."""
        changed = asyncio.ensure_future(self._sender.changed.wait())
        waits: set[asyncio.Future[None] | asyncio.Future[Literal[True]]] = {changed}
        if self._is_empty:
            self._arrival = self._arrival or asyncio.ensure_future(port.arrival())
            waits.add(self._arrival)
        try:
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        finally:
            changed.cancel()
        self._sender.changed.clear()
        if self._arrival is not None and self._arrival.done():
            arrival, self._arrival = self._arrival, None
            try:
                arrival.result()
            except OncelogError as error:
                if not error.retriable:
                    raise
                _LOG.warning("%s: %s", self._around.peer, error)  # it goes on trying

    # --- what the log says --------------------------------------------------------------------------------------------

    def _activated(self, active: bool) -> None:
        if self._port is None:
            return
        self._say_whether_active(active)
        if not active:
            self._table.lost()
            self._changed()

    def _say_whether_active(self, active: bool) -> None:
        if self._subscription.type == "failover" and self._heard and not self._ended:
            self._around.write(replies.active_consumer_change(self.consumer_id, active))

    def _recalled(self, ranges: Sequence[IndexRange]) -> None:
        later = self._table.recalled(ranges).later
        if later and self._port is not None:
            self._port.nack(later, delay_ms=LATER_DELAY_MS)
        self._changed()

    def _sought(self, seek_epoch: SeekEpoch) -> None:
        if self._port is None:
            return
        self._halted = True
        self._table.sought(seek_epoch)
        if not self._changing:
            self._close_at_client()

    def _wanted(self) -> None:
        if self._port is not None and not self._ended:
            self._around.wanted(self._port)

    def _changed(self) -> None:
        """A message may go now, or fewer than before."""
        if self._port is not None and not self._ended:
            self._permit(self._port)
        self._sender.changed.set()

    def _permit(self, port: ConsumerPort) -> None:
        """What the client has given permits for, and what it was not sent of that."""
        total = self._sender.permits.total - self._sender.early_chunks + self._table.unsent + self._unread
        if total > self._permitted:
            self._permitted = total
            port.permits(total)

    # --- what the client sends ----------------------------------------------------------------------------------------

    def flow(self, permits: int) -> None:
        if not self._heard:
            self._heard = True
            if self._port is not None:
                self._say_whether_active(self._port.active)
        self._sender.flow(permits)
        self._changed()

    def reads_again(self) -> None:
        self._sender.reads_again()

    def acknowledge(self, ack: Ack) -> None:
        self._acks.take(self._port, ack, ended=self._ended)

    def redeliver(self, asked: Redeliver) -> None:
        port = self._port
        if port is None or self._ended:
            return
        if asked.message_ids:
            given = self._table.redeliver(named_ids(asked.message_ids))
            if given.nack:
                port.nack(given.nack, delay_ms=0)
            if given.later:
                port.nack(given.later, delay_ms=LATER_DELAY_MS)
        else:
            self._table.redeliver_all(asked.consumer_epoch)
            port.redeliver()
        self._changed()

    def seek(self, start: Start, request_id: int) -> None:
        self.is_open = False
        self._changing = True
        self._around.tasks.start(self._seek(start, request_id), what=f"a seek of {self._asked.subscription}")

    async def _seek(self, start: Start, request_id: int) -> None:
        assert self._port is not None, "it is open"
        assert self._task is not None, "it was begun"
        try:
            await self._port.seek(start)
        except OncelogError as error:
            self._not_changed(request_id, error)
            return
        if self._ended:
            return
        self._end()
        await asyncio.wait([self._task])
        self._around.write(replies.close_consumer(self.consumer_id))
        self._around.write(replies.success(request_id))

    def unsubscribe(self, request_id: int) -> None:
        self.is_open = False
        self._changing = True
        self._around.tasks.start(self._unsubscribe(request_id), what=f"the deletion of {self._asked.subscription}")

    async def _unsubscribe(self, request_id: int) -> None:
        assert self._port is not None, "it is open"
        try:
            await self._port.unsubscribe()
        except OncelogError as error:
            self._not_changed(request_id, error)
            return
        if not self._ended:
            self._around.write(replies.success(request_id))
            self._end()

    def _not_changed(self, request_id: int, error: OncelogError) -> None:
        """A seek or a deletion has failed, as far as it is known."""
        assert self._port is not None, "it was open"
        if self._ended:
            return
        self._changing = False
        self._around.write(replies.error(request_id, refusal_of(error)))
        if self._halted or self._port.failure is not None:
            self._close_at_client()
        else:
            self.is_open = True

    async def answer_last_id(self, request_id: int) -> None:
        assert self._port is not None, "it is open"
        await self._sender.answer_last_id(request_id, self._port)

    async def answer_stats(self, request_id: int) -> None:
        """`blocked` also says whether the owner withholds new messages because of the state of acknowledgements."""
        assert self._port is not None, "it is open"
        try:
            blocked = self._table.blocked or await self._port.is_paused()
        except OncelogError as error:
            self._around.write(replies.no_stats(request_id, refusal_of(error)))
            return
        self._sender.answer_stats(
            request_id, self._asked.consumer_name, _SHOWN[self._subscription.type],
            unacked=self._table.unacknowledged, blocked=blocked,
        )  # fmt: skip

    # --- ends ---------------------------------------------------------------------------------------------------------

    def close(self, request_id: int) -> None:
        """Its client closes it. The answer comes when nothing is held for it any more."""
        assert self._task is not None, "it was begun"
        self._end()
        self._task.add_done_callback(lambda _: self._around.write(replies.success(request_id)))

    def disconnected(self, *, client_lost: bool = False) -> None:
        """The connection is gone, or the client subscribes again. client_lost: the client has said nothing."""
        self._client_lost = self._acks.silent = client_lost
        self._end()

    async def gone(self) -> None:
        """Return when nothing of this consumer is left."""
        if self._task is not None:
            await asyncio.wait([self._task])


class Leaving(Protocol):
    async def gone(self) -> None: ...


class ConsumerOver(Protocol):
    """Learns how a slot goes on."""

    def opened(self, slot: ConsumerSlot) -> None: ...
    def ended(self, slot: ConsumerSlot) -> None: ...
