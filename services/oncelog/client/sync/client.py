"""The synchronous client."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Literal

from oncelog.client.client import (
    BATCH_BYTES_MAX,
    OPERATION_TIMEOUT_S,
    PENDING_BYTES_MAX,
    AsyncClient,
)
from oncelog.client.connecting import connect
from oncelog.client.consuming.subscribing import SubscriptionTypeName
from oncelog.client.network.start_position import Place
from oncelog.client.portal import Portal
from oncelog.client.producing.leases import LeaseWanted, ProducerLease
from oncelog.client.producing.message_arguments import Key
from oncelog.client.producing.send_buffer import Properties
from oncelog.client.producing.sender import CompressionName
from oncelog.client.reading.finding import FoundMessage
from oncelog.client.reading.reader import ReadStart
from oncelog.client.sync.consumer import Consumer
from oncelog.client.sync.producer import Producer
from oncelog.client.sync.reader import Reader
from oncelog.client.sync.search import Search
from oncelog.client.sync.wrapper import Wrapper, documented_by
from oncelog.client.values.process import check_threads
from oncelog.client.values.results import PublishResult
from oncelog.core.access import Caller
from oncelog.core.errors import OncelogError
from oncelog.core.formats.batch import Buffer
from oncelog.core.formats.chunks import CHUNKED_BYTES_DEFAULT
from oncelog.core.formats.message_id import EARLIEST, LATEST, MessageId
from oncelog.runtime.credentials import Token


class Client(Wrapper[AsyncClient]):
    """A client of one cluster, for code without an event loop. One client per process is enough.

        with oncelog.Client("oncelog://127.0.0.1:6650") as client:
            producer = client.create_producer("flights", producer_name="importer")

    The arguments are those of `oncelog.connect`. The client runs a thread with an event loop, which `close` ends. It
    may be used from several threads. In a child process that is forked after it was created, it and what it has opened
    raise ClientForked; `close` does nothing there.
    """

    def __init__(
        self,
        url: str,
        *,
        token: Token | None = None,
        tls_ca_file: Path | str | None = None,
        allow_plaintext_token: bool = False,
        operation_timeout: float | None = OPERATION_TIMEOUT_S,
        storage_reads: bool = True,
        max_message_bytes: int = CHUNKED_BYTES_DEFAULT,
        keep_memory: bool = True,
    ) -> None:
        """As `oncelog.connect`."""
        check_threads()  # before the portal waits for its thread
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
                    max_message_bytes=max_message_bytes,
                    keep_memory=keep_memory,
                )
            )
        except BaseException:
            portal.stop()
            raise
        super().__init__(inner, portal)

    @documented_by(AsyncClient.create_producer)
    def create_producer(
        self,
        topic: str,
        *,
        producer_name: str | None = None,
        initial_sequence_id: int | None = None,
        sequence_mode: Literal["monotonic", "contiguous"] = "monotonic",
        on_conflict: Literal["fence", "refuse"] = "fence",
        send_timeout: float | None = None,
        compression: CompressionName | None = None,
        batch_bytes_max: int = BATCH_BYTES_MAX,
        pending_bytes_max: int = PENDING_BYTES_MAX,
        on_unverified: Literal["accept", "raise"] = "raise",
        on_content_differs: Literal["accept", "raise"] = "raise",
        on_behalf_of: Caller | None = None,
        trace_context: bool = False,
        lease: ProducerLease | None = None,
        chunking: bool = False,
    ) -> Producer:
        opened = self._portal.run(
            self._inner.create_producer(
                topic,
                producer_name=producer_name,
                initial_sequence_id=initial_sequence_id,
                sequence_mode=sequence_mode,
                on_conflict=on_conflict,
                send_timeout=send_timeout,
                compression=compression,
                batch_bytes_max=batch_bytes_max,
                pending_bytes_max=pending_bytes_max,
                on_unverified=on_unverified,
                on_content_differs=on_content_differs,
                on_behalf_of=on_behalf_of,
                trace_context=trace_context,
                lease=lease,
                chunking=chunking,
            )
        )
        return Producer(opened, self._portal)

    @documented_by(AsyncClient.lease_producer_ids)
    def lease_producer_ids(self, wanted: Sequence[LeaseWanted]) -> list[ProducerLease | OncelogError]:
        return self._portal.run(self._inner.lease_producer_ids(wanted))

    @documented_by(AsyncClient.publish)
    def publish(
        self,
        topic: str,
        value: Buffer,
        *,
        idempotency_key: str,
        key: Key | None = None,
        event_time_ms: int | None = None,
        properties: Properties | None = None,
    ) -> PublishResult:
        return self._portal.run(
            self._inner.publish(
                topic,
                value,
                idempotency_key=idempotency_key,
                key=key,
                event_time_ms=event_time_ms,
                properties=properties,
            )
        )

    @documented_by(AsyncClient.create_reader)
    def create_reader(
        self,
        topic: str,
        *,
        start: ReadStart = EARLIEST,
        inclusive: bool = False,
        on_corrupt: Literal["raise", "skip"] = "raise",
        on_encrypted: Literal["raise", "pass"] = "raise",
    ) -> Reader:
        opened = self._portal.run(
            self._inner.create_reader(
                topic,
                start=start,
                inclusive=inclusive,
                on_corrupt=on_corrupt,
                on_encrypted=on_encrypted,
            )
        )
        return Reader(opened, self._portal)

    @documented_by(AsyncClient.subscribe)
    def subscribe(
        self,
        topic: str,
        *,
        subscription: str,
        type: SubscriptionTypeName = "exclusive",  # noqa: A002  # the name that users know
        start: Place = LATEST,
        inclusive: bool = False,
        consumer_name: str | None = None,
        max_deliveries: int | None = None,
        dead_letter_topic: str | None = None,
        ack_timeout: float | None = None,
        receive_window: int | None = None,
        priority: int = 0,
        properties: Mapping[str, str] | None = None,
        on_corrupt: Literal["raise", "skip"] = "raise",
        on_encrypted: Literal["raise", "pass"] = "raise",
    ) -> Consumer:
        opened = self._portal.run(
            self._inner.subscribe(
                topic,
                subscription=subscription,
                type=type,
                start=start,
                inclusive=inclusive,
                consumer_name=consumer_name,
                max_deliveries=max_deliveries,
                dead_letter_topic=dead_letter_topic,
                ack_timeout=ack_timeout,
                receive_window=receive_window,
                priority=priority,
                properties=properties,
                on_corrupt=on_corrupt,
                on_encrypted=on_encrypted,
            )
        )
        return Consumer(opened, self._portal)

    @documented_by(AsyncClient.last_message_id)
    def last_message_id(self, topic: str) -> MessageId | None:
        return self._portal.run(self._inner.last_message_id(topic))

    @documented_by(AsyncClient.search)
    def search(
        self,
        topic: str,
        *,
        key: Key | None = None,
        text: str | None = None,
        filter: str | None = None,  # noqa: A002  # as the original
        producer_name: str | None = None,
        start: Place = EARLIEST,
        backwards: bool = False,
        limit: int | None = None,
        bytes_max: int | None = None,
        on_corrupt: Literal["raise", "skip"] = "raise",
    ) -> Search:
        found = self._portal.run(
            self._inner.search(
                topic,
                key=key,
                text=text,
                filter=filter,
                producer_name=producer_name,
                start=start,
                backwards=backwards,
                limit=limit,
                bytes_max=bytes_max,
                on_corrupt=on_corrupt,
            )
        )
        return Search(found, self._portal)

    @documented_by(AsyncClient.find_message)
    def find_message(self, topic: str, *, producer_name: str, sequence_id: int) -> list[FoundMessage]:
        return self._portal.run(self._inner.find_message(topic, producer_name=producer_name, sequence_id=sequence_id))

    def close(self, *, flush: bool = True) -> None:
        """Close all producers, readers, consumers and connections, and end the thread. May be called twice.

        With flush=True this first waits, at most operation_timeout, until all pending messages and acknowledgements are
        answered, and raises DeadlineExceeded if some are not. With flush=False it closes at once: pending messages fail
        with ProducerClosed, whose `stored` is None for those that may be in the log. In a forked child it does nothing.
        """
        if self._portal.alive:
            try:
                self._portal.end(self._inner.close(flush=flush))
            finally:
                self._portal.stop()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Close the client; wait for pending messages unless the block was left by an exception."""
        self.close(flush=kind is None)
