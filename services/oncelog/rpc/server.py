"""A gRPC server whose handlers see plain values and raise core errors.

    server = Server(security)
    server.unary(storage_codec.FENCE, fence)              # async def fence(request) -> answer
    server.read(storage_codec.READ, read)                 # async def read(request) -> AsyncIterator of answers
    server.stream(storage_codec.APPEND, append)           # async def append(stream: ServerStream) -> None
    server.client_unary(metadata_codec.LOOKUP, look_up)   # async def look_up(request, caller) -> answer
    server.client_stream(owner_codec.PUBLISH, publish)    # async def publish(stream), with stream.caller
    port = await server.start(host="127.0.0.1", port=0)

Rules: exceptions are translated only here. A core error ends its call with its code. Any other exception is a bug: it
is logged with a request id, and the caller gets only that id. InvariantViolated also goes to the event loop's exception
handler, which ends the process (runtime.process).
With authentication, every call is authenticated before any message of it is received: once for a stream, and also for
unknown methods. All methods are registered with gRPC as streams in both directions, which is the same on the wire,
because gRPC would receive the whole request of a unary method before the token could be checked. Methods added by
`unary`, `read` and `stream` are for superusers, such as other services, and for those of the server's own era, where it
has one. Only handlers of `client_unary`, `client_read` and `client_stream` get other callers, and decide what each may
do.
A handler is cancelled when its caller disconnects: work that must not be lost needs a task of its own.
"""

import asyncio
import logging
import secrets
import sys
import traceback
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Generic, NoReturn, TypeVar
from urllib.parse import unquote

import grpc

from oncelog.core.access import UNCHECKED, Caller, require_superuser
from oncelog.core.address import join_address
from oncelog.core.era import FIRST_ERA, Era
from oncelog.core.errors import (
    DeadlineExceeded,
    InvalidArgument,
    InvariantViolated,
    OncelogError,
    ServiceUnavailable,
    Unauthenticated,
)
from oncelog.rpc.methods import (
    AnswerT,
    ReadMethod,
    ReceivedAnswerT,
    ReceivedRequestT,
    RequestT,
    StreamMethod,
    UnaryMethod,
)
from oncelog.rpc.options import AUTHORIZATION, CONNECTIONS_MAX, ERA, FRAME_BYTES_MAX, server_options
from oncelog.rpc.status import code_of, trailing_of
from oncelog.runtime.descriptors import connections_within
from oncelog.runtime.security import OPEN, Security

logger = logging.getLogger(__name__)

if TYPE_CHECKING:  # generic in its stubs alone
    _Handler = grpc.RpcMethodHandler[Any, Any]
#: gRPC's context of one call whose messages are raw bytes.
_Context = grpc.aio.ServicerContext[bytes, bytes]
_GONE = (grpc.aio.InternalError, grpc.aio.UsageError, asyncio.InvalidStateError)
_GROUP_ENDS = asyncio.TaskGroup.__aexit__.__code__
#: Status messages are for people; the complete error is in the trailing metadata.
_STATUS_CHARACTERS_MAX = 200
#: How long an authenticated caller may take to send the request of a unary call.
REQUEST_TIMEOUT_S = 10.0

RequestInT_co = TypeVar("RequestInT_co", covariant=True)
AnswerOutT_contra = TypeVar("AnswerOutT_contra", contravariant=True)


class ServerStream(Generic[RequestInT_co, AnswerOutT_contra]):
    """The handler's view of a stream. One task may read while another one writes, but not two in the same direction.

    Iteration ends when the client has finished writing. After the handler has ended, reads and writes raise
    ServiceUnavailable: gRPC frees the call with its handler, and using it later would crash the process.
    """

    def __init__(
        self,
        context: _Context,
        decode: Callable[[bytes], RequestInT_co],
        encode: Callable[[AnswerOutT_contra], bytes],
        caller: Caller,
    ) -> None:
        self._context = context
        self._decode = decode
        self._encode = encode
        #: Address of the client, as gRPC names it.
        self.peer = context.peer()
        #: The caller, as authenticated when the stream started.
        self.caller = caller
        #: Whether the handler, and with it the call, has ended.
        self.over = False
        #: the first write; gRPC may still be busy with it after its writer was cancelled
        self._first: asyncio.Future[None] | None = None

    def header(self, name: str) -> str | None:
        """The call's metadata value of this lower-case name; None when it is missing or not text."""
        found = next((value for key, value in self._context.invocation_metadata() or () if key == name), None)
        return found if isinstance(found, str) else None

    def __aiter__(self) -> AsyncIterator[RequestInT_co]:
        return self

    async def __anext__(self) -> RequestInT_co:
        """Raises InvalidArgument for bytes that are not such a message, ServiceUnavailable when the client is gone."""
        self._check_open()
        try:
            data: Any = await self._context.read()
        except _GONE as error:
            raise ServiceUnavailable(f"{self.peer}: the client is gone") from error
        if data is grpc.aio.EOF:
            raise StopAsyncIteration
        return self._decode(data)

    async def write(self, answer: AnswerOutT_contra) -> None:
        """Returns when gRPC has accepted the message (flow control). Raises ServiceUnavailable: the client is gone."""
        self._check_open()
        data = self._encode(answer)
        try:
            if self._first is None:
                self._first = asyncio.ensure_future(self._context.write(data))
                self._first.add_done_callback(_retrieve)
                await asyncio.shield(self._first)
                return
            if not self._first.done():
                await self.settled()
            await self._context.write(data)
        except _GONE as error:
            raise ServiceUnavailable(f"{self.peer}: the client is gone") from error

    async def settled(self) -> None:
        """Wait for a first write whose writer was cancelled.

        The first write carries the initial metadata. gRPC would send them again with any concurrent message, and then
        refuse, so the client would never get the end of the call. When a client that reads no more disconnects, its
        handler is cancelled.
        """
        if self._first is not None:
            await asyncio.wait((self._first,))

    def _check_open(self) -> None:
        if self.over:
            raise ServiceUnavailable(f"{self.peer}: the stream is over")


class Server:
    """Handlers are usually added before the one start; those added later are served from then on."""

    def __init__(
        self,
        security: Security = OPEN,
        *,
        frame_bytes_max: int = FRAME_BYTES_MAX,
        connections_max: int = CONNECTIONS_MAX,
        check_era: Callable[[Era], None] = lambda _: None,
    ) -> None:
        """check_era: raises for a service of an era that this process takes no calls of. Compared once, when a call
        or stream begins."""
        self._security = security
        self._check_era = check_era
        #: while handlers are still added: why other calls are refused; a caller may then retry
        self.refuses_others = ""
        self._frame_bytes_max = frame_bytes_max
        self._connections_max = connections_within(connections_max)
        self._handlers: dict[str, _Handler] = {}
        self._server: grpc.aio.Server | None = None
        self._stopped = asyncio.Event()

    def unary(
        self,
        method: UnaryMethod[RequestT, ReceivedRequestT, AnswerT, ReceivedAnswerT],
        handler: Callable[[ReceivedRequestT], Awaitable[AnswerT]],
        *,
        any_era: bool = False,
    ) -> None:
        """any_era: callers of another era are served, too."""

        def handle(request: ReceivedRequestT, caller: Caller) -> Awaitable[AnswerT]:
            require_superuser(caller)
            if not any_era:
                self._check_era(caller.era)
            return handler(request)

        self.client_unary(method, handle)

    def client_unary(
        self,
        method: UnaryMethod[RequestT, ReceivedRequestT, AnswerT, ReceivedAnswerT],
        handler: Callable[[ReceivedRequestT, Caller], Awaitable[AnswerT]],
    ) -> None:
        """For all callers with a valid token: the handler decides what the caller may do."""

        async def serve(_requests: object, context: _Context) -> None:
            try:
                caller = self._caller(context)
                request = method.decode_request(await _only_message(context))
                answer = method.encode_answer(await handler(request, caller))
            except Exception as error:  # noqa: BLE001  # every path ends in abort, which raises
                await _refuse(context, method.path, error)
            await _write(context, answer)

        self._handlers[method.path] = grpc.stream_stream_rpc_method_handler(serve)

    def read(
        self,
        method: ReadMethod[RequestT, ReceivedRequestT, AnswerT, ReceivedAnswerT],
        handler: Callable[[ReceivedRequestT], AsyncIterator[AnswerT]],
    ) -> None:
        def handle(request: ReceivedRequestT, caller: Caller) -> AsyncIterator[AnswerT]:
            require_superuser(caller)
            self._check_era(caller.era)
            return handler(request)

        self.client_read(method, handle)

    def client_read(
        self,
        method: ReadMethod[RequestT, ReceivedRequestT, AnswerT, ReceivedAnswerT],
        handler: Callable[[ReceivedRequestT, Caller], AsyncIterator[AnswerT]],
    ) -> None:
        """For all callers with a valid token: the handler decides what the caller may do."""

        async def serve(_requests: object, context: _Context) -> None:
            try:
                caller = self._caller(context)
                async for answer in handler(method.decode_request(await _only_message(context)), caller):
                    await _write(context, method.encode_answer(answer))
            except Exception as error:  # noqa: BLE001  # every path ends in abort, which raises
                await _refuse(context, method.path, error)

        self._handlers[method.path] = grpc.stream_stream_rpc_method_handler(serve)

    def stream(
        self,
        method: StreamMethod[RequestT, ReceivedRequestT, AnswerT, ReceivedAnswerT],
        handler: Callable[[ServerStream[ReceivedRequestT, AnswerT]], Awaitable[None]],
    ) -> None:
        async def handle(stream: ServerStream[ReceivedRequestT, AnswerT]) -> None:
            require_superuser(stream.caller)
            self._check_era(stream.caller.era)
            await handler(stream)

        self.client_stream(method, handle)

    def client_stream(
        self,
        method: StreamMethod[RequestT, ReceivedRequestT, AnswerT, ReceivedAnswerT],
        handler: Callable[[ServerStream[ReceivedRequestT, AnswerT]], Awaitable[None]],
    ) -> None:
        """For all callers with a valid token: the handler decides what `stream.caller` may do."""

        async def serve(_requests: object, context: _Context) -> None:
            stream = None
            try:
                caller = self._caller(context)
                stream = ServerStream(context, method.decode_request, method.encode_answer, caller)
                await handler(stream)
                await stream.settled()
            except Exception as error:  # noqa: BLE001  # every path ends in abort, which raises
                if stream is not None:
                    await stream.settled()
                await _refuse(context, method.path, error)
            finally:
                if stream is not None:
                    stream.over = True
                _free_calls(sys.exception())

        self._handlers[method.path] = grpc.stream_stream_rpc_method_handler(serve)

    def _caller(self, context: _Context) -> Caller:
        """Raises Unauthenticated, and InvalidArgument for an era that is none."""
        given = {key: value for key, value in context.invocation_metadata() or () if isinstance(value, str)}
        caller = UNCHECKED
        if self._security.authenticator is not None:
            caller = self._security.caller(given.get(AUTHORIZATION))
        era = Era.parse(given[ERA]) if ERA in given else FIRST_ERA
        return replace(caller, address=_address(context.peer()), era=era)

    async def _serve_unknown(self, _requests: object, context: _Context) -> None:
        """An unknown method: an unauthenticated caller must not even learn that it is unknown."""
        try:
            self._caller(context)
            if self.refuses_others:
                raise ServiceUnavailable(self.refuses_others)
        except (Unauthenticated, InvalidArgument, ServiceUnavailable) as error:
            await _refuse(context, "", error)
        await context.abort(grpc.StatusCode.UNIMPLEMENTED, "unknown method")

    async def start(self, *, host: str = "127.0.0.1", port: int = 0) -> int:
        """Listen; port 0 takes a free one. Returns the port. Raises InvalidArgument when the address cannot be used."""
        server = grpc.aio.server(options=server_options(self._frame_bytes_max, self._connections_max))
        unknown: _Handler = grpc.stream_stream_rpc_method_handler(self._serve_unknown)
        server.add_generic_rpc_handlers((_Handlers(self._handlers, unknown),))
        address = join_address(host, port)
        try:
            if self._security.certificate is None:
                bound = server.add_insecure_port(address)
            else:
                bound = server.add_secure_port(address, self._security.certificate.grpc_credentials())
        except RuntimeError as error:
            raise InvalidArgument(
                f"cannot listen on {address}: the port may be in use; choose a free port", field="port"
            ) from error
        await server.start()
        self._server = server
        return bound

    async def stop(self, *, grace_ms: int) -> None:
        """Accept no new calls, wait `grace_ms` for running calls to end, then cancel them.

        Streams do not end by themselves: end them first, and keep the grace short.
        """
        if self._server is not None:
            await self._server.stop(grace_ms / 1000)
        self._stopped.set()

    async def stopped(self) -> None:
        """Return when `stop` has finished."""
        await self._stopped.wait()


def _address(peer: str) -> str:
    """gRPC names a client `ipv4:10.0.0.1:5000` or `ipv6:%5B::1%5D:5000`."""
    kind, _, address = peer.partition(":")
    return unquote(address) if kind in ("ipv4", "ipv6") else peer


def _retrieve(write: "asyncio.Future[None]") -> None:
    """asyncio logs an error that nobody retrieved, and the writer may be cancelled: then nobody needs to know."""
    if not write.cancelled():
        write.exception()


def _free_calls(error: BaseException | None) -> None:
    """Free what the calls hold in which an error was raised, such as frames of messages that were not sent.

    `TaskGroup.__aexit__` refers to the error, whose traceback refers to that call. So does a cancellation that it met
    before, which is in no chain of errors. Such circles would be freed by the garbage collector alone, which runs
    rarely (`runtime.memory`).
    """
    while error is not None:
        for call, _ in traceback.walk_tb(error.__traceback__):
            if call.f_code is _GROUP_ENDS:
                call.clear()
        error.__traceback__ = None
        error = error.__context__


async def _only_message(context: _Context) -> bytes:
    """The request of a unary call. Raises InvalidArgument without one, DeadlineExceeded when it arrives too late."""
    try:
        async with asyncio.timeout(REQUEST_TIMEOUT_S):
            data: Any = await context.read()
    except TimeoutError as error:
        raise DeadlineExceeded(f"the request did not arrive within {REQUEST_TIMEOUT_S:g} s") from error
    except _GONE as error:
        raise ServiceUnavailable(f"{context.peer()}: the client is gone") from error
    if data is grpc.aio.EOF:
        raise InvalidArgument("the call ended without a request", field="request")
    message: bytes = data
    return message


async def _write(context: _Context, data: bytes) -> None:
    with _client_may_be_gone():
        await context.write(data)


@contextmanager
def _client_may_be_gone() -> Iterator[None]:
    """What is written last may fail before gRPC cancels the handler, as it does for a client that is gone. It would be
    logged as an error, with the stack and all that this holds."""
    try:
        yield
    except grpc.aio.InternalError:
        raise asyncio.CancelledError from None


class _Handlers(grpc.GenericRpcHandler):
    """All methods of the server, by path; messages stay raw bytes."""

    def __init__(self, handlers: dict[str, "_Handler"], unknown: "_Handler") -> None:
        self._handlers = handlers
        self._unknown = unknown

    def service(self, details: grpc.HandlerCallDetails) -> "_Handler":
        return self._handlers.get(details.method, self._unknown)


def _meaning(error: BaseException) -> OncelogError | None:
    """The core error that `error` is, or that a group consists of; None: a bug."""
    if isinstance(error, OncelogError):
        return error
    if isinstance(error, BaseExceptionGroup):
        meanings = [_meaning(inner) for inner in error.exceptions]
        # A violated invariant takes precedence over the errors that it caused.
        meanings.sort(key=lambda inner: not isinstance(inner, InvariantViolated))
        return None if None in meanings else meanings[0]
    return None


async def _refuse(context: _Context, path: str, error: Exception) -> NoReturn:
    """End the call with the core error of `error`."""
    if isinstance(error, grpc.aio.AbortError):
        raise error
    meaning = _meaning(error)
    if meaning is None or isinstance(meaning, InvariantViolated):
        request_id = secrets.token_hex(8)
        fields = {"method": path, "request_id": request_id}
        logger.error("a handler failed", extra={"fields": fields}, exc_info=error)
        if meaning is not None:
            asyncio.get_running_loop().call_exception_handler({"message": str(meaning), "exception": meaning})
        meaning = InvariantViolated(
            f"the server failed; search its log for request {request_id}", request_id=request_id
        )
    with _client_may_be_gone():
        await context.abort(code_of(meaning), meaning.message[:_STATUS_CHARACTERS_MAX], trailing_of(meaning))
