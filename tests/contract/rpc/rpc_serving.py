"""A server of the storage protocol in small, and what the tests of calls and streams ask it."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager

from oncelog.core import errors
from oncelog.core.ids import EntryId, Incarnation, LedgerId
from oncelog.core.ledger.member_status import AppendStatus, ReadStatus
from oncelog.rpc.channel import Channel, Stream
from oncelog.rpc.codecs.storage_codec import (
    APPEND,
    FENCE,
    READ,
    AppendAnswer,
    AppendFrame,
    ReadFrame,
    ReadRequest,
    ReceivedAppend,
)
from oncelog.rpc.server import Server, ServerStream
from oncelog.wire import storage_pb2 as pb

NODE = Incarnation("fedcba9876543210fedcba9876543210")
LEDGER = LedgerId(5)
REQUEST = pb.FenceRequest(target=NODE, ledger_id=LEDGER)
TIMEOUT_MS = 30_000

Fence = Callable[[pb.FenceRequest], Awaitable[pb.FenceAnswer]]
Append = Callable[[ServerStream[ReceivedAppend, Sequence[AppendAnswer]]], Awaitable[None]]
AppendStream = Stream[AppendFrame, list[AppendAnswer]]


@asynccontextmanager
async def serving(
    fence: Fence | None = None, append: Append | None = None, *, frame_bytes_max: int = 1 << 22
) -> AsyncIterator[tuple[Server, Channel]]:
    """A server with these handlers on a free port, and a channel to it."""
    server = Server(frame_bytes_max=frame_bytes_max)
    if fence is not None:
        server.unary(FENCE, fence)
    if append is not None:
        server.stream(APPEND, append)
    server.read(READ, _read)
    port = await server.start()
    async with asyncio.timeout(60), Channel(f"127.0.0.1:{port}") as channel:
        try:
            yield server, channel
        finally:
            await server.stop(grace_ms=0)


async def _read(request: ReadRequest) -> AsyncIterator[ReadFrame]:
    """Entries of one byte for even ids; from id 90 on, an error."""
    for number in range(request.first_entry, request.first_entry + request.entries_max):
        if number >= 90:
            raise errors.LedgerNotFound("no such ledger", ledger_id=request.ledger_id)
        entry_id = EntryId(number)
        if number % 2:
            yield ReadFrame(ReadStatus.OK, missing_ids=[entry_id])
        else:
            yield ReadFrame(ReadStatus.OK, [entry_id], entries=[bytes([number])])


async def echo(stream: ServerStream[ReceivedAppend, Sequence[AppendAnswer]]) -> None:
    """Answer each frame by the sizes of its entries, as if they were ids."""
    async for frame in stream:
        ids = [EntryId(len(entry)) for entry in frame.entries]
        await stream.write([AppendAnswer(LEDGER, ids, AppendStatus.OK)])


def raising(error: Exception) -> Fence:
    async def fence(_request: pb.FenceRequest) -> pb.FenceAnswer:
        raise error

    return fence


async def forever(_request: pb.FenceRequest) -> pb.FenceAnswer:
    await asyncio.Event().wait()
    return pb.FenceAnswer(status=pb.STORAGE_STATUS_OK, last_entry=-1, last_add_confirmed=-1)


def frame_of(*sizes: int) -> AppendFrame:
    return AppendFrame(NODE, recovery=False, entries=[b"x" * size for size in sizes])
