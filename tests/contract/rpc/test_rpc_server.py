"""Calls over a real socket: values and errors are transmitted, details of bugs are not."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import partial

import pytest

from oncelog.core import errors
from oncelog.core.errors import (
    BY_CODE,
    DeadlineExceeded,
    InvalidArgument,
    InvariantViolated,
    NotOwner,
    OncelogError,
    SequenceGap,
    ServiceUnavailable,
)
from oncelog.core.ids import EntryId
from oncelog.rpc.codecs.storage_codec import APPEND, DESCRIBE, FENCE, READ, ReadRequest
from oncelog.rpc.reachability import Reachability, reach
from oncelog.rpc.server import Server
from oncelog.rpc.status import error_from_wire, error_to_wire
from oncelog.wire import error_pb2, storage_pb2
from oncelog.wire import storage_pb2 as pb
from tests.cluster.until import yield_to_loop
from tests.contract.rpc.rpc_serving import (
    LEDGER,
    NODE,
    REQUEST,
    TIMEOUT_MS,
    AppendStream,
    echo,
    forever,
    frame_of,
    raising,
    serving,
)


@pytest.mark.asyncio
async def test_call_returns_the_handlers_response() -> None:
    """The plain case."""

    async def fence(request: pb.FenceRequest) -> pb.FenceAnswer:
        return pb.FenceAnswer(status=pb.STORAGE_STATUS_OK, last_entry=EntryId(request.ledger_id))

    async with serving(fence) as (_, channel):
        answer = await channel.call(FENCE, REQUEST, timeout_ms=TIMEOUT_MS)
        assert answer.last_entry == 5


@pytest.mark.parametrize("code", sorted(set(BY_CODE) - {"invariant_violated"}))
def test_each_error_keeps_its_class(code: str) -> None:
    """The caller's next step depends on the class."""
    sent = BY_CODE[code]("what to do", owner="here", limit=2**63 - 1, huge=2**70, unknown=None)
    received = error_from_wire(error_to_wire(sent))
    assert type(received) is type(sent)
    assert received.message == "what to do"
    assert received.details == {"owner": "here", "limit": 2**63 - 1, "huge": str(2**70)}


@pytest.mark.parametrize(("retriable", "cls"), [(True, errors.Retriable), (False, errors.Fatal)])
def test_unknown_error_code_keeps_retriable(retriable: bool, cls: type[OncelogError]) -> None:
    """The class is unknown to this version, but whether to retry is known."""
    assert type(error_from_wire(error_pb2.Error(code="of_tomorrow", retriable=retriable))) is cls


def test_details_may_be_named_like_fields_of_the_error() -> None:
    """Names of details come from the peer, and may be `message` or `self`."""
    wire = error_pb2.Error(code="not_owner", message="look again")
    wire.details["message"].text, wire.details["self"].number = "x", 1
    error = error_from_wire(wire)
    assert (error.message, error.details) == ("look again", {"message": "x", "self": 1})


@pytest.mark.asyncio
async def test_error_of_a_handler_reaches_the_caller() -> None:
    """With class, message and details, through a real call."""
    async with serving(raising(NotOwner("look again", owner="10.0.0.1:6650", owner_epoch=7))) as (_, channel):
        with pytest.raises(NotOwner, match="look again") as caught:
            await channel.call(FENCE, REQUEST, timeout_ms=TIMEOUT_MS)
        assert caught.value.details == {"owner": "10.0.0.1:6650", "owner_epoch": 7}


@pytest.mark.asyncio
async def test_error_inside_a_task_group_keeps_its_class() -> None:
    """Task groups wrap exceptions of handlers."""
    group = ExceptionGroup("unhandled", [ExceptionGroup("inner", [SequenceGap("send 10 first", expected=10)])])
    async with serving(raising(group)) as (_, channel):
        with pytest.raises(SequenceGap):
            await channel.call(FENCE, REQUEST, timeout_ms=TIMEOUT_MS)


@pytest.mark.asyncio
@pytest.mark.parametrize(
    "bug", [KeyError("secret"), ExceptionGroup("unhandled", [SequenceGap("x"), KeyError("secret")])]
)
async def test_caller_of_a_failed_handler_gets_only_a_request_id(
    bug: Exception, caplog: pytest.LogCaptureFixture
) -> None:
    """The log has the stack trace under this id; the outcome is unknown, so the error is retriable."""
    with caplog.at_level(logging.ERROR):
        async with serving(raising(bug)) as (_, channel):
            with pytest.raises(ServiceUnavailable) as caught:
                await channel.call(FENCE, REQUEST, timeout_ms=TIMEOUT_MS)
    assert "secret" not in caught.value.message
    (record,) = caplog.records
    assert record.__dict__["fields"]["request_id"] == caught.value.details["request_id"]
    assert record.exc_info is not None


@pytest.mark.asyncio
async def test_violated_invariant_reaches_the_event_loops_handler() -> None:
    """A bug ends the process that has it (by the handler of runtime.process), and never the caller's."""
    seen: list[dict[str, object]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: seen.append(context))
    async with serving(raising(InvariantViolated("two owners"))) as (_, channel):
        with pytest.raises(ServiceUnavailable):
            await channel.call(FENCE, REQUEST, timeout_ms=TIMEOUT_MS)
    # gRPC's poller may report beside it what is left of another test's loop.
    reported = [context for context in seen if "PollerCompletionQueue" not in str(context.get("message"))]
    assert [type(context["exception"]) for context in reported] == [InvariantViolated], seen


@pytest.mark.asyncio
async def test_call_without_a_response_in_time_raises_deadline_exceeded() -> None:
    """The outcome is unknown, unlike with Unavailable."""
    async with serving(forever) as (_, channel):
        with pytest.raises(DeadlineExceeded):
            await channel.call(FENCE, REQUEST, timeout_ms=50)


@pytest.mark.asyncio
async def test_unknown_method_is_a_fatal_error() -> None:
    """A retry would fail again."""
    async with serving() as (_, channel):
        with pytest.raises(errors.Fatal):
            await channel.call(DESCRIBE, storage_pb2.DescribeRequest(), timeout_ms=TIMEOUT_MS)


@pytest.mark.asyncio
async def test_call_to_an_ended_process_fails_at_once() -> None:
    """A refused connection does not wait for the deadline, so failover is fast."""
    async with serving() as (server, channel):
        await server.stop(grace_ms=0)
        with pytest.raises(ServiceUnavailable):
            await channel.call(FENCE, REQUEST, timeout_ms=TIMEOUT_MS)
        stream: AppendStream = channel.stream(APPEND)
        with pytest.raises(ServiceUnavailable):
            async for _ in stream:
                pass
        with pytest.raises(ServiceUnavailable):
            await stream.write(frame_of(1))


async def _failed_group() -> None:
    """Leaves the count of cancellations of this task above 0 in Python 3.11: the group cancels its own task, which
    already waits for the others."""

    async def fail() -> None:
        await yield_to_loop()
        raise ValueError

    with suppress(ExceptionGroup):
        async with asyncio.TaskGroup() as group:
            group.create_task(fail())
            group.create_task(asyncio.Event().wait())


@pytest.mark.asyncio
async def test_task_that_was_cancelled_before_gets_errors_of_its_calls_and_streams() -> None:
    """A CancelledError would end a program that nobody cancelled: `except Exception` does not see it."""
    started = asyncio.Semaphore(0)

    async def fence(request: pb.FenceRequest) -> pb.FenceAnswer:
        started.release()
        return await forever(request)

    async def after_a_failure(operation: Callable[[], Awaitable[object]]) -> None:
        await _failed_group()
        with pytest.raises(ServiceUnavailable):
            await operation()

    async with serving(fence, echo) as (_, channel):
        stream: AppendStream = channel.stream(APPEND)
        await stream.write(frame_of(1))
        await anext(stream)
        reading = asyncio.ensure_future(after_a_failure(partial(anext, stream)))
        calling = asyncio.ensure_future(after_a_failure(partial(channel.call, FENCE, REQUEST, timeout_ms=TIMEOUT_MS)))
        await started.acquire()
        await channel.close()
        await asyncio.gather(reading, calling)


@pytest.mark.asyncio
async def test_cancellation_that_is_on_its_way_is_not_taken_for_a_former_one() -> None:
    """A task that cancels itself, and then calls, is cancelled."""

    async def cancels_itself(operation: Callable[[], Awaitable[object]]) -> None:
        await _failed_group()
        task = asyncio.current_task()
        assert task is not None
        task.cancel()
        await operation()

    async with serving(forever, echo) as (_, channel):
        stream: AppendStream = channel.stream(APPEND)
        await stream.write(frame_of(1))
        await anext(stream)
        for operation in (partial(channel.call, FENCE, REQUEST, timeout_ms=TIMEOUT_MS), partial(anext, stream)):
            with pytest.raises(asyncio.CancelledError):
                await asyncio.ensure_future(cancels_itself(operation))


@pytest.mark.asyncio
async def test_closing_the_channel_fails_its_calls_without_cancelling_their_tasks() -> None:
    """The calling task was not cancelled and may continue; a task that is cancelled stays cancelled."""
    started = asyncio.Semaphore(0)

    async def fence(request: pb.FenceRequest) -> pb.FenceAnswer:
        started.release()
        return await forever(request)

    async with serving(fence) as (_, channel):
        calling, cancelled = [
            asyncio.ensure_future(channel.call(FENCE, REQUEST, timeout_ms=TIMEOUT_MS)) for _ in range(2)
        ]
        for _ in range(2):
            await started.acquire()
        cancelled.cancel()
        with pytest.raises(asyncio.CancelledError):
            await cancelled
        await channel.close()
        with pytest.raises(ServiceUnavailable):
            await calling
        with pytest.raises(ServiceUnavailable):
            await channel.call(FENCE, REQUEST, timeout_ms=TIMEOUT_MS)
        with pytest.raises(ServiceUnavailable):
            await anext(channel.read(READ, ReadRequest(NODE, LEDGER, EntryId(0), 3), timeout_ms=TIMEOUT_MS))


@pytest.mark.asyncio
async def test_read_returns_all_frames_and_ends() -> None:
    """Present and missing entries, frame by frame."""
    async with serving() as (_, channel):
        frames = [f async for f in channel.read(READ, ReadRequest(NODE, LEDGER, EntryId(0), 3), timeout_ms=TIMEOUT_MS)]
    assert [(f.entry_ids, f.missing_ids, [bytes(e) for e in f.entries]) for f in frames] == [
        ([0], [], [b"\0"]),
        ([], [1], []),
        ([2], [], [b"\2"]),
    ]


@pytest.mark.asyncio
async def test_failed_read_raises_after_the_received_frames() -> None:
    """A partial read must not look complete."""
    async with serving() as (_, channel):
        frames = channel.read(READ, ReadRequest(NODE, LEDGER, EntryId(88), 9), timeout_ms=TIMEOUT_MS)
        assert (await anext(frames)).entry_ids == [88]
        assert (await anext(frames)).missing_ids == [89]
        with pytest.raises(errors.LedgerNotFound):
            await anext(frames)


@pytest.mark.asyncio
async def test_port_in_use_is_an_error() -> None:
    """Two servers on one port would each get half of the calls."""
    async with serving() as (_, channel):
        with pytest.raises(InvalidArgument, match="in use"):
            await Server().start(port=int(channel.address.split(":")[1]))


@pytest.mark.asyncio
async def test_reachability_distinguishes_a_refusal_from_a_listener() -> None:
    """A refusal confirms a suspicion, a listener ends it."""
    async with serving() as (server, channel):
        assert await reach(channel.address, timeout_ms=30_000) is Reachability.ACCEPTED
        await server.stop(grace_ms=0)
        assert await reach(channel.address, timeout_ms=30_000) is Reachability.REFUSED


@pytest.mark.asyncio
async def test_unknown_name_counts_as_no_response() -> None:
    """A host that cannot be resolved has not refused a connection."""
    assert await reach("nowhere.invalid:1", timeout_ms=30_000) is Reachability.SILENT
