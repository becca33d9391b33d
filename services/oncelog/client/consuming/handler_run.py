"""`consumer.run`: calls a handler for each message, acknowledges what it has handled, and gives back what failed.

    received -> waits in its lane -> handler -> acknowledged
                      ^                 `-> nack: delivered again after a pause, or a dead letter at last
                      `------------------------'

`core.sdk.consumer.lanes` decides which message is next. A stop (`stop`, a signal, or cancellation) starts no more
handlers, waits for those that run, and closes the consumer: what was not handled goes to other consumers.
"""

import asyncio
import logging
import signal
import threading
from collections.abc import Awaitable, Callable, Collection, Hashable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from typing import Protocol

from oncelog.client.consuming.failure_report import COUNTED_EVERY_S, FailureReport
from oncelog.client.values.arguments import check_seconds, check_takes, check_type, integer
from oncelog.client.values.consumer_batch import ConsumerBatch
from oncelog.client.values.messages import Message
from oncelog.client.values.results import AckResult
from oncelog.client.values.trace_context import handling_span
from oncelog.core.acks.changes import SubscriptionType
from oncelog.core.errors import ConsumerClosed, InvalidArgument, OncelogError
from oncelog.core.sdk.consumer.events import ConsumerSettings
from oncelog.core.sdk.consumer.lanes import Lane, Lanes

logger = logging.getLogger(__name__)
CONCURRENCY_MAX = 10_000
#: So many messages are taken for each handler, so that one lane does not keep the others from working.
_TAKEN_PER_HANDLER = 4
#: While a lane waits for a failed message, which arrives behind what was sent before.
_TAKEN_WHILE_HELD = 1_000
#: How long after its pause a failed message may take to come again.
_COMES_AGAIN_S = 30.0

Handler = Callable[[Message], Awaitable[object]]


@dataclass(frozen=True, slots=True)
class Retry:
    """How long a message whose handler failed waits before it is delivered again.

    Attributes:
        delay: seconds after the first delivery; doubled with each further one.
        delay_max: the longest wait, in seconds.
    """

    delay: float = 1.0
    delay_max: float = 60.0

    def __post_init__(self) -> None:
        """Raises InvalidArgument."""
        check_seconds("delay", self.delay, zero_allowed=True)
        check_seconds("delay_max", self.delay_max, zero_allowed=True)

    def after(self, delivery_count: int) -> float:
        """Seconds after so many deliveries."""
        return min(self.delay_max, self.delay * 2.0 ** min(delivery_count - 1, 32))


RETRY = Retry()
STOP_SIGNALS = (signal.SIGTERM,)


class HandledConsumer(Protocol):
    """What a run needs of a consumer."""

    topic: str
    subscription: str
    _settings: ConsumerSettings

    async def receive_batch(self, max_messages: int = ..., *, max_wait: float | None = ...) -> ConsumerBatch: ...
    def ack_nowait(self, messages: Message) -> "asyncio.Future[AckResult]": ...
    async def nack(self, messages: list[Message], *, delay: float | None = ...) -> None: ...
    async def close(self, *, flush: bool = ...) -> None: ...


class RunsHandlers:
    """The part of a consumer that calls a handler."""

    async def run(
        self: HandledConsumer,
        handler: Handler,
        *,
        concurrency: int = 1,
        retry: Retry = RETRY,
        stop_signals: Collection[int] = STOP_SIGNALS,
    ) -> None:
        """Call a handler for each message, until the consumer ends. The consumer is closed when this returns.

        A message is acknowledged when its handler returns. When its handler raises, the error is logged with the
        message's position, and the message is delivered again after a pause, until it is a dead letter, if the
        subscription has max_deliveries. It may then go to another consumer of the subscription. The log has the
        traceback of an error when it is new; its repetitions are counted in one line every 5 seconds.

        Messages of an exclusive or failover subscription are handled one at a time in each partition, those of a
        key_shared one one at a time for each key: what is behind a failed message waits until that was handled or is a
        dead letter.

        A stop signal, or cancelling this call, starts no more handlers, waits for those that run, and acknowledges
        their messages. After a signal this returns; a cancelled call raises CancelledError. A second cancellation
        cancels the handlers, too.

        Args:
            handler: called with each message. If a process dies, messages that it had handled may come again.
            concurrency: handlers that run at once, at most 10,000. Up to four times as many messages are taken.
            retry: the pause before a failed message comes again.
            stop_signals: signals that stop the run, instead of what they do otherwise. Only in the main thread.

        Raises:
            InvalidArgument: an argument is not valid; `field` names it.
            The error that ended the consumer, and what `receive` raises. Closing the consumer ends the run without one.
        """
        loop, run = asyncio.get_running_loop(), HandlerRun(self, self._settings, handler, concurrency, retry)
        with stopped_by(stop_signals, lambda: loop.call_soon_threadsafe(run.stop)):
            await run.run()

    def handler_run(self: HandledConsumer, handler: Handler, *, concurrency: int, retry: Retry) -> "HandlerRun":
        """A run that the caller stops. Raises InvalidArgument."""
        return HandlerRun(self, self._settings, handler, concurrency, retry)


class HandlerRun:
    """One run, on one event loop."""

    def __init__(
        self, consumer: HandledConsumer, settings: ConsumerSettings, handler: Handler, concurrency: int, retry: Retry
    ) -> None:
        """Raises InvalidArgument."""
        check_takes("handler", handler, "message")
        check_type("retry", retry, Retry, "an oncelog.Retry")
        self._concurrency = integer("concurrency", concurrency, 1, CONCURRENCY_MAX)
        self._consumer = consumer
        self._settings = settings
        self._handler = handler
        self._retry = retry
        self._lanes = Lanes[Message](recalls=settings.type is SubscriptionType.KEY_SHARED)
        self._running: set[asyncio.Task[None]] = set()
        self._stopping = False
        #: set when there may be something to start, and to receive
        self._may_start, self._may_receive = asyncio.Event(), asyncio.Event()
        #: whether a second cancellation has cancelled the handlers
        self._cancelled = False
        self._failures = FailureReport(consumer.topic, consumer.subscription)
        self._counting: asyncio.TimerHandle | None = None
        #: ends the run: a bug of the program, or what ended the consumer
        self._failure: BaseException | None = None

    def stop(self) -> None:
        """Start no more handlers. `run` returns when those that run have ended."""
        self._stopping = True
        self._changed()

    def _changed(self) -> None:
        self._may_start.set()
        self._may_receive.set()

    async def run(self) -> None:
        """See AsyncConsumer.run. A second cancellation cancels the handlers."""
        receiving = asyncio.ensure_future(self._receive())
        receiving.add_done_callback(self._received_all)
        try:
            while not self._stopping and self._failure is None:
                self._may_start.clear()
                self._start_handlers()
                await self._may_start.wait()
        finally:
            self._stopping = True
            receiving.cancel()
            try:
                await asyncio.gather(receiving, return_exceptions=True)
                while self._running:
                    await asyncio.wait(self._running)
            except asyncio.CancelledError:
                self._cancelled = True
                for task in self._running:
                    task.cancel()
                await asyncio.gather(*self._running, return_exceptions=True)
                raise
            finally:
                self._count()
                await self._consumer.close()
        if self._failure is not None and not isinstance(self._failure, ConsumerClosed):
            raise self._failure

    def _received_all(self, receiving: "asyncio.Task[None]") -> None:
        if not receiving.cancelled():
            self._fail(receiving.exception())

    def _fail(self, failure: BaseException | None) -> None:
        self._failure = self._failure or failure
        self._changed()

    # --- receiving ----------------------------------------------------------------------------------------------------

    async def _receive(self) -> None:
        while True:
            self._may_receive.clear()
            room = self._room
            if room <= 0:
                await self._may_receive.wait()
                continue
            for message in await self._consumer.receive_batch(room):
                delivery = message.delivery
                grant = (int(delivery.seek_epoch), int(delivery.generation))
                self._lanes.add(self._lane_of(message), grant, message.index, message)
            self._may_start.set()

    @property
    def _room(self) -> int:
        """How many messages to take now."""
        if self._lanes.held:
            return _TAKEN_WHILE_HELD
        return _TAKEN_PER_HANDLER * self._concurrency - self._lanes.waiting - len(self._running)

    def _lane_of(self, message: Message) -> Hashable:
        if self._settings.is_ordered:
            return message.partition
        if self._settings.type is SubscriptionType.KEY_SHARED and message.key is not None:
            return message.partition, message.key
        return message.partition, message.index

    @property
    def _has_order(self) -> bool:
        return self._settings.type is not SubscriptionType.SHARED

    # --- handling -----------------------------------------------------------------------------------------------------

    def _start_handlers(self) -> None:
        while len(self._running) < self._concurrency and (found := self._lanes.next()) is not None:
            task = asyncio.ensure_future(self._handle(*found))
            self._running.add(task)
            task.add_done_callback(self._ended)
        self._may_receive.set()

    def _ended(self, task: "asyncio.Task[None]") -> None:
        self._running.discard(task)
        if not task.cancelled() and task.exception() is not None:
            self._fail(task.exception())
        self._changed()

    async def _handle(self, lane: Lane[Message], message: Message) -> None:
        task, is_awaitable = asyncio.current_task(), False
        assert task is not None, "a coroutine runs in a task"
        try:
            with self._span(message):
                result: object = self._handler(message)
                is_awaitable = isinstance(result, Awaitable)
                if isinstance(result, Awaitable):
                    await result
        except (Exception, asyncio.CancelledError) as error:  # the application's: any means that it is not handled
            if self._cancelled or (self._stopping and isinstance(error, asyncio.CancelledError) and task.cancelling()):
                raise
            # Also a CancelledError of something that the handler awaited. `cancelling` does not tell it: in Python 3.11
            # the count stays above 0 after a TaskGroup of the handler has failed.
            await self._failed(lane, message, error)
            return
        if not is_awaitable:
            raise InvalidArgument("handler must be an async function, or return an awaitable", field="handler")
        self._lanes.handled(lane)
        self._consumer.ack_nowait(message)

    def _span(self, message: Message) -> AbstractContextManager[object]:
        return handling_span(self._consumer.topic, self._consumer.subscription, message) or nullcontext()

    async def _failed(self, lane: Lane[Message], message: Message, error: BaseException) -> None:
        count, limit = message.delivery_count, self._settings.max_deliveries
        last = 0 < limit <= count
        delay = 0.0 if last else self._retry.after(count)
        now_s = asyncio.get_running_loop().time()
        if self._failures.failed(message, error, None if last else delay, now_s):
            self._counting = asyncio.get_running_loop().call_later(COUNTED_EVERY_S, self._count)
        hold: int | None = None
        if not self._has_order:
            self._lanes.handled(lane)
        else:
            hold = self._lanes.buried(lane) if last else self._lanes.failed(lane)
        if hold is not None:
            loop = asyncio.get_running_loop()
            loop.call_later(delay + _COMES_AGAIN_S, self._give_up, lane, hold)
            self._changed()
        await self._give_back([message], delay)

    def _count(self) -> None:
        if self._counting is not None:
            self._counting.cancel()
        self._failures.count(asyncio.get_running_loop().time())

    def _give_up(self, lane: Lane[Message], hold: int) -> None:
        """The failed message went to another consumer, or was acknowledged by an operator."""
        behind = self._lanes.given_up(lane, hold)
        if behind and not self._stopping:
            task = asyncio.ensure_future(self._give_back(behind, 0.0))
            self._running.add(task)
            task.add_done_callback(self._ended)
        self._changed()

    async def _give_back(self, messages: list[Message], delay: float) -> None:
        try:
            await self._consumer.nack(messages, delay=delay)
        except ConsumerClosed:
            pass  # it gives all messages back
        except OncelogError as error:
            logger.warning(
                "%s: message %d of %s could not be given back: it is delivered again when this consumer ends: %s",
                self._consumer.topic, messages[0].index, self._consumer.subscription, error,
            )  # fmt: skip


@contextmanager
def stopped_by(signals: Collection[int], stop: Callable[[], object]) -> Iterator[None]:
    """Call `stop`, in the main thread, at these signals instead of their own handlers. In another thread than the main
    one, Python allows no handlers, and this does nothing."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    former = {number: signal.signal(number, lambda _number, _frame: stop()) for number in signals}
    try:
        yield
    finally:
        for number, handler in former.items():
            signal.signal(number, handler)
