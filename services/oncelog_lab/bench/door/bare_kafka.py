"""A client of Kafka without a library: it replays Produce with idempotent batches, and counts what Fetch gives. Of a
batch only its head is read."""

import asyncio
import time
from functools import partial
from struct import Struct
from typing import Any, Self

from crc32c import crc32c

from oncelog.core.formats.columns import Columns, Values
from oncelog_doors.core.kafka.record_batches import batch_of_columns
from oncelog_doors.kafka.codec import Body, read_response, write_request
from oncelog_doors.wire.kafka_tables import REQUESTS
from oncelog_lab.bench.door.bare_connection import SIZE, BareConnection
from oncelog_lab.failures import LabFailed
from oncelog_lab.values import make_values

#: Those of librdkafka, without tagged fields.
_VERSIONS = {"Produce": 8, "Fetch": 11, "Metadata": 8, "InitProducerId": 1}
_HEAD = Struct(">hhih")
_NO_CLIENT = -1
#: In front of the body of an answer: its size, and the number of its request.
_NUMBER = Struct(">i")
_BODY_AT = SIZE.size + _NUMBER.size
#: Of a record batch: producer id, epoch and first number; what the checksum is of; length; offset of the last record.
_PRODUCER, _PRODUCER_AT = Struct(">qhi"), 43
_CHECKSUM, _CHECKSUM_AT, _CHECKED_FROM = Struct(">I"), 17, 21
_LENGTH_AT, _LENGTH_END, _LAST_AT = 8, 12, 23
_ALL_REPLICAS = -1
_TIMEOUT_MS = 30_000
#: As clients ask by default.
_ANSWER_BYTES, _PARTITION_BYTES, WAIT_MS = 52_428_800, 1_048_576, 500


class BareKafka(BareConnection):
    """One connection, for partition 0 of one topic."""

    def __init__(self, topic: str) -> None:
        super().__init__()
        self._topic = topic
        self._sent = 0
        self._producer_id = -1
        self._sequence = 0
        #: answers that are not to Produce, by their number
        self._answers: dict[int, bytes] = {}

    @classmethod
    async def connected(cls, servers: str, topic: str) -> Self:
        """servers: host:port. The topic is there when this returns. Raises LabFailed."""
        host, _, port = servers.rpartition(":")
        _transport, client = await asyncio.get_running_loop().create_connection(partial(cls, topic), host, int(port))
        await client.keep_alive()
        return client

    async def keep_alive(self) -> None:
        """Ask for the topic, as idle clients do. Raises LabFailed, also if the topic cannot be used."""
        wanted = {"topics": [{"name": self._topic}], "allow_auto_topic_creation": True}
        [topic] = (await self._ask("Metadata", wanted))["topics"]
        _check(topic, self._topic)

    async def open_producer(self) -> None:
        """Its first batch, of one message, is stored when this returns. Raises LabFailed."""
        self._producer_id = (await self._ask("InitProducerId", {"transaction_timeout_ms": -1}))["producer_id"]
        await self.publish(self.recorded(1, messages=1, message_bytes=1), 1)

    def recorded(self, frames: int, *, messages: int, message_bytes: int) -> list[bytes]:
        """Frames of the open producer, which are sent once, in this order. messages: of each frame."""
        data = memoryview(b"".join(make_values(message_bytes, messages)))
        columns = Columns(Values(data, range(0, len(data) + 1, message_bytes)))
        now_ms = time.time_ns() // 1_000_000
        batch = batch_of_columns(columns, range(messages), base_offset=0, publish_time_ms=now_ms, checksum=crc32c)
        return [self._produce(bytearray(batch), messages) for _ in range(frames)]

    def _produce(self, batch: bytearray, messages: int) -> bytes:
        _PRODUCER.pack_into(batch, _PRODUCER_AT, self._producer_id, 0, self._sequence)
        _CHECKSUM.pack_into(batch, _CHECKSUM_AT, crc32c(memoryview(batch)[_CHECKED_FROM:]))
        self._sequence += messages
        partition = {"index": 0, "records": batch}
        topics = [{"name": self._topic, "partition_data": [partition]}]
        return self._frame("Produce", {"acks": _ALL_REPLICAS, "timeout_ms": _TIMEOUT_MS, "topic_data": topics})

    async def read(self, total: int) -> float:
        """Read so many messages from the first one on, an answer after the other. Returns seconds. Raises LabFailed."""
        began = time.perf_counter()
        while self.messages < total:
            self.messages = await self.fetch(self.messages)
        return time.perf_counter() - began

    async def fetch(self, offset: int) -> int:
        """Returns the offset behind what was received, within WAIT_MS. Raises LabFailed."""
        partition = {"partition": 0, "fetch_offset": offset, "partition_max_bytes": _PARTITION_BYTES}
        asked = {"max_wait_ms": WAIT_MS, "min_bytes": 1, "max_bytes": _ANSWER_BYTES}
        topics = [{"topic": self._topic, "partitions": [partition]}]
        [topic] = (await self._ask("Fetch", asked | {"topics": topics}))["responses"]
        [found] = topic["partitions"]
        _check(found, self._topic)
        return _behind(found["records"], offset)

    # --- frames -------------------------------------------------------------------------------------------------------

    def _frame(self, api: str, body: Body) -> bytes:
        self._sent += 1
        head = _HEAD.pack(REQUESTS[api].key, _VERSIONS[api], self._sent, _NO_CLIENT)
        data = head + b"".join(write_request(api, _VERSIONS[api], body))
        return SIZE.pack(len(data)) + data

    async def _ask(self, api: str, body: Body) -> Body:
        """Raises LabFailed."""
        self._transport.write(self._frame(api, body))
        number = self._sent
        self._answers[number] = b""
        await self._until(lambda: bool(self._answers[number]))
        return read_response(api, _VERSIONS[api], self._answers.pop(number))

    def _take(self, at: int, end: int) -> None:
        [number] = _NUMBER.unpack_from(self._buffer, at + SIZE.size)
        data = bytes(memoryview(self._buffer)[at + _BODY_AT : end])
        if number in self._answers:
            self._answers[number] = data
            return
        [topic] = read_response("Produce", _VERSIONS["Produce"], data)["responses"]
        [partition] = topic["partition_responses"]
        if partition["error_code"]:
            self._failed = f"the door has answered error {partition['error_code']}: {partition['error_message']}"
        self.receipts += 1


def _check(found: dict[str, Any], topic: str) -> None:
    """Raises LabFailed."""
    if found["error_code"]:
        raise LabFailed(f"the door has answered error {found['error_code']} for {topic}")


def _behind(records: memoryview, offset: int) -> int:
    """Where the whole batches of an answer end."""
    at = 0
    while at < len(records):
        base, length = int.from_bytes(records[at : at + _LENGTH_AT]), records[at + _LENGTH_AT : at + _LENGTH_END]
        offset = base + int.from_bytes(records[at + _LAST_AT : at + _LAST_AT + 4]) + 1
        at += _LENGTH_END + int.from_bytes(length)
    return offset
