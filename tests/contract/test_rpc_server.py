"""Server and channel over a real socket: values and errors cross, streams end the way their rules say."""

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from typing import Any

import grpc
import pytest

from oncelog.core import errors
from oncelog.core.errors import (
    BY_CODE,
    DeadlineExceeded,
    InvalidArgument,
    InvariantViolated,
    MessageTooLarge,
    NotOwner,
    OncelogError,
    Retriable,
    SequenceGap,
    ServiceUnavailable,
)
from oncelog.core.ids import EntryId, Incarnation, LedgerId
from oncelog.core.storage_answers import AppendStatus, ReadStatus
from oncelog.rpc.channel import Channel, Stream
from oncelog.rpc.reachability import Reachability, reach
from oncelog.rpc.server import Server, ServerStream
from oncelog.rpc.status import error_from_wire, error_to_wire
from oncelog.rpc.storage_codec import (
    APPEND,
    DESCRIBE,
    FENCE,
    READ,
    AppendAnswer,
    AppendFrame,
    FenceAnswer,
    FenceRequest,
    ReadFrame,
    ReadRequest,
    ReceivedAppend,
)
from oncelog.wire import error_pb2, storage_pb2, storage_pb2_grpc

NODE = Incarnation("fedcba9876543210fedcba9876543210")
LEDGER = LedgerId(5)
REQUEST = FenceRequest(NODE, LEDGER)
TIMEOUT_MS = 10_000

Fence = Callable[[FenceRequest], Awaitable[FenceAnswer]]
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
    async with asyncio.timeout(30), Channel(f"127.0.0.1:{port}") as channel:
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


async def _echo(stream: ServerStream[ReceivedAppend, Sequence[AppendAnswer]]) -> None:
    """Answer each frame by the sizes of its entries, as if they were ids."""
    async for frame in stream:
        ids = [EntryId(len(entry)) for entry in frame.entries]
        await stream.write([AppendAnswer(LEDGER, ids, AppendStatus.OK)])


def _raising(error: Exception) -> Fence:
    async def fence(_request: FenceRequest) -> FenceAnswer:
        raise error

    return fence


async def _forever(_request: FenceRequest) -> FenceAnswer:
    await asyncio.Event().wait()
    return FenceAnswer(ReadStatus.OK)


def _frame(*sizes: int) -> AppendFrame:
    return AppendFrame(NODE, recovery=False, entries=[b"x" * size for size in sizes])


@pytest.mark.asyncio
async def test_a_call_brings_its_request_and_its_answer() -> None:
    """The plain case."""

    async def fence(request: FenceRequest) -> FenceAnswer:
        return FenceAnswer(ReadStatus.OK, EntryId(request.ledger_id))

    async with serving(fence) as (_, channel):
        answer = await channel.call(FENCE, REQUEST, timeout_ms=TIMEOUT_MS)
        assert answer.last_entry == 5


@pytest.mark.parametrize("code", sorted(set(BY_CODE) - {"invariant_violated"}))
def test_each_error_crosses_as_itself(code: str) -> None:
    """What the caller does next depends on the class, so no class may turn into another."""
    sent = BY_CODE[code]("what to do", owner="here", limit=2**63 - 1, huge=2**70, unknown=None)
    received = error_from_wire(error_to_wire(sent))
    assert type(received) is type(sent)
    assert received.message == "what to do"
    assert received.details == {"owner": "here", "limit": 2**63 - 1, "huge": str(2**70)}


@pytest.mark.parametrize(("retriable", "cls"), [(True, errors.Retriable), (False, errors.Fatal)])
def test_an_error_of_a_newer_peer_keeps_what_to_do(retriable: bool, cls: type[OncelogError]) -> None:
    """Its name is not known here, but whether to try again is."""
    assert type(error_from_wire(error_pb2.Error(code="of_tomorrow", retriable=retriable))) is cls


def test_details_cannot_disturb_the_error_they_belong_to() -> None:
    """Names of details come from outside; `message` and `self` are names like any other."""
    wire = error_pb2.Error(code="not_owner", message="look again")
    wire.details["message"].text, wire.details["self"].number = "x", 1
    error = error_from_wire(wire)
    assert (error.message, error.details) == ("look again", {"message": "x", "self": 1})


@pytest.mark.asyncio
async def test_a_handlers_error_reaches_the_caller() -> None:
    """By class, message and details, through a real call."""
    async with serving(_raising(NotOwner("look again", owner="10.0.0.1:6650", owner_epoch=7))) as (_, channel):
        with pytest.raises(NotOwner, match="look again") as caught:
            await channel.call(FENCE, REQUEST, timeout_ms=TIMEOUT_MS)
        assert caught.value.details == {"owner": "10.0.0.1:6650", "owner_epoch": 7}


@pytest.mark.asyncio
async def test_an_error_inside_a_task_group_is_still_that_error() -> None:
    """Handlers use task groups, whose exceptions come wrapped."""
    group = ExceptionGroup("unhandled", [ExceptionGroup("inner", [SequenceGap("send 10 first", expected=10)])])
    async with serving(_raising(group)) as (_, channel):
        with pytest.raises(SequenceGap):
            await channel.call(FENCE, REQUEST, timeout_ms=TIMEOUT_MS)


@pytest.mark.asyncio
@pytest.mark.parametrize(
    "bug", [KeyError("secret"), ExceptionGroup("unhandled", [SequenceGap("x"), KeyError("secret")])]
)
async def test_a_bug_shows_the_caller_a_request_id_and_nothing_else(
    bug: Exception, caplog: pytest.LogCaptureFixture
) -> None:
    """The log has the trace under the same id; the outcome is unknown, so trying again is right."""
    with caplog.at_level(logging.ERROR):
        async with serving(_raising(bug)) as (_, channel):
            with pytest.raises(ServiceUnavailable) as caught:
                await channel.call(FENCE, REQUEST, timeout_ms=TIMEOUT_MS)
    assert "secret" not in caught.value.message
    (record,) = caplog.records
    assert record.__dict__["fields"]["request_id"] == caught.value.details["request_id"]
    assert record.exc_info is not None


@pytest.mark.asyncio
async def test_a_violated_invariant_reaches_the_event_loops_handler() -> None:
    """Our bug ends our process (the handler of runtime.process does that), and never the caller's."""
    seen: list[dict[str, object]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: seen.append(context))
    async with serving(_raising(InvariantViolated("two owners"))) as (_, channel):
        with pytest.raises(ServiceUnavailable):
            await channel.call(FENCE, REQUEST, timeout_ms=TIMEOUT_MS)
    assert [type(context["exception"]) for context in seen] == [InvariantViolated]


@pytest.mark.asyncio
async def test_no_answer_in_time_is_a_deadline_exceeded() -> None:
    """The outcome is unknown, which is not the same as unavailable."""
    async with serving(_forever) as (_, channel):
        with pytest.raises(DeadlineExceeded):
            await channel.call(FENCE, REQUEST, timeout_ms=50)


@pytest.mark.asyncio
async def test_a_method_that_is_not_served_is_final() -> None:
    """Calling again would find it missing again."""
    async with serving() as (_, channel):
        with pytest.raises(errors.Fatal):
            await channel.call(DESCRIBE, storage_pb2.DescribeRequest(), timeout_ms=TIMEOUT_MS)


@pytest.mark.asyncio
async def test_a_process_that_is_gone_is_unavailable_at_once() -> None:
    """A refused connection does not wait for the deadline: failover is as fast as this."""
    async with serving() as (server, channel):
        await server.stop(grace_ms=0)
        with pytest.raises(ServiceUnavailable):
            await channel.call(FENCE, REQUEST, timeout_ms=TIMEOUT_MS)
        stream: AppendStream = channel.stream(APPEND)
        with pytest.raises(ServiceUnavailable):
            async for _ in stream:
                pass
        with pytest.raises(ServiceUnavailable):
            await stream.write(_frame(1))


@pytest.mark.asyncio
async def test_a_read_brings_all_frames_and_then_ends() -> None:
    """Present and missing entries, frame by frame."""
    async with serving() as (_, channel):
        frames = [f async for f in channel.read(READ, ReadRequest(NODE, LEDGER, EntryId(0), 3), timeout_ms=TIMEOUT_MS)]
    assert [(f.entry_ids, f.missing_ids, [bytes(e) for e in f.entries]) for f in frames] == [
        ([0], [], [b"\0"]),
        ([], [1], []),
        ([2], [], [b"\2"]),
    ]


@pytest.mark.asyncio
async def test_a_read_that_fails_half_way_raises_after_what_came_before() -> None:
    """A short read must not look like a complete one."""
    async with serving() as (_, channel):
        frames = channel.read(READ, ReadRequest(NODE, LEDGER, EntryId(88), 9), timeout_ms=TIMEOUT_MS)
        assert (await anext(frames)).entry_ids == [88]
        assert (await anext(frames)).missing_ids == [89]
        with pytest.raises(errors.LedgerNotFound):
            await anext(frames)


@pytest.mark.asyncio
async def test_a_stream_carries_both_directions_and_ends_when_both_have() -> None:
    """Writes run ahead of the answers; finish() lets the server end it."""
    async with serving(append=_echo) as (_, channel):
        stream: AppendStream = channel.stream(APPEND)
        for size in range(5):
            await stream.write(_frame(size, size + 1))
        await stream.finish()
        answers = [answer async for answer in stream]
        assert [list(a[0].entry_ids) for a in answers] == [[n, n + 1] for n in range(5)]
        assert stream.closed is None


@pytest.mark.asyncio
async def test_a_frame_of_many_megabytes_crosses() -> None:
    """The message limit of 5 MiB is above gRPC's own default of 4 MiB."""
    async with serving(append=_echo, frame_bytes_max=16 << 20) as (_, channel):
        stream: AppendStream = channel.stream(APPEND)
        await stream.write(_frame(6 << 20))
        answer = await anext(stream)
        assert list(answer[0].entry_ids) == [6 << 20]
        stream.cancel()


@pytest.mark.asyncio
async def test_a_frame_over_the_limit_is_too_large() -> None:
    """Final, for the same frame is as large the next time."""
    async with serving(append=_echo, frame_bytes_max=1 << 20) as (_, channel):
        stream: AppendStream = channel.stream(APPEND)
        with suppress(MessageTooLarge):  # the write may fail by itself or only its answer
            await stream.write(_frame(2 << 20))
        with pytest.raises(MessageTooLarge):
            await anext(stream)


@pytest.mark.asyncio
async def test_the_error_that_ends_a_stream_is_seen_by_reader_and_writer() -> None:
    """Both tasks of a stream learn why, whoever comes first."""

    async def refuse(stream: ServerStream[ReceivedAppend, Sequence[AppendAnswer]]) -> None:
        await anext(stream)
        raise NotOwner("look again")

    async with serving(append=refuse) as (_, channel):
        stream: AppendStream = channel.stream(APPEND)
        await stream.write(_frame(1))
        with pytest.raises(NotOwner):
            await anext(stream)
        with pytest.raises(NotOwner):
            await stream.write(_frame(1))
        assert isinstance(stream.closed, NotOwner)


@pytest.mark.asyncio
async def test_a_writer_learns_that_the_server_has_ended_the_stream() -> None:
    """Also without an error: what is written after it reaches nobody, and must not seem to."""

    async def take_one(stream: ServerStream[ReceivedAppend, Sequence[AppendAnswer]]) -> None:
        await anext(stream)

    async with serving(append=take_one) as (_, channel):
        stream: AppendStream = channel.stream(APPEND)
        await stream.write(_frame(1))
        assert [answer async for answer in stream] == []
        with pytest.raises(ServiceUnavailable):
            await stream.write(_frame(1))


@pytest.mark.asyncio
async def test_a_server_that_stops_ends_its_streams_with_a_retriable_error() -> None:
    """Clients go elsewhere at once."""
    async with serving(append=_echo) as (server, channel):
        stream: AppendStream = channel.stream(APPEND)
        await stream.write(_frame(1))
        await anext(stream)
        await server.stop(grace_ms=0)
        with pytest.raises(Retriable):
            await anext(stream)


@pytest.mark.asyncio
async def test_a_client_that_goes_away_cancels_its_handler() -> None:
    """So a session ends with its stream; what must survive belongs to another task."""
    over = asyncio.Event()

    async def watch(stream: ServerStream[ReceivedAppend, Sequence[AppendAnswer]]) -> None:
        try:
            await _echo(stream)
        finally:
            over.set()

    async with serving(append=watch) as (_, channel):
        stream: AppendStream = channel.stream(APPEND)
        await stream.write(_frame(1))
        await anext(stream)
        stream.cancel()
        await over.wait()


@pytest.mark.asyncio
async def test_a_server_that_writes_to_a_client_that_is_gone_gets_a_core_error() -> None:
    """No error of gRPC leaves this package."""
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
        await stream.write(_frame(1))
        await anext(stream)
        stream.cancel()
        gone.set()
        assert isinstance(await caught, ServiceUnavailable)


@pytest.mark.asyncio
async def test_ending_a_stream_here_is_an_error_to_its_tasks_and_not_their_cancellation() -> None:
    """A task that nobody cancelled must not see CancelledError: it would end in silence."""
    async with serving(append=_echo) as (_, channel):
        stream: AppendStream = channel.stream(APPEND)
        await stream.write(_frame(1))
        await anext(stream)
        reading = asyncio.ensure_future(anext(stream))
        await stream.write(_frame(1))
        await reading
        reading = asyncio.ensure_future(anext(stream))
        asyncio.get_running_loop().call_soon(stream.cancel)
        with pytest.raises(ServiceUnavailable, match="on this side"):
            await reading
        with pytest.raises(ServiceUnavailable, match="on this side"):
            await stream.write(_frame(1))


@pytest.mark.asyncio
async def test_closing_the_channel_is_an_error_to_the_readers_of_its_streams() -> None:
    """The same when the whole channel goes."""
    async with serving(append=_echo) as (_, channel):
        stream: AppendStream = channel.stream(APPEND)
        await stream.write(_frame(1))
        await anext(stream)
        reading = asyncio.ensure_future(anext(stream))
        asyncio.get_running_loop().call_soon(lambda: asyncio.ensure_future(channel.close()))
        with pytest.raises(ServiceUnavailable):
            await reading


@pytest.mark.asyncio
async def test_cancelling_a_reader_cancels_it() -> None:
    """Cancellation always passes."""
    async with serving(append=_echo) as (_, channel):
        stream: AppendStream = channel.stream(APPEND)
        await stream.write(_frame(1))
        await anext(stream)
        reading = asyncio.ensure_future(anext(stream))
        asyncio.get_running_loop().call_soon(reading.cancel)
        with pytest.raises(asyncio.CancelledError):
            await reading


@pytest.mark.asyncio
async def test_garbage_in_a_message_is_an_invalid_argument_and_the_server_lives() -> None:
    """To calls and to streams alike."""
    async with serving(_forever, _echo) as (_, channel):
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
        await stream.write(_frame(3))
        assert await anext(stream)


@pytest.mark.asyncio
async def test_garbage_in_an_answer_is_an_invalid_argument_and_ends_the_stream() -> None:
    """A peer that cannot be understood is left."""

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
        async with asyncio.timeout(30), Channel(f"127.0.0.1:{port}") as channel:
            stream: AppendStream = channel.stream(APPEND)
            with pytest.raises(InvalidArgument):
                await anext(stream)
            with pytest.raises(InvalidArgument):
                await stream.write(_frame(1))
    finally:
        await server.stop(0)


@pytest.mark.asyncio
async def test_noise_on_the_port_disturbs_nobody_else() -> None:
    """Bytes that are not even HTTP/2."""
    async with serving(append=_echo) as (_, channel):
        reader, writer = await asyncio.open_connection(*channel.address.split(":"))
        writer.write(b"GET / HTTP/1.0\r\n\r\n" + bytes(range(256)) * 64)
        await reader.read()
        writer.close()
        stream: AppendStream = channel.stream(APPEND)
        await stream.write(_frame(3))
        assert await anext(stream)


@pytest.mark.asyncio
async def test_a_generated_client_talks_to_our_server() -> None:
    """Frames written by hand are ordinary protobuf: another language needs only the .proto files."""
    async with serving(append=_echo) as (_, channel), grpc.aio.insecure_channel(channel.address) as standard:
        call = storage_pb2_grpc.LogStorageStub(standard).Append()
        await call.write(storage_pb2.AppendFrame(target=NODE, entries=[b"four", b"sixsix"]))
        answers = await call.read()
        await call.done_writing()
        assert answers == storage_pb2.AppendAnswers(
            answers=[storage_pb2.AppendAnswer(ledger_id=5, entry_ids=[4, 6], status=storage_pb2.STORAGE_STATUS_OK)]
        )


@pytest.mark.asyncio
async def test_a_port_in_use_is_a_clear_error() -> None:
    """Two servers on one port would each get half of the calls."""
    async with serving() as (_, channel):
        with pytest.raises(InvalidArgument, match="in use"):
            await Server().start(port=int(channel.address.split(":")[1]))


@pytest.mark.asyncio
async def test_reachability_tells_a_refusal_from_a_listener() -> None:
    """A refusal confirms a suspicion, a listener ends it."""
    async with serving() as (server, channel):
        assert await reach(channel.address, timeout_ms=5_000) is Reachability.ACCEPTED
        await server.stop(grace_ms=0)
        assert await reach(channel.address, timeout_ms=5_000) is Reachability.REFUSED


@pytest.mark.asyncio
async def test_a_name_without_an_address_is_silence() -> None:
    """What cannot be asked has not refused."""
    assert await reach("nowhere.invalid:1", timeout_ms=5_000) is Reachability.SILENT
