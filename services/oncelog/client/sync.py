"""The synchronous face: the same client, producer and reader for code without an event loop.

There are no twins: a method here is its asyncio original, wrapped by `_waiting` (run it there, wait here). May be used
from several threads.
"""

import concurrent.futures
import threading
from collections.abc import Callable, Coroutine, Iterator
from functools import wraps
from pathlib import Path
from types import TracebackType
from typing import Any, Concatenate, Generic, ParamSpec, Self, TypeVar

from oncelog.client.client import OPERATION_TIMEOUT_S, AsyncClient, connect
from oncelog.client.corruption import SkippedEntries
from oncelog.client.messages import Message, MessageBatch
from oncelog.client.portal import Portal
from oncelog.client.producer import AsyncProducer
from oncelog.client.reader import AsyncReader
from oncelog.client.results import SendResult
from oncelog.core.errors import DeadlineExceeded, OncelogError, ReaderClosed
from oncelog.runtime.credentials import Token

P = ParamSpec("P")
ResultT = TypeVar("ResultT")
InnerT = TypeVar("InnerT")
FaceT = TypeVar("FaceT", bound="_Face[Any]")
NewInnerT = TypeVar("NewInnerT")
NewFaceT = TypeVar("NewFaceT", bound="_Face[Any]")


class _Face(Generic[InnerT]):
    """One asyncio object and the loop it lives on."""

    def __init__(self, inner: InnerT, portal: Portal) -> None:
        self._inner = inner
        self._portal = portal


def _waiting(
    method: Callable[Concatenate[InnerT, P], Coroutine[Any, Any, ResultT]],
) -> Callable[Concatenate[_Face[InnerT], P], ResultT]:
    """The method, waited for."""

    @wraps(method)
    def wait(self: _Face[InnerT], /, *args: P.args, **kwargs: P.kwargs) -> ResultT:
        return self._portal.run(method(self._inner, *args, **kwargs))

    return wait


def _opening(
    method: Callable[Concatenate[InnerT, P], Coroutine[Any, Any, NewInnerT]],
    face_of: Callable[[NewInnerT, Portal], NewFaceT],
) -> Callable[Concatenate[_Face[InnerT], P], NewFaceT]:
    """The method, waited for, with its result behind a face."""

    @wraps(method)
    def open_face(self: _Face[InnerT], /, *args: P.args, **kwargs: P.kwargs) -> NewFaceT:
        return face_of(self._portal.run(method(self._inner, *args, **kwargs)), self._portal)

    return open_face


class Producer(_Face[AsyncProducer]):
    """See AsyncProducer."""

    send = _waiting(AsyncProducer.send)
    send_many = _waiting(AsyncProducer.send_many)
    flush = _waiting(AsyncProducer.flush)
    close = _waiting(AsyncProducer.close)

    def send_nowait(self, *args: Any, **kwargs: Any) -> "concurrent.futures.Future[SendResult]":
        """As `send`, without waiting here; what is given by one thread is stored in its order.

        Never raises TooManyRequests: without room the message waits in line, so bound what you leave unanswered.
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
    def deduplication(self) -> bool:
        return self._inner.deduplication

    @property
    def unverified_count(self) -> int:
        return self._inner.unverified_count

    @property
    def failure(self) -> OncelogError | None:
        return self._inner.failure

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close(flush=kind is None)


class Reader(_Face[AsyncReader]):
    """See AsyncReader. Messages cross threads a batch at a time, so reading one by one costs no more than iterating."""

    close = _waiting(AsyncReader.close)

    def __init__(self, inner: AsyncReader, portal: Portal) -> None:
        super().__init__(inner, portal)
        self._batch: MessageBatch | None = None
        self._at = 0
        #: of the threads that read: each message goes to one of them
        self._turn = threading.Lock()

    @property
    def topic(self) -> str:
        return self._inner.topic

    @property
    def skipped(self) -> SkippedEntries:
        """See AsyncReader.skipped."""
        return self._inner.skipped

    @property
    def _has_rest(self) -> bool:
        return self._batch is not None and self._at < len(self._batch)

    def read_batch(self, *, timeout: float | None = None) -> MessageBatch:
        """See AsyncReader.read_batch."""
        self._take_turn(timeout)
        try:
            return self._next_batch(timeout)
        finally:
            self._turn.release()

    def read_next(self, *, timeout: float | None = None) -> Message:
        """See AsyncReader.read_next."""
        self._take_turn(timeout)
        try:
            batch = self._batch
            if batch is None or self._at >= len(batch):
                batch = self._next_batch(timeout)
                self._batch, self._at = batch, 0
            self._at += 1
            return Message(batch, self._at - 1)
        finally:
            self._turn.release()

    def has_message_available(self) -> bool:
        """See AsyncReader.has_message_available."""
        with self._turn:
            return self._has_rest or self._portal.run(self._inner.has_message_available())

    def _next_batch(self, timeout: float | None) -> MessageBatch:
        batch, at, self._batch = self._batch, self._at, None
        if batch is not None and at < len(batch):
            return batch.after(at) if at else batch
        return self._portal.run(self._inner.read_batch(timeout=timeout))

    def _take_turn(self, timeout: float | None) -> None:
        if not self._turn.acquire(timeout=-1 if timeout is None else timeout):
            raise DeadlineExceeded(f"other threads read {self.topic} for {timeout} s")

    def __iter__(self) -> Iterator[Message]:
        """Ends when the reader is closed; until then it waits for the next message."""
        while True:
            try:
                yield self.read_next()
            except ReaderClosed:
                return

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()


class Client(_Face[AsyncClient]):
    """A client of the cluster at a URL; its options are those of `connect`. See AsyncClient."""

    create_producer = _opening(AsyncClient.create_producer, Producer)
    create_reader = _opening(AsyncClient.create_reader, Reader)
    last_message_id = _waiting(AsyncClient.last_message_id)

    def __init__(
        self,
        url: str,
        *,
        token: Token | None = None,
        tls_ca_file: Path | str | None = None,
        allow_plaintext_token: bool = False,
        operation_timeout: float | None = OPERATION_TIMEOUT_S,
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
                )
            )
        except BaseException:
            portal.stop()
            raise
        super().__init__(inner, portal)

    def close(self, *, flush: bool = True) -> None:
        """End everything, the thread too; see AsyncClient.close. Closing twice is no error."""
        if self._portal.alive:
            try:
                self._portal.run(self._inner.close(flush=flush))
            finally:
                self._portal.stop()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Flushes; but not when leaving by an exception."""
        self.close(flush=kind is None)
