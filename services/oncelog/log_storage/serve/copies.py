"""The calls PutCopy, ListCopies and ReadCopy: a storage node keeps copies of ZooKeeper's records for metadata services.

A node knows nothing of their content. It takes them below the limit at which it also refuses repair copies.
"""

import asyncio
import logging
from collections.abc import Callable
from typing import TypeVar

from oncelog.core.errors import InvalidArgument, ServiceUnavailable
from oncelog.core.ids import Incarnation
from oncelog.log_storage.directory.metadata_copies import MetadataCopies
from oncelog.rpc.codecs.restore_codec import COPY_PART_BYTES_MAX, LIST_COPIES, PUT_COPY, READ_COPY
from oncelog.rpc.server import Server
from oncelog.wire import recovery_pb2 as pb
from oncelog.wire import storage_pb2

logger = logging.getLogger(__name__)

T = TypeVar("T")
_OK, _OTHER = storage_pb2.STORAGE_STATUS_OK, storage_pb2.STORAGE_STATUS_WRONG_INCARNATION


class NodeCopies:
    """One thread at a time works in the folder. has_room: whether so many bytes may be written."""

    def __init__(self, incarnation: Incarnation, copies: MetadataCopies, has_room: Callable[[int], bool]) -> None:
        self._incarnation = incarnation
        self._copies = copies
        self._has_room = has_room
        self._turn = asyncio.Lock()

    def add_to(self, server: Server) -> None:
        server.unary(PUT_COPY, self.put)
        server.unary(LIST_COPIES, self.list, any_era=True)
        server.unary(READ_COPY, self.read, any_era=True)

    async def put(self, request: pb.PutCopyRequest) -> pb.PutCopyAnswer:
        """Raises InvalidArgument, Conflict, TooManyRequests, ServiceUnavailable."""
        if request.target != self._incarnation:
            return pb.PutCopyAnswer(status=_OTHER)
        _check(len(request.data), "data")
        if not self._has_room(len(request.data)):
            return pb.PutCopyAnswer(status=storage_pb2.STORAGE_STATUS_READ_ONLY)
        await self._on_disk(
            lambda: self._copies.put(
                request.name, request.offset, request.data, last=request.last, pinned=request.pinned
            )
        )
        return pb.PutCopyAnswer(status=_OK)

    async def list(self, request: pb.ListCopiesRequest) -> pb.ListCopiesAnswer:
        """Raises ServiceUnavailable."""
        if request.target != self._incarnation:
            return pb.ListCopiesAnswer(status=_OTHER)
        held = await self._on_disk(self._copies.list)
        copies = [pb.StoredCopy(name=one.name, bytes=one.size, pinned=one.pinned) for one in held]
        return pb.ListCopiesAnswer(status=_OK, copies=copies)

    async def read(self, request: pb.ReadCopyRequest) -> pb.ReadCopyAnswer:
        """Raises InvalidArgument, ServiceUnavailable."""
        if request.target != self._incarnation:
            return pb.ReadCopyAnswer(status=_OTHER)
        _check(request.bytes_max, "bytes_max")
        data, size = await self._on_disk(lambda: self._copies.read(request.name, request.offset, request.bytes_max))
        return pb.ReadCopyAnswer(status=_OK, data=data, bytes=size)

    def make_room(self) -> None:
        """The disk is nearly full: drop what is not pinned. An upload in progress ends with an error."""
        try:
            dropped = self._copies.drop_unpinned()
        except OSError as error:
            logger.warning("copies of ZooKeeper's records cannot be deleted: %s", error)
            return
        if dropped:
            logger.warning("the disk is nearly full: %d copies of ZooKeeper's records were deleted", dropped)

    async def _on_disk(self, work: Callable[[], T]) -> T:
        async with self._turn:
            try:
                return await asyncio.to_thread(work)
            except OSError as error:
                raise ServiceUnavailable(f"this storage node cannot use its folder of copies: {error}") from error


def _check(count: int, field: str) -> None:
    if count > COPY_PART_BYTES_MAX:
        message = f"{field} of {count} bytes: a part of a copy has at most {COPY_PART_BYTES_MAX}"
        raise InvalidArgument(message, field=field, limit=COPY_PART_BYTES_MAX)
