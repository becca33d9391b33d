"""Calls over a real socket: values and errors cross, bugs stay at home."""

import asyncio
import logging

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
from oncelog.core.ledger.member_status import ReadStatus
from oncelog.rpc.reachability import Reachability, reach
from oncelog.rpc.server import Server
from oncelog.rpc.status import error_from_wire, error_to_wire
from oncelog.rpc.storage_codec import (
    APPEND,
    DESCRIBE,
    FENCE,
    READ,
    FenceAnswer,
    FenceRequest,
    ReadRequest,
)
from oncelog.wire import error_pb2, storage_pb2
from tests.contract.rpc_serving import (
    LEDGER,
    NODE,
    REQUEST,
    TIMEOUT_MS,
    AppendStream,
    forever,
    frame_of,
    raising,
    serving,
)


@pytest.mark.asyncio
async def test_call_returns_the_handlers_answer() -> None:
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
def test_unknown_error_code_keeps_retriable(retriable: bool, cls: type[OncelogError]) -> None:
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
    async with serving(raising(NotOwner("look again", owner="10.0.0.1:6650", owner_epoch=7))) as (_, channel):
        with pytest.raises(NotOwner, match="look again") as caught:
            await channel.call(FENCE, REQUEST, timeout_ms=TIMEOUT_MS)
        assert caught.value.details == {"owner": "10.0.0.1:6650", "owner_epoch": 7}


@pytest.mark.asyncio
async def test_an_error_inside_a_task_group_is_still_that_error() -> None:
    """Handlers use task groups, whose exceptions come wrapped."""
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
    """The log has the trace under the same id; the outcome is unknown, so trying again is right."""
    with caplog.at_level(logging.ERROR):
        async with serving(raising(bug)) as (_, channel):
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
    async with serving(raising(InvariantViolated("two owners"))) as (_, channel):
        with pytest.raises(ServiceUnavailable):
            await channel.call(FENCE, REQUEST, timeout_ms=TIMEOUT_MS)
    # gRPC's poller may report beside it what is left of another test's loop.
    reported = [context for context in seen if "PollerCompletionQueue" not in str(context.get("message"))]
    assert [type(context["exception"]) for context in reported] == [InvariantViolated], seen


@pytest.mark.asyncio
async def test_no_answer_in_time_is_a_deadline_exceeded() -> None:
    """The outcome is unknown, which is not the same as unavailable."""
    async with serving(forever) as (_, channel):
        with pytest.raises(DeadlineExceeded):
            await channel.call(FENCE, REQUEST, timeout_ms=50)


@pytest.mark.asyncio
async def test_unknown_method_is_a_fatal_error() -> None:
    """Calling again would find it missing again."""
    async with serving() as (_, channel):
        with pytest.raises(errors.Fatal):
            await channel.call(DESCRIBE, storage_pb2.DescribeRequest(), timeout_ms=TIMEOUT_MS)


@pytest.mark.asyncio
async def test_call_to_an_ended_process_fails_at_once() -> None:
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
            await stream.write(frame_of(1))


@pytest.mark.asyncio
async def test_closing_the_channel_is_an_error_to_its_calls_and_not_their_cancellation() -> None:
    """Who called was not cancelled, and may have more to do; but who is cancelled is cancelled."""
    started = asyncio.Semaphore(0)

    async def fence(request: FenceRequest) -> FenceAnswer:
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
async def test_a_read_that_fails_half_way_raises_after_what_came_before() -> None:
    """A short read must not look like a complete one."""
    async with serving() as (_, channel):
        frames = channel.read(READ, ReadRequest(NODE, LEDGER, EntryId(88), 9), timeout_ms=TIMEOUT_MS)
        assert (await anext(frames)).entry_ids == [88]
        assert (await anext(frames)).missing_ids == [89]
        with pytest.raises(errors.LedgerNotFound):
            await anext(frames)


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
async def test_unknown_name_counts_as_silent() -> None:
    """What cannot be asked has not refused."""
    assert await reach("nowhere.invalid:1", timeout_ms=5_000) is Reachability.SILENT
