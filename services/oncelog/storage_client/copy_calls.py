"""Copies of ZooKeeper's records at a storage node: put, list and read them."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

from oncelog.core.errors import InvalidArgument, InvariantViolated, NotFound, OncelogError, ServiceUnavailable
from oncelog.core.ids import Incarnation
from oncelog.rpc.channel import Channel
from oncelog.rpc.codecs.restore_codec import COPY_PART_BYTES_MAX, LIST_COPIES, PUT_COPY, READ_COPY
from oncelog.storage_client.node_calls import CALL_TIMEOUT_MS, DISK_TIMEOUT_MS, require_ok
from oncelog.wire import recovery_pb2 as pb
from oncelog.wire import storage_pb2

#: What a node may state as the size of a copy.
COPY_BYTES_MAX = 1 << 30


class StoredCopy(NamedTuple):
    """size: bytes."""

    name: str
    size: int
    pinned: bool


async def put_copy(channel: Channel, node: Incarnation, name: str, copy: bytes, *, pinned: bool) -> None:
    """Returns when the copy is durable at the node. Raises OncelogError; ServiceUnavailable also if its disk is nearly
    full."""
    for offset in range(0, len(copy), COPY_PART_BYTES_MAX):
        data = copy[offset : offset + COPY_PART_BYTES_MAX]
        last = offset + len(data) == len(copy)
        request = pb.PutCopyRequest(target=node, name=name, offset=offset, data=data, last=last, pinned=pinned)
        answer = await channel.call(PUT_COPY, request, timeout_ms=DISK_TIMEOUT_MS)
        if answer.status == storage_pb2.STORAGE_STATUS_READ_ONLY:
            raise ServiceUnavailable(f"the disk of storage node {node} is nearly full: it takes no copies")
        require_ok(node, answer.status)


async def put_copies(
    channel_of: Callable[[Incarnation], Channel],
    nodes: Sequence[Incarnation],
    wanted: int,
    name: str,
    copy: bytes,
    *,
    pinned: bool,
) -> list[Incarnation]:
    """Store it on as many nodes as wanted, the first ones that take it: these. Raises ServiceUnavailable."""
    stored: list[Incarnation] = []
    errors: list[str] = []
    for node in nodes:
        if len(stored) >= wanted:
            break
        try:
            await put_copy(channel_of(node), node, name, copy, pinned=pinned)
        except InvariantViolated:
            raise
        except OncelogError as error:
            errors.append(error.message)
        else:
            stored.append(node)
    if len(stored) < max(wanted, 1):
        reasons = "; ".join(errors) or "no storage node is registered"
        message = f"copy {name} was stored on {len(stored)} of {max(wanted, 1)} storage nodes: {reasons}"
        raise ServiceUnavailable(message, retry_after_ms=10_000)
    return stored


async def list_copies(channel: Channel, node: Incarnation) -> Sequence[StoredCopy]:
    """By name. Raises OncelogError."""
    answer = await channel.call(LIST_COPIES, pb.ListCopiesRequest(target=node), timeout_ms=CALL_TIMEOUT_MS)
    require_ok(node, answer.status)
    return [StoredCopy(one.name, one.bytes, one.pinned) for one in answer.copies]


async def read_copy_part(
    channel: Channel, node: Incarnation, name: str, offset: int, bytes_max: int = COPY_PART_BYTES_MAX
) -> tuple[bytes, int]:
    """(bytes from `offset` on, size of the whole file), whose content is not checked here. Raises OncelogError:
    NotFound."""
    request = pb.ReadCopyRequest(target=node, name=name, offset=offset, bytes_max=bytes_max)
    answer = await channel.call(READ_COPY, request, timeout_ms=DISK_TIMEOUT_MS)
    require_ok(node, answer.status)
    if answer.bytes == 0:
        raise NotFound(f"storage node {node} has no copy {name!r}: list the copies", name=name)
    if answer.bytes > COPY_BYTES_MAX:
        raise InvalidArgument(f"storage node {node} states {answer.bytes} bytes for copy {name}", field="copy")
    return answer.data, answer.bytes


async def read_copy_bytes(channel: Channel, node: Incarnation, name: str) -> bytes:
    """The whole file. Raises as `read_copy_part`."""
    parts: list[bytes] = []
    offset = 0
    while True:
        data, size = await read_copy_part(channel, node, name, offset)
        parts.append(data)
        offset += len(data)
        if not data or offset >= size:
            return b"".join(parts)
