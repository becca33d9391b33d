"""The asyncio producer: messages in, results out."""

import asyncio
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Self

from oncelog.client.flights import ListFlight
from oncelog.client.network import Network
from oncelog.client.results import BatchResult, SendResult
from oncelog.client.send_buffer import Extras, Properties, pack_extras
from oncelog.client.sender import ProducerOptions, Sender
from oncelog.client.turn import Turn
from oncelog.core import errors
from oncelog.core.errors import OncelogError
from oncelog.core.formats.batch import Buffer
from oncelog.core.formats.columns import encode_event_times, encode_properties
from oncelog.core.names import TopicName
from oncelog.core.producer.events import OpenWanted
from oncelog.core.producer.sequence_ids import check_sequence_id, check_sequence_ids, pack_sequence_ids

#: What a long list packs before other tasks get a turn.
_TURN_BYTES = 1024 * 1024
Key = bytes | str


class AsyncProducer:
    """One producer on one topic; made by `AsyncClient.create_producer`. Not for use from several threads.

    Messages are stored in the order in which they were given; results may come in any order. Sequence ids are all
    automatic or all explicit (SequenceIdRequired). Retriable failures are retried inside, for ever or until
    send_timeout (DeadlineExceeded: stored or not, now or later). An error that ends the producer (ProducerFenced,
    ProducerExpired …) fails everything pending and every later call.
    """

    def __init__(self, topic: TopicName, options: ProducerOptions, network: Network) -> None:
        self.topic = str(topic)
        self._sender = Sender(topic, options, network)
        self._core = self._sender.driver.core
        self._turn = Turn()
        #: bound once: it is called for every message
        self._new_future: Callable[[], asyncio.Future[SendResult]] = asyncio.get_running_loop().create_future

    @property
    def producer_name(self) -> str:
        """The name given, or the one assigned."""
        return self._core.opening.name or ""

    @property
    def last_sequence_id(self) -> int:
        """The highest sequence id known to be stored, -1 when there is none."""
        return self._core.numbers.stored

    @property
    def pending_bytes(self) -> int:
        """Bytes of what was given and is not answered yet."""
        return self._sender.pending_bytes

    @property
    def deduplication(self) -> bool:
        """Whether the topic's owner judges by sequence ids, as it last said: at each session, and when it is switched.

        Off: what is sent again is stored again; a warning in the log says so once. Fencing goes on.
        """
        return self._core.deduplication

    @property
    def unverified_count(self) -> int:
        """Messages that were answered with verified=False, or refused for that with on_unverified="raise"."""
        return self._sender.unverified.count

    @property
    def failure(self) -> OncelogError | None:
        """Why this producer is over; None while it lives."""
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
        """Publish one message and wait for its fate; waits for room when too much is pending.

        Raises MessageTooLarge, InvalidSequenceId, SequenceIdRequired, SequenceGap (contiguous: an id was left out),
        StaleSequence (of this message alone: it is below the mark and was never stored), UnverifiedSequence (with
        on_unverified="raise"), DeadlineExceeded, or why the producer is over. The error's `stored` is False when this
        send stored nothing and never will, None when that is not known. Cancelling takes nothing back: the message may
        be stored.
        """
        if type(value) is not bytes:
            value = _plain(value, field="value")
        if self._turn.taken or not self._sender.has_room(len(value)):
            async with self._turn:
                await self._sender.room(len(value))
                future = self._begin(value, sequence_id, key, event_time_ms, properties)
            return await future
        return await self._begin(value, sequence_id, key, event_time_ms, properties)

    def send_nowait(
        self,
        value: Buffer,
        *,
        sequence_id: int | None = None,
        key: Key | None = None,
        event_time_ms: int | None = None,
        properties: Properties | None = None,
    ) -> "asyncio.Future[SendResult]":
        """Hand over one message; the future gets what `send` returns or raises.

        Raises TooManyRequests at once when pending_bytes_max is reached or others wait for room, and at once what
        `send` raises for wrong arguments.
        """
        if type(value) is not bytes:
            value = _plain(value, field="value")
        if self._turn.taken or not self._sender.has_room(len(value)):
            limit = self._sender.options.pending_bytes_max
            raise errors.TooManyRequests(
                "too much is pending: wait for results", field="pending_bytes_max", limit=limit
            ).of_send(stored=False)
        return self._begin(value, sequence_id, key, event_time_ms, properties)

    def _begin(
        self,
        value: bytes,
        sequence_id: int | None,
        key: Key | None,
        event_time_ms: int | None,
        properties: Properties | None,
    ) -> "asyncio.Future[SendResult]":
        core = self._core
        if core.error is not None:
            raise core.error.of_send(stored=False)
        if len(value) > core.message_bytes_max:
            limit = core.message_bytes_max
            raise errors.MessageTooLarge(f"a message of {len(value)} bytes is over {limit}", field="value", limit=limit)
        if sequence_id is not None:
            sequence_id = check_sequence_id(sequence_id)
        extras = None
        if key is not None or event_time_ms is not None or properties:
            extras = _checked_extras(key, event_time_ms, properties)
        self._sender.number_by(explicit=sequence_id is not None)
        future = self._new_future()
        self._sender.add(value, sequence_id, extras, future)
        return future

    async def send_many(
        self,
        values: Sequence[Buffer],
        *,
        sequence_ids: Sequence[int] | None = None,
        keys: Sequence[Key | None] | None = None,
        event_times_ms: Sequence[int | None] | None = None,
        properties: Sequence[Properties | None] | None = None,
    ) -> BatchResult:
        """Publish a list of messages and wait until all are stored; the fastest way.

        sequence_ids: ascending. Every further column given has one item for each value. Raises what `send` raises, once
        all that was sent is answered: the error's `result` tells the fate of each message (see BatchResult), for others
        of the list may be stored; its `stored` is False when none is. A stale message does not hold up the others.
        With explicit ids, sending the list again is safe.
        """
        if self._core.error is not None:
            raise self._core.error.of_send(stored=False)
        for column in (sequence_ids, keys, event_times_ms, properties):
            if column is not None and len(column) != len(values):
                message = f"{len(column)} items for {len(values)} values"
                raise errors.InvalidArgument(message, field="values", limit=len(values))
        ids = None if sequence_ids is None else check_sequence_ids(sequence_ids)
        columns = (keys, event_times_ms, properties)
        sender, flight = self._sender, ListFlight()
        start = turn_bytes = 0
        async with self._turn:
            try:
                if len(values):
                    sender.number_by(explicit=ids is not None)
                    sender.pack_gathered()
                while start < len(values) and flight.over is None:
                    payload, count = sender.packer.pack(values, start, len(values))
                    piece = slice(start, start + count)
                    if any(column is not None for column in columns):
                        payload += _pack_columns(count, piece, *columns)
                    await sender.room(len(payload))
                    packed_ids = None if ids is None else pack_sequence_ids(ids[piece])
                    sender.hand_over(flight.batch(count), payload, count, packed_ids)
                    start += count
                    turn_bytes += len(payload)
                    if turn_bytes > _TURN_BYTES:
                        turn_bytes = 0
                        await asyncio.sleep(0)
            except OncelogError as error:
                flight.over = error
        return await flight.result(lambda: sender.driver.place, unsent=len(values) - start)

    async def flush(self) -> None:
        """Return when everything given before is answered. Raises why the producer is over, if it failed.

        What became of single messages is told by their own futures.
        """
        await self.all_answered()
        if self.failure is not None and not isinstance(self.failure, errors.ProducerClosed):
            raise self.failure

    async def all_answered(self) -> None:
        """Return when everything given before is answered; also what still waits for room. Raises nothing of it."""
        if self._turn.taken:
            async with self._turn:
                pass
        self._sender.pack_gathered()
        await self._sender.flights.all_landed()

    # --- life ---------------------------------------------------------------------------------------------------------

    async def open(self, timeout_ms: int | None) -> None:
        """Get the first session. Raises why there is none; DeadlineExceeded with the last retriable reason."""
        driver = self._sender.driver
        driver.feed(OpenWanted())
        try:
            async with asyncio.timeout(None if timeout_ms is None else timeout_ms / 1000):
                while not self._core.numbers.known and self.failure is None:
                    await self._sender.changed()
        except TimeoutError as error:
            trouble = driver.trouble or error
            raise errors.DeadlineExceeded(f"no session for a producer on {self.topic} in time: {trouble}") from trouble
        finally:
            if not self._core.numbers.known:
                self._sender.close(errors.ProducerClosed("the producer was never opened"))
        if self.failure is not None:
            raise self.failure

    async def close(self, *, flush: bool = True) -> None:
        """End the producer. What was given before is waited for, unless `flush` is False. Raises no send's error."""
        if self.failure is None and flush:
            await self.all_answered()
        self._sender.close(errors.ProducerClosed("the producer was closed"))

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Flushes; but not when leaving by an exception, for nobody would wait for the results."""
        await self.close(flush=kind is None)


def _plain(value: object, *, field: str) -> bytes:
    """A copy that the caller can no longer change. Raises InvalidArgument."""
    if not isinstance(value, bytes | bytearray | memoryview):
        raise errors.InvalidArgument(f"a {field} is bytes, not {type(value).__name__}", field=field)
    return bytes(value)


def _plain_key(key: Key | None) -> bytes | None:
    if key is None:
        return None
    try:
        return key.encode() if isinstance(key, str) else _plain(key, field="key")
    except UnicodeEncodeError as error:
        raise errors.InvalidArgument(f"a key is bytes or valid text: {error}", field="key") from error


def _checked_extras(key: Key | None, event_time_ms: int | None, properties: Properties | None) -> Extras:
    """Fail the one message that is wrong, here, and not the batch it would be in."""
    if event_time_ms is not None:
        encode_event_times([event_time_ms])
    if properties:
        encode_properties([properties])
    return Extras(_plain_key(key), event_time_ms, properties)


def _pack_columns(
    count: int,
    piece: slice,
    keys: Sequence[Key | None] | None,
    event_times_ms: Sequence[int | None] | None,
    properties: Sequence[Properties | None] | None,
) -> bytes:
    """The further columns of one piece of a list."""
    nothing = (None,) * count
    columns = zip(
        nothing if keys is None else keys[piece],
        nothing if event_times_ms is None else event_times_ms[piece],
        nothing if properties is None else properties[piece],
        strict=True,
    )
    return pack_extras([Extras(_plain_key(key), time_ms, own) for key, time_ms, own in columns])
