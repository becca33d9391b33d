"""The shell of a consumer's session, and what the consumer asks it for."""

import asyncio
import secrets
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import replace
from typing import TypeVar

from oncelog.client.consuming.chunk_joins import ChunkJoins
from oncelog.client.consuming.producer_names import ProducerNames
from oncelog.client.network.consume_stream import ConsumeStream
from oncelog.client.network.network import Network
from oncelog.client.network.session_driver import SessionDriver
from oncelog.client.values.results import AckResult
from oncelog.core.acks.changes import IndexRange
from oncelog.core.delivery.events import ConsumerOpening, DeliverMessages, SeekRequested
from oncelog.core.delivery.store_binding.events import (
    BindRequested,
    DeadLetterRequested,
    EffectsAsked,
    EffectsRequest,
    RewindRequested,
    SubscriptionEffects,
)
from oncelog.core.errors import OncelogError
from oncelog.core.ids import INSTANCE_ID_BYTES, ConsumerNumber, Generation, InstanceId, OwnerEpoch, SeekEpoch, TopicId
from oncelog.core.names import TopicName
from oncelog.core.sdk.consumer.events import (
    AckEnded,
    AckWanted,
    ConsumerEffect,
    ConsumerEvent,
    ConsumerSettings,
    EffectsEnded,
    EffectsWanted,
    FlushAbandoned,
    FlushEnded,
    FlushWanted,
    HandOut,
    MessageRange,
    MessagesReady,
    MessagesWanted,
    NackWanted,
    OwnerReported,
    OwnerRequest,
    ReportActive,
    ReportAttached,
    ReportSought,
    SeekEnded,
    SeekWanted,
    SendToOwner,
    SkipUnreadable,
)
from oncelog.core.sdk.consumer.session import ConsumerSession
from oncelog.core.sdk.owner_attempts import EpochSeen, FailSession, LookUp, StartSessionTimer

#: Ranges that a reconnection presents; what it does not present goes back to the subscription and is delivered again.
_PRESENTED_RANGES_MAX = 16_384

ResultT = TypeVar("ResultT")
#: The result of an acknowledgement.
Settled = OncelogError | AckResult


class ConsumerDriver(SessionDriver[ConsumerEvent, ConsumerEffect, ConsumeStream]):
    """One ConsumerSession on the network."""

    core: ConsumerSession
    _new_session: Callable[[ConsumerSettings, InstanceId], ConsumerSession] = ConsumerSession

    def __init__(
        self,
        settings: ConsumerSettings,
        topic: TopicName,
        network: Network,
        *,
        arrived: Callable[[], None],
        changed: Callable[[], None],
        unreadable: Callable[[SkipUnreadable], None],
        holds: Callable[[int], None] | None = None,
    ) -> None:
        """arrived: called when there are messages after there were none. changed: called after more messages have
        arrived, and at each other change. Both must not feed events. unreadable: called for messages that are to be
        acknowledged. holds: called with how many bytes more (or less) wait here, after each change."""
        super().__init__(topic, network, network.consume_stream, changed=changed)
        # Random, because no other instance may have the same id, in this process or in a copy of its memory.
        self.core = self._new_session(settings, InstanceId(secrets.token_bytes(INSTANCE_ID_BYTES)))
        self.names = ProducerNames(topic, network, arrived)
        self.chunks = ChunkJoins(topic, network, arrived)
        self._arrived = arrived
        self._unreadable = unreadable
        self._holds = holds
        #: what `holds` was told in all
        self._held_bytes = 0
        #: the answer to the latest MessagesWanted
        self._handed: tuple[MessageRange, ...] = ()
        self._last_request = 0
        #: {request: called with the result of an acknowledgement, negative or not}
        self._acks: dict[int, Callable[[Settled], None]] = {}
        self._seeks: dict[int, asyncio.Future[SeekEpoch]] = {}
        self._effects: dict[int, asyncio.Future[SubscriptionEffects | None]] = {}
        self._flushes: dict[int, asyncio.Future[None]] = {}
        #: ends when the consumer is over
        self._following = ExitStack()

    @property
    def what(self) -> str:
        return f"consumer of {self.core.settings.subscription} on {self.topic}"

    # --- the application ----------------------------------------------------------------------------------------------

    @property
    def generation(self) -> Generation:
        """Of the present grant; 0: another consumer is active, or the type has no active one."""
        attachment = self.core.attachment
        return Generation(0) if attachment is None or attachment.consumer is None else attachment.generation

    @property
    def seek_epoch(self) -> SeekEpoch:
        return SeekEpoch(0) if self.core.attachment is None else self.core.attachment.seek_epoch

    def take(self, count_max: int) -> tuple[MessageRange, ...]:
        """Up to count_max messages, which the application receives now. Empty while producer names are missing; then
        `arrived` follows."""
        if self.names.missing:
            return ()
        self.feed(MessagesWanted(count_max))
        handed, self._handed = self._handed, ()
        return handed

    @property
    def waiting(self) -> int:
        """How many messages `take` returns at most."""
        return 0 if self.names.missing else self.core.available

    @property
    def is_full(self) -> bool:
        """Whether `take` returns messages, and the owner may send no more until it does."""
        return self.core.messages.is_full and self.waiting > 0

    @property
    def has_nacked(self) -> bool:
        """Whether a cumulative acknowledgement may end before one of this consumer's negative ones."""
        return bool(self.core.messages.nacked)

    def is_void(self, seek_epoch: SeekEpoch, generation: Generation) -> bool:
        """Whether the subscription was sought, or another consumer has become active, since this was handed out."""
        attachment = self.core.attachment
        return attachment is None or seek_epoch < attachment.seek_epoch or generation < attachment.generation_floor

    def ack(
        self,
        seek_epoch: SeekEpoch,
        on_result: Callable[[Settled], None],
        *,
        ranges: tuple[IndexRange, ...] = (),
        below: int | None = None,
        generation: Generation = Generation(0),
    ) -> None:
        """on_result: called once, with the result."""
        request = self._next_request(on_result)
        self.feed(AckWanted(request, seek_epoch, ranges, below, generation))

    def nack(
        self,
        seek_epoch: SeekEpoch,
        ranges: tuple[IndexRange, ...],
        delivery_counts: dict[int, int],
        delay_ms: int | None,
        on_result: Callable[[Settled], None],
    ) -> None:
        """delivery_counts: {index: which delivery is meant}, of those above 1."""
        self.feed(NackWanted(self._next_request(on_result), seek_epoch, ranges, delay_ms, delivery_counts))

    def _next_request(self, on_result: Callable[[Settled], None]) -> int:
        self._last_request += 1
        self._acks[self._last_request] = on_result
        return self._last_request

    async def seek(self, index: int, *, redo: bool = False) -> SeekEpoch:
        """Returns when the seek is durable. Raises its error; the outcome of a lost seek is unknown."""
        self._last_request += 1
        request = self._last_request
        future: asyncio.Future[SeekEpoch] = asyncio.get_running_loop().create_future()
        self._seeks[request] = future
        try:
            self.feed(SeekWanted(request, index, redo))
            return await future
        finally:
            self._seeks.pop(request, None)

    async def ask_effects(self, from_index: int) -> SubscriptionEffects:
        """What the log has of the effects of the subscription's messages. Raises a retriable error if the consumer is
        not attached, or the answer does not come."""
        answer = await self._ask(lambda request: EffectsAsked(ConsumerNumber(0), request, from_index))
        assert answer is not None
        return answer

    async def bind_effects(self, seek_epoch: SeekEpoch, generation: Generation, *, forgotten_below: int = 0) -> None:
        """Returns when it is durable. Raises StoreMismatch, ConsumerFenced, StaleSeekEpoch, and as `ask_effects`."""
        await self._ask(lambda r: BindRequested(ConsumerNumber(0), r, seek_epoch, generation, forgotten_below))

    async def rewind(self, seek_epoch: SeekEpoch, generation: Generation, ranges: tuple[IndexRange, ...]) -> None:
        """Returns when it is durable. Raises the same, and InvalidArgument for messages that the topic lacks."""
        await self._ask(lambda r: RewindRequested(ConsumerNumber(0), r, seek_epoch, generation, ranges))

    async def dead_letter(self, seek_epoch: SeekEpoch, generation: Generation, index: int, reason: str) -> None:
        """Returns when the log has a dead letter of the message, or the message is acknowledged. Raises the same."""
        await self._ask(lambda r: DeadLetterRequested(ConsumerNumber(0), r, seek_epoch, generation, index, reason))

    async def _ask(self, request_of: Callable[[int], EffectsRequest]) -> SubscriptionEffects | None:
        self._last_request += 1
        request = self._last_request
        future: asyncio.Future[SubscriptionEffects | None] = asyncio.get_running_loop().create_future()
        self._effects[request] = future
        try:
            self.feed(EffectsWanted(request_of(request)))
            return await future
        finally:
            self._effects.pop(request, None)

    async def flush(self, *, reports: bool) -> None:
        """Return when the acknowledgements given before are answered, and with `reports` the owner has those; or when
        the consumer is over."""
        self._last_request += 1
        request, future = self._last_request, asyncio.get_running_loop().create_future()
        self._flushes[request] = future
        try:
            self.feed(FlushWanted(request, reports))
            await future
        finally:
            if self._flushes.pop(request, None) is not None:
                self.feed(FlushAbandoned(request))

    # --- the network --------------------------------------------------------------------------------------------------

    def feed(self, event: ConsumerEvent) -> None:
        if isinstance(event, OwnerReported) and isinstance(event.report, DeliverMessages):
            self.names.want(delivered.entry.data for delivered in event.report.entries)
        super().feed(event)
        self._tell_held()

    def _tell_held(self) -> None:
        if self._holds is not None:
            change = self.core.messages.waiting_bytes - self._held_bytes
            if change:
                self._held_bytes += change
                self._holds(change)

    def drop(self) -> None:
        """After the end: let go what waits here."""
        self.core.messages.drop_all()
        self._tell_held()

    def _end(self) -> None:
        super()._end()
        self._following.close()
        self.names.end()
        self.chunks.end()

    def _bound_to(self, topic_id: TopicId) -> None:
        super()._bound_to(topic_id)
        self._following.close()
        self._following.enter_context(self._network.epochs.followed(topic_id, self._moved))

    def _moved(self, owner_epoch: OwnerEpoch) -> None:
        """Another user of this client has met a newer owner: leave a deposed one, even if it reports nothing."""
        if not self._busy:
            self.feed(EpochSeen(owner_epoch))

    def _perform(self, effects: list[ConsumerEffect]) -> None:
        for effect in effects:
            match effect:
                case SendToOwner(attempt, request):
                    self._send(attempt, request)
                case HandOut(runs):
                    self._handed = runs
                case MessagesReady():
                    if not self.names.missing:
                        self._arrived()
                case AckEnded(request, error, durable, complete):
                    if (on_result := self._acks.pop(request, None)) is not None:
                        on_result(error if error is not None else AckResult(durable, complete))
                case SeekEnded(request, result):
                    _settle(self._seeks.pop(request, None), result)
                case EffectsEnded(request, effects_result):
                    _settle(self._effects.pop(request, None), effects_result)
                case FlushEnded(request):
                    _settle(self._flushes.pop(request, None), None)
                case SkipUnreadable():
                    self._unreadable(effect)
                case ReportAttached() | ReportActive() | ReportSought() | FailSession():
                    pass  # `changed` follows, and the core has the attachment and the error
                case LookUp():
                    self._start_look_up(effect)
                case StartSessionTimer():
                    self._timers.start(effect)

    def _send(self, attempt: int, request: OwnerRequest) -> None:
        stream = self._streams.get(attempt)
        if stream is None:
            return
        match request:
            case ConsumerOpening():
                stream.open(str(self.topic), self.topic_partition.topic_id, _presentable(request), self.feed)
            case SeekRequested():
                attachment = self.core.attachment
                if attachment is not None and attachment.consumer is not None:
                    stream.seek(attachment.consumer, request)
            case _:
                stream.send(request)


def _settle(future: "asyncio.Future[ResultT] | None", result: ResultT | OncelogError) -> None:
    if future is None or future.done():
        return
    if isinstance(result, OncelogError):
        future.set_exception(result)
    else:
        future.set_result(result)


def _presentable(opening: ConsumerOpening) -> ConsumerOpening:
    """The opening with a bounded number of ranges."""
    held, limit = opening.resume, _PRESENTED_RANGES_MAX
    if held is None or max(len(held.ranges), len(held.begun), len(held.delivery_counts or ())) <= limit:
        return opening
    # A message whose count is not presented seems to be an older delivery, which counts already: so it counts less.
    counts = dict(sorted((held.delivery_counts or {}).items())[:limit])
    held = replace(held, ranges=held.ranges[:limit], begun=held.begun[:limit], delivery_counts=counts)
    return replace(opening, resume=held)
