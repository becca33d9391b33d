"""What waits to be sent to a consumer that does not read is bounded: the owner stops reading its stream."""

import asyncio
from typing import cast

import pytest

from oncelog.core.access import Caller
from oncelog.core.ids import ConsumerNumber, EntryId, Generation, LedgerId, OwnerEpoch, Position, SeekEpoch
from oncelog.core.subscriptions.changes import IndexRange
from oncelog.core.subscriptions.events import DeliveredEntry, DeliverMessages, StoredEntry
from oncelog.rpc.consumer_codec import ConsumerRequest, ReportedEvent
from oncelog.rpc.server import ServerStream
from oncelog.topic_owner.authorization import Checks
from oncelog.topic_owner.consume_service import REPORTS_BYTES_MAX, ConsumeStream
from oncelog.topic_owner.topic_registry import TopicRegistry
from tests.cluster.until import until

pytestmark = pytest.mark.asyncio
FRAMES = 10
#: shared by all deliveries, so that the test needs little memory
MIB = bytes(1024 * 1024)


class UnreadStream:
    """A client that sends empty frames, and reads nothing until `reads` is set."""

    def __init__(self) -> None:
        self.caller = Caller("", superuser=True)
        self.reads = asyncio.Event()
        self.taken = 0
        self.written: list[int] = []

    def __aiter__(self) -> "UnreadStream":
        return self

    async def __anext__(self) -> list[ConsumerRequest]:
        if self.taken == FRAMES:
            raise StopAsyncIteration
        self.taken += 1
        return []

    async def write(self, frame: list[ReportedEvent]) -> None:
        await self.reads.wait()
        self.written.append(len(frame))


def delivery() -> ReportedEvent:
    entry = StoredEntry(Position(LedgerId(1), EntryId(0)), 0, 1, 0, MIB)
    report = DeliverMessages(
        ConsumerNumber(1), SeekEpoch(0), Generation(0), (DeliveredEntry(entry, (IndexRange(0, 0),)),)
    )
    return ReportedEvent(OwnerEpoch(1), report)


async def test_requests_wait_while_too_many_bytes_are_to_be_sent() -> None:
    """A client with many consumers would otherwise have its owner hold the window of each of them."""
    async with asyncio.timeout(30), asyncio.TaskGroup() as tasks:
        stream = UnreadStream()
        client = ConsumeStream(
            cast("TopicRegistry", None),
            cast("ServerStream[list[ConsumerRequest], list[ReportedEvent]]", stream),
            Checks(tasks),
        )
        count = REPORTS_BYTES_MAX // len(MIB)
        for _ in range(count):
            client.reported(delivery())
        before = client._is_full
        client.reported(delivery())
        assert (before, client._is_full) == (False, True)
        receiving = tasks.create_task(client.receive())
        await until(lambda: stream.taken > 0, 30)
        assert not client._room.is_set()
        assert stream.taken == 1
        tasks.create_task(client.send())
        stream.reads.set()
        await receiving
        assert stream.taken == FRAMES
        await until(lambda: sum(stream.written) == count + 1, 30)
        assert client._out._bytes == 0
        client.close()
