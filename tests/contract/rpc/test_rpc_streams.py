"""Streams over a real socket: both directions, and each way in which they end."""

import asyncio
import gc
import weakref
from collections.abc import Sequence
from contextlib import nullcontext, suppress
from typing import Any

import grpc
import pytest

from oncelog.core.errors import (
    InvalidArgument,
    MessageTooLarge,
    NotOwner,
    OncelogError,
    Retriable,
    ServiceUnavailable,
)
from oncelog.core.ids import EntryId
from oncelog.core.ledger.member_status import AppendStatus
from oncelog.rpc.channel import Channel
from oncelog.rpc.codecs.storage_codec import (
    APPEND,
    FENCE,
    READ,
    AppendAnswer,
    ReceivedAppend,
)
from oncelog.rpc.server import ServerStream
from oncelog.wire import storage_pb2
from tests.cluster.until import until
from tests.contract.owner.unread_stream import OPTIONS
from tests.contract.rpc.rpc_serving import (
    LEDGER,
    NODE,
    AppendStream,
    echo,
    forever,
    frame_of,
    serving,
)

DEADLINE_S = 30.0


@pytest.mark.asyncio
async def test_stream_carries_both_directions_and_ends_when_both_end() -> None:
    """Writes do not wait for responses; finish() lets the server end the stream."""
    async with serving(append=echo) as (_, channel):
        stream: AppendStream = channel.stream(APPEND)
        for size in range(5):
            await stream.write(frame_of(size, size + 1))
        await stream.finish()
        answers = [answer async for answer in stream]
        assert [list(a[0].entry_ids) for a in answers] == [[n, n + 1] for n in range(5)]
        assert stream.closed is None


@pytest.mark.asyncio
async def test_frame_of_many_megabytes_is_transmitted() -> None:
    """The message limit of 5 MiB is above gRPC's own default of 4 MiB."""
    async with serving(append=echo, frame_bytes_max=16 << 20) as (_, channel):
        stream: AppendStream = channel.stream(APPEND)
        await stream.write(frame_of(6 << 20))
        answer = await anext(stream)
        assert list(answer[0].entry_ids) == [6 << 20]
        stream.cancel()


@pytest.mark.asyncio
async def test_frame_over_the_limit_is_refused_as_too_large() -> None:
    """Not retriable: the same frame would be refused again."""
    async with serving(append=echo, frame_bytes_max=1 << 20) as (_, channel):
        stream: AppendStream = channel.stream(APPEND)
        with suppress(MessageTooLarge):  # the write may fail by itself or only its answer
            await stream.write(frame_of(2 << 20))
        with pytest.raises(MessageTooLarge):
            await anext(stream)


@pytest.mark.asyncio
async def test_reader_and_writer_get_the_error_that_ends_a_stream() -> None:
    """Both tasks of a stream get the reason, in either order."""

    async def refuse(stream: ServerStream[ReceivedAppend, Sequence[AppendAnswer]]) -> None:
        await anext(stream)
        raise NotOwner("look again")

    async with serving(append=refuse) as (_, channel):
        stream: AppendStream = channel.stream(APPEND)
        await stream.write(frame_of(1))
        with pytest.raises(NotOwner):
            await anext(stream)
        with pytest.raises(NotOwner):
            await stream.write(frame_of(1))
        assert isinstance(stream.closed, NotOwner)


@pytest.mark.asyncio
async def test_write_raises_after_the_server_ended_the_stream() -> None:
    """Also if it ended without an error: a later write is not delivered and must not succeed."""

    async def take_one(stream: ServerStream[ReceivedAppend, Sequence[AppendAnswer]]) -> None:
        await anext(stream)

    async with serving(append=take_one) as (_, channel):
        stream: AppendStream = channel.stream(APPEND)
        await stream.write(frame_of(1))
        assert [answer async for answer in stream] == []
        with pytest.raises(ServiceUnavailable):
            await stream.write(frame_of(1))


@pytest.mark.asyncio
async def test_failed_write_ends_a_stream_with_an_answer_that_was_not_read() -> None:
    """gRPC calls it done and leaves it in its core, which waits for a reader: each one kept a task and a connection at
    both sides, for ever."""
    ended = asyncio.Event()

    async def answer_and_leave(stream: ServerStream[ReceivedAppend, Sequence[AppendAnswer]]) -> None:
        await stream.write([AppendAnswer(LEDGER, [EntryId(1)], AppendStatus.OK)])
        ended.set()
        raise NotOwner("look again")

    async with serving(append=answer_and_leave) as (_, channel):
        stream: AppendStream = channel.stream(APPEND)
        await ended.wait()
        with suppress(NotOwner, ServiceUnavailable):
            while True:
                await stream.write(frame_of(1))
        await until(lambda: not any("_handle_status" in repr(each) for each in asyncio.all_tasks()), DEADLINE_S)


@pytest.mark.asyncio
@pytest.mark.parametrize("refused", [True, False])
async def test_stream_ends_after_a_write_with_a_cancelled_writer(refused: bool) -> None:
    """gRPC goes on with that write, and its first one cannot be followed by the end before it is done: that failed, and
    the client never heard how the stream ended."""

    async def end_amid_its_first_write(stream: ServerStream[ReceivedAppend, Sequence[AppendAnswer]]) -> None:
        await anext(stream)
        with suppress(TimeoutError):
            async with asyncio.timeout(0):
                await stream.write([AppendAnswer(LEDGER, [EntryId(1)], AppendStatus.OK)])
        if refused:
            raise NotOwner("look again")

    async with serving(append=end_amid_its_first_write) as (_, channel):
        stream: AppendStream = channel.stream(APPEND)
        await stream.write(frame_of(1))
        with pytest.raises(NotOwner) if refused else nullcontext():
            assert [len(answers) async for answers in stream] == [1]


@pytest.mark.asyncio
async def test_write_after_a_cancelled_writer_keeps_its_order() -> None:
    """For example the error that ends a reader."""

    async def tell(stream: ServerStream[ReceivedAppend, Sequence[AppendAnswer]]) -> None:
        await anext(stream)
        with suppress(TimeoutError):
            async with asyncio.timeout(0):
                await stream.write([AppendAnswer(LEDGER, [EntryId(1)], AppendStatus.OK)])
        await stream.write([AppendAnswer(LEDGER, [EntryId(2)], AppendStatus.FENCED)])

    async with serving(append=tell) as (_, channel):
        stream: AppendStream = channel.stream(APPEND)
        await stream.write(frame_of(1))
        assert [answers[0].entry_ids async for answers in stream] == [[1], [2]]


@pytest.mark.asyncio
async def test_stopped_server_ends_its_streams_with_a_retriable_error() -> None:
    """Clients reconnect to another server at once."""
    async with serving(append=echo) as (server, channel):
        stream: AppendStream = channel.stream(APPEND)
        await stream.write(frame_of(1))
        await anext(stream)
        await server.stop(grace_ms=0)
        with pytest.raises(Retriable):
            await anext(stream)


@pytest.mark.asyncio
async def test_disconnected_client_cancels_its_handler() -> None:
    """A session ends with its stream; work that must continue belongs to another task."""
    over = asyncio.Event()

    async def watch(stream: ServerStream[ReceivedAppend, Sequence[AppendAnswer]]) -> None:
        try:
            await echo(stream)
        finally:
            over.set()

    async with serving(append=watch) as (_, channel):
        stream: AppendStream = channel.stream(APPEND)
        await stream.write(frame_of(1))
        await anext(stream)
        stream.cancel()
        await over.wait()


@pytest.mark.asyncio
async def test_write_to_a_disconnected_client_raises_a_core_error() -> None:
    """gRPC's exceptions never leave this package."""
    caught = asyncio.get_running_loop().create_future()
    gone = asyncio.Event()

    async def late(stream: ServerStream[ReceivedAppend, Sequence[AppendAnswer]]) -> None:
        async def write() -> None:
            await gone.wait()
            try:
                while True:
                    await stream.write([])
            except OncelogError as error:
                caught.set_result(error)

        writing = asyncio.ensure_future(write())
        await anext(stream)
        await stream.write([])
        await asyncio.shield(writing)

    async with serving(append=late) as (_, channel):
        stream: AppendStream = channel.stream(APPEND)
        await stream.write(frame_of(1))
        await anext(stream)
        stream.cancel()
        gone.set()
        assert isinstance(await caught, ServiceUnavailable)


@pytest.mark.asyncio
async def test_client_that_leaves_amid_a_first_write_is_no_error(caplog: pytest.LogCaptureFixture) -> None:
    """That write may fail before gRPC tells the handler that the client is gone. Then no status can be sent: gRPC
    logged an error with the stack, and asyncio one of the write. The order is not ours, so many clients leave."""
    begun = ended = 0

    async def write_much(stream: ServerStream[ReceivedAppend, Sequence[AppendAnswer]]) -> None:
        nonlocal begun, ended
        await anext(stream)
        begun += 1
        try:
            await stream.write([AppendAnswer(LEDGER, [EntryId(1 << 60)] * 20_000, AppendStatus.OK)])
        finally:
            ended += 1

    async with serving(append=write_much) as (_, channel):
        for _ in range(10):
            raw: Any
            async with grpc.aio.insecure_channel(channel.address, options=OPTIONS) as raw:
                calls = [raw.stream_stream(APPEND.path)() for _ in range(20)]
                for call in calls:
                    await call.write(APPEND.encode_request(frame_of(1)))
                await until(lambda: begun == ended + 20, 30)
                for call in calls:
                    call.cancel()
            await until(lambda: ended == begun, 30)
    assert [record.getMessage() for record in caplog.records] == []


class _Unsent:
    """A message that was not sent."""


@pytest.mark.asyncio
async def test_what_a_stream_held_is_freed_when_its_client_left_amid_the_end() -> None:
    """Without the garbage collector, which runs rarely. The handler is cancelled while its group waits for the last
    task, which fails because the client is gone."""
    held: list[weakref.ref[_Unsent]] = []

    async def write(unsent: _Unsent) -> None:
        held.append(weakref.ref(unsent))
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            raise ServiceUnavailable("the client is gone") from None

    async def handler(_: ServerStream[ReceivedAppend, Sequence[AppendAnswer]]) -> None:
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(write(_Unsent()))

    async with serving(append=handler) as (_, channel):
        gc.disable()
        try:
            stream: AppendStream = channel.stream(APPEND)
            await stream.write(frame_of(1))
            await until(lambda: held, 30)
            stream.cancel()
            await until(lambda: held[0]() is None, 30)
        finally:
            gc.enable()


@pytest.mark.asyncio
async def test_local_end_of_a_stream_fails_its_tasks_without_cancelling_them() -> None:
    """A task that was not cancelled must not get CancelledError, because it would end silently."""
    async with serving(append=echo) as (_, channel):
        stream: AppendStream = channel.stream(APPEND)
        await stream.write(frame_of(1))
        await anext(stream)
        reading = asyncio.ensure_future(anext(stream))
        await stream.write(frame_of(1))
        await reading
        reading = asyncio.ensure_future(anext(stream))
        asyncio.get_running_loop().call_soon(stream.cancel)
        with pytest.raises(ServiceUnavailable, match="by this process"):
            await reading
        with pytest.raises(ServiceUnavailable, match="by this process"):
            await stream.write(frame_of(1))


@pytest.mark.asyncio
async def test_closing_the_channel_fails_the_readers_of_its_streams() -> None:
    """As with a single stream."""
    async with serving(append=echo) as (_, channel):
        stream: AppendStream = channel.stream(APPEND)
        await stream.write(frame_of(1))
        await anext(stream)
        reading = asyncio.ensure_future(anext(stream))
        asyncio.get_running_loop().call_soon(lambda: asyncio.ensure_future(channel.close()))
        with pytest.raises(ServiceUnavailable):
            await reading


@pytest.mark.asyncio
async def test_cancelling_a_reader_cancels_it() -> None:
    """Cancellation always passes."""
    async with serving(append=echo) as (_, channel):
        stream: AppendStream = channel.stream(APPEND)
        await stream.write(frame_of(1))
        await anext(stream)
        reading = asyncio.ensure_future(anext(stream))
        asyncio.get_running_loop().call_soon(reading.cancel)
        with pytest.raises(asyncio.CancelledError):
            await reading


@pytest.mark.asyncio
async def test_cancelling_a_first_write_ends_the_stream() -> None:
    """gRPC goes on with a call whose write is cancelled before there is a connection: the server had it for ever."""
    served: set[object] = set()

    async def note(stream: ServerStream[ReceivedAppend, Sequence[AppendAnswer]]) -> None:
        served.add(stream)
        try:
            await echo(stream)
        finally:
            served.discard(stream)

    async with serving(append=note) as (_, channel):
        stream: AppendStream = channel.stream(APPEND)
        writing = asyncio.ensure_future(stream.write(frame_of(1)))
        asyncio.get_running_loop().call_soon(writing.cancel)
        with pytest.raises(asyncio.CancelledError):
            await writing
        later: AppendStream = channel.stream(APPEND)
        await later.write(frame_of(1))
        await anext(later)  # so the server has got what was sent before
        await until(lambda: len(served) == 1, 30.0)


@pytest.mark.asyncio
async def test_malformed_message_is_refused_and_the_server_continues() -> None:
    """With InvalidArgument, in calls and in streams."""
    async with serving(forever, echo) as (_, channel):
        raw: Any
        async with grpc.aio.insecure_channel(channel.address) as raw:
            for path in (FENCE.path, READ.path):
                with pytest.raises(grpc.aio.AioRpcError) as caught:
                    await raw.unary_unary(path)(b"\xff\xff garbage")
                assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT
            call = raw.stream_stream(APPEND.path)()
            await call.write(b"\x7a\xff\xff\xff")
            with pytest.raises(grpc.aio.AioRpcError) as caught:
                await call.read()
            assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT
        stream: AppendStream = channel.stream(APPEND)
        await stream.write(frame_of(3))
        assert await anext(stream)


@pytest.mark.asyncio
async def test_malformed_response_raises_invalid_argument_and_ends_the_stream() -> None:
    """A client disconnects from a peer with malformed responses."""

    async def babble(_requests: object, context: grpc.aio.ServicerContext[bytes, bytes]) -> None:
        await context.write(b"\xff\xff garbage")
        await asyncio.Event().wait()

    server = grpc.aio.server()
    service, method = APPEND.path[1:].split("/")
    handler = grpc.method_handlers_generic_handler(service, {method: grpc.stream_stream_rpc_method_handler(babble)})
    server.add_generic_rpc_handlers((handler,))
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    try:
        async with asyncio.timeout(60), Channel(f"127.0.0.1:{port}") as channel:
            stream: AppendStream = channel.stream(APPEND)
            with pytest.raises(InvalidArgument):
                await anext(stream)
            with pytest.raises(InvalidArgument):
                await stream.write(frame_of(1))
    finally:
        await server.stop(0)


@pytest.mark.asyncio
async def test_malformed_bytes_on_the_port_do_not_affect_other_clients() -> None:
    """The bytes are not valid HTTP/2."""
    async with serving(append=echo) as (_, channel):
        reader, writer = await asyncio.open_connection(*channel.address.split(":"))
        writer.write(b"GET / HTTP/1.0\r\n\r\n" + bytes(range(256)) * 64)
        await reader.read()
        writer.close()
        stream: AppendStream = channel.stream(APPEND)
        await stream.write(frame_of(3))
        assert await anext(stream)


@pytest.mark.asyncio
async def test_generated_messages_work_with_our_server() -> None:
    """The hand-written frames are ordinary protobuf: other languages need only the .proto files."""
    async with serving(append=echo) as (_, channel), grpc.aio.insecure_channel(channel.address) as standard:
        call = standard.stream_stream(
            APPEND.path, storage_pb2.AppendFrame.SerializeToString, storage_pb2.AppendAnswers.FromString
        )()
        await call.write(storage_pb2.AppendFrame(target=NODE, entries=[b"four", b"sixsix"]))
        answers = await call.read()
        await call.done_writing()
        assert answers == storage_pb2.AppendAnswers(
            answers=[storage_pb2.AppendAnswer(ledger_id=5, entry_ids=[4, 6], status=storage_pb2.STORAGE_STATUS_OK)]
        )
