"""The synchronous consumer."""

import concurrent.futures
from collections.abc import Iterable, Iterator

from oncelog.client.consuming.consumer import AsyncConsumer
from oncelog.client.consuming.received import Received
from oncelog.client.network.start_position import Place
from oncelog.client.sync.wrapper import Wrapper, documented_by
from oncelog.client.values.corruption import SkippedEntries
from oncelog.client.values.messages import ConsumerBatch, Message
from oncelog.client.values.results import AckResult
from oncelog.core.errors import ConsumerClosed, OncelogError


class Consumer(Wrapper[AsyncConsumer]):
    """One consumer of a subscription. Made by `Client.subscribe`; may be used from several threads: each message goes
    to one.

        for message in consumer:
            ...
            consumer.ack(message)

    A message is delivered until it is acknowledged, so it may be delivered more than once. The consumer survives a
    change of the topic owner. `receive_batch` is much faster than `receive`, because each call goes to the client's
    thread and back.
    """

    @documented_by(AsyncConsumer.receive)
    def receive(self, *, timeout: float | None = None) -> Message:
        return self._portal.run(self._inner.receive(timeout=timeout))

    @documented_by(AsyncConsumer.receive_batch)
    def receive_batch(self, max_messages: int = 1_000, *, max_wait: float | None = None) -> ConsumerBatch:
        return self._portal.run(self._inner.receive_batch(max_messages, max_wait=max_wait))

    @documented_by(AsyncConsumer.ack)
    def ack(self, messages: Received | Iterable[Received]) -> AckResult:
        return self._portal.run(self._inner.ack(messages))

    def ack_nowait(self, messages: Received | Iterable[Received]) -> "concurrent.futures.Future[AckResult]":
        """Start an `ack` and return a future of its result. Closing the consumer waits for it."""
        return self._portal.submit(self._inner.ack(messages))

    @documented_by(AsyncConsumer.ack_cumulative)
    def ack_cumulative(self, message: Received) -> AckResult:
        return self._portal.run(self._inner.ack_cumulative(message))

    @documented_by(AsyncConsumer.nack)
    def nack(self, messages: Received | Iterable[Received], *, delay: float | None = None) -> None:
        self._portal.run(self._inner.nack(messages, delay=delay))

    @documented_by(AsyncConsumer.seek)
    def seek(self, start: Place, *, inclusive: bool = False) -> None:
        self._portal.run(self._inner.seek(start, inclusive=inclusive))

    @documented_by(AsyncConsumer.close)
    def close(self, *, flush: bool = True) -> None:
        if not self._portal.inherited:
            self._portal.run(self._inner.close(flush=flush))

    @property
    def topic(self) -> str:
        """The full name of the topic, tenant/namespace/name."""
        return self._inner.topic

    @property
    def subscription(self) -> str:
        """The name of the subscription."""
        return self._inner.subscription

    @property
    def consumer_name(self) -> str:
        """The name of this consumer, given by the application or assigned."""
        return self._inner.consumer_name

    @property
    @documented_by(AsyncConsumer.created)
    def created(self) -> bool:
        return self._inner.created

    @property
    @documented_by(AsyncConsumer.active)
    def active(self) -> bool:
        return self._inner.active

    @property
    @documented_by(AsyncConsumer.generations)
    def generations(self) -> dict[int, int]:
        return self._inner.generations

    @property
    @documented_by(AsyncConsumer.skipped)
    def skipped(self) -> SkippedEntries:
        return self._inner.skipped

    @property
    def failure(self) -> OncelogError | None:
        """The error that ended the consumer, or ConsumerClosed; None while it is open."""
        return self._inner.failure

    def __iter__(self) -> Iterator[Message]:
        """Waits for the next message; the iteration ends when the consumer is closed."""
        while True:
            try:
                yield self.receive()
            except ConsumerClosed:
                return
