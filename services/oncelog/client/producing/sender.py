"""Between the producer's public methods and its session: gathers messages into batches and tracks the room for more.

Batch sizes follow the load. While the session's window is open and the stream accepts more, all messages given in one
pass of the event loop become one batch; otherwise messages gather here and form larger batches. With a send timeout
messages never gather across passes, because the deadline of a message starts with its batch.
"""

import asyncio
import logging
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

from oncelog.client.network.backoff import WaitingReport
from oncelog.client.network.network import Network
from oncelog.client.producing.duplicates import REFUSE_ALL, DuplicateRules
from oncelog.client.producing.fair_lock import FairLock
from oncelog.client.producing.message_arguments import (
    Key,
    check_lengths,
    checked_extras,
    pack_columns,
    plain_bytes,
)
from oncelog.client.producing.packed_entries import PackedEntry
from oncelog.client.producing.pending_results import PendingList, PendingMessages, PendingResult
from oncelog.client.producing.producer_driver import ProducerDriver
from oncelog.client.producing.send_buffer import (
    MESSAGE_OVERHEAD_BYTES,
    Extras,
    PackedBatch,
    Packer,
    Properties,
    SendBuffer,
    SendReceiver,
    pack_extras,
)
from oncelog.client.values.arguments import choice
from oncelog.client.values.process import used_in_another_loop
from oncelog.client.values.results import BatchResult
from oncelog.client.values.trace_context import CurrentTrace, application_tracer
from oncelog.core import errors
from oncelog.core.errors import OncelogError
from oncelog.core.formats.batch import Buffer
from oncelog.core.formats.columns import encode_values
from oncelog.core.formats.compression import Compression, compress_payload, require
from oncelog.core.formats.entry import SequenceMode
from oncelog.core.names import TopicName
from oncelog.core.sdk.owner_attempts import CloseWanted, OpenWanted
from oncelog.core.sdk.producer.chunked_send import ChunkedSend, chunked_bytes_max
from oncelog.core.sdk.producer.opening import ProducerSettings
from oncelog.core.sdk.producer.pending_batches import BatchReady
from oncelog.core.sdk.producer.sequence_ids import BatchIds, check_sequence_id, check_sequence_ids, pack_sequence_ids

#: Span of the first phase of a publish: the batch is packed, numbered and handed to its stream. It goes to the
#: application's own tracer provider.
PACK_SPAN = "publish pack"
logger = logging.getLogger(__name__)

CompressionName: TypeAlias = Literal["zlib", "zstd", "lz4"]
_COMPRESSIONS: dict[str | None, Compression] = {
    None: Compression.NONE, "zlib": Compression.ZLIB, "zstd": Compression.ZSTD, "lz4": Compression.LZ4,
}  # fmt: skip
#: asked for every message: the public one raises where there is no loop, and is slower
_running_loop = asyncio._get_running_loop  # noqa: SLF001
#: Bytes that a list packs before it lets other tasks run.
_YIELD_BYTES = 1024 * 1024
#: keys, event_times_ms, properties: one item, or None, for each value of a list
ListColumns = tuple[Sequence[Key | None] | None, Sequence[int | None] | None, Sequence[Properties | None] | None]


@dataclass(frozen=True, slots=True)
class ProducerOptions:
    """The options of `create_producer`. batch_bytes_max: limit of the values of one batch. trace: what adds the trace
    context to each message. chunking: send values above the topic's limit in chunks."""

    settings: ProducerSettings
    compression: Compression
    batch_bytes_max: int
    pending_bytes_max: int
    rules: DuplicateRules = REFUSE_ALL
    trace: CurrentTrace | None = None
    chunking: bool = False


#: The session's own limit is higher than pending_bytes_max by this much, so that a send waits for room before the
#: session refuses a batch.
PENDING_SLACK_BYTES = 1024 * 1024


def compression_of(name: CompressionName | None) -> Compression:
    """Raises InvalidArgument, CompressionUnavailable."""
    return require(choice("compression", _COMPRESSIONS, name))


class Sender:
    """The messages of one producer for one topic or partition that are not answered yet."""

    def __init__(self, topic: TopicName, options: ProducerOptions, network: Network) -> None:
        self.options = options
        self.driver = ProducerDriver(
            options.settings, topic, network, rules=options.rules, changed=self._session_changed
        )
        self.core = self.driver.core
        #: held by each call that waits for room, so that no later call overtakes it
        self.lock = FairLock()
        self._loop = asyncio.get_running_loop()
        self._packer = Packer(options.batch_bytes_max)
        self._buffer = SendBuffer(self._packer, contiguous=options.settings.mode is SequenceMode.CONTIGUOUS)
        #: True: the application gives sequence ids, False: they are automatic, None: no message yet
        self._explicit: bool | None = None
        #: whether a message that has only a value needs no further check
        self._plain = False
        self._tracer = application_tracer()
        #: done after the session's next event; made when a caller waits
        self._change: asyncio.Future[None] | None = None
        #: done when the producer has ended; made when a caller waits
        self._end: asyncio.Future[None] | None = None
        self._pump_due = False
        self._topic = topic
        self._warned_of_dedup = False

    @property
    def pending_bytes(self) -> int:
        return self.core.pending.bytes_total + self._buffer.size_bytes

    # --- room ---------------------------------------------------------------------------------------------------------

    def has_room(self, size_bytes: int) -> bool:
        """Whether a message or column of this size may be given now; always True when nothing is pending."""
        pending = self.core.pending.bytes_total + self._buffer.size_bytes
        return pending == 0 or pending + size_bytes + MESSAGE_OVERHEAD_BYTES <= self.options.pending_bytes_max

    def no_room(self) -> OncelogError:
        """The error of a message that cannot wait."""
        limit = self.options.pending_bytes_max
        message = f"pending_bytes_max ({limit}) is reached: wait for results of earlier messages"
        return errors.TooManyRequests(message, field="pending_bytes_max", limit=limit).of_send(stored=False)

    async def room(self, size_bytes: int) -> None:
        """Wait for room. Raises the error that ended the producer, and RuntimeError in another event loop."""
        self._check_loop()
        while self.core.error is None and not self.has_room(size_bytes):
            await self._changed()
        if self.core.error is not None:
            raise self.core.error.of_send(stored=False)

    async def _changed(self) -> None:
        """Return after the session has handled an event; the caller then checks its condition again."""
        if self._change is None or self._change.done():
            self._change = asyncio.get_running_loop().create_future()
        await asyncio.shield(self._change)

    def _check_loop(self) -> None:
        if _running_loop() is not self._loop:
            raise used_in_another_loop()

    # --- packing ------------------------------------------------------------------------------------------------------

    def _number_by(self, *, explicit: bool) -> None:
        """Raises SequenceIdRequired when the application mixes explicit and automatic sequence ids."""
        if self._explicit is None:
            self._explicit = explicit
            self._plain = not explicit and self.options.trace is None
        elif self._explicit is not explicit:
            given = "explicit" if self._explicit else "automatic"
            message = f"this producer uses {given} sequence ids: give an id with every message or with none"
            raise errors.SequenceIdRequired(message, field="sequence_id").of_send(stored=False)

    def begin(
        self,
        value: bytes,
        receiver: SendReceiver,
        sequence_id: int | None,
        key: Key | None,
        event_time_ms: int | None,
        properties: Properties | None,
    ) -> bool:
        """Take one message: it is packed at the end of this pass of the loop, or later, with others. Returns False if
        there is no room for it now. Raises what `send` of a producer raises for wrong arguments, and the error that
        ended it."""
        if _running_loop() is not self._loop:
            raise used_in_another_loop()
        core, buffer, size_bytes = self.core, self._buffer, len(value)
        if core.error is not None:
            raise core.error.of_send(stored=False)
        # As `has_room`; every call less is a tenth of what a message costs here.
        pending_bytes = core.pending.bytes_total + buffer.size_bytes
        if pending_bytes and pending_bytes + size_bytes + MESSAGE_OVERHEAD_BYTES > self.options.pending_bytes_max:
            return False
        in_chunks = size_bytes > core.message_bytes_max
        is_plain = sequence_id is None and key is None and event_time_ms is None and properties is None
        if not (is_plain and self._plain) or in_chunks:
            if in_chunks:
                self._check_chunking(size_bytes)
            if sequence_id is not None:
                sequence_id = check_sequence_id(sequence_id)
            if self.options.trace is not None:
                properties = self.options.trace.added_to(properties)
            extras = None
            if key is not None or event_time_ms is not None or properties:
                extras = checked_extras(key, event_time_ms, properties)
            self._number_by(explicit=sequence_id is not None)
            if in_chunks:
                self._begin_chunked(value, receiver, sequence_id, extras)
                return True
            buffer.add_options(sequence_id, extras)
        buffer.add(value, receiver)
        if not self._pump_due:
            self._pump_due = True
            self._loop.call_soon(self._pump)
        return True

    def _begin_chunked(
        self, value: bytes, receiver: SendReceiver, sequence_id: int | None, extras: Extras | None
    ) -> None:
        ids = None if sequence_id is None else [sequence_id]
        packed_ids = None if ids is None else pack_sequence_ids(ids)
        payload = encode_values([b""]) + (pack_extras([extras]) if extras is not None else b"")
        self._pack_gathered()
        result = PendingMessages(PackedBatch(payload, 1, packed_ids, ids, [receiver]))
        self._send_chunked(result, value, payload, packed_ids)

    async def send_list(
        self, values: Sequence[Buffer], sequence_ids: Sequence[int] | None, columns: ListColumns
    ) -> BatchResult:
        """As `send_many` of a producer."""
        self._check_loop()
        if self.core.error is not None:
            raise self.core.error.of_send(stored=False)
        check_lengths(values, sequence_ids, *columns)
        ids = None if sequence_ids is None else check_sequence_ids(sequence_ids)
        if self.options.trace is not None:
            columns = (columns[0], columns[1], _with_trace(self.options.trace, columns[2], len(values)))
        has_extras = columns != (None, None, None)
        pending = PendingList()
        start = packed_bytes = 0
        async with self.lock:
            try:
                if len(values):
                    self._number_by(explicit=ids is not None)
                    self._pack_gathered()
                while start < len(values) and pending.error is None:
                    if self.options.chunking and len(values[start]) > self.core.message_bytes_max:
                        await self._send_list_chunked(pending, start, values, ids, columns)
                        start += 1
                        continue
                    payload, count = self._packer.pack(values, start, len(values))
                    batch = slice(start, start + count)
                    if has_extras:
                        payload += pack_columns(count, batch, *columns)
                    if not self.has_room(len(payload)):
                        await self.room(len(payload))
                    packed_ids = None if ids is None else pack_sequence_ids(ids[batch])
                    self._send_batch(pending.batch(count), payload, count, packed_ids)
                    start += count
                    packed_bytes += len(payload)
                    if packed_bytes > _YIELD_BYTES:
                        packed_bytes = 0
                        await asyncio.sleep(0)
            except OncelogError as error:
                pending.error = error
        return await pending.result(self.driver, unsent=len(values) - start)

    async def _send_list_chunked(
        self, pending: PendingList, at: int, values: Sequence[Buffer], ids: Sequence[int] | None, columns: ListColumns
    ) -> None:
        """One value of a list, above the limit of a batch."""
        value = plain_bytes(values[at], field="values")
        self._check_chunking(len(value))
        await self.room(len(value))
        payload = encode_values([b""]) + pack_columns(1, slice(at, at + 1), *columns)
        packed_ids = None if ids is None else pack_sequence_ids(ids[at : at + 1])
        self._send_chunked(pending.batch(1), value, payload, packed_ids)

    def _check_chunking(self, size_bytes: int) -> None:
        """Raises MessageTooLarge unless a value above the limit of a batch may be sent."""
        limit = self.core.message_bytes_max
        message = f"the value has {size_bytes} bytes, the limit is {limit}"
        if not self.options.chunking:
            message += f", or {chunked_bytes_max(limit)} with create_producer(chunking=True)"
        elif size_bytes <= chunked_bytes_max(limit):
            return
        else:
            limit = chunked_bytes_max(limit)
            message = f"the value has {size_bytes} bytes, the limit of a message in chunks is {limit}"
        raise errors.MessageTooLarge(message, field="value", limit=limit)

    def _send_chunked(self, result: PendingResult, value: bytes, payload: bytes, ids: BatchIds | None) -> None:
        """As `_send_batch`, of one message whose value is not in its payload."""
        chunked = ChunkedSend(value, self.core.message_bytes_max)
        request = self.driver.results.add(result, chunks=chunked.count)
        self.driver.feed(BatchReady(request, payload, 1, ids, time.time_ns() // 1_000_000, chunked=chunked))

    async def send_payloads(self, payloads: Iterable[tuple[bytes, Sequence[int]]]) -> BatchResult:
        """Publish batches whose columns are packed already, each with its ascending sequence ids, and wait until all
        are stored. Raises as `send_many`."""
        if self.core.error is not None:
            raise self.core.error.of_send(stored=False)
        pending = PendingList()
        async with self.lock:
            self._number_by(explicit=True)
            self._pack_gathered()
            for payload, ids in payloads:
                if not self.has_room(len(payload)):
                    try:
                        await self.room(len(payload))
                    except OncelogError as error:
                        pending.error = error
                        return await pending.result(self.driver, unsent=len(ids))
                self._send_batch(pending.batch(len(ids)), payload, len(ids), pack_sequence_ids(ids))
        return await pending.result(self.driver, unsent=0)

    def send_packed(self, entry: PackedEntry, result: PendingResult) -> None:
        """Give the session one batch as it is. Raises TooManyRequests without room, and the error that ended the
        producer."""
        self._check_loop()
        if self.core.error is not None:
            raise self.core.error.of_send(stored=False)
        if self.lock.taken or not self.has_room(len(entry.payload)):
            raise self.no_room()
        self._number_by(explicit=True)
        self.driver.feed(
            BatchReady(
                self.driver.results.add(result), entry.payload, entry.count, entry.ids, entry.publish_time_ms,
                payload_format=entry.payload_format, unit=entry.unit,
            )
        )  # fmt: skip

    def _pump(self) -> None:
        """Pack the gathered messages, if the session can take them now."""
        self._pump_due = False
        if not self._buffer:
            return
        core, stream = self.core, self.driver.stream
        if self.options.settings.send_timeout_ms is None:
            if core.session is None or core.pending.window_closed:
                return  # `_session_changed` pumps again
            if stream is not None and not stream.has_room:
                self._pump_due = True
                stream.when_room(self._pump)
                return
        self._pack_gathered()

    def _pack_gathered(self) -> None:
        """Send the gathered messages now."""
        for packed in self._buffer.take_all():
            self._send_batch(PendingMessages(packed), packed.payload, packed.count, packed.packed_ids)

    def _send_batch(self, result: PendingResult, payload: bytes, count: int, ids: BatchIds | None) -> None:
        """Give one batch to the session. `result` receives the answer, possibly before this returns."""
        span = None if self._tracer is None else self._tracer.start_span(PACK_SPAN)
        compression = self.options.compression
        self.driver.feed(
            BatchReady(
                self.driver.results.add(result),
                compress_payload(payload, compression),
                count,
                ids,
                time.time_ns() // 1_000_000,
                compression,
                len(payload),
            )
        )
        if span is not None:
            span.end()

    # --- life ---------------------------------------------------------------------------------------------------------

    async def open(self, timeout_ms: int | None) -> None:
        """Get the first session. Raises the reason why there is none; DeadlineExceeded with the last retriable one."""
        self.driver.feed(OpenWanted())
        timeout_s = None if timeout_ms is None else timeout_ms / 1000
        report = WaitingReport(f"a producer on {self._topic}", self._loop.time(), timeout_s)
        is_open = False
        try:
            async with asyncio.timeout(timeout_s):
                while not self.core.numbers.known and self.core.error is None:
                    await self._changed()
                    if self.core.trouble is not None:
                        report.failed(self.core.trouble, self._loop.time())
            is_open = self.core.numbers.known
        except TimeoutError as error:
            trouble = self.core.trouble or error
            raise errors.DeadlineExceeded(
                f"could not open a producer on {self._topic} within {timeout_ms} ms: {trouble}"
            ) from trouble
        finally:
            if not is_open:
                self.close(errors.ProducerClosed("the producer was never opened"))
        if self.core.error is not None:
            raise self.core.error
        self._warn_of_repeats()

    def _warn_of_repeats(self) -> None:
        numbers = self.core.numbers
        if numbers.repeats_ahead and self.core.deduplication:
            logger.warning(
                "producer %r on %s: it begins after sequence id %d, and ids up to %d are stored: what it sends next, "
                "up to %d messages, is taken as repetitions and not stored. That is right for a program that sends "
                "the same messages again, in the same order. New messages need ids behind the stored ones: %s. "
                "`repeats_ahead` says how many ids are left",
                self.core.opening.name, self._topic, numbers.highest, numbers.stored, numbers.repeats_ahead,
                "open without initial_sequence_id" if self.options.settings.lease is None
                else "lease the id again, with its generation, and use that answer",
            )  # fmt: skip

    async def all_answered(self) -> None:
        """Return when all messages given before are answered, also those that wait for room. Raises no error."""
        if self.lock.taken:
            async with self.lock:
                pass
        self._pack_gathered()
        await self.driver.results.all_answered()

    async def ended(self) -> OncelogError:
        """Return the error that ends this producer, when it does."""
        if self.core.error is None:
            if self._end is None:
                self._end = asyncio.get_running_loop().create_future()
            await asyncio.shield(self._end)
        assert self.core.error is not None, "the producer has ended"
        return self.core.error

    def close(self, error: OncelogError, *, gives_up_name: bool = True) -> None:
        """End the producer: gathered messages fail with `error`, batches in flight with ProducerClosed."""
        self._buffer.fail_all(error)
        self.driver.feed(CloseWanted(gives_up_name))

    def _session_changed(self) -> None:
        """The session has handled an event."""
        if self.core.error is not None:
            self._buffer.fail_all(self.core.error)
            if self._end is not None and not self._end.done():
                self._end.set_result(None)
        if not self.core.deduplication and not self._warned_of_dedup:
            self._warned_of_dedup = True
            logger.warning(
                "producer %r on %s: deduplication is disabled for this topic: messages that are sent again, by this "
                "program or by the SDK after a lost answer, are stored again. This warning is logged once per "
                "producer; its property `deduplication` has the current state",
                self.core.opening.name, self._topic,
            )  # fmt: skip
        if self._change is not None and not self._change.done():
            self._change.set_result(None)
        if self._buffer and not self._pump_due:
            self._pump()


def _with_trace(
    trace: CurrentTrace, properties: Sequence[Properties | None] | None, count: int
) -> Sequence[Properties | None] | None:
    """The properties of a list of so many messages, with the trace context."""
    if properties is not None:
        return [trace.added_to(each) for each in properties]
    context = trace.added_to(None)
    return None if context is None else [context] * count
