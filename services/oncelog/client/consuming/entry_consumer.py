"""Consumes the entries of one subscription as they are stored, whole: for gateways, whose clients get batches and not
messages.

An entry is verified, and not decoded. A message in chunks comes without its value: `reading.entry_chunks` reads it.
"""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple, Protocol

from oncelog.client.consuming.acknowledging import AckFuture, Acknowledgements
from oncelog.client.consuming.consumed_messages import open_delivered
from oncelog.client.consuming.consumer_driver import Settled
from oncelog.client.consuming.entry_driver import EntryDriver
from oncelog.client.network.network import Network
from oncelog.client.network.session_driver import parted
from oncelog.client.network.start_position import ask_index
from oncelog.client.values.whole_entries import EntryStart, WholeEntry
from oncelog.core.acks.changes import IndexRange
from oncelog.core.delivery.events import COUNTED_MAX
from oncelog.core.errors import (
    Conflict,
    CorruptEntry,
    DeadlineExceeded,
    EntriesLost,
    LedgerUnavailable,
    OncelogError,
)
from oncelog.core.ids import EntryId, Generation, LedgerId, Position, SeekEpoch
from oncelog.core.names import TopicName
from oncelog.core.sdk.consumer.events import ConsumerSettings, MessageRange
from oncelog.core.sdk.consumer.index_set import IndexSet
from oncelog.core.sdk.owner_attempts import OpenWanted
from oncelog.rpc.codecs.reader_codec import StartMessage

#: Where a subscription begins. StartMessage: a message inside of an entry, by its place in the batch.
ConsumerStart = EntryStart | StartMessage


class ConsumedEntry(NamedTuple):
    """One delivery of messages of one entry.

    whole: the entry, as a reader gives it. ranges: the message indexes that are meant for this consumer, ascending and
    disjoint; each delivery has one at least. delivery_count: of the entry's worst message among them; 1: none of them
    was delivered before. seek_epoch, generation: for `ack` and `ack_below`.
    """

    whole: WholeEntry
    ranges: tuple[IndexRange, ...]
    delivery_count: int
    seek_epoch: SeekEpoch
    generation: Generation

    @property
    def messages(self) -> int:
        """How many messages are meant for this consumer, which is what the delivery costs of its permits."""
        return sum(last - first + 1 for first, last in self.ranges)


@dataclass(frozen=True, slots=True)
class EntryConsumerCallbacks:
    """Called on the event loop after the consumer is open. They must not call `take`; everything else they may.

    active: exclusive and failover: whether this is the active consumer now. When it no longer is, what it holds is
    void. recalled: messages that were taken here are not held any more, and go to other consumers or come again: the
    owner took them back, or did not leave them here after a lost connection. sought: the subscription begins again;
    everything that was taken before is void, and acknowledgements of it end with StaleSeekEpoch. wanted: another client
    wants to attach to the exclusive subscription: call `client_lives`, or close the consumer. No answer in 8 s means
    that the client is gone: the consumer ends with ConsumerFenced. None: the answer is at once that it is there.
    """

    active: Callable[[bool], None] | None = None
    recalled: Callable[[tuple[IndexRange, ...]], None] | None = None
    sought: Callable[[SeekEpoch], None] | None = None
    wanted: Callable[[], None] | None = None


class SubscriptionCalls(Protocol):
    """What is asked about the subscription beside its stream."""

    async def consumers(self) -> set[str]:
        """The names of those that are connected. Raises SubscriptionNotFound, and retriable errors."""

    async def paused(self) -> bool:
        """Raises SubscriptionNotFound, Conflict while the topic has no owner, and retriable errors."""

    async def delete(self) -> None:
        """Raises Conflict while consumers are connected, and the same."""


class EntryConsumer:
    """One consumer of a subscription of a topic without partitions, or of one partition, for one client of a gateway.
    Made by `gateways.open_entry_consumer`; for one event loop.

    It survives a change of the topic owner, and keeps what it holds. It gets no message before the client has given
    permits. An entry comes whole while any permit is left, so that its messages may exceed them; then nothing comes
    until the sum of permits exceeds all messages that came.

    Attributes:
        topic: the full name of the topic or partition.
        subscription, name: of the subscription, and of this consumer.
    """

    def __init__(
        self,
        topic: TopicName,
        settings: ConsumerSettings,
        network: Network,
        calls: SubscriptionCalls,
        callbacks: EntryConsumerCallbacks,
    ) -> None:
        """settings: of whole entries, without a first index."""
        self.topic, self.subscription, self.name = str(topic), settings.subscription, settings.consumer_name
        self._topic, self._settings = topic, settings
        self._network, self._calls, self._callbacks = network, calls, callbacks
        #: set when a delivery may be here, when the consumer has failed, and when storage is away
        self._arrived = asyncio.Event()
        self._driver = EntryDriver(settings, topic, network, arrived=self._arrived.set, changed=self._has_changed)
        self._acks = Acknowledgements(self._driver)
        #: set at each other change
        self._changed = asyncio.Event()
        #: as the callbacks were called last; None: not open yet
        self._known: _Known | None = None
        self._permits = 0
        #: messages that were handed out here and not to the client, so that they have used none of its permits
        self._unshown = 0
        #: of one entry that cannot be opened
        self._runs: tuple[MessageRange, ...] = ()
        #: whether everything is to come again in order
        self._restarting = False
        self._unavailable: OncelogError | None = None

    def __repr__(self) -> str:
        ended = "" if self.failure is None else f", failure={type(self.failure).__name__}"
        return f"EntryConsumer({self.topic!r}, subscription={self.subscription!r}, name={self.name!r}{ended})"

    # --- attaching ----------------------------------------------------------------------------------------------------

    async def open(self, start: ConsumerStart, *, create: bool, timeout_ms: int | None) -> None:
        """Attach. See `gateways.open_entry_consumer`."""
        self._driver.creates_topic = create
        if create:
            first_index = await self._begins_at(start, create=True, timeout_ms=timeout_ms)
            self._driver.core.settings = replace(self._settings, first_index=first_index)
        try:
            async with asyncio.timeout(None if timeout_ms is None else timeout_ms / 1000):
                self._driver.feed(OpenWanted())
                while not self._driver.core.is_bound:
                    self._check_open()
                    await self._change()
            self._check_open()
            self._known = _Known(self.active, self.seek_epoch)
        except TimeoutError as error:
            trouble = self._driver.core.trouble or error
            raise DeadlineExceeded(
                f"could not attach to {self.subscription} of {self.topic} within {timeout_ms} ms: {trouble}"
            ) from trouble
        finally:
            if self._known is None:
                await self.close()

    async def _begins_at(self, start: ConsumerStart, *, create: bool, timeout_ms: int | None = None) -> int:
        """The index of the first message there. An entry that the log lacks means what follows it, also if it is one of
        an earlier topic of this name: ids of ledgers ascend in the whole cluster."""
        what = f"the place of {start} in {self.topic}"
        at = StartMessage(start, 0, inclusive=True) if isinstance(start, Position) else start
        try:
            found = await ask_index(self._network, self._topic, at, timeout_ms=timeout_ms, create=create, what=what)
        except EntriesLost as error:
            ledger_id, entry_id = error.details.get("next_ledger_id"), error.details.get("next_entry_id")
            if not isinstance(ledger_id, int) or not isinstance(entry_id, int):
                raise
            at = StartMessage(Position(LedgerId(ledger_id), EntryId(entry_id)), 0, inclusive=True)
            found = await ask_index(self._network, self._topic, at, timeout_ms=timeout_ms, create=False, what=what)
        return found.begins_at

    async def _change(self) -> None:
        self._changed.clear()
        await self._changed.wait()

    def _check_open(self) -> None:
        self._network.check_loop()
        if self.failure is not None:
            raise self.failure.with_traceback(None)  # else each call would add to it

    def _has_changed(self) -> None:
        self._changed.set()
        trouble, failure = self._driver.core.trouble, self._driver.core.error
        if isinstance(trouble, LedgerUnavailable) and trouble is not self._unavailable:
            self._unavailable = trouble
            self._arrived.set()
        if failure is not None:
            self._arrived.set()
        elif self._known is not None:
            self._call_back(self._known)
        elif self._driver.is_wanted:  # a client whose opening is not answered yet has just asked: it is there
            self.client_lives()

    def _call_back(self, known: "_Known") -> None:
        """Report what has changed. A callback may cause the next change."""
        self._known = now = _Known(self.active, self.seek_epoch)
        back, self._driver.taken_back = self._driver.taken_back, []
        callbacks = self._callbacks
        if now.seek_epoch != known.seek_epoch and callbacks.sought is not None:
            callbacks.sought(now.seek_epoch)
        if back and callbacks.recalled is not None:
            callbacks.recalled(tuple(IndexSet(back)))
        if now.active != known.active and callbacks.active is not None:
            callbacks.active(now.active)
        if self._driver.is_wanted:
            self._driver.is_wanted = False
            (callbacks.wanted or self.client_lives)()

    # --- receiving ----------------------------------------------------------------------------------------------------

    def permits(self, total: int) -> None:
        """The client has asked for so many messages in all, since the consumer was opened. Never falls; a lower number
        than before changes nothing."""
        self._permits = max(self._permits, total)
        self._driver.permit(self._permits + self._unshown)

    def _not_shown(self) -> None:
        """What was handed out last goes to no client."""
        runs, self._runs = self._runs, ()
        self._unshown += sum(run.count for run in runs)
        self._driver.permit(self._permits + self._unshown)

    def take(self) -> ConsumedEntry | None:
        """The next delivery; None when none was received. The consumer holds its messages until they are acknowledged,
        negatively acknowledged or recalled.

        Raises CorruptEntry, once for each delivery, for an entry that cannot be opened: its messages stay
        unacknowledged, and the next call goes on behind it. Raises UnknownFormat at each call, and the error that ended
        the consumer.
        """
        self._check_open()
        while not self._restarting:
            self._runs = runs = self._runs or self._driver.take_entry()
            if not runs:
                break
            first = runs[0]
            if not self._driver.holds(runs):  # it was taken back meanwhile
                self._not_shown()
                continue
            try:
                stored = open_delivered(first.entry)
            except CorruptEntry:
                self._not_shown()
                raise
            self._runs = ()
            whole = WholeEntry(stored, self._driver.names.name(stored.batch.producer_id))
            ranges = tuple(IndexSet(IndexRange(run.first, run.last) for run in runs))
            count = max((count for run in runs for count in run.delivery_counts.values()), default=1)
            return ConsumedEntry(whole, ranges, count, first.seek_epoch, first.generation)
        self._arrived.clear()
        return None

    async def arrival(self) -> None:
        """Return when a delivery may be here for `take`. Raises the error that ended the consumer. A retriable error in
        between is raised once: wait again."""
        self._check_open()
        await self._arrived.wait()
        self._check_open()
        if self._unavailable is not None and self._unavailable is self._driver.core.trouble:
            self._arrived.clear()
            raise self._unavailable.with_traceback(None)

    # --- acknowledging ------------------------------------------------------------------------------------------------

    def ack(self, ranges: Sequence[IndexRange], seek_epoch: SeekEpoch) -> AckFuture:
        """Acknowledge exactly these messages.

        The future has the result when the owner has answered: durable, or in its memory only (`AckResult.durable`). Its
        error: StaleSeekEpoch when the subscription was sought since, SubscriptionGone, or the error that ended the
        consumer. The error of a future that is not awaited is dropped. Raises the error that ended the consumer.
        """
        self._check_open()
        return self._acks.add(seek_epoch, ranges)

    def ack_below(self, index: int, seek_epoch: SeekEpoch, generation: Generation) -> AckFuture:
        """Acknowledge every message with a lower index; exclusive and failover only. seek_epoch, generation: of the
        delivery. `AckResult.complete` is False when it ended before a message that this consumer has negatively
        acknowledged and not got again. Errors as `ack`, and ConsumerFenced: another consumer has become active since.
        """
        self._check_open()
        return self._acks.add_below(seek_epoch, generation, index)

    def nack(self, ranges: Sequence[IndexRange], *, delay_ms: int | None = None) -> asyncio.Future[None]:
        """Deliver these messages again; each counts one delivery. What the consumer does not hold is ignored.

        delay_ms: not before so many milliseconds; None: the owner's back-off by the number of deliveries; 0: at once.
        The future ends when that is durable; errors as `ack`.
        """
        self._check_open()
        held = IndexSet(self._driver.held)
        asked = IndexSet(part for first, last in ranges for part in held.overlap(first, last))
        # The owner writes a count for each message, so it gets one bounded request after the other.
        parts, counts, seek_epoch = asked.parts(COUNTED_MAX), self._driver.held_counts, self.seek_epoch
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._acks.send_before()

        def go_on(result: Settled | None = None) -> None:
            if future.done():
                return
            if isinstance(result, OncelogError):
                future.set_exception(result)
                future.exception()  # not logged if nobody awaits it
            elif (part := next(parts, None)) is None:
                future.set_result(None)
            else:
                of_part = {i: n for i, n in counts.items() if part[0].first <= i <= part[-1].last}
                self._driver.nack(seek_epoch, part, of_part, delay_ms, go_on)

        go_on()
        return future

    def redeliver(self) -> asyncio.Future[None]:
        """Deliver everything again that was taken and not acknowledged, at once; each message counts one delivery.

        Exclusive and failover: in order. What has arrived here meanwhile comes behind it, and counts none.
        """
        nacked = self.nack(self._driver.held, delay_ms=0)
        if self._settings.is_ordered and not nacked.done():
            self._restarting = True
            nacked.add_done_callback(self._restart)
        return nacked

    def _restart(self, nacked: "asyncio.Future[None]") -> None:
        """The counts are durable."""
        self._restarting = False
        if self.failure is not None:
            return
        if not nacked.cancelled() and nacked.exception() is None:
            if self._runs:
                self._not_shown()
            self._driver.restart()
        self._arrived.set()  # what came meanwhile

    # --- the subscription ---------------------------------------------------------------------------------------------

    async def seek(self, start: ConsumerStart, *, timeout: float | None = None) -> SeekEpoch:
        """Begin the subscription again at another place, for all its consumers. Returns its new epoch when that is
        durable and everything that was taken before is void here; `sought` is called, too.

        A place before the first message that is kept means that one. timeout: seconds; None: no limit. Raises
        DeadlineExceeded if the outcome is unknown, and the error that ended the consumer.
        """
        try:
            async with asyncio.timeout(timeout):
                self._check_open()
                index = await self._begins_at(start, create=False)
                self._check_open()
                self._acks.send_before()
                seek_epoch = await self._driver.seek(index)
                # Nothing of an older epoch is handed out behind this call.
                while self._driver.seek_epoch < seek_epoch:
                    self._check_open()
                    await self._change()
                return seek_epoch
        except TimeoutError as error:
            message = f"no answer to the seek of {self.subscription} within {timeout} s; its outcome is unknown"
            raise DeadlineExceeded(message) from error

    @property
    def active(self) -> bool:
        """Exclusive and failover: whether this is the active consumer. Others: whether it is open.
        It stays active while it comes back after a lost connection, until another consumer is."""
        attachment = self._driver.core.attachment
        if not self._settings.is_ordered or attachment is None:
            return attachment is not None and self.failure is None
        return attachment.generation > 0 and self.failure is None

    @property
    def seek_epoch(self) -> SeekEpoch:
        """The present one, which `ack` wants."""
        return self._driver.seek_epoch

    @property
    def created(self) -> bool:
        """Whether the subscription was created for this consumer. False if that is unknown."""
        return self._driver.core.created

    async def is_paused(self) -> bool:
        """Whether new messages of the subscription are withheld because of its state of acknowledgements (PIP-299). It
        costs a request.

        Raises Conflict while the topic has no owner, SubscriptionNotFound, DeadlineExceeded, and the error that ended
        the consumer."""
        self._check_open()
        return await self._calls.paused()

    async def unsubscribe(self) -> None:
        """Delete the subscription, if this is its only consumer; then the consumer is closed.

        Raises Conflict when others are connected: nothing has changed. Otherwise the consumer is closed, also when an
        error is raised: Conflict when another consumer has come in this moment, or the error of the call.
        """
        self._check_open()
        others = await self._calls.consumers() - {self.name}
        if others:
            message = f"subscription {self.subscription} of {self.topic} has other consumers: {len(others)}"
            raise Conflict(f"{message}. Close them first")
        await self.close()
        await self._calls.delete()

    # --- life ---------------------------------------------------------------------------------------------------------

    def client_lives(self) -> None:
        """The answer to `wanted`: the client is there, and keeps the subscription."""
        self._driver.is_wanted = False
        self._driver.client_lives()

    @property
    def failure(self) -> OncelogError | None:
        """The error that ended the consumer, ConsumerClosed if by `close`; None while it is open."""
        return self._network.inherited or self._driver.core.error

    async def close(self, *, client_lost: bool = False) -> None:
        """End the consumer, and give back what it holds, at once. Acknowledgements that were not answered may be
        done or not; their futures get ConsumerClosed.

        client_lost: the client is gone without a word. Then the oldest message that it holds counts one delivery, as
        one that may have ended it. Returns when the owner has answered, after a second at most. May be called twice.
        """
        if self._network.inherited is not None:
            return
        self._network.check_loop()
        if self.failure is None:
            self._acks.send_before()
            self._driver.give_back(counts=client_lost)
        await parted([self._driver])


class _Known(NamedTuple):
    """What the callbacks have said."""

    active: bool
    seek_epoch: SeekEpoch
