"""A channel to one process: calls with deadlines, and streams. Failures are raised as core errors.

    async with Channel("127.0.0.1:6650") as channel:
        answer = await channel.call(metadata_codec.LOOKUP, request, timeout_ms=1_000)
        stream = channel.stream(owner_codec.PUBLISH)
        await stream.write(frame)
        async for answers in stream: ...

Rules: a channel never repeats a call, and a stream never reconnects; the caller decides. A call without an answer in
time raises DeadlineExceeded: its outcome is unknown. Each call and each stream sends the channel's token as it is when
the call starts.
"""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Coroutine
from types import TracebackType
from typing import Any, Generic, Self, TypeVar
from weakref import WeakKeyDictionary

from oncelog.core.errors import OncelogError, ServiceUnavailable, StaleEra
from oncelog.rpc import library
from oncelog.rpc.answer_times import AnswerTimes
from oncelog.rpc.connecting import Connecting
from oncelog.rpc.methods import (
    AnswerT,
    ReadMethod,
    ReceivedAnswerT,
    ReceivedRequestT,
    RequestT,
    StreamMethod,
    UnaryMethod,
)
from oncelog.rpc.options import AUTHORIZATION, ERA, FRAME_BYTES_MAX, channel_options
from oncelog.rpc.status import error_from_call, not_reached
from oncelog.runtime.credentials import PLAIN, Credentials
from oncelog.runtime.forks import keep

RequestOutT_contra = TypeVar("RequestOutT_contra", contravariant=True)
AnswerInT_co = TypeVar("AnswerInT_co", covariant=True)

#: gRPC's own status of a call whose write failed. It replaces the server's status, which is then lost.
_WRITE_FAILED = "Internal error from Core"


def _failures(*others: type[BaseException]) -> tuple[type[BaseException], ...]:
    """What a call of gRPC may raise, and others."""
    aio = library.grpc.aio
    return (aio.AioRpcError, aio.InternalError, aio.UsageError, asyncio.InvalidStateError, *others)


class Stream(Generic[RequestOutT_contra, AnswerInT_co]):
    """Both directions of one stream. One task may read while another one writes, but not two in the same direction.

    Iteration ends when the server ends the stream without an error, and raises the server's core error otherwise.
    Cancelling a waiting read or write ends the whole stream, so do not put a timeout around either.
    """

    def __init__(
        self,
        call: library.grpc.aio.StreamStreamCall[bytes, bytes],
        address: str,
        encode: Callable[[RequestOutT_contra], bytes],
        decode: Callable[[bytes], AnswerInT_co],
        origin: str = "",
        credentials: Credentials = PLAIN,
    ) -> None:
        self._call = call
        keep(self)
        self._origin = origin
        self._credentials = credentials
        self._address = address
        self._encode = encode
        self._decode = decode
        #: set by `cancel`: gRPC does not wake the waiters of a call that is cancelled before it has a connection
        self._ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._connected = False
        #: Why the stream ended; None while it is open, and after an end without an error.
        self.closed: OncelogError | None = None

    async def write(self, frame: RequestOutT_contra) -> None:
        """Returns when gRPC has accepted the message (flow control). Raises the error that ended the stream."""
        data = self._encode(frame)
        before = _cancellations() and await _cancellations_delivered()
        try:
            await self._await(self._call.write(data))
        except _failures(asyncio.CancelledError) as failure:
            raise await self._end(failure, before) from failure

    def __aiter__(self) -> AsyncIterator[AnswerInT_co]:
        return self

    async def __anext__(self) -> AnswerInT_co:
        before = _cancellations() and await _cancellations_delivered()
        try:
            data: Any = await self._await(self._call.read())
        except _failures(asyncio.CancelledError) as failure:
            raise await self._end(failure, before) from failure
        if data is library.grpc.aio.EOF:
            raise StopAsyncIteration
        try:
            return self._decode(data)
        except OncelogError as error:
            self.closed = self.closed or error
            _cancel(self._call)
            raise

    async def finish(self) -> None:
        """End writing; the server's answers still arrive. No error when the stream has ended."""
        try:
            await self._call.done_writing()
        except _failures() as failure:
            await self._end(failure, 0)

    def cancel(self, error: OncelogError | None = None) -> None:
        """End the stream at once, in both directions. Waiting reads and writes raise `error`, or ServiceUnavailable."""
        self._close_with(error or ServiceUnavailable(f"{self._address}: the stream was ended by this process"))
        _cancel(self._call)
        if not self._ended.done():
            self._ended.set_result(None)

    async def _await(self, operation: Coroutine[Any, Any, Any]) -> Any:
        """The result of a read or write; it also ends with a stream that has no connection yet."""
        if self._connected:
            return await operation
        task = asyncio.ensure_future(operation)
        try:
            await asyncio.wait({task, self._ended}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            over = not task.done() or task.cancelled()
            if over:
                task.add_done_callback(_forget)
                task.cancel()
                del task, operation  # otherwise the error that follows would keep the call and its channel alive
        if over:
            raise asyncio.CancelledError
        result = task.result()
        self._connected = True
        return result

    async def _end(self, failure: BaseException, before: int) -> OncelogError:
        """Return why the stream ended. Raises CancelledError when this task was cancelled during the operation."""
        if isinstance(failure, asyncio.CancelledError) and _task_is_cancelled(self._call, before):
            _cancel(self._call)  # gRPC does so only once the call has a connection
            raise failure
        error = self.closed or self._close_with(
            _heard(self._credentials, self._address, await _meaning(self._call, failure, self._address, self._origin))
        )
        _cancel(self._call)
        self._call = _OVER
        return error

    def _close_with(self, error: OncelogError) -> OncelogError:
        """Returns the first error that was given."""
        if self.closed is None:
            self.closed = error
        return self.closed


def _cancel(call: Any) -> None:
    """End a call also if it counts as done. gRPC says so of one whose write has failed, and its `cancel` does nothing
    then; but if an answer was not read, the call would stay in gRPC's core for ever, with the connection."""
    if not call.cancel() and (core := getattr(call, "_cython_call", None)) is not None:
        core.cancel("the call has ended")


def _forget(task: "asyncio.Future[Any]") -> None:
    """Retrieve the exception of an abandoned task, so that it is not reported."""
    if not task.cancelled():
        task.exception()


class _Over:
    """Stands for an ended call. The stream's error would otherwise keep the call and its channel alive, and the channel
    would go on connecting."""

    async def write(self, _data: bytes) -> None:
        raise asyncio.InvalidStateError("the stream has ended")

    async def read(self) -> bytes:
        raise asyncio.InvalidStateError("the stream has ended")

    async def done_writing(self) -> None:
        raise asyncio.InvalidStateError("the stream has ended")

    def cancel(self) -> bool:
        return False

    def done(self) -> bool:
        return True


_OVER: Any = _Over()


def _task_is_cancelled(call: library.grpc.aio.Call, before: int) -> bool:
    """Whether a CancelledError is about this task: gRPC also raises it in tasks that use a cancelled call."""
    return _cancelled_since(before) or not call.done()


def _cancelled_since(before: int) -> bool:
    """Whether the current task was cancelled since its count was `before`.

    That the count is above 0 says nothing: in Python 3.11 it stays there after a TaskGroup of the task has failed.
    """
    return asyncio.current_task() is None or _cancellations() > before


def _cancellations() -> int:
    """How often the current task was cancelled so far."""
    task = asyncio.current_task()
    return 0 if task is None else task.cancelling()


async def _cancellations_delivered() -> int:
    """The same once each cancellation has reached the task. Raises CancelledError if one was still on its way."""
    await asyncio.sleep(0)
    return _cancellations()


async def _meaning(
    call: library.grpc.aio.StreamStreamCall[bytes, bytes], failure: BaseException, address: str, origin: str
) -> OncelogError:
    if call.done() and await call.details() == _WRITE_FAILED:
        message = f"{address}: the stream ended while a message was being sent; the reason did not arrive"
        return ServiceUnavailable(message, address=address)
    if isinstance(failure, library.grpc.aio.AioRpcError):
        return error_from_call(failure, address, origin=origin)
    if not call.done():
        return ServiceUnavailable(f"{address}: {failure}", address=address)
    code, details, trailing = await call.code(), await call.details(), await call.trailing_metadata()
    if code is library.grpc.StatusCode.OK:
        return ServiceUnavailable(f"{address}: the server ended the stream", address=address)
    return error_from_call(
        library.grpc.aio.AioRpcError(code, library.grpc.aio.Metadata(), trailing, details), address, origin=origin
    )


def _heard(credentials: Credentials, address: str, error: OncelogError) -> OncelogError:
    """Returns the error of a peer, and tells if this process is of a former era."""
    if isinstance(error, StaleEra):
        credentials.on_stale_era(address, error)
    return error


class Channel:
    """address: "host:port"."""

    def __init__(
        self,
        address: str,
        *,
        credentials: Credentials = PLAIN,
        frame_bytes_max: int = FRAME_BYTES_MAX,
        metadata: tuple[tuple[str, str], ...] = (),
        origin: str = "",
        times: AnswerTimes | None = None,
        forwards: bool = False,
    ) -> None:
        """metadata: sent with each call. origin: where the address comes from, for errors: "advertised by owner x".
        times: how long connections to the address took, shared with other channels; None: of this one only.
        forwards: what arrives goes to others, who may not read it, so little of it is received before it is read.

        Raises InvalidArgument when a token would be sent unencrypted.
        """
        credentials.check_address(address)
        self.address = address
        self._credentials = credentials
        self._era = () if credentials.era is None else ((ERA, str(credentials.era)),)
        self._frame_bytes_max = frame_bytes_max
        self._forwards = forwards
        self._metadata_always = metadata
        self._origin = origin
        self._connecting = Connecting(self._new, times)
        #: {call that was ended because it got no connection in time: how long it waited, in ms}
        self._given_up: WeakKeyDictionary[library.grpc.aio.Call, int] = WeakKeyDictionary()
        #: whether a call or stream was started and got a connection in time
        self._used = False

    def _new(self, attempt_ms: int) -> library.grpc.aio.Channel:
        library.own()
        credentials = self._credentials
        options: list[tuple[str, int | str]] = [
            *channel_options(self._frame_bytes_max, attempt_ms=attempt_ms, forwards=self._forwards)
        ]
        if credentials.expected_name is not None:
            options.append(("grpc.ssl_target_name_override", credentials.expected_name))
        secure = credentials.channel_credentials()
        if secure is None:
            return library.grpc.aio.insecure_channel(self.address, options=options)
        return library.grpc.aio.secure_channel(self.address, secure, options=options)

    def _metadata(self) -> tuple[tuple[str, str], ...]:
        """The metadata of a call. Raises InvalidArgument when the token is not valid."""
        authorization = self._credentials.authorization
        own = () if authorization is None else ((AUTHORIZATION, authorization),)
        return (*own, *self._era, *self._metadata_always)

    async def call(
        self,
        method: UnaryMethod[RequestT, ReceivedRequestT, AnswerT, ReceivedAnswerT],
        request: RequestT,
        *,
        timeout_ms: int,
        more_metadata: tuple[tuple[str, str], ...] = (),
    ) -> ReceivedAnswerT:
        """One request, one answer. more_metadata: of this call only. Raises the server's core error, DeadlineExceeded
        or ServiceUnavailable."""
        callee: Any = self._connecting.channel.unary_unary(method.path)
        metadata = (*self._metadata(), *more_metadata)
        before = _cancellations() and await _cancellations_delivered()
        call: Any = None
        try:
            call = callee(method.encode_request(request), timeout=timeout_ms / 1000, metadata=metadata)
            self._watch(call)
            data: Any = await call
        except _failures(asyncio.CancelledError) as failure:
            raise self._failed(call, failure, before) from failure
        return method.decode_answer(data)

    async def read(
        self,
        method: ReadMethod[RequestT, ReceivedRequestT, AnswerT, ReceivedAnswerT],
        request: RequestT,
        *,
        timeout_ms: int,
    ) -> AsyncGenerator[ReceivedAnswerT, None]:
        """One request, many answers, all of them within `timeout_ms`. Raises as `call` does."""
        callee: Any = self._connecting.channel.unary_stream(method.path)
        metadata = self._metadata()
        before = _cancellations() and await _cancellations_delivered()
        answers: Any = None
        try:
            answers = callee(method.encode_request(request), timeout=timeout_ms / 1000, metadata=metadata)
            self._watch(answers)
            async for data in answers:
                yield method.decode_answer(data)
        except _failures(asyncio.CancelledError) as failure:
            raise self._failed(answers, failure, before) from failure
        finally:
            if answers is not None:
                _cancel(answers)

    def _watch(self, call: library.grpc.aio.Call, end: Callable[[OncelogError], object] | None = None) -> None:
        """End the call when it gets no connection in time. end: called instead of `call.cancel`, with the error."""
        self._used = True
        waited_ms = self._connecting.call_wait_ms

        def give_up() -> None:
            if call.done():
                return
            if not self._connecting.closed:
                self._used = False
                self._given_up[call] = waited_ms
            if end is None:
                call.cancel()
            else:
                end(self._closed() if self._connecting.closed else self._no_connection(waited_ms))

        self._connecting.watch(give_up, waited_ms)

    def _no_connection(self, waited_ms: int) -> ServiceUnavailable:
        return not_reached(self.address, f"no connection within {waited_ms / 1000:g} s", origin=self._origin)

    def _failed(self, call: library.grpc.aio.Call | None, failure: BaseException, before: int) -> OncelogError:
        """The core error of a failed call. Raises CancelledError when this task was cancelled during the call."""
        if isinstance(failure, library.grpc.aio.AioRpcError):
            return _heard(self._credentials, self.address, error_from_call(failure, self.address, origin=self._origin))
        if call is not None and call in self._given_up and not _cancelled_since(before):
            return self._no_connection(self._given_up[call])
        if isinstance(failure, asyncio.CancelledError) and (call is None or _task_is_cancelled(call, before)):
            raise failure
        return self._closed()

    def _closed(self) -> ServiceUnavailable:
        return ServiceUnavailable(f"{self.address}: the channel was closed", address=self.address)

    def stream(
        self,
        method: StreamMethod[RequestT, ReceivedRequestT, AnswerT, ReceivedAnswerT],
        *,
        metadata: tuple[tuple[str, str], ...] = (),
    ) -> Stream[RequestT, ReceivedAnswerT]:
        """Open a stream. Returns at once; an unreachable peer shows at the first write or read."""
        call: Any = self._connecting.channel.stream_stream(method.path)(metadata=(*self._metadata(), *metadata))
        stream = Stream(
            call, self.address, method.encode_request, method.decode_answer, self._origin, self._credentials
        )
        self._watch(call, stream.cancel)
        return stream

    def connect_ahead(self) -> None:
        """Start connecting, so that the first call does not wait for name resolution, connection and handshake."""
        self._connecting.begin()

    async def connected(self) -> None:
        """Return when there is a connection; attempts are repeated without limit."""
        await self._connecting.connected()

    @property
    def worth_keeping(self) -> bool:
        """Whether the channel is still connecting, or is connected and no call has used it."""
        return self._connecting.unfinished or (self._connecting.ready and not self._used)

    async def close(self) -> None:
        """End all calls and streams."""
        await self._connecting.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.close()
