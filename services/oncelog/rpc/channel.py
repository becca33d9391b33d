"""A channel to one process: calls with deadlines, and streams; failures come out as core errors.

    async with Channel("127.0.0.1:6650") as channel:
        answer = await channel.call(metadata_codec.LOOKUP, request, timeout_ms=1_000)
        stream = channel.stream(owner_codec.PUBLISH)
        await stream.write(frame)
        async for answers in stream: ...

Rules: a channel never repeats a call; whoever called decides. Nor does a stream reconnect. A call without an answer in
time raises DeadlineExceeded: its outcome is unknown. Credentials are the channel's: each call and each stream shows the
token as it is when it begins.
"""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from types import TracebackType
from typing import Any, Generic, Self, TypeVar

import grpc

from oncelog.core.errors import OncelogError, ServiceUnavailable
from oncelog.rpc.methods import (
    AnswerT,
    ReadMethod,
    ReceivedAnswerT,
    ReceivedRequestT,
    RequestT,
    StreamMethod,
    UnaryMethod,
)
from oncelog.rpc.options import AUTHORIZATION, FRAME_BYTES_MAX, channel_options
from oncelog.rpc.status import error_from_call
from oncelog.runtime.credentials import PLAIN, Credentials

RequestOutT_contra = TypeVar("RequestOutT_contra", contravariant=True)
AnswerInT_co = TypeVar("AnswerInT_co", covariant=True)

_FAILURES = (grpc.aio.AioRpcError, grpc.aio.InternalError, grpc.aio.UsageError, asyncio.InvalidStateError)


class Stream(Generic[RequestOutT_contra, AnswerInT_co]):
    """Both directions of one stream. One task may read while another writes; never two at once on one side.

    Iteration ends when the server has ended the stream without an error, and raises its core error otherwise.
    Cancelling a read or a write that waits ends the whole stream: put no timeout around either.
    """

    def __init__(
        self,
        call: grpc.aio.StreamStreamCall[bytes, bytes],
        address: str,
        encode: Callable[[RequestOutT_contra], bytes],
        decode: Callable[[bytes], AnswerInT_co],
    ) -> None:
        self._call = call
        self._address = address
        self._encode = encode
        self._decode = decode
        #: Why the stream is over; None while it is open, and after an end without an error.
        self.closed: OncelogError | None = None

    async def write(self, frame: RequestOutT_contra) -> None:
        """Returns when gRPC has taken the message, which is its flow control. Raises why the stream is over."""
        data = self._encode(frame)
        try:
            await self._call.write(data)
        except (*_FAILURES, asyncio.CancelledError) as failure:
            raise await self._end(failure) from failure

    def __aiter__(self) -> AsyncIterator[AnswerInT_co]:
        return self

    async def __anext__(self) -> AnswerInT_co:
        try:
            data: Any = await self._call.read()
        except (*_FAILURES, asyncio.CancelledError) as failure:
            raise await self._end(failure) from failure
        if data is grpc.aio.EOF:
            raise StopAsyncIteration
        try:
            return self._decode(data)
        except OncelogError as error:
            self.closed = self.closed or error
            self._call.cancel()
            raise

    async def finish(self) -> None:
        """Tell the server that nothing more will be written; its answers still come. Silent when the stream is over."""
        try:
            await self._call.done_writing()
        except _FAILURES as failure:
            await self._end(failure)

    def cancel(self) -> None:
        """End the stream at once, on both sides; whoever reads or writes gets ServiceUnavailable."""
        if self.closed is None:
            self.closed = ServiceUnavailable(f"{self._address}: the stream was ended on this side")
        self._call.cancel()

    async def _end(self, failure: BaseException) -> OncelogError:
        """Return why the stream is over. Raises CancelledError when it is this task that was cancelled."""
        if isinstance(failure, asyncio.CancelledError) and _task_is_cancelled(self._call):
            raise failure
        if self.closed is None:
            self.closed = await _meaning(self._call, failure, self._address)
        return self.closed


def _task_is_cancelled(call: grpc.aio.Call) -> bool:
    """Whether a CancelledError means this task: gRPC also raises it in others, when the call was cancelled."""
    task = asyncio.current_task()
    return task is None or task.cancelling() > 0 or not call.done()


async def _meaning(call: grpc.aio.StreamStreamCall[bytes, bytes], failure: BaseException, address: str) -> OncelogError:
    if isinstance(failure, grpc.aio.AioRpcError):
        return error_from_call(failure, address)
    if not call.done():
        return ServiceUnavailable(f"{address}: {failure}", address=address)
    code, details, trailing = await call.code(), await call.details(), await call.trailing_metadata()
    if code is grpc.StatusCode.OK:
        return ServiceUnavailable(f"{address}: the server has ended the stream", address=address)
    return error_from_call(grpc.aio.AioRpcError(code, grpc.aio.Metadata(), trailing, details), address)


class Channel:
    """address: "host:port"."""

    def __init__(
        self,
        address: str,
        *,
        credentials: Credentials = PLAIN,
        frame_bytes_max: int = FRAME_BYTES_MAX,
    ) -> None:
        """Raises InvalidArgument where a token would go out in plain text."""
        credentials.check_address(address)
        self.address = address
        self._credentials = credentials
        options: list[tuple[str, int | str]] = [*channel_options(frame_bytes_max)]
        if credentials.expected_name is not None:
            options.append(("grpc.ssl_target_name_override", credentials.expected_name))
        secure = credentials.channel_credentials()
        if secure is None:
            self._channel = grpc.aio.insecure_channel(address, options=options)
        else:
            self._channel = grpc.aio.secure_channel(address, secure, options=options)

    def _metadata(self) -> tuple[tuple[str, str], ...]:
        """What goes with each call. Raises InvalidArgument when the caller's own token is none."""
        authorization = self._credentials.authorization
        return () if authorization is None else ((AUTHORIZATION, authorization),)

    async def call(
        self,
        method: UnaryMethod[RequestT, ReceivedRequestT, AnswerT, ReceivedAnswerT],
        request: RequestT,
        *,
        timeout_ms: int,
    ) -> ReceivedAnswerT:
        """One request, one answer. Raises the server's core error, DeadlineExceeded or ServiceUnavailable."""
        callee: Any = self._channel.unary_unary(method.path)
        metadata = self._metadata()
        call: Any = None
        try:
            call = callee(method.encode_request(request), timeout=timeout_ms / 1000, metadata=metadata)
            data: Any = await call
        except (*_FAILURES, asyncio.CancelledError) as failure:
            raise self._failed(call, failure) from failure
        return method.decode_answer(data)

    async def read(
        self,
        method: ReadMethod[RequestT, ReceivedRequestT, AnswerT, ReceivedAnswerT],
        request: RequestT,
        *,
        timeout_ms: int,
    ) -> AsyncGenerator[ReceivedAnswerT, None]:
        """One request, many answers, all of them within `timeout_ms`. Raises as `call` does."""
        callee: Any = self._channel.unary_stream(method.path)
        metadata = self._metadata()
        answers: Any = None
        try:
            answers = callee(method.encode_request(request), timeout=timeout_ms / 1000, metadata=metadata)
            async for data in answers:
                yield method.decode_answer(data)
        except (*_FAILURES, asyncio.CancelledError) as failure:
            raise self._failed(answers, failure) from failure
        finally:
            if answers is not None:
                answers.cancel()

    def _failed(self, call: grpc.aio.Call | None, failure: BaseException) -> OncelogError:
        """What a failed call means. Raises CancelledError when it is this task that was cancelled."""
        if isinstance(failure, grpc.aio.AioRpcError):
            return error_from_call(failure, self.address)
        if isinstance(failure, asyncio.CancelledError) and (call is None or _task_is_cancelled(call)):
            raise failure
        return ServiceUnavailable(f"{self.address}: the channel was closed", address=self.address)

    def stream(
        self, method: StreamMethod[RequestT, ReceivedRequestT, AnswerT, ReceivedAnswerT]
    ) -> Stream[RequestT, ReceivedAnswerT]:
        """Open a stream. Returns at once: a peer that is not there shows at the first write or read."""
        call: Any = self._channel.stream_stream(method.path)(metadata=self._metadata())
        return Stream(call, self.address, method.encode_request, method.decode_answer)

    def connect_ahead(self) -> None:
        """Begin to connect, so that the first call need not wait for names, connection and handshake."""
        self._channel.get_state(try_to_connect=True)

    async def connected(self) -> None:
        """Return once a connection stands, however long that takes; it is tried again and again."""
        await self._channel.channel_ready()

    async def close(self) -> None:
        """End all calls and streams."""
        await self._channel.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.close()
