"""The asyncio producer: messages in, results out."""

import asyncio
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Self

from oncelog.client.network.network import Network
from oncelog.client.producing.message_arguments import Key, check_lengths, checked_extras, pack_columns, plain_bytes
from oncelog.client.producing.pending_results import PendingList
from oncelog.client.producing.receivers import SendCallback, SendReceiver
from oncelog.client.producing.send_buffer import Properties
from oncelog.client.producing.sender import ProducerOptions, Sender
from oncelog.client.values.results import BatchResult, SendResult
from oncelog.core import errors
from oncelog.core.errors import OncelogError
from oncelog.core.formats.batch import Buffer
from oncelog.core.names import TopicName
from oncelog.core.sdk.owner_attempts import OpenWanted
from oncelog.core.sdk.producer.sequence_ids import check_sequence_id, check_sequence_ids, pack_sequence_ids

#: Bytes that `send_many` packs before it lets other tasks run.
_YIELD_BYTES = 1024 * 1024


class FairLock:
    """`async with lock:` admits its users one at a time, in the order in which they asked.

    asyncio.Lock wakes its waiters in order, but `locked()` is False between its release and the first step of the next
    waiter. A caller that checked `locked()` just then would overtake the waiters; `taken` counts them.
    """

    def __init__(self) -> None:
        self._lock = asyncio.Lock()
        self._count = 0

    @property
    def taken(self) -> bool:
        """Whether a user holds the lock or waits for it."""
        return self._count > 0

    async def __aenter__(self) -> None:
        self._count += 1
        try:
            await self._lock.acquire()
        except BaseException:
            self._count -= 1
            raise

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._lock.release()
        self._count -= 1


class AsyncProducer:
    """Publishes messages to one topic. Made by `AsyncClient.create_producer`; not for use from several threads.

    Messages are stored in the order in which they were given; results may arrive in any order. Either all messages
    have a sequence_id of the application's own, or none has: then ids are assigned (mixing them raises
    SequenceIdRequired).

    The SDK retries retriable failures by itself, without limit or until send_timeout. After send_timeout the send fails
    with DeadlineExceeded: the message may be stored, now or later. An error that ends the producer, such as
    ProducerFenced or ProducerExpired, fails all pending messages and all later calls; `failure` has it.

    Attributes:
        topic: the full name of the topic, tenant/namespace/name.
    """

    def __init__(self, topic: TopicName, options: ProducerOptions, network: Network) -> None:
        self.topic = str(topic)
        self._sender = Sender(topic, options, network)
        self._core = self._sender.driver.core
        self._lock = FairLock()
        #: bound once, because it is called for every message
        self._new_future: Callable[[], asyncio.Future[SendResult]] = asyncio.get_running_loop().create_future

    @property
    def producer_name(self) -> str:
        """The producer's name, given by the application or assigned."""
        return self._core.opening.name or ""

    @property
    def growths(self) -> int:
        """How often the topic had got more partitions when the producer name was first opened, for
        PartitionedProducer."""
        return self._core.opening.growths

    @property
    def last_sequence_id(self) -> int:
        """The highest sequence id known to be stored; -1 when there is none."""
        return self._core.numbers.stored

    @property
    def message_bytes_max(self) -> int:
        """Bytes of the largest value that the topic takes."""
        return self._core.message_bytes_max

    @property
    def last_sequence_ids(self) -> tuple[int, ...]:
        """The same for each partition, in their order; one number for a topic without partitions."""
        return (self.last_sequence_id,)

    @property
    def resume_sequence_id(self) -> int:
        """Every message with a sequence id up to this one is known to be stored, if the application gave its ids in
        ascending order: go on, after a restart, with the message behind it. -1: begin with the first one."""
        return self.last_sequence_id

    @property
    def pending_bytes(self) -> int:
        """Bytes of the messages that were given and are not answered yet."""
        return self._sender.pending_bytes

    @property
    def deduplication(self) -> bool:
        """Whether deduplication is enabled for the topic, as the topic owner last reported.

        While it is disabled, messages that are sent again are stored again; a warning is logged once. Fencing of older
        instances works all the same.
        """
        return self._core.deduplication

    @property
    def unverified_count(self) -> int:
        """How many messages were unverified so far, as a result or as UnverifiedSequence; see SendResult.verified."""
        return self._sender.driver.results.unverified_count

    @property
    def last_error(self) -> OncelogError | None:
        """The retriable error that keeps the producer from publishing now, such as NotEnoughStorageNodes; None: no
        error does."""
        return self._core.trouble

    @property
    def failure(self) -> OncelogError | None:
        """The error that ended this producer; None while it can send."""
        return self._core.error

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
            event_time_ms: milliseconds since 1970 UTC.
            properties: text to text.

        Raises:
            InvalidArgument: an argument has a wrong type or value; `field` names it.
            MessageTooLarge: the value exceeds the topic owner's limit.
            InvalidSequenceId: the sequence id is out of range.
            SequenceIdRequired: explicit and automatic sequence ids are mixed.
            SequenceGap: a contiguous producer left out an id.
            StaleSequence: the id is below the highest stored id and was never stored. Concerns this message only.
            UnverifiedSequence: with on_unverified="raise", the result would have verified=False.
            DeadlineExceeded: send_timeout passed without an answer.
            Any error that ended the producer, such as ProducerFenced.

        The error's `stored` is False when this send stored nothing and never will, and None when that is unknown.
        """
        if type(value) is not bytes:
            value = plain_bytes(value, field="value")
        future = self._new_future()
        if self._lock.taken or not self._sender.has_room(len(value)):
            async with self._lock:
                await self._sender.room(len(value))
                self._begin(value, future, sequence_id, key, event_time_ms, properties)
        else:
            self._begin(value, future, sequence_id, key, event_time_ms, properties)
        return await future

    def send_nowait(
        self,
        value: Buffer,
        *,
        sequence_id: int | None = None,
        key: Key | None = None,
        event_time_ms: int | None = None,
        properties: Properties | None = None,
    ) -> "asyncio.Future[SendResult]":
        """Publish one message without waiting. The future gets what `send` would return or raise.

        Raises TooManyRequests at once when pending_bytes_max is reached or other calls wait for room, and raises at
        once what `send` raises for wrong arguments.
        """
        if type(value) is not bytes:
            value = plain_bytes(value, field="value")
        if self._lock.taken or not self._sender.has_room(len(value)):
            raise self._without_room()
        future = self._new_future()
        self._begin(value, future, sequence_id, key, event_time_ms, properties)
        return future

    def send_async(
        self,
        value: Buffer,
        callback: SendCallback,
        *,
        sequence_id: int | None = None,
        key: Key | None = None,
        event_time_ms: int | None = None,
        properties: Properties | None = None,
    ) -> None:
        """Publish one message without waiting, with a callback for its result: half of the cost of a future with one.

        callback: called once, on the event loop: callback(result, None) with what `send` would return, or
        callback(None, error) with what it would raise. What it raises goes to the event loop's exception handler.

        Raises at once what `send_nowait` raises; the callback is not called then.
        """
        if type(value) is not bytes:
            value = plain_bytes(value, field="value")
        if self._lock.taken or not self._sender.has_room(len(value)):
            raise self._without_room()
        if not callable(callback):
            raise errors.InvalidArgument("callback: not a function", field="callback").of_send(stored=False)
        self._begin(value, callback, sequence_id, key, event_time_ms, properties)

    def _without_room(self) -> OncelogError:
        limit = self._sender.options.pending_bytes_max
        message = f"pending_bytes_max ({limit}) is reached: wait for results of earlier messages"
        return errors.TooManyRequests(message, field="pending_bytes_max", limit=limit).of_send(stored=False)

    def _begin(
        self,
        value: bytes,
        receiver: SendReceiver,
        sequence_id: int | None,
        key: Key | None,
        event_time_ms: int | None,
        properties: Properties | None,
    ) -> None:
        core = self._core
        if core.error is not None:
            raise core.error.of_send(stored=False)
        if len(value) > core.message_bytes_max:
            limit = core.message_bytes_max
            raise errors.MessageTooLarge(
                f"the value has {len(value)} bytes, the limit is {limit}", field="value", limit=limit
            )
        if sequence_id is not None:
            sequence_id = check_sequence_id(sequence_id)
        extras = None
        if key is not None or event_time_ms is not None or properties:
            extras = checked_extras(key, event_time_ms, properties)
        self._sender.number_by(explicit=sequence_id is not None)
        self._sender.add(value, sequence_id, extras, receiver)

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
            keys, event_times_ms, properties: one item, or None, for each value. See `send`.

        Raises what `send` raises, after all sent messages are answered. The error's `result` is a BatchResult with the
        result of each message, because other messages of the list may be stored; the error's `stored` is False when no
        message is. A stale message does not stop the messages after it. With explicit sequence ids it is safe to send
        the same list again.
        """
        if self._core.error is not None:
            raise self._core.error.of_send(stored=False)
        columns = (keys, event_times_ms, properties)
        check_lengths(values, sequence_ids, *columns)
        ids = None if sequence_ids is None else check_sequence_ids(sequence_ids)
        has_extras = columns != (None, None, None)
        sender, pending = self._sender, PendingList()
        start = packed_bytes = 0
        async with self._lock:
            try:
                if len(values):
                    sender.number_by(explicit=ids is not None)
                    sender.pack_gathered()
                while start < len(values) and pending.error is None:
                    payload, count = sender.packer.pack(values, start, len(values))
                    batch = slice(start, start + count)
                    if has_extras:
                        payload += pack_columns(count, batch, *columns)
                    if not sender.has_room(len(payload)):
                        await sender.room(len(payload))
                    packed_ids = None if ids is None else pack_sequence_ids(ids[batch])
                    sender.send_batch(pending.batch(count), payload, count, packed_ids)
                    start += count
                    packed_bytes += len(payload)
                    if packed_bytes > _YIELD_BYTES:
                        packed_bytes = 0
                        await asyncio.sleep(0)
            except OncelogError as error:
                pending.error = error
        return await pending.result(lambda: sender.driver.topic_partition, unsent=len(values) - start)

    async def flush(self) -> None:
        """Return when all messages given before are answered.

        Raises the error that ended the producer, if one did. Errors of single messages are in their own futures.
        """
        await self.all_answered()
        if self.failure is not None and not isinstance(self.failure, errors.ProducerClosed):
            raise self.failure

    async def all_answered(self) -> None:
        """Return when all messages given before are answered, also those that wait for room. Raises no error."""
        if self._lock.taken:
            async with self._lock:
                pass
        self._sender.pack_gathered()
        await self._sender.driver.results.all_answered()

    # --- life ---------------------------------------------------------------------------------------------------------

    async def open(self, timeout_ms: int | None) -> None:
        """Get the first session. Raises the reason why there is none; DeadlineExceeded with the last retriable one."""
        driver = self._sender.driver
        driver.feed(OpenWanted())
        try:
            async with asyncio.timeout(None if timeout_ms is None else timeout_ms / 1000):
                while not self._core.numbers.known and self.failure is None:
                    await self._sender.changed()
        except TimeoutError as error:
            trouble = self.last_error or error
            raise errors.DeadlineExceeded(
                f"could not open a producer on {self.topic} within {timeout_ms} ms: {trouble}"
            ) from trouble
        finally:
            if not self._core.numbers.known:
                self._sender.close(errors.ProducerClosed("the producer was never opened"))
        if self.failure is not None:
            raise self.failure

    async def close(self, *, flush: bool = True) -> None:
        """End the producer. Waits for the messages given before unless `flush` is False. Raises no error of theirs."""
        if self.failure is None and flush:
            await self.all_answered()
        self._sender.close(errors.ProducerClosed("the producer was closed"))

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Close the producer; wait for pending messages unless the block was left by an exception."""
        await self.close(flush=kind is None)
