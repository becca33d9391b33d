"""A client of Pulsar without a library: it replays SENDs, and counts what it receives. Of a command only the kind is
read, and the number of its messages."""

import asyncio
import time
from collections.abc import Sequence
from functools import lru_cache, partial
from struct import Struct
from typing import Self

from oncelog.core.formats.wire.pulsar_metadata_pb2 import EntryMetadata, MessageMetadata
from oncelog_doors.pulsar.commands import TYPES, command
from oncelog_doors.pulsar.frames import build_entry, frame_of, frame_with_entry
from oncelog_doors.wire import pulsar_commands_pb2 as pb
from oncelog_doors.wire.pulsar_values_pb2 import MessageId
from oncelog_lab.bench.door.bare_connection import SIZE, BareConnection
from oncelog_lab.values import make_values

PRODUCER = "bench"
_VERSION, _PROTOCOL = "Pulsar-CPP-v4.2.0", 20
_REQUEST, _NUMBER = 1, 1
_EARLIEST = MessageId(ledger_id=2**64 - 1, entry_id=2**64 - 1)
_SIZES = Struct(">II")
#: A command begins with its type: a tag, and a number below 128.
_TYPE_AT = _SIZES.size + 1
_ENTRY = Struct(">HII")
_RECEIPT, _MESSAGE, _PING = TYPES["send_receipt"], TYPES["message"], TYPES["ping"]
_ANSWERS = {TYPES[name] for name in ("connected", "producer_success", "success")}
_NAMES = {number: name for name, number in TYPES.items()}


@lru_cache(maxsize=1)  # each run of a row replays the same frames
def _recorded(frames: int, messages: int, message_bytes: int) -> list[bytes]:
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
    return SIZE.pack(len(metadata)) + metadata + value


class BarePulsar(BareConnection):
    """One connection, for one topic."""

    def __init__(self, topic: str) -> None:
        super().__init__()
        self._topic = topic
        self._answers = 0

    @classmethod
    async def connected(cls, url: str, topic: str) -> Self:
        """url: pulsar://host:port. topic: tenant/namespace/name. Raises LabFailed."""
        host, _, port = url.rpartition("//")[2].rpartition(":")
        _transport, client = await asyncio.get_running_loop().create_connection(
            partial(cls, f"persistent://{topic}"), host, int(port)
        )
        await client.ask(command(connect=pb.Connect(client_version=_VERSION, protocol_version=_PROTOCOL)))
        return client

    async def open_producer(self) -> None:
        """It is new, and called PRODUCER. Raises LabFailed."""
        opened = pb.Producer(topic=self._topic, producer_id=_NUMBER, request_id=_REQUEST, name=PRODUCER)
        await self.ask(command(producer=opened))

    @staticmethod
    def recorded(frames: int, *, messages: int, message_bytes: int) -> list[bytes]:
        """Frames of the open producer, of any connection. messages: of each frame; 1: without a batch."""
        return _recorded(frames, messages, message_bytes)

    async def read(self, total: int) -> float:
        """Read so many messages from the first one on. Returns seconds, from the opening on. Raises LabFailed."""
        began = time.perf_counter()
        asked = pb.Subscribe(
            topic=self._topic, subscription=f"bench-{time.time_ns()}", consumer_id=_NUMBER, request_id=_REQUEST,
            type=pb.Subscribe.EXCLUSIVE, durable=False, start=_EARLIEST,
        )  # fmt: skip
        await self.ask(command(subscribe=asked))
        self._write(command(flow=pb.Flow(consumer_id=_NUMBER, permits=total)))
        await self._until(lambda: self.messages >= total)
        return time.perf_counter() - began

    async def keep_alive(self) -> None:
        self._write(command(ping=pb.Ping()))

    async def ask(self, request: pb.Command) -> None:
        """Return when it is answered. Raises LabFailed."""
        answers = self._answers
        self._write(request)
        await self._until(lambda: self._answers > answers)

    def _write(self, request: pb.Command) -> None:
        self._transport.write(frame_of(request))

    def _take(self, at: int, end: int) -> None:
        kind = self._buffer[at + _TYPE_AT]
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
