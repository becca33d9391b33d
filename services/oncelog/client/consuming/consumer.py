"""The asyncio consumer: one subscription of a topic, with all its partitions."""

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterable
from dataclasses import replace
from functools import partial
from types import TracebackType
from typing import Self

from oncelog.client.consuming.acknowledging import AckFuture, joined
from oncelog.client.consuming.consumed_messages import ConsumedMessages
from oncelog.client.consuming.consumer_driver import ConsumerDriver
from oncelog.client.consuming.handler_run import RunsHandlers
from oncelog.client.consuming.open_calls import OpenCalls
from oncelog.client.consuming.received import (
    Received,
    delivery_counts,
    grouped,
    last_places,
    several,
    source_of,
)
from oncelog.client.network.lookup import PartitionCounts
from oncelog.client.network.network import Network
from oncelog.client.network.partition_watch import PartitionWatch
from oncelog.client.network.session_driver import parted
from oncelog.client.network.start_position import Place, check_of_all_partitions, check_place, find_index
from oncelog.client.values.arguments import check_seconds, integer, milliseconds
from oncelog.client.values.consumer_batch import ConsumerBatch
from oncelog.client.values.corruption import OnCorrupt, SkippedEntries
from oncelog.client.values.encrypted import OnEncrypted
from oncelog.client.values.messages import Message, MessageBatch
from oncelog.client.values.process import used_after_fork
from oncelog.client.values.results import AckResult
from oncelog.core.errors import ConsumerClosed, DeadlineExceeded, InvalidArgument, OncelogError
from oncelog.core.formats.message_id import NO_PARTITION, Index
from oncelog.core.names import TopicName
from oncelog.core.sdk.consumer.events import ConsumerSettings, SkipUnreadable
from oncelog.core.sdk.owner_attempts import CloseWanted, OpenWanted
from oncelog.core.sdk.partition_results import error_of_partitions
from oncelog.runtime.forks import when_forked

MESSAGES_MAX = 1_000_000
DELAY_S_MAX = 365 * 86_400  # a negative acknowledgement may delay its message by up to a year


class AsyncConsumer(RunsHandlers):
    """One consumer of a subscription. Made by `AsyncClient.subscribe`; for several tasks, not for several threads.

        async for message in consumer:
            ...
            await consumer.ack(message)

    A message is delivered until it is acknowledged, so it may be delivered more than once. The consumer survives a
    change of the topic owner, and keeps what it has received.

    Attributes:
        topic: the full name of the topic, tenant/namespace/name.
        subscription, consumer_name: the names.
        failure: the error that ended the consumer, or ConsumerClosed; None while it is open.
    """

    def __init__(
        self,
        topic: TopicName,
        settings: ConsumerSettings,
        network: Network,
        *,
        timeout_ms: int | None,
        on_corrupt: OnCorrupt = OnCorrupt.RAISE,
        on_encrypted: OnEncrypted = OnEncrypted.RAISE,
        holds: Callable[[int], None] | None = None,
    ) -> None:
        """holds: called with how many bytes of messages more (or less) wait here; it must not call this consumer."""
        self.topic = str(topic)
        self.subscription, self.consumer_name = settings.subscription, settings.consumer_name
        self.failure: OncelogError | None = None
        self._topic, self._settings = topic, settings
        self._watch: PartitionWatch | None = None
        self._network, self._timeout_ms = network, timeout_ms
        self._on_corrupt, self._on_encrypted, self._holds = on_corrupt, on_encrypted, holds
        #: {partition, -1 for a topic without partitions: its messages}
        self._partitions: dict[int, ConsumedMessages] = {}
        self._calls = OpenCalls(self._partitions, f"{topic}, subscription {settings.subscription}", timeout_ms)
        #: the partitions that have messages, in turn
        self._ready: deque[ConsumedMessages] = deque()
        #: set when messages have arrived, and when the consumer has failed
        self._arrived = asyncio.Event()
        #: set at each other change
        self._changed = asyncio.Event()
        when_forked(self)

    def forked(self) -> None:
        """In a forked child: the messages that are here belong to the parent."""
        self.failure = used_after_fork()
        self._ready.clear()

    def __repr__(self) -> str:
        ended = "" if self.failure is None else f", failure={type(self.failure).__name__}"
        names = f"subscription={self.subscription!r}, consumer_name={self.consumer_name!r}"
        return f"{type(self).__name__}({self.topic!r}, {names}{ended})"

    # --- attaching ----------------------------------------------------------------------------------------------------

    async def open(self, topics: list[tuple[TopicName, int]]) -> None:
        """Attach to each topic or partition; with its first index, for a subscription that is to be created."""
        for topic, first_index in topics:
            self._add(topic, replace(self._of_one(len(topics)), first_index=first_index))
        is_open = False
        try:
            async with asyncio.timeout(None if self._timeout_ms is None else self._timeout_ms / 1000):
                # One partition first: of two exclusive consumers, the one that gets it gets all of them.
                drivers = self._drivers
                for group in (drivers[:1], drivers[1:]):
                    for driver in group:
                        driver.feed(OpenWanted())
                    await self._until_attached(group)
            is_open = True
        except TimeoutError as error:
            trouble = self._trouble or error
            raise DeadlineExceeded(
                f"could not subscribe {self.subscription} to {self.topic} within {self._timeout_ms} ms: {trouble}"
            ) from trouble
        finally:
            if not is_open:
                await self._end(ConsumerClosed("the consumer was never attached"))
        if self._topic.partition is None and topics[0][0].partition is not None:
            self._watch = PartitionWatch(self._topic, self._network, self._follow)
            self._watch.start(PartitionCounts(len(topics)))

    async def _follow(self, counts: PartitionCounts) -> None:
        """Consume the partitions that the topic has got, from their first message."""
        known = len(self._partitions)
        for number in range(known, counts.now):
            self._add(replace(self._topic, partition=number), replace(self._of_one(counts.now), first_index=0))
        drivers = self._drivers[known:]
        for driver in drivers:
            driver.feed(OpenWanted())
        await self._until_attached(drivers)

    def _of_one(self, count: int) -> ConsumerSettings:
        """The settings of each of so many partitions."""
        of_all = self._settings
        received = None if of_all.receive_bytes is None else max(1, of_all.receive_bytes // count)
        return replace(of_all, receive_window=max(1, of_all.receive_window // count), receive_bytes=received)

    def _add(self, topic: TopicName, settings: ConsumerSettings) -> None:
        partition = NO_PARTITION if topic.partition is None else topic.partition
        driver = ConsumerDriver(
            replace(settings, skips_unreadable=self._on_corrupt is OnCorrupt.SKIP), topic, self._network,
            arrived=partial(self._has_messages, partition),
            changed=partial(self._has_changed, partition),
            unreadable=partial(self._skip, partition), holds=self._holds,
        )  # fmt: skip
        self._partitions[partition] = ConsumedMessages(driver, self._on_corrupt, self._on_encrypted)

    async def _until_attached(self, drivers: list[ConsumerDriver]) -> None:
        while not all(driver.core.is_bound for driver in drivers):
            await self._change()
            self._check_open()

    @property
    def _drivers(self) -> list[ConsumerDriver]:
        return [runs.driver for runs in self._partitions.values()]

    def _has_messages(self, partition: int) -> None:
        runs = self._partitions[partition]
        if runs not in self._ready:
            self._ready.append(runs)
        self._arrived.set()
        self._changed.set()

    def _has_changed(self, partition: int) -> None:
        self._changed.set()
        error = self._partitions[partition].driver.core.error
        if self.failure is None and error is not None:
            self._fail(error)

    def _skip(self, partition: int, skip: SkipUnreadable) -> None:
        self._partitions[partition].skip_unreadable(skip)

    def _fail(self, error: OncelogError) -> None:
        """End the consumer: a subscription that is gone for one partition is of no use for the others."""
        self.failure = self.failure or error
        if self._watch is not None:
            self._watch.end()
        self._ready.clear()
        self._arrived.set()
        self._changed.set()
        for driver in self._drivers:
            if driver.core.error is None:
                driver.feed(CloseWanted())

    def _check_open(self) -> None:
        self._network.check_loop()
        if self.failure is not None:
            raise self.failure.with_traceback(None)  # else each call would add to it

    async def _change(self) -> None:
        self._changed.clear()
        await self._changed.wait()

    # --- receiving ----------------------------------------------------------------------------------------------------

    async def receive(self, *, timeout: float | None = None) -> Message:
        """Return the next message; wait until there is one.

        timeout: seconds until DeadlineExceeded; None: no limit. Raises ConsumerClosed, the error that ended the
        consumer, and CorruptEntry for an entry that cannot be decoded: call again to go on behind it.
        """
        check_seconds("timeout", timeout, zero_allowed=True)
        batches = self._take(1)
        if not batches:
            try:
                async with asyncio.timeout(timeout):
                    while not batches:
                        await self._arrival()
                        batches = self._take(1)
            except TimeoutError as error:
                trouble = self._trouble
                new = "; this consumer created the subscription: check its name, and `start`" if self.created else ""
                why = new if trouble is None else f": {trouble}"
                raise DeadlineExceeded(
                    f"no message for {self.subscription} on {self.topic} arrived within {timeout} s{why}"
                ) from (trouble or error)
        return Message(batches[0], 0)

    async def receive_batch(self, max_messages: int = 1_000, *, max_wait: float | None = None) -> ConsumerBatch:
        """Return up to max_messages messages. The fastest way.

        max_wait: None: wait for a first message, and return it with all that are here. A number of seconds: wait until
        max_messages, half of receive_window or 16 MiB are here, at most so long; the batch may be empty. Raises as
        `receive`.
        """
        count_max = integer("max_messages", max_messages, 1, MESSAGES_MAX)
        check_seconds("max_wait", max_wait, zero_allowed=True)
        if max_wait is None:
            while not (batches := self._take(count_max)):
                await self._arrival()
            return ConsumerBatch(batches)
        try:
            async with asyncio.timeout(max_wait):
                while not self._has(count_max):
                    await self._change()
        except TimeoutError:
            pass
        return ConsumerBatch(self._take(count_max))

    def _has(self, count: int) -> bool:
        """Whether so many messages are here, or a partition sends no more until some of its messages are taken."""
        self._check_open()
        drivers = self._drivers
        return sum(driver.waiting for driver in drivers) >= count or any(driver.is_full for driver in drivers)

    def _take(self, count_max: int) -> list[MessageBatch]:
        """What is here, of each partition in turn."""
        self._check_open()
        batches: list[MessageBatch] = []
        while self._ready and count_max > 0:
            runs = self._ready[0]
            try:
                taken = runs.take(count_max)
            except OncelogError:
                if batches:
                    break  # raised by the next call
                raise
            count = sum(batch.count for batch in taken)
            if count < count_max and not runs.has_rest:
                self._ready.popleft()  # `_has_messages` is called when there are more
            elif len(self._ready) > 1:
                self._ready.rotate(-1)
            batches += taken
            count_max -= count
            if runs.has_rest:
                break
        return batches

    async def _arrival(self) -> None:
        if not self._ready:
            self._arrived.clear()
            self._check_open()
            await self._arrived.wait()

    @property
    def _trouble(self) -> OncelogError | None:
        """The latest reason why a partition is not consumed."""
        return next((driver.core.trouble for driver in self._drivers if driver.core.trouble is not None), None)

    @property
    def skipped(self) -> SkippedEntries:
        """Entries that could not be read and were acknowledged (on_corrupt="skip"): the number, and the newest."""
        partitions = self._partitions.values()
        newest = tuple(skipped for runs in partitions for skipped in runs.skipped)
        return SkippedEntries(sum(runs.skipped_total for runs in partitions), newest)

    # --- acknowledging ------------------------------------------------------------------------------------------------

    async def ack(self, messages: Received | Iterable[Received]) -> AckResult:
        """Acknowledge messages. Returns when that is durable: they are never delivered again to this subscription,
        unless it is sought. See AckResult for the exception.

        messages: a Message, a batch, the MessageId of a received message, or a list of these.
        Raises StaleSeekEpoch when the subscription was sought since, InvalidArgument for a message of another consumer,
        SubscriptionGone, or the error that ended the consumer. When messages of several partitions are given and some
        fail, the error says on how many partitions it was done.
        """
        return await self.ack_nowait(messages)

    def ack_nowait(self, messages: Received | Iterable[Received]) -> AckFuture:
        """Start an `ack` and return a future of its result. `flush` and closing the consumer wait for it. The error of
        a future that is not awaited is dropped: then the messages are delivered again."""
        self._check_open()
        if isinstance(messages, Message):
            delivery = messages.delivery
            return source_of(self._partitions, delivery.source).acks.add_one(delivery.seek_epoch, messages.index)
        groups = grouped(self._partitions, messages)
        return joined([(runs.driver.topic, runs.acks.add(epoch, indexes)) for (runs, epoch), indexes in groups.items()])

    async def ack_cumulative(self, message: Received) -> AckResult:
        """Acknowledge this message and all before it, of its partition. Only exclusive and failover; of a batch, for
        each partition the last message counts.

        It ends before a message that this consumer has negatively acknowledged, until it is received again, or has
        become a dead letter and is stored: then `complete` of the result is False. Raises InvalidArgument for a shared
        subscription, ConsumerFenced when another consumer has become active, and otherwise as `ack`.
        """
        self._check_open()
        futures: list[tuple[TopicName, AckFuture]] = []
        for runs, place in last_places(self._partitions, message):
            future = runs.acks.add_below(place.seek_epoch, place.generation, place.index + 1)
            futures.append((runs.driver.topic, future))
        return await joined(futures)

    async def nack(self, messages: Received | Iterable[Received], *, delay: float | None = None) -> None:
        """Have messages delivered again, to any consumer of the subscription. Returns when the topic owner has stored
        that; the delay survives a change of the owner. A message that was delivered again since it was received is
        left as it is: only the delivery that the application gives is meant.

        delay: seconds, 0 to a year; None: the topic owner chooses, longer with each delivery. Raises as `ack`. More
        than 10,000 messages of a partition take several requests: after an error the later ones were not sent.
        """
        delay_ms = None if delay is None else milliseconds("delay", delay, DELAY_S_MAX, zero_allowed=True)
        self._check_open()
        given = tuple(several(messages))
        groups, counts = grouped(self._partitions, given), delivery_counts(self._partitions, given)
        await self._calls.nack(groups, counts, delay_ms)

    # --- the subscription ---------------------------------------------------------------------------------------------

    async def seek(self, start: Place, *, inclusive: bool = False, redo: bool = False) -> None:
        """Begin the subscription again at another place, for all its consumers. Returns when that is durable.

        start, inclusive: as in `subscribe`. What was acknowledged behind that place is delivered again, and what was
        not acknowledged before it is not. Messages received before the seek cannot be acknowledged any more:
        StaleSeekEpoch.

        redo: where the messages take effect in a store (`oncelog.process`), let them take effect again from there on.
        Without it the store filters what it has already.

        Raises InvalidArgument for a place of another topic or out of range; DeadlineExceeded if the outcome is
        unknown. Of several partitions some may fail: the error says on how many the seek was done; seek again.
        """
        check_place(start, inclusive)
        self._check_open()
        if len(self._partitions) > 1:
            check_of_all_partitions(start, self.topic, len(self._partitions))
        results: dict[TopicName, OncelogError | None] = {}

        async def of_partition(runs: ConsumedMessages) -> None:
            topic = runs.driver.topic
            try:
                await self._seek(runs, start, inclusive=inclusive, redo=redo)
                results[topic] = None
            except OncelogError as error:
                results[topic] = error

        late: DeadlineExceeded | None = None
        try:
            async with asyncio.timeout(None if self._timeout_ms is None else self._timeout_ms / 1000):
                if self._watch is not None:
                    await self._watch.check(None)
                await asyncio.gather(*(of_partition(runs) for runs in self._partitions.values()))
        except TimeoutError as error:
            late = DeadlineExceeded(
                f"no answer to the seek of {self.subscription} within {self._timeout_ms} ms; its outcome is unknown"
            )
            late.__cause__ = error
        outcomes = {driver.topic: results.get(driver.topic, late) for driver in self._drivers}
        failed = {topic: error for topic, error in outcomes.items() if error is not None}
        if failed:
            one = len(outcomes) == 1
            raise failed.popitem()[1] if one else error_of_partitions(failed, done=len(outcomes) - len(failed))

    async def _seek(self, runs: ConsumedMessages, start: Place, *, inclusive: bool, redo: bool) -> None:
        driver = runs.driver
        found = await find_index(
            self._network, driver.topic, start, inclusive=inclusive, timeout_ms=self._timeout_ms, create=False
        )
        self._check_open()
        if isinstance(start, Index) and not found.first_index <= start.number <= found.next_index:
            message = f"index {start.number} is outside of the topic's {found.first_index} to {found.next_index}"
            raise InvalidArgument(message, field="start", limit=found.next_index)
        runs.acks.send_before()
        seek_epoch = await driver.seek(found.begins_at, redo=redo)
        # Nothing of an older epoch is handed out behind this call.
        while driver.seek_epoch < seek_epoch:
            self._check_open()
            await self._change()

    @property
    def created(self) -> bool:
        """Whether the subscription was created for this consumer, in at least one partition. False if that is unknown:
        the answer was lost and the request repeated, or the topic owner is of an older version."""
        return any(driver.core.created for driver in self._drivers)

    @property
    def active(self) -> bool:
        """Whether messages are delivered to this consumer: of an exclusive or failover subscription, whether it is the
        active consumer of at least one partition. Always true for shared and key_shared while the consumer is open."""
        if self._settings.is_ordered:
            return any(self.generations.values())
        return self.failure is None

    @property
    def generations(self) -> dict[int, int]:
        """{partition, -1 for a topic without partitions: generation of this consumer's grant}. 0: another consumer is
        active there, or the type has no active one."""
        return {partition: runs.driver.generation for partition, runs in self._partitions.items()}

    # --- life ---------------------------------------------------------------------------------------------------------

    def __aiter__(self) -> AsyncIterator[Message]:
        return self

    async def __anext__(self) -> Message:
        """Waits for the next message; the iteration ends when the consumer is closed."""
        try:
            return await self.receive()
        except ConsumerClosed:
            raise StopAsyncIteration from None

    @property
    def unsettled(self) -> bool:
        """Whether acknowledgements were not answered yet."""
        return self.failure is None and self._calls.count > 0

    async def all_settled(self) -> None:
        """Return when every acknowledgement is answered, or the consumer has ended. Raises no error."""
        while self.unsettled:
            await self._calls.settled(reports=False)

    async def flush(self) -> None:
        """Return when the topic owner has answered everything that this consumer gave it before: acknowledgements,
        negative ones, and the reports of which messages were received. So its statistics show it, and another consumer
        finds it done. Acknowledgements are durable then; errors of single ones are in their own futures.

        Raises DeadlineExceeded if that takes longer than operation_timeout, ConsumerClosed, or the error that ended the
        consumer. It may be called inside of a handler of `run`, whose own message is not acknowledged yet. A change of
        the topic owner repeats what is unanswered.
        """
        self._check_open()
        late = await self._calls.within(self._calls.settled(reports=True))
        self._check_open()
        if late is not None:
            raise late

    async def close(self, *, flush: bool = True) -> None:
        """End the consumer. Its unacknowledged messages go to other consumers of the subscription, which has no trace
        of this one when the call returns, unless its owner does not answer within a second.

        With flush=True this first waits until all acknowledgements are answered, at most operation_timeout. If some are
        not answered by then, the consumer is closed all the same, and DeadlineExceeded is raised, which says how many.
        A call that waits for a message raises ConsumerClosed. May be called twice. In a forked child it does nothing.
        """
        if self._network.inherited is not None:
            return
        self._network.check_loop()
        late: DeadlineExceeded | None = None
        try:
            if flush:
                late = await self._calls.within(self.all_settled())
        finally:
            await self._end(ConsumerClosed("the consumer was closed"))
        if late is not None:
            raise late

    async def _end(self, error: OncelogError) -> None:
        """End the consumer, and tell the owners, so that its messages go to other consumers at once."""
        self._fail(error)
        await parted(self._drivers)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Close the consumer; wait for acknowledgements unless the block was left by an exception."""
        await self.close(flush=kind is None)
