"""One open session: a consumer of the SDK, and what its client asks of it. `core.http_consume.session` decides.

One request takes messages at a time: a newer one ends the one before, which a client may have abandoned. A stream takes
messages with one request after the other, all under its own name.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from oncelog.client.consuming.consumer import AsyncConsumer
from oncelog.client.values.messages import MessageBatch, Receipt
from oncelog.client.values.results import AckResult
from oncelog.core.access import Caller
from oncelog.core.errors import (
    Conflict,
    ConsumerFenced,
    DeadlineExceeded,
    InvalidArgument,
    MessageTooLarge,
    OncelogError,
    SessionGone,
    StaleSeekEpoch,
    SubscriptionGone,
)
from oncelog.core.http_consume.delivery_id import DeliveryId
from oncelog.core.http_consume.session import ConsumeSession, Outstanding, Standing
from oncelog.core.names import TopicName
from oncelog.metadata.http_consume.bodies import Event, Outcome, delivery_of, event_of

T = TypeVar("T")
#: An answer is full with so many bytes of JSON; the message that fills it is whole.
ANSWER_BYTES_MAX = 2 * 1024 * 1024
#: How long an acknowledgement may take until its outcome is unknown.
SETTLE_S = 25.0
#: How long the end of a session waits until acknowledgements are answered.
CLOSE_S = 1.0
#: Errors that say that nothing was done and never will be; after any other one the outcome is unknown.
_FINAL = (StaleSeekEpoch, SubscriptionGone, ConsumerFenced, InvalidArgument)
_Held = Outstanding[Receipt]


@dataclass(frozen=True, slots=True)
class Place:
    """What a session belongs to. Requests for another place, or of another role, do not find it."""

    topic: TopicName
    subscription: str
    caller: Caller


@dataclass(frozen=True, slots=True)
class Taking:
    """How a request takes messages.

    stream: the name of the stream that it is a part of; empty: it is none. first: it ends the request that takes
    messages now. again: deliver again first what is outstanding and was given after the delivery `last`.
    """

    count: int
    wait_s: float
    stream: str = ""
    first: bool = True
    again: bool = False
    last: str = ""


class OpenSession:
    """In one event loop. end: see `service`."""

    def __init__(
        self, session: str, place: Place, caller: str, consumer: AsyncConsumer, core: ConsumeSession[Receipt]
    ) -> None:
        """caller: whose sessions are counted together."""
        self.session = session
        self.place = place
        self.caller = caller
        self.consumer = consumer
        self.core = core
        #: why it is over
        self.over: SessionGone | None = None
        #: the stream, or the request, that takes messages; and what ends its wait
        self._taker = ""
        self._interrupt: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._requests = 0
        self._room = asyncio.Event()
        #: raised by the next request, because messages before it had to be answered first
        self._trouble: OncelogError | None = None

    @staticmethod
    def now_ms() -> int:
        return int(asyncio.get_running_loop().time() * 1000)

    def check_open(self) -> None:
        """Raises SessionGone."""
        failure = self.consumer.failure
        if self.over is None and failure is not None:
            self.over = SessionGone(f"the consumer of this session has ended: {failure.message}", reason=failure.code)
        if self.over is not None:
            raise self.over

    # --- taking messages ----------------------------------------------------------------------------------------------

    async def take(self, taking: Taking, gone: "asyncio.Future[None]") -> list[Event]:
        """The next messages; none, if none arrive in time or the client is gone.

        gone: resolved when the client has disconnected. Raises SessionGone; Conflict, when another request has begun to
        take messages; CorruptEntry, once for each delivery of a message that cannot be decoded.
        """
        self.check_open()
        interrupt = self._begin(taking)
        began, ended = self.core.request_began, self.core.request_ended
        if taking.stream:
            began, ended = self.core.stream_began, self.core.stream_ended
        if taking.stream and taking.first:
            self.core.request_began()
            self.core.request_ended(self.now_ms())
        began()
        try:
            if taking.again:
                await self._deliver_again(DeliveryId.parse(taking.last))
            return await self._take(taking, interrupt, gone)
        finally:
            ended(self.now_ms())

    def _begin(self, taking: Taking) -> "asyncio.Future[None]":
        self._requests += 1
        if taking.first:
            if not self._interrupt.done():
                self._interrupt.set_result(None)
            self._taker = taking.stream or f"request {self._requests}"
        elif taking.stream != self._taker:
            raise _replaced()
        self._interrupt = asyncio.get_running_loop().create_future()
        return self._interrupt

    async def _take(
        self, taking: Taking, interrupt: "asyncio.Future[None]", gone: "asyncio.Future[None]"
    ) -> list[Event]:
        loop = asyncio.get_running_loop()
        until_s = loop.time() + taking.wait_s
        events: list[Event] = []
        size = 0
        while len(events) < taking.count and size < ANSWER_BYTES_MAX and not gone.done():
            left_s = 0.0 if events else until_s - loop.time()
            if self.core.room(self.now_ms()) <= 0:
                if left_s <= 0:
                    break
                await self._until_room(min(left_s, self._room_in_s()), interrupt, gone)
                continue
            batch = await self._receive(left_s, interrupt, gone, given=bool(events))
            if batch is None:
                break
            self.core.give(delivery_of(batch[0]), batch[0].receipt, self.now_ms())
            event = event_of(self.place.topic, batch)
            events.append(event)
            size += len(event.data)
        return events

    async def _receive(
        self, wait_s: float, interrupt: "asyncio.Future[None]", gone: "asyncio.Future[None]", *, given: bool
    ) -> MessageBatch | None:
        """One message. given: an error waits for the next request."""
        try:
            if not given and self._trouble is not None:
                trouble, self._trouble = self._trouble, None
                raise trouble
            found = await self.consumer.receive_batch(1, max_wait=0)
            if not found and wait_s > 0:
                receiving = asyncio.ensure_future(self.consumer.receive_batch(1))
                found = await self._first_of(receiving, wait_s, interrupt, gone) or found
        except OncelogError as failure:
            error = self._in_chunks(failure) if isinstance(failure, MessageTooLarge) else failure
            if given:
                self._trouble = error
                return None
            self.check_open()
            raise error from failure.__cause__
        return found.batches[0] if found else None

    def _in_chunks(self, error: MessageTooLarge) -> MessageTooLarge:
        """How a client gets past a message that the consumer raises at each call."""
        topic, index = error.details.get("topic"), error.details.get("index")
        message = (
            f"message {index} of {topic} is in chunks, which HTTP consume does not return, and everything behind it "
            "waits: take it with a consumer of the SDK, or skip it: acknowledge all messages before it, delete this "
            "session, send the request below, and open another session: POST "
            f"/admin/v2/persistent/{topic}/subscription/{self.place.subscription}/skip/1"
        )
        return MessageTooLarge(message, **error.details | {"field": "value", "limit": None})

    async def _first_of(
        self,
        work: "asyncio.Future[T]",
        wait_s: float,
        interrupt: "asyncio.Future[None]",
        gone: "asyncio.Future[None]",
    ) -> T | None:
        """The result of the work, or None when the time is over or the client is gone. A cancelled `receive` has taken
        no message. Raises SessionGone, Conflict."""
        try:
            reasons: list[asyncio.Future[Any]] = [work, interrupt, gone]
            await asyncio.wait(reasons, timeout=wait_s, return_when=asyncio.FIRST_COMPLETED)
        finally:
            work.cancel()  # without effect if it is done
            await asyncio.wait({work})
        if not work.cancelled():
            return work.result()
        self.check_open()
        if interrupt.done():
            raise _replaced()
        return None

    def _room_in_s(self) -> float:
        now_ms = self.now_ms()
        return max(0.001, (self.core.room_at_ms(now_ms) - now_ms) / 1000)

    async def _until_room(self, wait_s: float, interrupt: "asyncio.Future[None]", gone: "asyncio.Future[None]") -> None:
        self._room.clear()
        await self._first_of(asyncio.ensure_future(self._room.wait()), wait_s, interrupt, gone)

    async def _deliver_again(self, last: DeliveryId | None) -> None:
        """Have the topic owner deliver again what the client may not have received. Raises SessionGone."""
        wanted = self.core.given_after(last, self.now_ms())
        if wanted:
            await self._give_back(wanted, 0.0)
            self.check_open()

    # --- settling -----------------------------------------------------------------------------------------------------

    async def ack(self, ids: Sequence[str]) -> list[Outcome]:
        """Returns when each acknowledgement is durable, or has failed. Raises SessionGone."""
        self.check_open()
        self.core.request_began()
        try:
            given, outcomes = self._known(ids)
            waiting: dict[asyncio.Future[AckResult], list[_Held]] = {}
            for group in _grouped(given):
                try:
                    future = self.consumer.ack_nowait([each.receipt for each in group])
                except OncelogError as error:
                    outcomes |= _failed(group, error)
                    continue
                future.add_done_callback(lambda done, group=group: self._acked(group, done))  # type: ignore[misc]
                waiting[future] = group
            if waiting:
                await asyncio.wait(waiting, timeout=SETTLE_S)
            for future, group in waiting.items():
                outcomes |= _outcome(group, future)
            return [outcomes[text] for text in ids]
        finally:
            self.core.request_ended(self.now_ms())
            self._room.set()

    def _acked(self, group: list[_Held], done: "asyncio.Future[AckResult]") -> None:
        """Also of an acknowledgement for which its request did not wait long enough."""
        if not done.cancelled() and done.exception() is None and done.result().durable:
            for each in group:
                self.core.acknowledged(each)

    async def nack(self, ids: Sequence[str], delay_s: float | None) -> list[Outcome]:
        """Returns when the topic owner has stored that the messages are to be delivered again. Raises SessionGone."""
        self.check_open()
        self.core.request_began()
        try:
            given, outcomes = self._known(ids, acknowledged=False)
            outcomes |= await self._give_back(given, delay_s)
            return [outcomes[text] for text in ids]
        finally:
            self.core.request_ended(self.now_ms())
            self._room.set()

    async def _give_back(self, given: list[_Held], delay_s: float | None) -> dict[str, Outcome]:
        outcomes: dict[str, Outcome] = {}
        groups = _grouped(given)
        done = await asyncio.gather(*(self._nack(group, delay_s) for group in groups))
        for group, error in zip(groups, done, strict=True):
            if error is None:
                for each in group:
                    self.core.returned(each)
                outcomes |= {str(each.id): Outcome(id=str(each.id), durable=True, code=None) for each in group}
            else:
                outcomes |= _failed(group, error)
        return outcomes

    async def _nack(self, group: list[_Held], delay_s: float | None) -> OncelogError | None:
        try:
            async with asyncio.timeout(SETTLE_S):
                await self.consumer.nack([each.receipt for each in group], delay=delay_s)
        except OncelogError as error:
            return error
        except TimeoutError:
            return DeadlineExceeded("no answer in time")
        return None

    def _known(self, ids: Sequence[str], *, acknowledged: bool = True) -> tuple[list[_Held], dict[str, Outcome]]:
        """What is outstanding, and the outcome of everything else. acknowledged: the outcome of what is so already."""
        given: dict[str, _Held] = {}
        outcomes: dict[str, Outcome] = {}
        now_ms = self.now_ms()
        for text in ids:
            delivery = DeliveryId.parse(text)
            found = None if delivery is None else self.core.find(delivery, now_ms)
            if found is not None:
                given[text] = found
            elif acknowledged and delivery and self.core.standing(delivery, now_ms) is Standing.ACKNOWLEDGED:
                outcomes[text] = Outcome(id=text, durable=True, code=None)
            else:
                outcomes[text] = Outcome(id=text, durable=False, code="not_outstanding")
        return list(given.values()), outcomes

    # --- life ---------------------------------------------------------------------------------------------------------

    async def end(self, why: SessionGone) -> None:
        """Answer the request that takes messages, and give everything back that is not acknowledged. Idempotent."""
        self.over = self.over or why
        if not self._interrupt.done():
            self._interrupt.set_result(None)
        try:
            async with asyncio.timeout(CLOSE_S):
                await self.consumer.all_settled()
        except TimeoutError:
            pass  # their requests answer that the outcome is unknown
        await self.consumer.close(flush=False)


def _grouped(given: Sequence[_Held]) -> list[list[_Held]]:
    """Of one partition and seek epoch: what is settled together has one outcome."""
    groups: dict[tuple[int, int], list[_Held]] = {}
    for each in given:
        groups.setdefault((each.id.partition, each.id.seek_epoch), []).append(each)
    return list(groups.values())


def _outcome(group: list[_Held], future: "asyncio.Future[AckResult]") -> dict[str, Outcome]:
    if not future.done():
        return _failed(group, DeadlineExceeded("no answer in time"))
    error = future.exception()
    if isinstance(error, OncelogError):
        return _failed(group, error)
    # In the owner's memory alone: the next owner may deliver it again.
    durable = future.result().durable
    code = None if durable else "in_memory"
    return {str(each.id): Outcome(id=str(each.id), durable=durable or None, code=code) for each in group}


def _failed(group: list[_Held], error: OncelogError) -> dict[str, Outcome]:
    durable = False if isinstance(error, _FINAL) else None
    return {str(each.id): Outcome(id=str(each.id), durable=durable, code=error.code) for each in group}


def _replaced() -> Conflict:
    return Conflict(
        "another request has begun to take the messages of this session: use one at a time", field="session"
    )
