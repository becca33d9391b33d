"""The synchronous producer."""

import concurrent.futures
from collections.abc import Sequence
from functools import partial
from typing import overload

from oncelog.client.portal import client_closed
from oncelog.client.producing.message_arguments import Key
from oncelog.client.producing.producer import AsyncProducer
from oncelog.client.producing.send_buffer import Properties, SendCallback, check_callback
from oncelog.client.sync.wrapper import Wrapper, documented_by
from oncelog.client.values.results import BatchResult, SendResult
from oncelog.core.errors import OncelogError
from oncelog.core.formats.batch import Buffer


class Producer(Wrapper[AsyncProducer]):
    """Publishes messages to one topic. Made by `Client.create_producer`; may be used from several threads.

    Messages of one thread are stored in the order in which they were given. Either all messages have a sequence_id of
    the application's own, or none has. Retriable failures are retried; an error that ends the producer fails all later
    calls, and `failure` has it.
    """

    @documented_by(AsyncProducer.send)
    def send(
        self,
        value: Buffer,
        *,
        sequence_id: int | None = None,
        key: Key | None = None,
        event_time_ms: int | None = None,
        properties: Properties | None = None,
    ) -> SendResult:
        return self._portal.run(
            self._inner.send(
                value, sequence_id=sequence_id, key=key, event_time_ms=event_time_ms, properties=properties
            )
        )

    @overload
    def send_nowait(
        self,
        value: Buffer,
        *,
        on_result: None = None,
        sequence_id: int | None = None,
        key: Key | None = None,
        event_time_ms: int | None = None,
        properties: Properties | None = None,
    ) -> "concurrent.futures.Future[SendResult]": ...
    @overload
    def send_nowait(
        self,
        value: Buffer,
        *,
        on_result: SendCallback,
        sequence_id: int | None = None,
        key: Key | None = None,
        event_time_ms: int | None = None,
        properties: Properties | None = None,
    ) -> None: ...
    def send_nowait(
        self,
        value: Buffer,
        *,
        on_result: SendCallback | None = None,
        sequence_id: int | None = None,
        key: Key | None = None,
        event_time_ms: int | None = None,
        properties: Properties | None = None,
    ) -> "concurrent.futures.Future[SendResult] | None":
        """Start a `send` and return a future of its result. Messages of one thread are stored in their order.

        on_result: instead of the future, a function that is called once: on_result(result, None), or
        on_result(None, error). Then None is returned.

        It never raises TooManyRequests: messages without room are queued, so limit the number of unfinished ones.
        on_result and the callbacks of futures run one after the other in a thread of their own, and may call the
        client. What they raise is logged.
        """
        check_callback(on_result)
        future = self._portal.submit(
            self._inner.send(
                value, sequence_id=sequence_id, key=key, event_time_ms=event_time_ms, properties=properties
            ),
            None if on_result is None else partial(_report, on_result),
        )
        return future if on_result is None else None

    @documented_by(AsyncProducer.send_many)
    def send_many(
        self,
        values: Sequence[Buffer],
        *,
        sequence_ids: Sequence[int] | None = None,
        keys: Sequence[Key | None] | None = None,
        event_times_ms: Sequence[int | None] | None = None,
        properties: Sequence[Properties | None] | None = None,
    ) -> BatchResult:
        return self._portal.run(
            self._inner.send_many(
                values, sequence_ids=sequence_ids, keys=keys, event_times_ms=event_times_ms, properties=properties
            )
        )

    @documented_by(AsyncProducer.flush)
    def flush(self) -> None:
        self._portal.run(self._inner.flush())

    @documented_by(AsyncProducer.close)
    def close(self, *, flush: bool = True) -> None:
        self._portal.end(self._inner.close(flush=flush))

    @property
    def topic(self) -> str:
        """The full name of the topic, tenant/namespace/name."""
        return self._inner.topic

    @property
    def producer_name(self) -> str:
        """The producer's name, given by the application or assigned."""
        return self._inner.producer_name

    @property
    @documented_by(AsyncProducer.last_sequence_id)
    def last_sequence_id(self) -> int:
        return self._inner.last_sequence_id

    @property
    @documented_by(AsyncProducer.last_sequence_ids)
    def last_sequence_ids(self) -> tuple[int, ...]:
        return self._inner.last_sequence_ids

    @property
    @documented_by(AsyncProducer.resume_sequence_id)
    def resume_sequence_id(self) -> int:
        return self._inner.resume_sequence_id

    @property
    @documented_by(AsyncProducer.repeats_ahead)
    def repeats_ahead(self) -> int:
        return self._inner.repeats_ahead

    @property
    def message_bytes_max(self) -> int:
        """Bytes of the largest value that the topic takes."""
        return self._inner.message_bytes_max

    @property
    def pending_bytes(self) -> int:
        """Bytes of the messages that were given and are not answered yet."""
        return self._inner.pending_bytes

    @property
    @documented_by(AsyncProducer.deduplication)
    def deduplication(self) -> bool:
        return self._inner.deduplication

    @property
    @documented_by(AsyncProducer.unverified_count)
    def unverified_count(self) -> int:
        return self._inner.unverified_count

    @property
    def last_error(self) -> OncelogError | None:
        """The retriable error that keeps the producer from publishing now; None: no error does."""
        return self._inner.last_error

    @property
    def failure(self) -> OncelogError | None:
        """The error that ended this producer; None while it can send."""
        return self._inner.failure


def _report(callback: SendCallback, future: "concurrent.futures.Future[SendResult]") -> None:
    error = client_closed() if future.cancelled() else future.exception()
    if error is None:
        callback(future.result(), None)
    else:
        callback(None, error)  # type: ignore[arg-type]  # `send` raises OncelogError only
