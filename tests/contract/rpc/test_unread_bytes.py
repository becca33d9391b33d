"""What a service may have received of a stream before it reads it (hazard unread-windows)."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

import pytest

from oncelog.core.ids import EntryId
from oncelog.core.ledger.member_status import AppendStatus
from oncelog.rpc.channel import Channel
from oncelog.rpc.codecs.storage_codec import APPEND, FENCE, AppendAnswer, ReceivedAppend
from oncelog.rpc.options import UNREAD_BYTES_MAX
from oncelog.rpc.server import ServerStream
from oncelog.wire import storage_pb2 as pb
from tests.contract.rpc.rpc_serving import LEDGER, REQUEST, TIMEOUT_MS, AppendStream, frame_of, serving
from tests.contract.sdk.fakes.slow_proxy import SlowProxy

MIB = 1 << 20
#: Frames of one MiB. What is read first is enough for gRPC to estimate how much arrives while it waits for a ping.
READ, SENT = 60, 160
#: In MiB: what may be unread, and what the sockets of a proxy hold.
UNREAD_MAX = UNREAD_BYTES_MAX // MIB + 16
#: The answer to a ping takes this longer, as on a busy machine.
DELAY_S = 0.05
#: Calls on the same connection, one after the other: time enough for all frames to arrive, if they may.
CALLS = 30


async def answer(_request: pb.FenceRequest) -> pb.FenceAnswer:
    return pb.FenceAnswer(status=pb.STORAGE_STATUS_OK, last_entry=-1, last_add_confirmed=-1)


async def call_often(channel: Channel) -> None:
    for _ in range(CALLS):
        await channel.call(FENCE, REQUEST, timeout_ms=TIMEOUT_MS)


@asynccontextmanager
async def late_answers(direct: Channel, *, forwards: bool = False) -> AsyncIterator[Channel]:
    """A channel to the same server, through a proxy that delays what the server says."""
    async with (
        SlowProxy.running(int(direct.address.rpartition(":")[2])) as proxy,
        Channel(proxy.address, forwards=forwards) as channel,
    ):
        proxy.answer_delay_s = DELAY_S
        yield channel


@pytest.mark.asyncio
@pytest.mark.hazard("unread-windows")
async def test_server_receives_little_of_a_stream_that_it_does_not_read() -> None:
    """Pings that were answered late let a server receive 270 MB of one stream beyond what it had read."""
    stopped, leave = asyncio.Event(), asyncio.Event()
    written = 0

    async def read_some(stream: ServerStream[ReceivedAppend, Sequence[AppendAnswer]]) -> None:
        for _ in range(READ):
            await anext(stream)
        stopped.set()
        await leave.wait()

    async def write(stream: AppendStream) -> None:
        nonlocal written
        while written < SENT:
            written += 1
            await stream.write(frame_of(MIB))

    async with serving(answer, read_some) as (_, direct), late_answers(direct) as channel:
        writing = asyncio.create_task(write(channel.stream(APPEND)))
        await stopped.wait()
        await call_often(channel)
        writing.cancel()
        leave.set()
    assert READ <= written <= READ + UNREAD_MAX


@pytest.mark.asyncio
@pytest.mark.hazard("unread-windows")
async def test_gateway_receives_little_of_a_stream_that_its_client_does_not_read() -> None:
    """On a busy machine, six streams took 1.6 GB of a metadata service."""
    written = 0

    async def write(stream: ServerStream[ReceivedAppend, Sequence[AppendAnswer]]) -> None:
        nonlocal written
        await anext(stream)
        while written < SENT:
            written += 1
            await stream.write([AppendAnswer(LEDGER, [EntryId(1 << 60)] * (MIB // 10), AppendStatus.OK)])

    async with serving(answer, write) as (_, direct), late_answers(direct, forwards=True) as channel:
        stream: AppendStream = channel.stream(APPEND)
        await stream.write(frame_of(1))
        for _ in range(READ):
            await anext(stream)
        await call_often(channel)
        stream.cancel()
    assert READ <= written <= READ + UNREAD_MAX
