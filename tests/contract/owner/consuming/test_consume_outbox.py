"""What waits for a client that does not read: messages within the budget, and a bounded number of answers."""

import asyncio
from typing import cast

import pytest

from oncelog.core.access import Caller
from oncelog.core.acks.changes import IndexRange
from oncelog.core.delivery.events import AnswerAck, DeliveredEntry, DeliverMessages, StoredEntry
from oncelog.core.ids import ConsumerNumber, EntryId, Generation, LedgerId, OwnerEpoch, Position, SeekEpoch
from oncelog.core.process_version import PROCESS_VERSION
from oncelog.rpc.codecs.consumer_codec import ConsumerRequest, ReportedEvent
from oncelog.rpc.server import ServerStream
from oncelog.topic_owner.shell.topic_registry import TopicRegistry
from oncelog.topic_owner.streams.consume_service import REPORTS_MIN, ConsumeStream
from oncelog.topic_owner.streams.stream_rooms import StreamRooms
from tests.cluster.until import until

pytestmark = pytest.mark.asyncio
FRAMES = 10
#: shared by all deliveries, so that the test needs little memory
MIB = bytes(1024 * 1024)


class UnreadStream:
    """A client that sends empty frames, and reads nothing until `reads` is set."""

    def __init__(self) -> None:
        self.caller = Caller("", superuser=True)
        self.peer = "ipv4:127.0.0.1:1"
        self.reads = asyncio.Event()
        self.taken = 0
        self.writing = 0
        self.written: list[int] = []

    def __aiter__(self) -> "UnreadStream":
        return self

    async def __anext__(self) -> list[ConsumerRequest]:
        await until(lambda: self.writing > 0, 30)
        if self.taken == FRAMES:
            raise StopAsyncIteration
        self.taken += 1
        return []

    async def write(self, frame: list[ReportedEvent]) -> None:
        self.writing += 1
        await self.reads.wait()
        self.written.append(len(frame))


def delivery(client: ConsumeStream) -> ReportedEvent:
    entry = StoredEntry(Position(LedgerId(1), EntryId(0)), 0, 1, 0, MIB)
    report = DeliverMessages(
        ConsumerNumber(1),
        SeekEpoch(0),
        Generation(0),
        (DeliveredEntry(entry, (IndexRange(0, 0),)),),
        outbox=client.outbox,
    )
    return ReportedEvent(OwnerEpoch(1), report)


def answer() -> ReportedEvent:
    return ReportedEvent(OwnerEpoch(1), AnswerAck(ConsumerNumber(1), 1))


def stream_of(unread: UnreadStream, rooms: StreamRooms) -> ConsumeStream:
    stream = cast("ServerStream[list[ConsumerRequest], list[ReportedEvent]]", unread)
    return ConsumeStream(cast("TopicRegistry", None), stream, rooms, lambda: PROCESS_VERSION)


async def test_client_that_does_not_read_its_messages_can_acknowledge() -> None:
    """Reading from a stream stops only for answers that wait: messages were delivered within the budget, and
    acknowledgements let the topic go on."""
    async with asyncio.timeout(30), asyncio.TaskGroup() as tasks:
        rooms = StreamRooms(bytes_max=8 * len(MIB), caller_streams_max=1)
        stream = UnreadStream()
        client = stream_of(stream, rooms)
        while client.outbox.ask(1):
            report = delivery(client)
            assert isinstance(report.report, DeliverMessages)
            client.outbox.take(report.report.cost_bytes)
            client.reported(report)
        serving = tasks.create_task(client.serve())
        await until(lambda: stream.taken == FRAMES, 30)
        stream.reads.set()
        await serving


async def test_requests_wait_while_too_many_answers_are_to_be_sent() -> None:
    """A client that acknowledges and never reads would otherwise fill the memory with answers. While the budget is used
    up, few answers are enough; what is sent gives its bytes back."""
    async with asyncio.timeout(30), asyncio.TaskGroup() as tasks:
        rooms = StreamRooms(bytes_max=len(MIB), caller_streams_max=2)
        other = rooms.budget.open("another", woken=lambda _: None)
        other.take(2 * len(MIB))
        stream = UnreadStream()
        client = stream_of(stream, rooms)
        client.reported(answer())
        serving = tasks.create_task(client.serve())
        await until(lambda: stream.writing > 0, 30)
        for _ in range(REPORTS_MIN):
            client.reported(answer())
        before = client.is_full
        client.reported(answer())
        assert (before, client.is_full) == (False, True)
        await until(lambda: stream.taken > 0, 30)
        assert not client._room.is_set()
        assert stream.taken == 1
        stream.reads.set()
        await serving
        assert stream.taken == FRAMES
        assert sum(stream.written) == REPORTS_MIN + 2
        assert client.outbox.bytes == 0
