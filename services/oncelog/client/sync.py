"""The synchronous API: wrappers of the client, producer, reader and consumer for code without an event loop.

A method here is its asyncio original, wrapped by `_waiting`: it runs on the event loop of a thread of its own, and the
caller waits for it. The wrappers may be used from several threads.
"""

import concurrent.futures
import threading
from collections.abc import Callable, Coroutine, Iterator
from contextlib import AbstractAsyncContextManager
from functools import wraps
from pathlib import Path
from types import TracebackType
from typing import Any, Concatenate, Generic, ParamSpec, Self, TypeVar

from oncelog.client.client import OPERATION_TIMEOUT_S, AsyncClient, connect
from oncelog.client.consuming.consumer import AsyncConsumer
from oncelog.client.portal import Portal
from oncelog.client.producing.producer import AsyncProducer
from oncelog.client.reading.reader import AsyncReader, ReadStart
from oncelog.client.reading.stream_state import Gaps
from oncelog.client.values.arguments import check_seconds
from oncelog.client.values.corruption import SkippedEntries
from oncelog.client.values.messages import Message, MessageBatch
from oncelog.client.values.results import AckResult, SendResult
from oncelog.core.errors import ConsumerClosed, DeadlineExceeded, OncelogError, ReaderClosed
from oncelog.runtime.credentials import Token

P = ParamSpec("P")
ResultT = TypeVar("ResultT")
InnerT = TypeVar("InnerT", bound=AbstractAsyncContextManager[Any])
WrapperT = TypeVar("WrapperT", bound="_Wrapper[Any]")
NewInnerT = TypeVar("NewInnerT", bound=AbstractAsyncContextManager[Any])
NewWrapperT = TypeVar("NewWrapperT", bound="_Wrapper[Any]")


class _Wrapper(Generic[InnerT]):
    """An asyncio object and the event loop that it belongs to."""

    def __init__(self, inner: InnerT, portal: Portal) -> None:
        self._inner = inner
        self._portal = portal

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Close it; wait for what is pending unless the block was left by an exception."""
        if not self._portal.inherited:
            self._portal.run(self._inner.__aexit__(kind, error, traceback))


def _waiting(
    method: Callable[Concatenate[InnerT, P], Coroutine[Any, Any, ResultT]],
) -> Callable[Concatenate[_Wrapper[InnerT], P], ResultT]:
    """The method as a blocking call."""

    @wraps(method)
    def wait(self: _Wrapper[InnerT], /, *args: P.args, **kwargs: P.kwargs) -> ResultT:
        return self._portal.run(method(self._inner, *args, **kwargs))

    return wait


def _closing(
    method: Callable[Concatenate[InnerT, P], Coroutine[Any, Any, None]],
) -> Callable[Concatenate[_Wrapper[InnerT], P], None]:
    """The method as a blocking call that does nothing in a forked child."""

    @wraps(method)
    def wait(self: _Wrapper[InnerT], /, *args: P.args, **kwargs: P.kwargs) -> None:
        if not self._portal.inherited:
            self._portal.run(method(self._inner, *args, **kwargs))

    return wait


def _opening(
    method: Callable[Concatenate[InnerT, P], Coroutine[Any, Any, NewInnerT]],
    wrapper_of: Callable[[NewInnerT, Portal], NewWrapperT],
) -> Callable[Concatenate[_Wrapper[InnerT], P], NewWrapperT]:
    """The method as a blocking call whose result is wrapped."""

    @wraps(method)
    def open_wrapped(self: _Wrapper[InnerT], /, *args: P.args, **kwargs: P.kwargs) -> NewWrapperT:
        return wrapper_of(self._portal.run(method(self._inner, *args, **kwargs)), self._portal)

    return open_wrapped


class Producer(_Wrapper[AsyncProducer]):
    """Publishes messages to one topic. Made by `Client.create_producer`; may be used from several threads.

    Methods and properties are those of AsyncProducer, without `await`.
    """

    send = _waiting(AsyncProducer.send)
    send_many = _waiting(AsyncProducer.send_many)
    flush = _waiting(AsyncProducer.flush)
    close = _closing(AsyncProducer.close)

    def send_nowait(self, *args: Any, **kwargs: Any) -> "concurrent.futures.Future[SendResult]":
        """Start a `send` and return a future of its result. Messages of one thread are stored in their order.

        It never raises TooManyRequests: messages without room are queued, so limit the number of unfinished futures.
        """
        return self._portal.submit(self._inner.send(*args, **kwargs))

    @property
    def topic(self) -> str:
        return self._inner.topic

    @property
    def producer_name(self) -> str:
        return self._inner.producer_name

    @property
    def last_sequence_id(self) -> int:
        return self._inner.last_sequence_id

    @property
    def last_sequence_ids(self) -> tuple[int, ...]:
        return self._inner.last_sequence_ids

    @property
    def resume_sequence_id(self) -> int:
        return self._inner.resume_sequence_id

    @property
    def deduplication(self) -> bool:
        return self._inner.deduplication

    @property
    def unverified_count(self) -> int:
        return self._inner.unverified_count

    @property
    def last_error(self) -> OncelogError | None:
        """The retriable error that keeps the producer from publishing now; None: no error does."""
        return self._inner.last_error

    @property
    def failure(self) -> OncelogError | None:
        return self._inner.failure


class Reader(_Wrapper[AsyncReader]):
    """Reads one topic. Made by `Client.create_reader`; may be used from several threads: each message goes to one.

    Methods and properties are those of AsyncReader, without `await`. Messages are handed over between threads a batch
    at a time, so reading single messages is as fast as iterating.
    """

    close = _closing(AsyncReader.close)

    def __init__(self, inner: AsyncReader, portal: Portal) -> None:
        super().__init__(inner, portal)
        self._batch: MessageBatch | None = None
        self._at = 0
        #: held by the thread that reads
        self._lock = threading.Lock()

    @property
    def topic(self) -> str:
        return self._inner.topic

    @property
    def skipped(self) -> SkippedEntries:
        """See AsyncReader.skipped."""
        return self._inner.skipped

    @property
    def gaps(self) -> Gaps:
        """See AsyncReader.gaps."""
        return self._inner.gaps

    @property
    def _has_rest(self) -> bool:
        return self._batch is not None and self._at < len(self._batch)

    def read_batch(self, *, timeout: float | None = None) -> MessageBatch:
        """See AsyncReader.read_batch."""
        self._acquire(timeout)
        try:
            return self._next_batch(timeout)
        finally:
            self._lock.release()

    def read_next(self, *, timeout: float | None = None) -> Message:
        """See AsyncReader.read_next."""
        self._acquire(timeout)
        try:
            batch = self._batch
            if batch is None or self._at >= len(batch):
                batch = self._next_batch(timeout)
                self._batch, self._at = batch, 0
            self._at += 1
            return Message(batch, self._at - 1)
        finally:
            self._lock.release()

    def seek(self, start: ReadStart, *, inclusive: bool = False) -> None:
        """See AsyncReader.seek."""
        self._portal.check_process()
        with self._lock:
            self._portal.run(self._inner.seek(start, inclusive=inclusive))
            self._batch, self._at = None, 0

    def has_message_available(self) -> bool:
        """See AsyncReader.has_message_available."""
        self._portal.check_process()
        with self._lock:
            return self._has_rest or self._portal.run(self._inner.has_message_available())

    def _next_batch(self, timeout: float | None) -> MessageBatch:
        batch, at, self._batch = self._batch, self._at, None
        if batch is not None and at < len(batch):
            return batch.after(at) if at else batch
        return self._portal.run(self._inner.read_batch(timeout=timeout))

    def _acquire(self, timeout: float | None) -> None:
        check_seconds("timeout", timeout, zero_allowed=True)
        self._portal.check_process()
        if not self._lock.acquire(timeout=-1 if timeout is None else timeout):
            raise DeadlineExceeded(f"another thread has been reading {self.topic} for {timeout} s")

    def __iter__(self) -> Iterator[Message]:
        """Waits for the next message; the iteration ends when the reader is closed."""
        while True:
            try:
                yield self.read_next()
            except ReaderClosed:
                return


class Consumer(_Wrapper[AsyncConsumer]):
    """One consumer of a subscription. Made by `Client.subscribe`; may be used from several threads: each message goes
    to one.

    Methods and properties are those of AsyncConsumer, without `await`. `receive_batch` is much faster than `receive`,
    because each call goes to the client's thread and back.
    """

    receive = _waiting(AsyncConsumer.receive)
    receive_batch = _waiting(AsyncConsumer.receive_batch)
    ack = _waiting(AsyncConsumer.ack)
    ack_cumulative = _waiting(AsyncConsumer.ack_cumulative)
    nack = _waiting(AsyncConsumer.nack)
    seek = _waiting(AsyncConsumer.seek)
    close = _closing(AsyncConsumer.close)

    def ack_nowait(self, messages: Any) -> "concurrent.futures.Future[AckResult]":
        """Start an `ack` and return a future of its result; see AsyncConsumer.ack_nowait."""
        return self._portal.submit(self._inner.ack(messages))

    @property
    def topic(self) -> str:
        return self._inner.topic

    @property
    def subscription(self) -> str:
        return self._inner.subscription

    @property
    def consumer_name(self) -> str:
        return self._inner.consumer_name

    @property
    def created(self) -> bool:
        """See AsyncConsumer.created."""
        return self._inner.created

    @property
    def active(self) -> bool:
        """See AsyncConsumer.active."""
        return self._inner.active

    @property
    def generations(self) -> dict[int, int]:
        """See AsyncConsumer.generations."""
        return self._inner.generations

    @property
    def skipped(self) -> SkippedEntries:
        """See AsyncConsumer.skipped."""
        return self._inner.skipped

    @property
    def failure(self) -> OncelogError | None:
        return self._inner.failure

    def __iter__(self) -> Iterator[Message]:
        """Waits for the next message; the iteration ends when the consumer is closed."""
        while True:
            try:
                yield self.receive()
            except ConsumerClosed:
                return


class Client(_Wrapper[AsyncClient]):
    """A client of one cluster, for code without an event loop. One client per process is enough.

        with oncelog.Client("oncelog://127.0.0.1:6650") as client:
            producer = client.create_producer("flights", producer_name="importer")

    The arguments are those of `oncelog.connect`; the methods are those of AsyncClient, without `await`. The client runs
    a thread with an event loop, which `close` ends. It may be used from several threads. In a child process that is
    forked after it was created, it and what it has opened raise ClientForked; `close` does nothing there.
    """

    create_producer = _opening(AsyncClient.create_producer, Producer)
    create_reader = _opening(AsyncClient.create_reader, Reader)
    subscribe = _opening(AsyncClient.subscribe, Consumer)
    last_message_id = _waiting(AsyncClient.last_message_id)

    def __init__(
        self,
        url: str,
        *,
        token: Token | None = None,
        tls_ca_file: Path | str | None = None,
        allow_plaintext_token: bool = False,
        operation_timeout: float | None = OPERATION_TIMEOUT_S,
        storage_reads: bool = True,
    ) -> None:
        portal = Portal()
        try:
            inner = portal.run(
                connect(
                    url,
                    token=token,
                    tls_ca_file=tls_ca_file,
                    allow_plaintext_token=allow_plaintext_token,
                    operation_timeout=operation_timeout,
                    storage_reads=storage_reads,
                )
            )
        except BaseException:
            portal.stop()
            raise
        super().__init__(inner, portal)

    def close(self, *, flush: bool = True) -> None:
        """Close everything, and end the thread; see AsyncClient.close. May be called twice."""
        if self._portal.alive:
            try:
                self._portal.run(self._inner.close(flush=flush))
            finally:
                self._portal.stop()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Close the client; wait for pending messages unless the block was left by an exception."""
        self.close(flush=kind is None)
