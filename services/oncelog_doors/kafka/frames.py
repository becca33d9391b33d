"""Frames: how requests and answers lie on a connection.

    request     [size][key of the API][version][correlation id][client id]      tagged fields?  [body]
    answer      [size][correlation id]                                          tagged fields?  [body]

The size counts what comes behind it. Tagged fields are there if the version is flexible, but not in answers to
ApiVersions, because a client does not know yet what is spoken here. A size above the limit ends the connection, and the
frame is not read. So do a key and a version that are not known, but for ApiVersions: its answer says what is known.
"""

from collections.abc import Mapping
from struct import Struct
from typing import Any, NamedTuple

from oncelog.core.errors import InvalidArgument
from oncelog_doors.connections.received import Buffer, ReceivedBytes
from oncelog_doors.kafka.apis import KNOWN
from oncelog_doors.kafka.codec import write_response
from oncelog_doors.wire.kafka_tables import REQUESTS

#: Of a client that is not authenticated.
BEFORE_AUTHENTICATION_BYTES = 64 * 1024
_SIZE = Struct(">i")
_HEAD = Struct(">hhih")
_APIS = {message.key: api for api, message in REQUESTS.items()}
_NO_TAGS = b"\0"


class Request(NamedTuple):
    """known: False: an ApiVersions of a version that is not known; its body is not read."""

    api: str
    version: int
    correlation_id: int
    client_id: str
    body: memoryview
    known: bool = True


class RequestReader:
    """The requests of one connection. bytes_max: of one; may be raised between two of them."""

    def __init__(self, bytes_max: int = BEFORE_AUTHENTICATION_BYTES) -> None:
        self.bytes_max = bytes_max
        self._bytes = ReceivedBytes()

    def feed(self, data: Buffer) -> None:
        """Append what was received."""
        self._bytes.feed(data)

    def read(self) -> Request | None:
        """The next request; None until all of it was received. Raises InvalidArgument: the connection must end then."""
        if len(self._bytes) < _SIZE.size:
            return None
        size = self._bytes.peek(_SIZE)[0]
        if size > self.bytes_max:
            message = f"a request has {size} bytes, at most {self.bytes_max} are allowed"
            raise InvalidArgument(message, field="size", limit=self.bytes_max)
        if size < _HEAD.size:
            raise InvalidArgument(f"a request of {size} bytes has no header", field="size", limit=_HEAD.size)
        if len(self._bytes) < _SIZE.size + size:
            return None
        self._bytes.drop(_SIZE.size)
        return _request(memoryview(self._bytes.take(size)))


def _request(data: memoryview) -> Request:
    """Raises InvalidArgument."""
    key, version, correlation_id, client_bytes = _HEAD.unpack_from(data)
    api = _APIS.get(key)
    if api is None:
        raise InvalidArgument(f"a client sent a request with the key {key}, which is not offered", field="api_key")
    versions = KNOWN[api]
    if not versions.first <= version <= versions.last:
        if api == "ApiVersions":
            return Request(api, version, correlation_id, "", data[:0], known=False)
        message = f"a client sent {api} in version {version}, offered are {versions.first} to {versions.last}"
        raise InvalidArgument(message, field="api_version", limit=versions.last)
    at = _HEAD.size + max(client_bytes, 0)
    if client_bytes < -1 or at > len(data):
        raise InvalidArgument(f"a client id of {client_bytes} bytes does not fit its request", field="client_id")
    client_id = str(data[_HEAD.size : at], "utf-8", "replace")
    if version >= REQUESTS[api].flexible:
        at = _behind_tags(data, at)
    return Request(api, version, correlation_id, client_id, data[at:])


def _behind_tags(data: memoryview, at: int) -> int:
    """Where the body begins. Clients write no tagged fields into headers, so few are read."""
    count, at = _small(data, at)
    for _ in range(count):
        _tag, at = _small(data, at)
        size, at = _small(data, at)
        at += size
    if at > len(data):
        raise InvalidArgument("the tagged fields of a header are cut off", field="header")
    return at


def _small(data: memoryview, at: int) -> tuple[int, int]:
    """A varint of one byte, and where it ends."""
    if at >= len(data) or data[at] > 127:
        raise InvalidArgument("the tagged fields of a header cannot be read", field="header", limit=127)
    return data[at], at + 1


def answer(request: Request, body: Mapping[str, Any]) -> list[Buffer]:
    """The parts of the frame, in order."""
    return answer_in(request, request.version, body)


def answer_in(request: Request, version: int, body: Mapping[str, Any]) -> list[Buffer]:
    """As `answer`, with a body of another version: of ApiVersions."""
    parts = write_response(request.api, version, body)
    flexible = request.api != "ApiVersions" and version >= REQUESTS[request.api].flexible
    head = _SIZE.pack(request.correlation_id) + (_NO_TAGS if flexible else b"")
    return [_SIZE.pack(len(head) + sum(map(len, parts))), head, *parts]
