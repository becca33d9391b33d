"""A message in chunks as clients of Pulsar get it: chunk by chunk, whoever has sent it.

The SDK and clients of Pulsar store chunks in the same way (`oncelog.core.formats.chunks`). Each stored chunk is a chunk
for the client, which joins them. So a door never holds more than one, and the message may be larger than any that
clients take.

- **The last chunk has the id of the message**, the others have an id of no message (`message_ids`).
- **Each has the whole metadata**, as clients write it. That of a client of Pulsar comes back as it was sent.
- **Each delivery has a `uuid` of its own.** A client that has some chunks of a message, and gets it again from chunk 0
  on, may drop all of it if the `uuid` is the same, as C++ 4.2.0 does, and skip the message (hazard
  chunks-begin-again).
"""

from oncelog.core.errors import MessageTooLarge
from oncelog.core.formats.batch import Buffer, PayloadFormat, payload_of
from oncelog.core.formats.chunks import decode_chunk_names
from oncelog.core.formats.columns import Column, decode_columns, split_columns
from oncelog_doors.core.pulsar.deliveries import Delivery, RawBatch, metadata_of
from oncelog_doors.core.pulsar.entry_cuts import CHUNK_COUNT, CHUNK_NUMBER, CHUNKS_BYTES, RAW_BYTES, UUID
from oncelog_doors.core.pulsar.message_ids import DeliveredId, chunk_place
from oncelog_doors.core.pulsar.protobuf_fields import bytes_field, number_field

#: Of uuid, count, bytes and number of a chunk. Clients that cut a value leave no room for them in its chunks, and take
#: frames that are larger than the largest message by 10 KiB.
_OF_CHUNK_BYTES_MAX = 256


def is_in_chunks(raw: RawBatch) -> bool:
    return raw.batch.payload_format == PayloadFormat.CHUNKED


class ChunkedDelivery:
    """One delivery of a message in chunks. Attributes: count: of its chunks."""

    def __init__(self, raw: RawBatch, tag: str) -> None:
        """tag: no other delivery of the message has it. Raises InvalidBatch."""
        payload = payload_of(raw.batch, raw.body)
        names = decode_chunk_names(payload)
        columns = split_columns(payload, 1)
        self.count = len(names.chunks)
        self._entry = raw.entry
        if Column.PULSAR in columns:
            front = bytes(columns[Column.PULSAR])
        else:
            front = metadata_of(raw, decode_columns(payload, 1)) + number_field(RAW_BYTES, names.value_bytes)
        place = raw.entry.position
        uuid = bytes_field(UUID, f"{place}-{tag}".encode())
        self._front = front + uuid + number_field(CHUNK_COUNT, self.count)
        self._front += number_field(CHUNKS_BYTES, names.value_bytes)

    def chunk(self, number: int, data: Buffer, bytes_max: int) -> Delivery:
        """What is sent of a chunk with these bytes. bytes_max: of metadata and chunk, as a client cuts them. Raises
        MessageTooLarge."""
        entry, metadata = self._entry, self._front + number_field(CHUNK_NUMBER, number)
        if len(metadata) + len(data) > bytes_max + _OF_CHUNK_BYTES_MAX:
            raise MessageTooLarge(
                f"chunk {number} of message {entry.position} has {len(metadata) + len(data)} bytes for a client of "
                f"Pulsar, at most {bytes_max} are delivered: read it with the SDK, or start the reader behind it",
                field="message", limit=bytes_max, message_id=str(entry.position),
            )  # fmt: skip
        is_last = number == self.count - 1
        at = DeliveredId(entry.position if is_last else chunk_place(entry.position))
        return Delivery(at, 1, entry.next_index - 1, entry.append_time_ms, None, metadata, bytes(data))
