"""The batches of a producer that are not answered yet, in order.

Rules: a batch keeps its boundaries, ids and place in the order, and its bytes as long as the producer keeps its
generation, so a resend has the same bytes. A new session sends all pending batches again, oldest first. At most
`in_flight_count_max` batches and `in_flight_bytes_max` bytes of a session are in flight, but always at least one batch;
the others wait here, bounded by `pending_bytes_max`. Answers arrive in any order. A message in chunks keeps the batches
behind it from being sent until all its chunks are stored (`chunked_send`).
"""

from collections import deque
from dataclasses import dataclass

from oncelog.core.errors import InvariantViolated
from oncelog.core.formats.batch import HEADER_BYTES, Buffer, Checksum, PayloadFormat, encode_batch
from oncelog.core.formats.compression import Compression
from oncelog.core.ids import Generation, Position, ProducerId, SequenceId, SessionNumber
from oncelog.core.sdk.producer.chunked_send import ChunkedSend
from oncelog.core.sdk.producer.sequence_ids import BatchIds

#: The owner remembers the newest 64 batches of a producer, so at most as many may be in flight.
IN_FLIGHT_COUNT_MAX = 64
IN_FLIGHT_BYTES_MAX = 16 * 1024 * 1024
PENDING_BYTES_MAX = 64 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class BatchReady:
    """A batch to send, after the producer was reported open. request: ascending. ids None: assign them.

    payload: as stored, in `payload_format`; payload_raw_bytes: its size before compression. chunked: the value of the
    only message, which `payload` lacks; the requests before this one, as many as it has chunks, are theirs. unit: of
    the ids, only the first and the last one are known (`core.formats.batch`).
    """

    request: int
    payload: Buffer
    count: int
    ids: BatchIds | None
    now_ms: int
    compression: Compression = Compression.NONE
    payload_raw_bytes: int | None = None
    chunked: ChunkedSend | None = None
    payload_format: PayloadFormat = PayloadFormat.COLUMNS
    unit: bool = False


@dataclass(frozen=True, slots=True)
class SendBatches:
    """Write these batches in this order, after everything that was sent for the session before."""

    attempt: int
    session: SessionNumber
    batches: tuple[tuple[int, bytes], ...]


@dataclass(slots=True)
class PendingBatch:
    """One unanswered batch. payload: compressed with `compression`; after packing, a slice of `packed`."""

    request: int
    ids: BatchIds
    count: int
    payload: Buffer
    payload_raw_bytes: int
    compression: Compression
    publish_time_ms: int
    #: bytes on the wire and in the log, with all chunks
    size_bytes: int
    #: ids above it are in no earlier batch, of this instance or another
    own_above: SequenceId
    packed: bytes = b""
    packed_for: tuple[ProducerId, Generation] | None = None
    #: it was sent, in this or an earlier session: the owner may have stored it
    sent: bool = False
    #: it was also sent in an earlier session, which may have stored it
    resent: bool = False
    #: unanswered in the current session
    in_flight: bool = False
    #: its caller got DeadlineExceeded; the batch stays pending to keep the order
    given_up: bool = False
    chunked: ChunkedSend | None = None
    payload_format: PayloadFormat = PayloadFormat.COLUMNS
    unit: bool = False

    @property
    def window_bytes(self) -> int:
        """What it takes of the window when it is in flight. Its chunks are stored by then."""
        return self.size_bytes if self.chunked is None else self.size_bytes - len(self.chunked.value)

    def pack(self, producer_id: ProducerId, generation: Generation, checksum: Checksum) -> bytes:
        """The batch's bytes, made once for each generation; those that name chunks, for each session."""
        if self.chunked is not None:
            payload = bytes(self.payload) + self.chunked.names()
            return encode_batch(
                payload,
                producer_id=producer_id,
                generation=generation,
                first=self.ids.first,
                last=self.ids.last,
                count=1,
                publish_time_ms=self.publish_time_ms,
                checksum=checksum,
                payload_format=PayloadFormat.CHUNKED,
            )
        if self.packed_for != (producer_id, generation):
            self.packed = encode_batch(
                self.payload,
                producer_id=producer_id,
                generation=generation,
                first=self.ids.first,
                last=self.ids.last,
                count=self.count,
                publish_time_ms=self.publish_time_ms,
                checksum=checksum,
                deltas=self.ids.deltas,
                compression=self.compression,
                payload_raw_bytes=self.payload_raw_bytes,
                payload_format=self.payload_format,
                unit=self.unit,
            )
            self.packed_for = (producer_id, generation)
            # Keep one copy of the payload: the one inside the packed bytes.
            self.payload = memoryview(self.packed)[HEADER_BYTES + len(self.ids.deltas) :]
        return self.packed


class PendingBatches:
    """Changed only by the producer session that owns it."""

    def __init__(self, checksum: Checksum, *, in_flight_count_max: int, in_flight_bytes_max: int) -> None:
        self._checksum = checksum
        self._in_flight_count_max = in_flight_count_max
        self._in_flight_bytes_max = in_flight_bytes_max
        #: {request: batch}, in the order of sending
        self._batches: dict[int, PendingBatch] = {}
        #: requests not yet sent in the current session, a suffix of the batches' order
        self._unsent: deque[int] = deque()
        self.bytes_total = 0
        self.in_flight_count = 0
        self.in_flight_bytes = 0

    def __len__(self) -> int:
        return len(self._batches)

    @property
    def oldest(self) -> PendingBatch | None:
        return next(iter(self._batches.values()), None)

    @property
    def any_sent(self) -> bool:
        """Whether some pending batch was ever sent."""
        return any(batch.sent for batch in self._batches.values())

    @property
    def window_closed(self) -> bool:
        """Whether another batch could not be sent now."""
        full = self.in_flight_count >= self._in_flight_count_max or self.in_flight_bytes >= self._in_flight_bytes_max
        return full or bool(self._unsent)

    def get(self, request: int) -> PendingBatch | None:
        return self._batches.get(request)

    def add(self, batch: PendingBatch) -> None:
        self._batches[batch.request] = batch
        self._unsent.append(batch.request)
        self.bytes_total += batch.size_bytes

    def answered(self, request: int) -> PendingBatch | None:
        """Remove the batch. None when it is not in flight: the answer is repeated, or the peer's error."""
        batch = self._batches.get(request)
        if batch is None or not batch.in_flight:
            return None
        del self._batches[request]
        self.bytes_total -= batch.size_bytes
        self.in_flight_count -= 1
        self.in_flight_bytes -= batch.window_bytes
        return batch

    # --- the message in chunks that is being sent ---

    @property
    def _sending(self) -> PendingBatch | None:
        """The next batch to be sent, if it is in chunks."""
        batch = self._batches[self._unsent[0]] if self._unsent else None
        return batch if batch is not None and batch.chunked is not None else None

    def of_chunk(self, request: int) -> PendingBatch | None:
        """The message whose chunk has this request number and is in flight."""
        batch = self._sending
        if batch is None or batch.chunked is None:
            return None
        return batch if self._number_of(batch, batch.chunked, request) in batch.chunked.in_flight else None

    def chunk_stored(self, request: int, position: Position) -> None:
        """The chunk that is in flight with this request number is stored there."""
        batch = self._sending
        assert batch is not None
        assert batch.chunked is not None
        self.in_flight_bytes -= batch.chunked.answered(self._number_of(batch, batch.chunked, request), position)
        self.in_flight_count -= 1

    def chunks_decided(self, batch: PendingBatch) -> None:
        """The answer to a chunk decides about its message: the message counts as sent."""
        assert batch is self._sending
        assert batch.chunked is not None
        self._unsent.popleft()
        self.in_flight_count += 1 - len(batch.chunked.in_flight)
        self.in_flight_bytes += batch.window_bytes - sum(batch.chunked.in_flight.values())
        batch.chunked.restart()
        batch.sent = batch.in_flight = True

    @staticmethod
    def _number_of(batch: PendingBatch, chunked: ChunkedSend, request: int) -> int:
        return request - batch.request + chunked.count

    def restart(self) -> None:
        """The session has ended: all pending batches are to be sent again, oldest first."""
        for batch in self._batches.values():
            batch.in_flight, batch.resent = False, batch.sent
            if batch.chunked is not None:
                batch.chunked.restart()
        self._unsent = deque(self._batches)
        self.in_flight_count = self.in_flight_bytes = 0

    def take(self, producer_id: ProducerId, generation: Generation) -> tuple[tuple[int, bytes], ...]:
        """(request, bytes) of the batches that may be sent now, in order. They are in flight from then on."""
        taken: list[tuple[int, bytes]] = []
        while self._unsent and self.in_flight_count < self._in_flight_count_max:
            batch = self._batches[self._unsent[0]]
            chunk_bytes = 0 if batch.chunked is None else batch.chunked.next_bytes
            size_bytes = chunk_bytes or batch.window_bytes
            if self.in_flight_count and self.in_flight_bytes + size_bytes > self._in_flight_bytes_max:
                break
            if batch.chunked is not None and chunk_bytes:
                number, packed = batch.chunked.take(
                    producer_id, generation, batch.ids.first, batch.publish_time_ms, self._checksum
                )
                taken.append((batch.request - batch.chunked.count + number, packed))
                self.in_flight_count += 1
                self.in_flight_bytes += len(packed)
                continue
            if batch.chunked is not None and not batch.chunked.stored:
                break
            self._unsent.popleft()
            taken.append((batch.request, batch.pack(producer_id, generation, self._checksum)))
            batch.sent = batch.in_flight = True
            self.in_flight_count += 1
            self.in_flight_bytes += batch.window_bytes
        return tuple(taken)

    def drain(self) -> list[PendingBatch]:
        """Remove all batches: the producer has ended."""
        batches = list(self._batches.values())
        self._batches.clear()
        self.restart()
        self.bytes_total = 0
        return batches

    def check_invariants(self) -> None:
        batches = self._batches.values()
        in_flight = [batch.window_bytes for batch in batches if batch.in_flight]
        in_flight += [size for b in batches if b.chunked is not None for size in b.chunked.in_flight.values()]
        if self.bytes_total != sum(batch.size_bytes for batch in batches):
            raise InvariantViolated("pending bytes do not add up")
        if (self.in_flight_count, self.in_flight_bytes) != (len(in_flight), sum(in_flight)):
            raise InvariantViolated("what is in flight does not add up")
        if list(self._unsent) != [batch.request for batch in batches if not batch.in_flight]:
            raise InvariantViolated("a batch is neither in flight nor waiting in order")
        if list(self._batches) != sorted(self._batches):
            raise InvariantViolated("pending batches are out of order")
