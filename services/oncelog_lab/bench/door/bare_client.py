"""A client of Pulsar that is cheaper than any client library: it replays SENDs, and counts what it receives.

A client library would be the bottleneck of some rows: it packs batches and makes an object of each message. Frames are
built before the run, and of what is received only the kind of a command and the number of its messages are read.
"""

import asyncio
import time
from collections.abc import Callable, Sequence
from struct import Struct
from typing import Self, cast

from oncelog.core.formats.wire.pulsar_metadata_pb2 import EntryMetadata, MessageMetadata
from oncelog_doors.pulsar.commands import TYPES, command
from oncelog_doors.pulsar.frames import build_entry, frame_of, frame_with_entry
from oncelog_doors.wire import pulsar_commands_pb2 as pb
from oncelog_doors.wire.pulsar_values_pb2 import MessageId
from oncelog_lab.bench.baseline import DRAIN_S
from oncelog_lab.failures import LabFailed
from oncelog_lab.values import make_values

PRODUCER = "bench"
_VERSION, _PROTOCOL = "Pulsar-CPP-v4.2.0", 20
_REQUEST, _NUMBER = 1, 1
_EARLIEST = MessageId(ledger_id=2**64 - 1, entry_id=2**64 - 1)
_SIZE, _SIZES = Struct(">I"), Struct(">II")
#: A command begins with its type: a tag, and a number below 128.
_TYPE_AT = _SIZES.size + 1
_ENTRY = Struct(">HII")
_RECEIPT, _MESSAGE, _PING = TYPES["send_receipt"], TYPES["message"], TYPES["ping"]
_ANSWERS = {TYPES[name] for name in ("connected", "producer_success", "success")}
_NAMES = {number: name for name, number in TYPES.items()}


def recorded_sends(frames: int, *, messages: int, message_bytes: int) -> list[bytes]:
    """Frames of a new producer that is called PRODUCER. messages: of each frame; 1: without a batch."""
    values = make_values(message_bytes, messages)
    return [_send(1 + number * messages, values) for number in range(frames)]


def _send(first: int, values: Sequence[bytes]) -> bytes:
    metadata = EntryMetadata(producer_name=PRODUCER, sequence_id=first, publish_time=time.time_ns() // 1_000_000)
    sent = pb.Send(producer_id=_NUMBER, sequence_id=first, message_count=len(values))
    payload = values[0]
    if len(values) > 1:
        payload = b"".join(_described(number, value) for number, value in enumerate(values, first))
        metadata.count, metadata.raw_bytes = len(values), len(payload)
        metadata.highest_sequence_id = sent.highest_sequence_id = first + len(values) - 1
    return b"".join(frame_with_entry(command(send=sent), build_entry(metadata.SerializeToString(), payload)))


def _described(sequence_id: int, value: bytes) -> bytes:
    metadata = MessageMetadata(payload_bytes=len(value), sequence_id=sequence_id).SerializeToString()
    return _SIZE.pack(len(metadata)) + metadata + value


class BareClient(asyncio.Protocol):
    """One connection. receipts, messages: received so far."""

    def __init__(self) -> None:
        self.receipts = self.messages = 0
        self._answers = 0
        self._failed: str | None = None
        self._buffer = bytearray()
        self._changed = asyncio.Event()

    @classmethod
    async def connected(cls, url: str) -> Self:
        """url: pulsar://host:port. Raises LabFailed."""
        host, _, port = url.rpartition("//")[2].rpartition(":")
        _transport, client = await asyncio.get_running_loop().create_connection(cls, host, int(port))
        await client.ask(command(connect=pb.Connect(client_version=_VERSION, protocol_version=_PROTOCOL)))
        return client

    async def open_producer(self, topic: str) -> None:
        """Raises LabFailed."""
        opened = pb.Producer(topic=topic, producer_id=_NUMBER, request_id=_REQUEST, name=PRODUCER)
        await self.ask(command(producer=opened))

    async def publish(self, frames: Sequence[bytes], window: int) -> float:
        """Send these frames, `window` of them at a time. Returns seconds, until the last receipt. Raises LabFailed."""
        began, sent = time.perf_counter(), 0
        while self.receipts < len(frames):
            ends = min(len(frames), self.receipts + window)
            self._transport.writelines(frames[sent:ends])
            sent, answered = ends, self.receipts
            await self._until(lambda before=answered: self.receipts > before)  # type: ignore[misc]
        return time.perf_counter() - began

    async def read(self, topic: str, total: int) -> float:
        """Read so many messages from the first one on. Returns seconds, from the opening on. Raises LabFailed."""
        began = time.perf_counter()
        asked = pb.Subscribe(
            topic=topic, subscription=f"bench-{time.time_ns()}", consumer_id=_NUMBER, request_id=_REQUEST,
            type=pb.Subscribe.EXCLUSIVE, durable=False, start=_EARLIEST,
        )  # fmt: skip
        await self.ask(command(subscribe=asked))
        self._write(command(flow=pb.Flow(consumer_id=_NUMBER, permits=total)))
        await self._until(lambda: self.messages >= total)
        return time.perf_counter() - began

    def ping(self) -> None:
        self._write(command(ping=pb.Ping()))

    def close(self) -> None:
        self._transport.close()

    def check(self) -> None:
        """Raises LabFailed if the connection is lost."""
        if self._failed is not None:
            raise LabFailed(self._failed)

    async def ask(self, request: pb.Command) -> None:
        """Return when it is answered. Raises LabFailed."""
        answers = self._answers
        self._write(request)
        await self._until(lambda: self._answers > answers)

    async def _until(self, done: Callable[[], bool]) -> None:
        """Raises LabFailed if nothing is received for DRAIN_S."""
        try:
            while not done():
                self.check()
                self._changed.clear()
                async with asyncio.timeout(DRAIN_S):
                    await self._changed.wait()
        except TimeoutError as late:
            raise LabFailed(f"the door has sent nothing for {DRAIN_S:.0f} s") from late

    def _write(self, request: pb.Command) -> None:
        self._transport.write(frame_of(request))

    # --- asyncio ------------------------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        buffer, at = self._buffer, 0
        buffer += data
        while len(buffer) - at > _TYPE_AT:
            end = at + _SIZE.size + _SIZE.unpack_from(buffer, at)[0]
            if end > len(buffer):
                break
            self._take(buffer[at + _TYPE_AT], at)
            at = end
        del buffer[:at]
        self._changed.set()

    def _take(self, kind: int, at: int) -> None:
        if kind == _RECEIPT:
            self.receipts += 1
        elif kind == _MESSAGE:
            self.messages += self._messages_of(at)
        elif kind in _ANSWERS:
            self._answers += 1
        elif kind == _PING:
            self._write(command(pong=pb.Pong()))
        elif kind != TYPES["pong"]:
            self._failed = f"the door has answered {_NAMES.get(kind, kind)}"

    def _messages_of(self, at: int) -> int:
        entry_at = at + _SIZES.size + _SIZES.unpack_from(self._buffer, at)[1]
        _mark, _checksum, size = _ENTRY.unpack_from(self._buffer, entry_at)
        begins = entry_at + _ENTRY.size
        return EntryMetadata.FromString(bytes(self._buffer[begins : begins + size])).count or 1

    def connection_lost(self, error: Exception | None) -> None:
        self._failed = self._failed or f"the door has closed the connection: {error or 'without an error'}"
        self._changed.set()
