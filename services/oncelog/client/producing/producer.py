"""The asyncio producer: messages in, results out; of a topic with all its partitions."""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import replace
from types import TracebackType
from typing import Self, TypeVar, overload

from oncelog.client.network.lookup import PartitionCounts, partitions_in
from oncelog.client.network.network import Network
from oncelog.client.network.partition_watch import PartitionWatch, for_each_partition
from oncelog.client.network.session_driver import parted
from oncelog.client.producing.message_arguments import Key, check_lengths, plain_bytes, plain_key
from oncelog.client.producing.pending_results import without_errors
from oncelog.client.producing.send_buffer import Properties, SendCallback, check_callback
from oncelog.client.producing.sender import ProducerOptions, Sender
from oncelog.client.values.results import BatchResult, RoutedBatchResult, SendResult
from oncelog.core import errors
from oncelog.core.errors import OncelogError
from oncelog.core.formats.batch import Buffer
from oncelog.core.formats.entry import SequenceMode
from oncelog.core.ids import TopicId
from oncelog.core.names import TopicName
from oncelog.core.sdk.producer.routing import Routing
from oncelog.core.sdk.producer.sequence_ids import check_sequence_ids
from oncelog.runtime.forks import when_forked

ItemT = TypeVar("ItemT")


class AsyncProducer:
    """Publishes messages to one topic. Made by `AsyncClient.create_producer`; not for use from several threads.

    Messages are stored in the order in which they were given; results may arrive in any order. Either all messages
    have a sequence_id of the application's own, or none has: then ids are assigned (mixing them raises
    SequenceIdRequired).

    The SDK retries retriable failures by itself, without limit or until send_timeout. After send_timeout the send fails
    with DeadlineExceeded: the message may be stored, now or later. An error that ends the producer, such as
    ProducerFenced or ProducerExpired, fails all pending messages and all later calls; `failure` has it.

    Of a partitioned topic, each partition is a log with its own deduplication, under the same producer name. Messages
    of one partition are stored in the order in which they were given. An error that ends the producer of one partition
    ends it for all.

    Attributes:
        topic: the full name of the topic, tenant/namespace/name.
    """

    def __init__(self, topic: TopicName, options: ProducerOptions, network: Network) -> None:
        self.topic = str(topic)
        self._topic = topic
        self._options = options
        self._network = network
        #: of the topic, or of each of its partitions
        self._parts = [Sender(topic, options, network)]
        #: of a topic without partitions
        self._only: Sender | None = self._parts[0]
        self._routing = Routing(1, 1)
        self._watch: PartitionWatch | None = None
        #: bound once, because it is called for every message
        self._new_future: Callable[[], asyncio.Future[SendResult]] = asyncio.get_running_loop().create_future
        when_forked(self)

    def forked(self) -> None:
        """In a forked child: every call finds `failure`, at no cost for the calls of the parent."""
        self._only = None

    def __repr__(self) -> str:
        ended = "" if self.failure is None else f", failure={type(self.failure).__name__}"
        ids = f"last_sequence_ids={self.last_sequence_ids}"
        return f"AsyncProducer({self.topic!r}, producer_name={self.producer_name!r}, {ids}{ended})"

    @property
    def producer_name(self) -> str:
        """The producer's name, given by the application or assigned."""
        return self._parts[0].core.opening.name or "" if self._parts else ""

    @property
    def last_sequence_id(self) -> int:
        """The highest sequence id known to be stored; -1 when there is none.

        Raises InvalidArgument for a partitioned topic: going on behind the highest id of all partitions would lose what
        others lack.
        """
        if self._only is None:
            message = f"{self.topic} has {len(self._parts)} partitions: use resume_sequence_id, or last_sequence_ids"
            raise errors.InvalidArgument(message, field="last_sequence_id")
        return self._only.core.numbers.stored

    @property
    def message_bytes_max(self) -> int:
        """Bytes of the largest value that the topic takes."""
        return min(part.core.message_bytes_max for part in self._parts)

    @property
    def last_sequence_ids(self) -> tuple[int, ...]:
        """The same for each partition, in their order; one number for a topic without partitions."""
        return tuple(part.core.numbers.stored for part in self._parts)

    @property
    def resume_sequence_id(self) -> int:
        """Every message with a sequence id up to this one is known to be stored, if the application gave its ids in
        ascending order: go on, after a restart, with the message behind it. -1: begin with the first one.

        It is the lowest of `last_sequence_ids`, of the partitions that take messages with own sequence ids. What other
        partitions have behind it is recognized as a duplicate.
        """
        return min(self.last_sequence_ids[: self._routing.numbered])

    @property
    def repeats_ahead(self) -> int:
        """How many of the next automatic sequence ids are stored already, as far as is known: messages that get them
        are taken as repetitions, and not stored, while deduplication is enabled.

        Above 0 only if the producer was opened behind what is stored, with a saved lease or `initial_sequence_id`; this
        is logged as a warning then.
        """
        return sum(part.core.numbers.repeats_ahead for part in self._parts)

    @property
    def pending_bytes(self) -> int:
        """Bytes of the messages that were given and are not answered yet."""
        return sum(part.pending_bytes for part in self._parts)

    @property
    def deduplication(self) -> bool:
        """Whether deduplication is enabled for the topic, as the topic owner last reported.

        While it is disabled, messages that are sent again are stored again; a warning is logged once. Fencing of older
        instances works all the same.
        """
        return all(part.core.deduplication for part in self._parts)

    @property
    def unverified_count(self) -> int:
        """How many messages were unverified so far, as a result or as UnverifiedSequence; see SendResult.verified."""
        return sum(part.driver.results.unverified_count for part in self._parts)

    @property
    def last_error(self) -> OncelogError | None:
        """The retriable error that keeps the producer from publishing now, such as NotEnoughStorageNodes; None: no
        error does. Of several partitions, the first one's."""
        return next((part.core.trouble for part in self._parts if part.core.trouble is not None), None)

    @property
    def failure(self) -> OncelogError | None:
        """The error that ended this producer; None while it can send."""
        if self._network.inherited is not None:
            return self._network.inherited
        return next((part.core.error for part in self._parts if part.core.error is not None), None)

    # --- sending ------------------------------------------------------------------------------------------------------

    async def send(
        self,
        value: Buffer,
        *,
        sequence_id: int | None = None,
        key: Key | None = None,
        event_time_ms: int | None = None,
        properties: Properties | None = None,
    ) -> SendResult:
        """Publish one message and wait until it is stored.

        Waits for room first when pending_bytes_max is reached. Cancelling the call does not recall the message: it may
        be stored.

        Args:
            value: bytes, bytearray or memoryview; copied unless it is bytes.
            sequence_id: 0 to 2**63 - 1; None assigns one.
            key: bytes or text (stored as UTF-8).
            event_time_ms: milliseconds since 1970 UTC, in the years 1 to 9999.
            properties: text to text.

        Raises:
            InvalidArgument: an argument has a wrong type or value; `field` names it.
            MessageTooLarge: the value exceeds the topic owner's limit.
            InvalidSequenceId: the sequence id is out of range.
            SequenceIdRequired: explicit and automatic sequence ids are mixed.
            SequenceGap: a contiguous producer left out an id.
            StaleSequence: the id is below the highest stored id and was never stored. Concerns this message only.
            UnverifiedSequence: the id is older than all that the log remembers of the producer, and on_unverified is
                "raise". Whether the message was ever stored is unknown. Concerns this message only.
            ContentDiffers: another message is stored under this sequence id, and on_content_differs is "raise".
                Concerns this message only.
            DeadlineExceeded: send_timeout passed without an answer.
            Any error that ended the producer, such as ProducerFenced.

        The error's `stored` is False when this send stored nothing and never will, and None when that is unknown.
        """
        part = self._only or self._part_of(sequence_id, key)
        if type(value) is not bytes:
            value = plain_bytes(value, field="value")
        future = self._new_future()
        if part.lock.taken or not part.begin(value, future, sequence_id, key, event_time_ms, properties):
            self._network.check_loop()
            async with part.lock:
                await part.room(len(value))
                part.begin(value, future, sequence_id, key, event_time_ms, properties)
        return await future

    @overload
    def send_nowait(
        self,
        value: Buffer,
        *,
        on_result: None = None,
        sequence_id: int | None = None,
        key: Key | None = None,
        event_time_ms: int | None = None,
        properties: Properties | None = None,
    ) -> "asyncio.Future[SendResult]": ...
    @overload
    def send_nowait(
        self,
        value: Buffer,
        *,
        on_result: SendCallback,
        sequence_id: int | None = None,
        key: Key | None = None,
        event_time_ms: int | None = None,
        properties: Properties | None = None,
    ) -> None: ...
    def send_nowait(
        self,
        value: Buffer,
        *,
        on_result: SendCallback | None = None,
        sequence_id: int | None = None,
        key: Key | None = None,
        event_time_ms: int | None = None,
        properties: Properties | None = None,
    ) -> "asyncio.Future[SendResult] | None":
        """Publish one message without waiting. The future gets what `send` would return or raise.

        on_result: instead of the future, a function that is called once, on the event loop: on_result(result, None), or
        on_result(None, error). It costs half of a future with a callback. What it raises goes to the event loop's
        exception handler. Then None is returned.

        Raises TooManyRequests at once when pending_bytes_max is reached or other calls wait for room, and raises at
        once what `send` raises for wrong arguments. Then on_result is not called.
        """
        part = self._only or self._part_of(sequence_id, key)
        if type(value) is not bytes:
            value = plain_bytes(value, field="value")
        if on_result is None:
            future = self._new_future()
            if part.lock.taken or not part.begin(value, future, sequence_id, key, event_time_ms, properties):
                raise part.no_room()
            return future
        check_callback(on_result)
        if part.lock.taken or not part.begin(value, on_result, sequence_id, key, event_time_ms, properties):
            raise part.no_room()
        return None

    def _part_of(self, sequence_id: int | None, key: Key | None) -> Sender:
        self._check_open()
        number = self._routing.fixed(sequence_id, plain_key(key))
        return self._parts[self._routing.turn() if number is None else number]

    def _check_open(self) -> None:
        failure = self.failure
        if failure is not None:
            raise failure.of_send(stored=False)

    async def send_many(
        self,
        values: Sequence[Buffer],
        *,
        sequence_ids: Sequence[int] | None = None,
        keys: Sequence[Key | None] | None = None,
        event_times_ms: Sequence[int | None] | None = None,
        properties: Sequence[Properties | None] | None = None,
    ) -> BatchResult:
        """Publish a list of messages and wait until all are stored. This is the fastest way to publish.

        Args:
            values: one value for each message.
            sequence_ids: ascending; one for each value. None assigns them.
            keys, event_times_ms, properties: one item, or None, for each value. See `send`; but event_times_ms takes
                any integer of 64 bits, because a list may be a copy of stored messages.

        Raises what `send` raises, after all sent messages are answered. The error's `result` is a BatchResult with the
        result of each message, because other messages of the list may be stored; the error's `stored` is False when no
        message is. A stale message does not stop the messages after it. With explicit sequence ids it is safe to send
        the same list again.
        """
        columns = (keys, event_times_ms, properties)
        if self._only is not None:
            return await self._only.send_list(values, sequence_ids, columns)
        self._check_open()
        check_lengths(values, sequence_ids, *columns)
        ids = None if sequence_ids is None else check_sequence_ids(sequence_ids)
        if ids is None and keys is None:
            return await self._parts[self._routing.turn()].send_list(values, None, columns)
        places, lists = self._routing.split(len(values), ids, None if keys is None else [*map(plain_key, keys)])
        if len(lists) <= 1:
            number = next(iter(lists), 0)
            return await self._parts[number].send_list(values, ids, columns)
        sends = [
            self._parts[number].send_list(
                [values[i] for i in indexes],
                _of(ids, indexes),
                (_of(keys, indexes), _of(event_times_ms, indexes), _of(properties, indexes)),
            )
            for number, indexes in lists.items()
        ]
        parts: dict[int, BatchResult] = {}
        for number, answer in zip(lists, await asyncio.gather(*sends, return_exceptions=True), strict=True):
            if not isinstance(answer, BaseException):
                parts[number] = answer
            elif isinstance(answer, OncelogError) and answer.result is not None:
                parts[number] = answer.result
            else:
                raise answer
        return without_errors(RoutedBatchResult(places, parts))

    async def flush(self) -> None:
        """Return when all messages given before are answered.

        Raises the error that ended the producer, if one did. Errors of single messages are in their own futures.
        """
        self._network.check_loop()
        await self.all_answered()
        if self.failure is not None and not isinstance(self.failure, errors.ProducerClosed):
            raise self.failure

    async def all_answered(self) -> None:
        """Return when all messages given before are answered, also those that wait for room. Raises no error."""
        if self._only is not None:
            await self._only.all_answered()
        else:
            await asyncio.gather(*(part.all_answered() for part in self._parts))

    # --- life ---------------------------------------------------------------------------------------------------------

    async def open(self, timeout_ms: int | None, *, one_log: bool) -> None:
        """Get the first session, or those of all partitions. one_log: refuse a partitioned topic with InvalidArgument.

        Raises the reason why there is none; DeadlineExceeded with the last retriable one.
        """
        try:
            await self._parts[0].open(timeout_ms)
        except errors.InvalidArgument as error:
            # The answer to the usual look-up: a topic without partitions costs no other one.
            if one_log or not partitions_in(error):
                raise
            self._check_options()
            ended = self._parts
            try:
                await self._open_partitions(timeout_ms)
            except BaseException:
                self._parts = self._parts or ended
                await self.close(flush=False)
                raise

    def _check_options(self) -> None:
        """Raises InvalidArgument for options that only a single log can obey."""
        settings, instead = (
            self._options.settings,
            f"{self.topic} is partitioned: use a partition, {self.topic}-partition-N",
        )
        if settings.mode is SequenceMode.CONTIGUOUS:
            message = f"sequence_mode 'contiguous' counts in one log, and {instead}"
            raise errors.InvalidArgument(message, field="sequence_mode")
        if settings.initial_sequence_id is not None:
            message = f"initial_sequence_id belongs to one log, and {instead}"
            raise errors.InvalidArgument(message, field="initial_sequence_id")

    async def _open_partitions(self, timeout_ms: int | None) -> None:
        """Open all partitions, the first one first: of two instances, the one that gets it gets the others."""
        self._only, self._parts = None, []
        watch = self._watch = PartitionWatch(self._topic, self._network, self._follow)
        counts = await watch.begin(timeout_ms)
        share = max(self._options.batch_bytes_max, self._options.pending_bytes_max // counts.now)
        settings = replace(self._options.settings, growths=len(counts.former))
        self._options = replace(self._options, settings=settings, pending_bytes_max=share)
        self._parts = [first := self._new_part(0)]
        await first.open(timeout_ms)
        growths = first.core.opening.growths
        if counts.after(growths) is None:  # it has grown since the look-up
            counts = await watch.begin(timeout_ms)
        self._options = replace(self._options, settings=replace(settings, name=self.producer_name))
        self._parts += [self._new_part(number) for number in range(1, counts.now)]
        self._routing = Routing(counts.now, counts.after(growths) or counts.now)
        await for_each_partition(lambda part: part.open(timeout_ms), self._parts[1:])
        watch.start(counts)

    def _new_part(self, number: int) -> Sender:
        return Sender(replace(self._topic, partition=number), self._options, self._network)

    async def _follow(self, counts: PartitionCounts) -> None:
        """Use the partitions that the topic has got, for messages without a sequence id."""
        parts = [self._new_part(number) for number in range(len(self._parts), counts.now)]
        try:
            await for_each_partition(lambda part: part.open(None), parts)
        except BaseException:
            for part in parts:
                part.close(errors.ProducerClosed("the producer was closed"))
            raise
        self._parts += parts
        self._routing.partitions = len(self._parts)

    async def close(self, *, flush: bool = True) -> None:
        """End the producer. Waits for the messages given before unless `flush` is False. Raises no error of theirs.

        Without flush=False the producer is not open at the topic owner any more when this returns, unless the owner
        does not answer within a second.

        In a forked child it does nothing: the producer belongs to the parent.
        """
        if self._network.inherited is not None:
            return
        self._network.check_loop()
        if self._watch is not None:
            self._watch.end()
        if flush:
            await self.all_answered()
        for part in self._parts:
            part.close(errors.ProducerClosed("the producer was closed"))
        if flush:
            await parted(part.driver for part in self._parts)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Close the producer; wait for pending messages unless the block was left by an exception."""
        await self.close(flush=kind is None)


def _of(column: Sequence[ItemT] | None, indexes: list[int]) -> list[ItemT] | None:
    return None if column is None else [column[index] for index in indexes]


def topic_id_of(producer: AsyncProducer) -> TopicId:
    """For Oncelog's own modules: the id of the topic or partition in which the producer is open."""
    return producer._parts[0].driver.topic_partition.topic_id  # noqa: SLF001


def sender_of(producer: AsyncProducer) -> Sender:
    """Of a topic without partitions, or one partition; for Oncelog's own modules that pack batches themselves."""
    (part,) = producer._parts  # noqa: SLF001
    return part
