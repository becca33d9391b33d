"""The synchronous consumer."""

import asyncio
import concurrent.futures
import inspect
from collections.abc import Callable, Collection, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from functools import partial

from oncelog.client.consuming.consumer import AsyncConsumer
from oncelog.client.consuming.handler_run import RETRY, STOP_SIGNALS, Retry, stopped_by
from oncelog.client.consuming.received import Received
from oncelog.client.network.start_position import Place
from oncelog.client.sync.wrapper import Wrapper, documented_by
from oncelog.client.values.arguments import check_takes
from oncelog.client.values.consumer_batch import ConsumerBatch
from oncelog.client.values.corruption import SkippedEntries
from oncelog.client.values.messages import Message
from oncelog.client.values.results import AckResult
from oncelog.core.errors import ConsumerClosed, InvalidArgument, OncelogError

#: How late a signal is noticed at most.
_SIGNALS_NOTICED_S = 0.2


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
        """Start an `ack` and return a future of its result. `flush` and closing the consumer wait for it."""
        return self._portal.submit(self._inner.ack(messages))

    @documented_by(AsyncConsumer.ack_cumulative)
    def ack_cumulative(self, message: Received) -> AckResult:
        return self._portal.run(self._inner.ack_cumulative(message))

    @documented_by(AsyncConsumer.nack)
    def nack(self, messages: Received | Iterable[Received], *, delay: float | None = None) -> None:
        self._portal.run(self._inner.nack(messages, delay=delay))

    @documented_by(AsyncConsumer.seek)
    def seek(self, start: Place, *, inclusive: bool = False, redo: bool = False) -> None:
        self._portal.run(self._inner.seek(start, inclusive=inclusive, redo=redo))

    @documented_by(AsyncConsumer.flush)
    def flush(self) -> None:
        self._portal.run(self._inner.flush())

    @documented_by(AsyncConsumer.close)
    def close(self, *, flush: bool = True) -> None:
        self._portal.end(self._inner.close(flush=flush))

    def run(
        self,
        handler: Callable[[Message], object],
        *,
        concurrency: int = 1,
        retry: Retry = RETRY,
        stop_signals: Collection[int] = STOP_SIGNALS,
    ) -> None:
        """Call a handler for each message, in threads, until the consumer ends. The consumer is closed when this
        returns.

        A message is acknowledged when its handler returns. When its handler raises, the error is logged with the
        message's position, and the message is delivered again after a pause, until it is a dead letter, if the
        subscription has max_deliveries. It may then go to another consumer of the subscription. The log has the
        traceback of an error when it is new; its repetitions are counted in one line every 5 seconds.

        Messages of an exclusive or failover subscription are handled one at a time in each partition, those of a
        key_shared one one at a time for each key: what is behind a failed message waits until that was handled or is a
        dead letter.

        A stop signal and Ctrl-C start no more handlers, wait for those that run, and acknowledge their messages. After
        a signal this returns; Ctrl-C raises KeyboardInterrupt then.

        Args:
            handler: called with each message. If a process dies, messages that it had handled may come again.
            concurrency: threads that run handlers, at most 10,000. Up to four times as many messages are taken.
            retry: the pause before a failed message comes again.
            stop_signals: signals that stop the run, instead of what they do otherwise. Only in the main thread.

        Raises:
            InvalidArgument: an argument is not valid; `field` names it.
            The error that ended the consumer, and what `receive` raises. Closing the consumer ends the run without one.
        """
        self._portal.check_caller()
        given: object = handler
        check_takes("handler", given, "message")
        if inspect.iscoroutinefunction(given):
            raise InvalidArgument("handler must be a plain function that takes a message", field="handler")

        async def in_thread(message: Message) -> None:
            call = partial(copy_context().run, _call, handler, message)
            await asyncio.get_running_loop().run_in_executor(threads, call)

        run = self._inner.handler_run(in_thread, concurrency=concurrency, retry=retry)

        def stop() -> None:
            self._portal.call_soon(run.stop)

        with ThreadPoolExecutor(concurrency, "oncelog handler") as threads, stopped_by(stop_signals, stop):
            running = self._portal.submit(run.run())
            try:
                _await(running)
            except KeyboardInterrupt:
                stop()
                _await(running)
                raise
            finally:
                running.cancel()

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


def _call(handler: Callable[[Message], object], message: Message) -> None:
    """In a thread of the pool, where an exit would end the client's event loop instead of the program."""
    try:
        handler(message)
    except (SystemExit, KeyboardInterrupt) as error:
        raise RuntimeError(f"a handler cannot end the program: it raised {error!r}") from error


def _await(running: "concurrent.futures.Future[None]") -> None:
    """Wait for it, and raise its error. Handlers of signals run in the main thread, which must wake up for them where
    the signal itself was given to another thread."""
    while not concurrent.futures.wait([running], _SIGNALS_NOTICED_S).done:
        pass
    running.result()
