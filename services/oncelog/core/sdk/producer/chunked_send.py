"""The sending of one message in chunks: which chunk goes next, and what the message names in the end.

    chunks, as the window allows --each answered with its position--> the message that names them --answered--> done
    a new session, at any point: from the first chunk on

Chunk number i of a message with n chunks is request number `request - n + i` of its session. Chunks are cut and packed
when they are sent, so the value is the only copy beside those in flight.
"""

from collections.abc import Sequence

from oncelog.core.formats.batch import HEADER_BYTES, Checksum, PayloadFormat, encode_batch
from oncelog.core.formats.chunks import (
    CHUNKED_BYTES_MAX,
    CHUNKS_MAX,
    OFFSET_BYTES,
    ChunkName,
    ChunkNames,
    encode_chunk,
    encode_chunk_names,
)
from oncelog.core.ids import Generation, LedgerId, Position, ProducerId, SequenceId

#: Of one chunk, unless the topic's limit of a message is lower.
CHUNK_BYTES = 1024 * 1024


def chunked_bytes_max(message_bytes_max: int) -> int:
    """The largest value that can be sent in chunks to a topic with this limit of a message."""
    return min(CHUNKED_BYTES_MAX, CHUNKS_MAX * min(CHUNK_BYTES, message_bytes_max))


class ChunkedSend:
    """Of one message. Changed only by the pending batches that own it."""

    def __init__(self, value: bytes, message_bytes_max: int) -> None:
        self.value = value
        self.chunk_bytes = min(CHUNK_BYTES, message_bytes_max)
        self.count = -(-len(value) // self.chunk_bytes)
        self._ledger_id = LedgerId(0)
        self.restart()

    def restart(self) -> None:
        """A new session, or none: nothing of what was sent counts."""
        #: checksums of the chunks sent in the session, in order
        self._checksums: list[int] = []
        #: {number of an unanswered chunk: bytes of its batch}
        self.in_flight: dict[int, int] = {}
        self._stored: dict[int, ChunkName] = {}

    @property
    def next_bytes(self) -> int:
        """Bytes of the next chunk's batch; 0: all were sent."""
        left = len(self.value) - len(self._checksums) * self.chunk_bytes
        return HEADER_BYTES + OFFSET_BYTES + min(left, self.chunk_bytes) if left > 0 else 0

    @property
    def stored(self) -> bool:
        """Whether all chunks were answered."""
        return len(self._stored) == self.count

    def take(
        self, producer_id: ProducerId, generation: Generation, sequence_id: SequenceId, time_ms: int, checksum: Checksum
    ) -> tuple[int, bytes]:
        """(number, batch) of the next chunk, which is in flight from then on."""
        number = len(self._checksums)
        at = number * self.chunk_bytes
        packed = encode_batch(
            encode_chunk(at, memoryview(self.value)[at : at + self.chunk_bytes]),
            producer_id=producer_id,
            generation=generation,
            first=sequence_id,
            last=sequence_id,
            count=1,
            publish_time_ms=time_ms,
            checksum=checksum,
            payload_format=PayloadFormat.CHUNK,
        )
        self._checksums.append(int.from_bytes(packed[4:8], "little"))
        self.in_flight[number] = len(packed)
        return number, packed

    def answered(self, number: int, position: Position) -> int:
        """The chunk is stored there. Returns the bytes that are not in flight any more."""
        self._ledger_id = position.ledger_id
        self._stored[number] = ChunkName(position.entry_id, self._checksums[number])
        return self.in_flight.pop(number)

    def names(self) -> bytes:
        """The column that names the chunks; all are stored."""
        chunks: Sequence[ChunkName] = [self._stored[number] for number in range(self.count)]
        return encode_chunk_names(ChunkNames(self._ledger_id, len(self.value), tuple(chunks)))
