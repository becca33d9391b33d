"""Frames of Kafka's protocol, by their request: `Produce`, and the answers to it `Produce answer`.

Every answer with an address has that of the proxy, wherever the door is.
"""

import asyncio
from collections import defaultdict
from collections.abc import Callable
from struct import Struct
from typing import Any

from oncelog_doors.kafka.codec import Body, read_request, read_response
from oncelog_doors.kafka.frames import Request, RequestReader, answer
from oncelog_doors.proof.proxy import FaultProxy, Link
from oncelog_doors.wire.kafka_tables import REQUESTS

_NUMBER = Struct(">i")
_SIZE = Struct(">i")
_FRAME_BYTES_MAX = 1 << 30


class KafkaLink(Link):
    def __init__(self, to_client: asyncio.StreamWriter, to_door: asyncio.StreamWriter) -> None:
        super().__init__(to_client, to_door)
        #: {correlation id: the request}
        self.asked: dict[int, Request] = {}


class KafkaProxy(FaultProxy):
    def __init__(self, door_port: Callable[[], int]) -> None:
        super().__init__(door_port)
        #: what clients got by InitProducerId
        self.producer_ids: list[int] = []
        #: what the next one gets in its place, as of the broker that was at this address before
        self.foreign_producer_id: int | None = None
        #: {partition: codes in place of those of the next answers to Produce, in order}
        self._replaced: defaultdict[int, list[int]] = defaultdict(list)

    def link_of(self, to_client: asyncio.StreamWriter, to_door: asyncio.StreamWriter) -> KafkaLink:
        return KafkaLink(to_client, to_door)

    def named(self, link: Link, body: bytes, *, of_client: bool) -> tuple[str, bytes]:
        assert isinstance(link, KafkaLink)
        if of_client:
            request = _request(body)
            link.asked[request.correlation_id] = request
            return request.api, body
        request = link.asked.pop(*_NUMBER.unpack_from(body))
        return f"{request.api} answer", self._answer(request, body)

    def _answer(self, request: Request, body: bytes) -> bytes:
        if request.api not in ("Metadata", "InitProducerId", "Produce"):
            return body
        found = _read(request, body)
        match request.api:
            case "Metadata":
                for broker in found["brokers"]:
                    broker |= {"host": "127.0.0.1", "port": self.port}
            case "InitProducerId":
                if self.foreign_producer_id is not None:
                    found |= {"producer_id": self.foreign_producer_id, "producer_epoch": 0}
                    self.foreign_producer_id = None
                self.producer_ids.append(found["producer_id"])
            case _:
                for each in _partitions(found):
                    if replaced := self._replaced[each["index"]]:
                        each |= {"error_code": replaced.pop(0), "base_offset": -1}
        return _written(request, found)

    # --- faults -------------------------------------------------------------------------------------------------------

    def answer_next(self, code: int, *, partition: int = 0) -> None:
        """Replace the answer to the next batch of a partition that is answered. The door has decided otherwise."""
        self._replaced[partition].append(code)

    def refuse_held(self, code: int, *, partition: int = 0) -> None:
        """Answer the first batch of a partition that is held, as a broker that does not lead it. The door never sees
        it."""
        for link in self._open():
            assert isinstance(link, KafkaLink)
            if link.stranded:
                continue
            for frame in link.waiting[link.to_door]:
                request = _request(frame[_SIZE.size :])
                if request.api == "Produce" and partition in _produced(request):
                    link.waiting[link.to_door].remove(frame)
                    del link.asked[request.correlation_id]
                    link.to_client.write(_framed(_written(request, _refusal(request, code))))
                    return
        raise LookupError(f"no batch of partition {partition} is held")


def _request(body: bytes) -> Request:
    reader = RequestReader(_FRAME_BYTES_MAX)
    reader.feed(_framed(body))
    request = reader.read()
    assert request is not None, "the frame is whole"
    return request


def _framed(body: bytes) -> bytes:
    return _SIZE.pack(len(body)) + body


def _read(request: Request, body: bytes) -> dict[str, Any]:
    tagged = request.version >= REQUESTS[request.api].flexible
    return dict(read_response(request.api, request.version, memoryview(body)[_NUMBER.size + tagged :]))


def _written(request: Request, body: Body) -> bytes:
    return b"".join(answer(request, body))[_SIZE.size :]


def _partitions(produced: Body) -> list[dict[str, Any]]:
    """Of an answer to Produce."""
    return [each for topic in produced["responses"] for each in topic["partition_responses"]]


def _produced(request: Request) -> list[int]:
    """Numbers of partitions that a Produce has batches for."""
    topics = read_request("Produce", request.version, request.body)["topic_data"]
    return [each["index"] for topic in topics for each in topic["partition_data"]]


def _refusal(request: Request, code: int) -> Body:
    topics = read_request("Produce", request.version, request.body)["topic_data"]
    return {
        "responses": [
            {
                "name": topic["name"],
                "partition_responses": [
                    {"index": each["index"], "error_code": code, "base_offset": -1} for each in topic["partition_data"]
                ],
            }
            for topic in topics
        ]
    }
