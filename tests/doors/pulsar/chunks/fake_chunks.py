"""The chunks of messages in memory, in the form that a door needs."""

import asyncio
import itertools

from oncelog.core.errors import OncelogError
from oncelog.core.ids import Position
from oncelog_doors.core.pulsar.chunked_deliveries import ChunkedDelivery, is_in_chunks
from oncelog_doors.core.pulsar.deliveries import Delivery, RawBatch


class FakeChunks:
    """Of a topic. of: {place of a message: its chunks, or the error of reading one}. come: a chunk waits for it."""

    def __init__(self) -> None:
        self.of: dict[Position, list[bytes | OncelogError]] = {}
        self.come = asyncio.Event()
        self.come.set()
        self.tags = itertools.count(1)

    def of_entry(self, raw: RawBatch) -> "FakeMessage | None":
        return FakeMessage(self, raw) if is_in_chunks(raw) else None


class FakeMessage:
    """Has the form of `ChunksPort`."""

    def __init__(self, topic: FakeChunks, raw: RawBatch) -> None:
        self._delivery = ChunkedDelivery(raw, f"tag-{next(topic.tags)}")
        self._topic, self._chunks = topic, topic.of[raw.entry.position]
        self.count = len(self._chunks)

    async def read(self, number: int, bytes_max: int) -> Delivery:
        await self._topic.come.wait()
        found = self._chunks[number]
        if isinstance(found, OncelogError):
            raise found
        return self._delivery.chunk(number, found, bytes_max)
