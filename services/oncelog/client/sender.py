"""Between a producer's face and its session: gathers messages into batches, knows how much room there is.

Messages are packed into batches by load. While the window is open and the stream takes more, whatever was given in one
turn of the event loop becomes one batch; while it does not, messages gather and become larger ones. With a send timeout
they never wait here, for their deadline begins with their batch.
"""

import asyncio
import logging
import time
from dataclasses import dataclass

from opentelemetry.trace import get_tracer

from oncelog.client.flights import Flight, Flights, MessagesFlight
from oncelog.client.network import Network
from oncelog.client.results import SendResult, stretches_of
from oncelog.client.send_buffer import MESSAGE_OVERHEAD_BYTES, Extras, Packer, SendBuffer
from oncelog.client.session_driver import SessionDriver
from oncelog.client.unverified import OnUnverified, Unverified
from oncelog.core.errors import OncelogError, SequenceIdRequired
from oncelog.core.formats.batch import Compression
from oncelog.core.formats.columns import compress_payload
from oncelog.core.formats.entry import SequenceMode
from oncelog.core.names import TopicName
from oncelog.core.producer.events import (
    CloseWanted,
    Complete,
    Fail,
    ReportOpen,
)
from oncelog.core.producer.opening import ProducerSettings
from oncelog.core.producer.pending_batches import BatchReady
from oncelog.core.producer.sequence_ids import BatchIds

#: Mark 1 of the way of a message: the batch is numbered, packed and given to its stream. A span of the application's
#: own tracer provider; without one it costs next to nothing.
PACK_SPAN = "1 pack"
_TRACER = get_tracer("oncelog")
logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class ProducerOptions:
    """What a producer was asked for; batch_bytes_max bounds the values of one batch."""

    settings: ProducerSettings
    compression: Compression
    batch_bytes_max: int
    pending_bytes_max: int
    on_unverified: OnUnverified = OnUnverified.ACCEPT


class Sender:
    """Everything given to one producer and not answered yet."""

    def __init__(self, topic: TopicName, options: ProducerOptions, network: Network) -> None:
        self.options = options
        self.driver = SessionDriver(options.settings, topic, network, self)
        self.packer = Packer(options.batch_bytes_max)
        self.flights = Flights()
        self.unverified = Unverified(str(topic))
        self._buffer = SendBuffer(self.packer, contiguous=options.settings.mode is SequenceMode.CONTIGUOUS)
        #: True once an id was given, False once one was left out
        self._explicit: bool | None = None
        #: done when something that somebody waits for may have changed
        self._change: asyncio.Future[None] | None = None
        self._pump_due = False
        self._topic = topic
        self._told_unjudged = False

    @property
    def failure(self) -> OncelogError | None:
        return self.driver.core.error

    @property
    def pending_bytes(self) -> int:
        return self.driver.core.pending.bytes_total + self._buffer.size_bytes

    # --- room ---------------------------------------------------------------------------------------------------------

    def has_room(self, size_bytes: int) -> bool:
        """Whether a message or column of this size may be given now; one alone always may."""
        pending = self.driver.core.pending.bytes_total + self._buffer.size_bytes
        return pending == 0 or pending + size_bytes + MESSAGE_OVERHEAD_BYTES <= self.options.pending_bytes_max

    async def room(self, size_bytes: int) -> None:
        """Wait for room. Raises why the producer is over."""
        while self.failure is None and not self.has_room(size_bytes):
            await self.changed()
        if self.failure is not None:
            raise self.failure.of_send(stored=False)

    async def changed(self) -> None:
        """Return when the session has handled something; whoever waits looks again."""
        if self._change is None or self._change.done():
            self._change = asyncio.get_running_loop().create_future()
        await asyncio.shield(self._change)

    # --- packing ------------------------------------------------------------------------------------------------------

    def number_by(self, *, explicit: bool) -> None:
        """Raises SequenceIdRequired when ids were given before and are not now, or the reverse."""
        if self._explicit is None:
            self._explicit = explicit
        elif self._explicit is not explicit:
            given = "explicit" if self._explicit else "automatic"
            message = f"this producer's sequence ids are {given}: give every message one, or none"
            raise SequenceIdRequired(message, field="sequence_id").of_send(stored=False)

    def add(
        self, value: bytes, sequence_id: int | None, extras: Extras | None, future: "asyncio.Future[SendResult]"
    ) -> None:
        """Take one message; it is packed in this turn of the loop, or later with others."""
        self._buffer.add(value, sequence_id, extras, future)
        if not self._pump_due:
            self._pump_due = True
            future.get_loop().call_soon(self._pump)

    def _pump(self) -> None:
        """Pack what gathered, if the session can take it now."""
        self._pump_due = False
        if not self._buffer:
            return
        core, connection = self.driver.core, self.driver.connection
        if self.options.settings.send_timeout_ms is None:
            if core.session is None or core.pending.window_closed:
                return  # `moved` comes back here
            if connection is not None and not connection.has_room:
                self._pump_due = True
                connection.when_room(self._pump)
                return
        self.pack_gathered()

    def pack_gathered(self) -> None:
        """Hand over whatever gathered, now."""
        for packed in self._buffer.take_all():
            self.hand_over(MessagesFlight(packed), packed.payload, packed.count, packed.packed_ids)

    def hand_over(self, flight: Flight, payload: bytes, count: int, ids: BatchIds | None) -> None:
        """Give one batch to the session; the flight is told of its fate, perhaps at once."""
        span = _TRACER.start_span(PACK_SPAN)
        compression = self.options.compression
        stored = compress_payload(payload, compression)
        request = self.flights.begin(flight)
        self.driver.feed(
            BatchReady(request, stored, count, ids, time.time_ns() // 1_000_000, compression, len(payload))
        )
        span.end()

    def close(self, error: OncelogError) -> None:
        """The producer is over: what gathered fails with `error`, what is in flight with ProducerClosed."""
        self._buffer.fail_all(error)
        self.driver.feed(CloseWanted())

    # --- what the session tells (SessionNews) -------------------------------------------------------------------------

    def opened(self, report: ReportOpen) -> None:
        """Nothing to do: `moved` follows, and whoever opens looks again."""

    def completed(self, effect: Complete) -> None:
        self.unverified.note(self.driver.core.opening.name or "", effect)
        stretches = stretches_of(effect, self.options.on_unverified)
        self.flights.end(effect.request).completed(self.driver.place, effect.ids, stretches)

    def failed(self, effect: Fail) -> None:
        self.flights.end(effect.request).failed(effect.error.of_send(effect.stored))

    def over(self, error: OncelogError) -> None:
        self._buffer.fail_all(error)

    def moved(self) -> None:
        if not self.driver.core.deduplication and not self._told_unjudged:
            self._told_unjudged = True
            logger.warning(
                "producer %r on %s: deduplication is off for this topic: what is sent again, by this program or by the "
                "SDK after a lost answer, is stored again. Said once a producer; `deduplication` tells how it stands",
                self.driver.core.opening.name, self._topic,
            )  # fmt: skip
        if self._change is not None and not self._change.done():
            self._change.set_result(None)
        if self._buffer and not self._pump_due:
            self._pump()
