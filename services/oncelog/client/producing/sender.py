"""Between the producer's public methods and its session: gathers messages into batches and tracks the room for more.

Batch sizes follow the load. While the session's window is open and the stream accepts more, all messages given in one
pass of the event loop become one batch; otherwise messages gather here and form larger batches. With a send timeout
messages never gather across passes, because the deadline of a message starts with its batch.
"""

import asyncio
import logging
import time
from dataclasses import dataclass

from opentelemetry.trace import get_tracer

from oncelog.client.network.network import Network
from oncelog.client.producing.pending_results import OnUnverified, PendingMessages, PendingResult
from oncelog.client.producing.producer_driver import ProducerDriver
from oncelog.client.producing.receivers import SendReceiver
from oncelog.client.producing.send_buffer import MESSAGE_OVERHEAD_BYTES, Extras, Packer, SendBuffer
from oncelog.core.errors import OncelogError, SequenceIdRequired
from oncelog.core.formats.batch import Compression
from oncelog.core.formats.columns import compress_payload
from oncelog.core.formats.entry import SequenceMode
from oncelog.core.names import TopicName
from oncelog.core.sdk.owner_attempts import CloseWanted
from oncelog.core.sdk.producer.opening import ProducerSettings
from oncelog.core.sdk.producer.pending_batches import BatchReady
from oncelog.core.sdk.producer.sequence_ids import BatchIds

#: Span of the first phase of a publish: the batch is packed, numbered and handed to its stream. It goes to the
#: application's own tracer provider; without one it costs next to nothing.
PACK_SPAN = "publish pack"
_TRACER = get_tracer("oncelog")
logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class ProducerOptions:
    """The options of `create_producer`. batch_bytes_max: limit of the values of one batch."""

    settings: ProducerSettings
    compression: Compression
    batch_bytes_max: int
    pending_bytes_max: int
    on_unverified: OnUnverified = OnUnverified.ACCEPT


class Sender:
    """All messages of one producer that are not answered yet."""

    def __init__(self, topic: TopicName, options: ProducerOptions, network: Network) -> None:
        self.options = options
        self.driver = ProducerDriver(
            options.settings, topic, network, on_unverified=options.on_unverified, changed=self._session_changed
        )
        self._loop = asyncio.get_running_loop()
        self.packer = Packer(options.batch_bytes_max)
        self._core = self.driver.core
        self._buffer = SendBuffer(self.packer, contiguous=options.settings.mode is SequenceMode.CONTIGUOUS)
        #: True: the application gives sequence ids, False: they are automatic, None: no message yet
        self._explicit: bool | None = None
        #: done after the session's next event; made when a caller waits
        self._change: asyncio.Future[None] | None = None
        self._pump_due = False
        self._topic = topic
        self._warned_of_dedup = False

    @property
    def pending_bytes(self) -> int:
        return self._core.pending.bytes_total + self._buffer.size_bytes

    # --- room ---------------------------------------------------------------------------------------------------------

    def has_room(self, size_bytes: int) -> bool:
        """Whether a message or column of this size may be given now; always True when nothing is pending."""
        pending = self._core.pending.bytes_total + self._buffer.size_bytes
        return pending == 0 or pending + size_bytes + MESSAGE_OVERHEAD_BYTES <= self.options.pending_bytes_max

    async def room(self, size_bytes: int) -> None:
        """Wait for room. Raises the error that ended the producer."""
        while self._core.error is None and not self.has_room(size_bytes):
            await self.changed()
        if self._core.error is not None:
            raise self._core.error.of_send(stored=False)

    async def changed(self) -> None:
        """Return after the session has handled an event; the caller then checks its condition again."""
        if self._change is None or self._change.done():
            self._change = asyncio.get_running_loop().create_future()
        await asyncio.shield(self._change)

    # --- packing ------------------------------------------------------------------------------------------------------

    def number_by(self, *, explicit: bool) -> None:
        """Raises SequenceIdRequired when the application mixes explicit and automatic sequence ids."""
        if self._explicit is None:
            self._explicit = explicit
        elif self._explicit is not explicit:
            given = "explicit" if self._explicit else "automatic"
            message = f"this producer uses {given} sequence ids: give an id with every message or with none"
            raise SequenceIdRequired(message, field="sequence_id").of_send(stored=False)

    def add(self, value: bytes, sequence_id: int | None, extras: Extras | None, receiver: SendReceiver) -> None:
        """Take one message. It is packed at the end of this pass of the loop, or later together with others."""
        self._buffer.add(value, sequence_id, extras, receiver)
        if not self._pump_due:
            self._pump_due = True
            self._loop.call_soon(self._pump)

    def _pump(self) -> None:
        """Pack the gathered messages, if the session can take them now."""
        self._pump_due = False
        if not self._buffer:
            return
        core, stream = self._core, self.driver.stream
        if self.options.settings.send_timeout_ms is None:
            if core.session is None or core.pending.window_closed:
                return  # `_session_changed` pumps again
            if stream is not None and not stream.has_room:
                self._pump_due = True
                stream.when_room(self._pump)
                return
        self.pack_gathered()

    def pack_gathered(self) -> None:
        """Send the gathered messages now."""
        for packed in self._buffer.take_all():
            self.send_batch(PendingMessages(packed), packed.payload, packed.count, packed.packed_ids)

    def send_batch(self, result: PendingResult, payload: bytes, count: int, ids: BatchIds | None) -> None:
        """Give one batch to the session. `result` receives the answer, possibly before this returns."""
        span = _TRACER.start_span(PACK_SPAN)
        compression = self.options.compression
        self.driver.feed(
            BatchReady(
                self.driver.results.add(result),
                payload if compression is Compression.NONE else compress_payload(payload, compression),
                count,
                ids,
                time.time_ns() // 1_000_000,
                compression,
                len(payload),
            )
        )
        span.end()

    def close(self, error: OncelogError) -> None:
        """End the producer: gathered messages fail with `error`, batches in flight with ProducerClosed."""
        self._buffer.fail_all(error)
        self.driver.feed(CloseWanted())

    def _session_changed(self) -> None:
        """The session has handled an event."""
        if self._core.error is not None:
            self._buffer.fail_all(self._core.error)
        if not self._core.deduplication and not self._warned_of_dedup:
            self._warned_of_dedup = True
            logger.warning(
                "producer %r on %s: deduplication is disabled for this topic: messages that are sent again, by this "
                "program or by the SDK after a lost answer, are stored again. This warning is logged once per "
                "producer; its property `deduplication` has the current state",
                self._core.opening.name, self._topic,
            )  # fmt: skip
        if self._change is not None and not self._change.done():
            self._change.set_result(None)
        if self._buffer and not self._pump_due:
            self._pump()
