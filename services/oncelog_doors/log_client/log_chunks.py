"""The chunks of a stored message, in the form that a door needs (`pulsar.ports.ChunksPort`)."""

import secrets

from oncelog.client.gateways import EntryChunks
from oncelog.core.errors import CorruptEntry, InvalidBatch
from oncelog_doors.core.pulsar.chunked_deliveries import ChunkedDelivery
from oncelog_doors.core.pulsar.deliveries import Delivery, RawBatch

_TAG_BYTES = 6


class LogChunks:
    """Of one message. It is read from chunk 0 on."""

    def __init__(self, raw: RawBatch, chunks: EntryChunks) -> None:
        """Raises CorruptEntry."""
        self._position, self._chunks = raw.entry.position, chunks
        self.count = chunks.count
        self._read_bytes = 0
        try:
            self._delivery = ChunkedDelivery(raw, secrets.token_hex(_TAG_BYTES))
        except InvalidBatch as error:
            raise CorruptEntry(f"entry {self._position} cannot be read: {error}") from error

    async def read(self, number: int, bytes_max: int) -> Delivery:
        offset, data = await self._chunks.read(number)
        self._read_bytes += len(data)
        whole = number < self.count - 1 or self._read_bytes == self._chunks.value_bytes
        if offset + len(data) != self._read_bytes or not whole:
            raise CorruptEntry(f"chunk {number} of message {self._position} is not where it belongs in its value")
        return self._delivery.chunk(number, data, bytes_max)
