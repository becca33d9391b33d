"""Performs what the subscriptions of a topic ask for: reads of messages, and reports to the streams of consumers.

Calls are numbered for each topic, because its core does not distinguish streams.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from dataclasses import replace
from itertools import count
from typing import Any, Protocol

from oncelog.core.acks.index_ranges import count_of
from oncelog.core.delivery.delivery_gate import DeliveryGate, GateVerdict, needs_of
from oncelog.core.delivery.events import (
    AdminRequest,
    AnswerAck,
    AnswerAdmin,
    AnswerSeek,
    AnswerSubscribe,
    ConsumerActive,
    ConsumerDetached,
    ConsumerOpening,
    ConsumerOpeningAbandoned,
    ConsumerWanted,
    DeliverMessages,
    EndConsumer,
    MessagesRead,
    PublishDeadLetter,
    ReadMessages,
    RecallMessages,
    ResolveDeadLetterTopic,
    SeekRequested,
    Subscribed,
    SubscriptionSought,
)
from oncelog.core.delivery.store_binding.events import AnswerEffects
from oncelog.core.errors import InvariantViolated, OncelogError
from oncelog.core.ids import ConsumerNumber, Generation, OwnerEpoch, SubscriptionNumber
from oncelog.core.topic_events.events import ProducerRemovalRequested, SnapshotRequested, TopicEvent
from oncelog.metadata_store.session.zookeeper import SESSION_TIMEOUT_MS
from oncelog.rpc.codecs.consumer_codec import ReportedEvent
from oncelog.topic_owner.shell.dead_letter_shell import DeadLetterShell
from oncelog.topic_owner.shell.log_view import ReadableLog
from oncelog.topic_owner.shell.message_reads import MessageReads
from oncelog.topic_owner.shell.metadata_calls import MetadataCalls
from oncelog.topic_owner.shell.owner_metrics import OwnerCounts
from oncelog.topic_owner.shell.ownership_proofs import OwnershipProofs

#: What a connected consumer gets, besides the answers to its calls.
Report = (
    DeliverMessages | AnswerAck | AnswerEffects | RecallMessages | ConsumerActive | ConsumerWanted | SubscriptionSought
)


class ConsumerSink(Protocol):
    """The stream of one client's consumers. topic: which of its topics answers."""

    def subscribed(self, answer: AnswerSubscribe, topic: "DeliveryShell") -> None: ...
    def sought(self, answer: AnswerSeek, topic: "DeliveryShell") -> None: ...
    def reported(self, event: ReportedEvent) -> None: ...
    def ended(self, event: EndConsumer) -> None: ...


class DeliveryShell:
    """The consumers of one topic, as its shell knows them."""

    def __init__(
        self,
        log: ReadableLog,
        proofs: OwnershipProofs,
        *,
        metadata: MetadataCalls,
        counts: OwnerCounts,
        why: Callable[[OncelogError], Awaitable[OncelogError]],
        post: Callable[[TopicEvent], None],
        start: Callable[[Coroutine[None, None, None]], None],
    ) -> None:
        """why: the reason behind a read that failed. start: begins work that ends with the topic."""
        self._ownership = log.core.ownership
        self._counts = counts
        self._why = why
        self._post = post
        self._start = start
        self._reads = MessageReads(log)
        self._proofs = proofs
        self._gate = DeliveryGate[Report | AnswerSeek](session_timeout_ms=SESSION_TIMEOUT_MS)
        self._numbers = count(1)
        #: {call: where its answer goes}
        self._calls: dict[int, ConsumerSink] = {}
        #: {call of an administrator or a group: its answer}
        self._administering: dict[int, asyncio.Future[AnswerAdmin]] = {}
        #: {consumer: (where its reports go, its subscription)}
        self._consumers: dict[ConsumerNumber, tuple[ConsumerSink, SubscriptionNumber]] = {}
        dead_letters = DeadLetterShell(log.core, MessageReads(log), metadata, post=post, start=start)
        #: {type of an effect: what performs it}
        self.performers: dict[type, Callable[[Any], None]] = {
            AnswerSubscribe: self._answer_subscribe,
            AnswerAdmin: self._answer_admin,
            EndConsumer: self._end,
            ReadMessages: self._read,
            **dict.fromkeys((DeliverMessages, AnswerAck, AnswerEffects, RecallMessages), self._report),
            **dict.fromkeys((ConsumerActive, ConsumerWanted, SubscriptionSought, AnswerSeek), self._report),
            ResolveDeadLetterTopic: dead_letters.resolve,
            PublishDeadLetter: dead_letters.publish,
        }

    @property
    def any_attached(self) -> bool:
        return bool(self._consumers)

    @property
    def owner_epoch(self) -> OwnerEpoch:
        return self._ownership.epoch

    # --- requests -----------------------------------------------------------------------------------------------------

    def new_call(self) -> int:
        """A number for a request. Of two openings of one consumer, the higher one came later."""
        return next(self._numbers)

    def expect(self, call: int, sink: ConsumerSink) -> None:
        """The answer to this request goes to this stream."""
        self._calls[call] = sink

    def open(self, opening: ConsumerOpening) -> None:
        self._post(opening)

    def seek(self, request: SeekRequested) -> None:
        self._post(request)

    async def administer(self, request: AdminRequest | SnapshotRequested | ProducerRemovalRequested) -> Generation:
        """Return when the change is durable: what AnswerAdmin says. Raises the error that the topic answers with."""
        call = next(self._numbers)
        answer: asyncio.Future[AnswerAdmin] = asyncio.get_running_loop().create_future()
        self._administering[call] = answer
        self._post(replace(request, call=call))
        try:
            result = await answer
        finally:
            self._administering.pop(call, None)
        if result.error is not None:
            raise result.error
        return result.generation

    def abandon(self, call: int) -> None:
        """The stream of this request is gone."""
        if self._calls.pop(call, None) is not None:
            self._post(ConsumerOpeningAbandoned(call))

    def close(self) -> None:
        """The topic has ended here."""
        while self._gate.is_waiting:
            for report in self._gate.release():
                self._drop(report)

    def detach(self, consumer: ConsumerNumber, *, lost: bool) -> None:
        if self._consumers.pop(consumer, None) is not None:
            self._post(ConsumerDetached(consumer, lost))

    # --- effects ------------------------------------------------------------------------------------------------------

    def _answer_subscribe(self, effect: AnswerSubscribe) -> None:
        sink, result = self._calls.pop(effect.call, None), effect.result
        if sink is None:
            if isinstance(result, Subscribed):  # its stream ended while this answer was on its way
                self._post(ConsumerDetached(result.consumer, lost=True))
            return
        if isinstance(result, Subscribed):
            self._consumers[result.consumer] = sink, result.number
        sink.subscribed(effect, self)

    def _report(self, effect: Report | AnswerSeek) -> None:
        proof_age_ms = (time.monotonic() - self._proofs.proved_at) * 1000
        match self._gate.report(effect, needs_of(effect), proof_age_ms=proof_age_ms):
            case GateVerdict.SEND:
                self._send(effect)
            case GateVerdict.PROVE:
                self._start(self._prove())
            case GateVerdict.WAIT:
                pass

    async def _prove(self) -> None:
        while self._gate.is_waiting:
            try:
                await self._proofs.prove()
            except InvariantViolated:
                raise
            except OncelogError as error:
                self._end_all(error)
            for report in self._gate.release():
                self._send(report)

    def _send(self, effect: Report | AnswerSeek) -> None:
        if isinstance(effect, AnswerSeek):
            self._answer_seek(effect)
            return
        known = self._consumers.get(effect.consumer)
        if known is not None:
            if isinstance(effect, DeliverMessages):
                self._count(effect)
            known[0].reported(ReportedEvent(self.owner_epoch, effect))
        else:
            self._drop(effect)

    def _drop(self, effect: Report | AnswerSeek) -> None:
        """The consumer is gone: what its stream has taken for this report does not wait any more."""
        if isinstance(effect, DeliverMessages):
            effect.outbox.give_back(effect.cost_bytes)

    def _count(self, effect: DeliverMessages) -> None:
        delivered, again = self._counts.delivered, len(effect.delivery_counts)
        delivered["first"] += sum(count_of(each.ranges) for each in effect.entries) - again
        delivered["again"] += again

    def _answer_seek(self, effect: AnswerSeek) -> None:
        sink = self._calls.pop(effect.call, None)
        if sink is not None:
            sink.sought(effect, self)
        else:
            result = effect.result
            self._answer_admin(AnswerAdmin(effect.call, result if isinstance(result, OncelogError) else None))

    def _answer_admin(self, effect: AnswerAdmin) -> None:
        waiting = self._administering.get(effect.call)
        if waiting is not None and not waiting.done():
            waiting.set_result(effect)

    def _end(self, effect: EndConsumer) -> None:
        known = self._consumers.pop(effect.consumer, None)
        if known is not None:
            known[0].ended(effect)

    def _read(self, effect: ReadMessages) -> None:
        self._start(self._read_messages(effect))

    # --- reads --------------------------------------------------------------------------------------------------------

    async def _read_messages(self, effect: ReadMessages) -> None:
        try:
            found = await self._reads.read(effect)
        except InvariantViolated:
            raise
        except OncelogError as error:
            # Send the error to the consumers. Without it, they cannot distinguish this from the end of the log.
            self._fail(effect.number, await self._why(error))
            found = MessagesRead(effect.number, effect.first_index, ())
        self._post(found)

    def _fail(self, number: SubscriptionNumber, error: OncelogError) -> None:
        """End the consumers of a subscription whose next message cannot be read. A new one makes the next attempt."""
        self._lose([consumer for consumer, (_, of) in self._consumers.items() if of == number], error)

    def _end_all(self, error: OncelogError) -> None:
        """This owner could not prove itself: every consumer looks the topic up again, and keeps what it holds."""
        self._lose(list(self._consumers), error)

    def _lose(self, consumers: Sequence[ConsumerNumber], error: OncelogError) -> None:
        for consumer in consumers:
            self._end(EndConsumer(consumer, error))
            self._post(ConsumerDetached(consumer, lost=True))
