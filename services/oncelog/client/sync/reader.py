"""The synchronous reader."""

import threading
from collections.abc import Iterator

from oncelog.client.portal import Portal
from oncelog.client.reading.reader import AsyncReader, ReadStart
from oncelog.client.reading.stream_state import Gaps
from oncelog.client.sync.wrapper import Wrapper, documented_by
from oncelog.client.values.arguments import check_seconds
from oncelog.client.values.corruption import SkippedEntries
from oncelog.client.values.messages import Message, MessageBatch
from oncelog.core.errors import DeadlineExceeded, ReaderClosed


class Reader(Wrapper[AsyncReader]):
    """Reads one topic. Made by `Client.create_reader`; may be used from several threads: each message goes to one.

        for message in reader: ...

    Readers acknowledge nothing. To continue after a restart, the application stores the id of the last message that it
    has handled and passes it as `start`. Messages are handed over between threads a batch at a time, so reading single
    messages is as fast as iterating.
    """

    def __init__(self, inner: AsyncReader, portal: Portal) -> None:
        super().__init__(inner, portal)
        self._batch: MessageBatch | None = None
        self._at = 0
        #: held by the thread that reads
        self._lock = threading.Lock()

    @documented_by(AsyncReader.close)
    def close(self) -> None:
        self._portal.end(self._inner.close())

    @property
    def topic(self) -> str:
        """The full name of the topic, tenant/namespace/name."""
        return self._inner.topic

    @property
    @documented_by(AsyncReader.skipped)
    def skipped(self) -> SkippedEntries:
        return self._inner.skipped

    @property
    @documented_by(AsyncReader.gaps)
    def gaps(self) -> Gaps:
        return self._inner.gaps

    @property
    @documented_by(AsyncReader.closed)
    def closed(self) -> bool:
        return self._inner.closed

    @property
    def _has_rest(self) -> bool:
        return self._batch is not None and self._at < len(self._batch)

    @documented_by(AsyncReader.read_batch)
    def read_batch(self, *, timeout: float | None = None) -> MessageBatch:
        self._acquire(timeout)
        try:
            return self._next_batch(timeout)
        finally:
            self._lock.release()

    @documented_by(AsyncReader.read_next)
    def read_next(self, *, timeout: float | None = None) -> Message:
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

    @documented_by(AsyncReader.seek)
    def seek(self, start: ReadStart, *, inclusive: bool = False) -> None:
        self._portal.check_caller()
        with self._lock:
            self._portal.run(self._inner.seek(start, inclusive=inclusive))
            self._batch, self._at = None, 0

    @documented_by(AsyncReader.has_message_available)
    def has_message_available(self) -> bool:
        self._portal.check_caller()
        with self._lock:
            return self._has_rest or self._portal.run(self._inner.has_message_available())

    def _next_batch(self, timeout: float | None) -> MessageBatch:
        batch, at, self._batch = self._batch, self._at, None
        if batch is not None and at < len(batch):
            return batch.after(at) if at else batch
        return self._portal.run(self._inner.read_batch(timeout=timeout))

    def _acquire(self, timeout: float | None) -> None:
        check_seconds("timeout", timeout, zero_allowed=True)
        self._portal.check_caller()
        if not self._lock.acquire(timeout=-1 if timeout is None else timeout):
            raise DeadlineExceeded(f"another thread has been reading {self.topic} for {timeout} s")

    def __iter__(self) -> Iterator[Message]:
        """Waits for the next message; the iteration ends when the reader is closed."""
        while True:
            try:
                yield self.read_next()
            except ReaderClosed:
                return
