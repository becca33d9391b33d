"""What a consumer is sent: entries, as fast as its client takes them. The same for readers and for subscriptions."""

import asyncio
from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol

from oncelog.core.access import Caller
from oncelog.core.errors import OncelogError
from oncelog.core.formats.batch import LONG_CHECK_BYTES
from oncelog.core.names import TopicName
from oncelog.runtime.tasks import BackgroundTasks
from oncelog_doors.connections.ports import Timers
from oncelog_doors.connections.received import Buffer
from oncelog_doors.core.pulsar.connecting import message_bytes_max
from oncelog_doors.core.pulsar.deliveries import Delivery
from oncelog_doors.core.pulsar.families import ClientFamily
from oncelog_doors.core.pulsar.message_ids import DeliveredId
from oncelog_doors.core.pulsar.permits import Permits
from oncelog_doors.core.pulsar.server_errors import refusal_of
from oncelog_doors.pulsar import replies
from oncelog_doors.pulsar.commands import command
from oncelog_doors.pulsar.door_counts import DoorCounts
from oncelog_doors.pulsar.frames import build_entry
from oncelog_doors.pulsar.ports import ChunksPort, ClusterPort, Holder, ReaderPort
from oncelog_doors.wire.pulsar_commands_pb2 import Command, ConsumerStats
from oncelog_doors.wire.pulsar_values_pb2 import BrokerEntry

#: Above it an entry is made ready in another thread: it would delay all other clients.
PREPARED_HERE_BYTES_MAX = LONG_CHECK_BYTES
_NO_PARTITION = -1


class ConsumerSurroundings(Protocol):
    """What a consumer needs of its connection and its door."""

    caller: Caller
    family: ClientFamily
    peer: str
    counts: DoorCounts
    cluster: ClusterPort
    timers: Timers
    tasks: BackgroundTasks
    #: as `Home.consuming`
    consuming: BackgroundTasks
    #: the client asks for append time and index of each entry
    wants_broker_entry: bool

    @property
    def reads_along(self) -> bool:
        """Whether the client reads what it is sent: less than 1 MiB waits for it."""

    def wanted(self, holder: Holder) -> None:
        """Another client wants what this one holds: find out whether this one lives."""

    def write(self, answer: Command) -> None: ...
    def write_entry(self, front: Command, entry: Buffer, broker_entry: BrokerEntry | None) -> None: ...


class LastIdPort(Protocol):
    async def last_id(self) -> DeliveredId | None: ...


class Front(NamedTuple):
    """What MESSAGE says besides the place. redelivery_count: how often the entry was delivered before. ack_set: of the
    messages that the client is to take; empty: all. epoch: as the client has sent it; None: it has not."""

    redelivery_count: int = 0
    ack_set: Sequence[int] = ()
    epoch: int | None = None


_PLAIN = Front()


class EntrySender:
    """Of one consumer of one connection."""

    def __init__(self, around: ConsumerSurroundings, consumer_id: int, topic: TopicName) -> None:
        self._around = around
        self._consumer_id = consumer_id
        #: in the ids of its messages
        self.partition = _NO_PARTITION if topic.partition is None else topic.partition
        self.permits = Permits()
        #: set when `is_wanted` may have changed
        self.changed = asyncio.Event()
        self.messages_out = self.bytes_out = 0
        #: chunks that are not the last of their message: each costs a permit, and the client gives it back at once
        self.early_chunks = 0

    def flow(self, permits: int) -> None:
        self.permits.flow(permits)
        self.changed.set()

    def reads_again(self) -> None:
        """The client reads what it is sent."""
        self.changed.set()

    @property
    def is_wanted(self) -> bool:
        """Whether the client has a permit left, and reads what it is sent."""
        return self.permits.any and self._around.reads_along

    async def until_wanted(self) -> None:
        await self._wanted_while(lambda: True)

    async def _wanted_while(self, goes_on: Callable[[], bool]) -> bool:
        """Return when an entry may be sent, or nothing goes on: then False."""
        while goes_on() and not self.is_wanted:
            self.changed.clear()
            await self.changed.wait()
        return goes_on()

    async def ready(self, size: int, prepare: Callable[[int], Delivery]) -> Delivery:
        """An entry with its bytes. size: what `prepare` reads. prepare: given the bytes that the entry may have. Raises
        as that."""
        bytes_max = message_bytes_max(self._around.cluster.batch_bytes_max)
        if size <= PREPARED_HERE_BYTES_MAX:
            return _with_checksum(prepare(bytes_max))
        return await asyncio.to_thread(lambda: _with_checksum(prepare(bytes_max)))

    async def chunk(self, chunks: ChunksPort, number: int) -> Delivery:
        """A chunk of a message with its bytes. Raises as `ChunksPort.read`."""
        made = await chunks.read(number, message_bytes_max(self._around.cluster.batch_bytes_max))
        return await asyncio.to_thread(_with_checksum, made)

    async def last_chunk(
        self, chunks: ChunksPort, ready: Delivery, goes_on: Callable[[], bool], front: Front = _PLAIN
    ) -> Delivery | None:
        """Send a message in chunks, but its last chunk, which is returned when the client wants it. ready: chunk 0.
        goes_on: whether the client still gets the message; None is returned if not. Raises as `ChunksPort.read`."""
        for number in range(1, chunks.count):
            if not await self._wanted_while(goes_on):
                return None
            self.send(ready, front)
            self.early_chunks += 1
            ready = await self.chunk(chunks, number)
        return ready if await self._wanted_while(goes_on) else None

    def send(self, ready: Delivery, front: Front = _PLAIN) -> None:
        assert ready.whole is not None, "its bytes are made"
        around = self._around
        self.permits.sent(ready.messages)
        self.messages_out += ready.messages
        self.bytes_out += len(ready.whole)
        around.counts.delivered(ready.messages, len(ready.whole))
        broker_entry = replies.broker_entry(ready) if around.wants_broker_entry else None
        around.write_entry(
            replies.message(self._consumer_id, ready.id, self.partition, *front), ready.whole, broker_entry
        )

    async def answer_last_id(self, request_id: int, port: LastIdPort, reader: ReaderPort | None = None) -> None:
        """reader: the answer says where it has begun, too."""
        try:
            last = await port.last_id()
        except OncelogError as error:
            self._around.write(replies.error(request_id, refusal_of(error)))
        else:
            self._around.write(replies.last_message_id(request_id, last, self.partition, reader))

    def answer_stats(self, request_id: int, consumer_name: str, type_: str, **more: int) -> None:
        """type_: of the subscription. more: other fields of the answer."""
        stats = ConsumerStats(
            request_id=request_id,
            consumer_name=consumer_name,
            messages_out=self.messages_out,
            bytes_out=self.bytes_out,
            permits=max(0, self.permits.left),
            address=self._around.peer,
            type=type_,
            **more,  # type: ignore[arg-type]
        )
        self._around.write(command(consumer_stats=stats))


def _with_checksum(made: Delivery) -> Delivery:
    """Its bytes, if no client wrote them."""
    return made if made.whole is not None else made._replace(whole=build_entry(made.metadata, made.payload))
