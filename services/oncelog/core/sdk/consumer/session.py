"""One consumer of one topic's subscription: attached, what it holds, acknowledgements until they are durable. Pure.

    OPENING --Subscribed--> ATTACHED --stream lost, deposed owner, retriable end--> RECONNECTING
       |                       ^ |                                                       |
       |                       +-|---------------------Subscribed------------------------+
       +------ final error ------+---------------------- final error --------------------+--> CLOSED

`owner_attempts` looks up and asks owners, `messages` has what was delivered, `requests` what is not settled.

Rules
- Completions and reports name their attempt and the consumer number; others, also those of a former stream of this
  consumer, are ignored.
- Whatever a lower owner_epoch than the highest seen reports is refused, and the owner is looked up again; a lower
  generation or seek_epoch is dropped (hazards late-ack-after-seek and deposed-owner-delivers).
- Credit is absolute: messages of the present stream that have left the waiting ones, and a window (hazard
  relative-credit).
- A reconnection presents the subscription's id, seek_epoch, generation and exactly what is held and begun, and keeps
  what the owner leaves here (hazard delivered-while-held). It never creates: SubscriptionGone is final (hazard
  recreated-subscription).
- An acknowledgement is sent again, on every stream, until an owner settles it. It carries the seek_epoch and the
  generation of the message, never newer ones (hazards late-ack-after-seek and former-consumer-acks).
- A flush of reports asks the owner behind them (`flushes`), on each new stream again, behind its report of credit.
- A cumulative acknowledgement ends before an own negative one, until the application has received its message again, or
  the owner reports that everything up to there is acknowledged, as when it has become a dead letter. Neither a new
  grant nor a count of deliveries proves that it was processed or stored elsewhere (hazard former-consumer-acks).
- Recalled messages are dropped unless the application has received them (hazard key-moves-too-early); then they are not
  held any more.
"""

from dataclasses import replace
from enum import Enum
from typing import assert_never

from oncelog.core import errors
from oncelog.core.delivery.events import (
    AnswerAck,
    AnswerSeek,
    AnswerSubscribe,
    ConsumerActive,
    ConsumerDetached,
    ConsumerWanted,
    DeliverMessages,
    EndConsumer,
    HeldMessages,
    RecallMessages,
    Subscribed,
    SubscriptionSought,
)
from oncelog.core.delivery.store_binding.events import AnswerEffects
from oncelog.core.errors import InvariantViolated, OncelogError, SubscriptionGone
from oncelog.core.ids import Generation, InstanceId, OwnerEpoch, SeekEpoch
from oncelog.core.sdk.consumer.attachment import Attachment, opening_request
from oncelog.core.sdk.consumer.events import (
    AckEnded,
    AckWanted,
    ConsumerEffect,
    ConsumerEvent,
    ConsumerSettings,
    EffectsEnded,
    EffectsWanted,
    EntryEvent,
    FlushAbandoned,
    FlushEnded,
    FlushWanted,
    HandOut,
    MessagesReady,
    MessagesWanted,
    NackWanted,
    OwnerReport,
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
from oncelog.core.sdk.consumer.messages import ReceivedMessages
from oncelog.core.sdk.consumer.requests import PendingRequests, refusal, unreadable_messages, up_to_nacked
from oncelog.core.sdk.owner_attempts import (
    AnswerProgress,
    CloseWanted,
    EpochSeen,
    FailSession,
    LookUpFailed,
    OpeningPhase,
    OpenWanted,
    OwnerAttempts,
    OwnerFound,
    SessionTimerFired,
    StreamLost,
    TimerKey,
    TimerKind,
)


class ConsumerSessionState(Enum):
    OPENING = "opening"
    ATTACHED = "attached"
    RECONNECTING = "reconnecting"
    CLOSED = "closed"


class ConsumerSession:
    """One `subscribe` of an application, from its first opening to its end."""

    def __init__(self, settings: ConsumerSettings, instance_id: InstanceId) -> None:
        """instance_id: 16 random bytes, of this consumer alone."""
        self.settings = settings
        self.instance_id = instance_id
        self.state = ConsumerSessionState.OPENING
        #: the error that ended the consumer
        self.error: OncelogError | None = None
        #: the latest reason why messages do not come; None while they do
        self.trouble: OncelogError | None = None
        self.opening = OwnerAttempts()
        self.messages = ReceivedMessages(settings.receive_window, settings.receive_bytes)
        self.requests = PendingRequests(settings.requests_max)
        #: None until the first attachment
        self.attachment: Attachment | None = None
        #: the subscription was created for this consumer
        self.created = False
        self._progress = AnswerProgress(settings.answer_timeout_ms)

    def handle(self, event: ConsumerEvent) -> list[ConsumerEffect]:
        effects = self._handle(event)
        return [*effects, *self.requests.flushed()] if self.requests.flushes else effects

    def _handle(self, event: ConsumerEvent) -> list[ConsumerEffect]:
        match event:
            case AckWanted() | NackWanted():
                return self._ack_wanted(event)
            case SeekWanted():
                return self._seek_wanted(event)
            case EffectsWanted():
                return self._effects_wanted(event)
            case FlushWanted():
                return self._flush_wanted(event)
            case MessagesWanted():
                return self._hand_out(event.count_max)
        if self.state is ConsumerSessionState.CLOSED:
            return self._late(event) if isinstance(event, OwnerReported) else []
        match event:
            case OwnerReported():
                return self._reported(event)
            case OpenWanted():
                return [*self.opening.begin(fresh=False)]
            case OwnerFound():
                return self._owner_found(event)
            case LookUpFailed():
                return self._refused(event.error) if self.opening.looks_up(event.attempt) else []
            case StreamLost():
                return self._stream_lost(event)
            case EpochSeen():
                return self._epoch_seen(event.owner_epoch)
            case SessionTimerFired():
                return self._timer_fired(event.key)
            case FlushAbandoned():
                self.requests.flushes.abandon(event.request)
                return []
            case CloseWanted():
                return self._end(errors.ConsumerClosed("the consumer was closed"))
            case _ if isinstance(event, EntryEvent):
                raise InvariantViolated("only an EntrySession has whole entries")
            case _:
                assert_never(event)

    # --- attaching ----------------------------------------------------------------------------------------------------

    @property
    def is_bound(self) -> bool:
        """Whether the consumer belongs to one topic. A topic created anew under the same name is another log, so it
        must not be created or used."""
        return self.attachment is not None

    def _owner_found(self, event: OwnerFound) -> list[ConsumerEffect]:
        if self.is_bound and event.another_topic and self.opening.looks_up(event.attempt):
            return self._fail(SubscriptionGone("the topic was deleted and created again: subscribe again"))
        retry = self.opening.owner_found(event)
        if retry is not None:
            return [*retry]
        held, epoch_seen = self._held(), self.opening.owner_epoch
        request = opening_request(self.settings, self.instance_id, event.attempt, epoch_seen, held)
        return [SendToOwner(event.attempt, request)]

    def _held(self) -> HeldMessages | None:
        """What a reconnection presents. None: the consumer was never attached."""
        return None if self.attachment is None else self.attachment.presents(*self.messages.presented())

    def _late(self, event: OwnerReported) -> list[ConsumerEffect]:
        """An attachment that is not wanted any more: end it, so that the owner does not deliver to it."""
        match event.report:
            case AnswerSubscribe(result=Subscribed(consumer=consumer)):
                return [SendToOwner(event.attempt, ConsumerDetached(consumer, lost=False))]
        return []

    def _reported(self, event: OwnerReported) -> list[ConsumerEffect]:
        report = event.report
        if isinstance(report, AnswerSubscribe):
            return self._answered(event, report)
        known = self.attachment
        if event.attempt != self.opening.attempt or known is None or known.consumer is None:
            return []
        if not isinstance(report, AnswerSeek) and report.consumer != known.consumer:
            return []
        if not self.opening.believes(event.owner_epoch):
            return self._reconnect()
        return self._take_report(known, report)

    def _answered(self, event: OwnerReported, answer: AnswerSubscribe) -> list[ConsumerEffect]:
        if not self.opening.asks(event.attempt):
            return self._late(event)
        believed = self.opening.believes(event.owner_epoch)
        if isinstance(answer.result, OncelogError):
            return self._refused(answer.result) if believed else [*self.opening.again()]
        if not believed or not event.owner_epoch:
            return [*self._late(event), *self.opening.again()]
        return self._attached(answer.result)

    def _attached(self, answer: Subscribed) -> list[ConsumerEffect]:
        former, settled = self.attachment, list[AckEnded]()
        self.created = self.created or answer.created
        if former is not None and former.subscription_id != answer.subscription_id:
            return self._fail(SubscriptionGone("the subscription was deleted and created again: subscribe again"))
        floor = answer.generation
        if former is not None:
            floor = max(floor, former.generation_floor)
            if answer.seek_epoch > former.seek_epoch:
                self.messages.sought()
                settled = self.requests.sought(answer.seek_epoch)
        self.messages.restart(answer.kept)
        self.attachment = Attachment(
            answer.subscription_id, answer.number, answer.seek_epoch, answer.generation, answer.consumer, floor
        )
        self.state, self.opening.phase = ConsumerSessionState.ATTACHED, OpeningPhase.GRANTED
        if not isinstance(self.trouble, errors.LedgerUnavailable):  # which follows each attachment until it is over
            self.trouble = None
        self._progress.restart()
        self.requests.repeats_later = False
        effects: list[ConsumerEffect] = [ReportAttached(answer.seek_epoch, answer.generation), *settled]
        if former is not None and answer.seek_epoch > former.seek_epoch:
            effects.append(ReportSought(answer.seek_epoch))
        # Acknowledgements first: credit has the owner read on, and it may end the stream at what they acknowledge.
        return [*effects, *self._send(), *self._flow(), *self._question()]

    def _refused(self, error: OncelogError) -> list[ConsumerEffect]:
        """The owner refused the opening, or the look-up failed."""
        self.trouble = error
        if not error.retriable or (isinstance(error, errors.ConsumerBusy) and self.attachment is None):
            return self._fail(error)
        return [*self.opening.again()]

    def _stream_lost(self, event: StreamLost) -> list[ConsumerEffect]:
        if not self.opening.has_stream(event.attempt):
            return []
        self.trouble = event.reason or self.trouble
        return self._reconnect()

    def _reconnect(self, *, fresh: bool = True) -> list[ConsumerEffect]:
        """The stream is of no use any more; what is held stays held."""
        effects = self._detached(lost=True)
        if self.attachment is not None:
            self.state = ConsumerSessionState.RECONNECTING
            effects += self.requests.stream_lost()
        return [*effects, *self.opening.again(fresh=fresh)]

    def _detached(self, *, lost: bool) -> list[ConsumerEffect]:
        known = self.attachment
        if known is None or known.consumer is None:
            return []
        consumer, known.consumer = known.consumer, None
        return [self._to_owner(ConsumerDetached(consumer, lost=lost))]

    def _epoch_seen(self, owner_epoch: OwnerEpoch) -> list[ConsumerEffect]:
        """A higher epoch means that this consumer's owner was deposed."""
        newer = self.opening.learn(owner_epoch)
        return self._reconnect() if newer and self.state is ConsumerSessionState.ATTACHED else []

    # --- reports of the owner -----------------------------------------------------------------------------------------

    def _take_report(self, known: Attachment, report: OwnerReport) -> list[ConsumerEffect]:
        match report:
            case DeliverMessages():
                return self._delivered(known, report)
            case AnswerAck():
                return self._ack_answered(report)
            case RecallMessages():
                self.messages.recalled(report.ranges)
                return self._flow()
            case ConsumerActive():
                return self._activated(known, report.generation)
            case SubscriptionSought():
                return self._sought(known, report.seek_epoch)
            case AnswerSeek():
                return self._seek_answered(report)
            case AnswerEffects():
                self._progress.count += 1
                return [*self.requests.effects_answered(report.request, report.effects)]
            case EndConsumer():
                known.consumer = None
                return self._ended(known, report.error)
            case AnswerSubscribe() | ConsumerWanted():
                raise InvariantViolated("no report for an attached consumer of the SDK")
            case _:
                assert_never(report)

    def _delivered(self, known: Attachment, frame: DeliverMessages) -> list[ConsumerEffect]:
        self.opening.succeeded()
        self.trouble = None
        if frame.seek_epoch < known.seek_epoch or frame.generation < known.generation_floor:
            self.messages.refused(frame)
            return self._flow()
        effects = self._sought(known, frame.seek_epoch) if frame.seek_epoch > known.seek_epoch else []
        if frame.generation > known.generation:
            effects += self._activated(known, frame.generation)
        credit = self.messages.credit
        self.messages.delivered(frame)
        if self.messages.credit != credit:
            effects += self._flow()
        return [*effects, *self._ready()]

    def _activated(self, known: Attachment, generation: Generation) -> list[ConsumerEffect]:
        """Another consumer gets what waits here, unless this one is the active one."""
        if generation == known.generation or 0 < generation < known.generation_floor:
            return []
        self.messages.drop_all()
        known.generation_floor = generation or Generation(max(known.generation, known.generation_floor) + 1)
        known.generation = generation
        return [ReportActive(generation), *self._flow()]

    def _sought(self, known: Attachment, seek_epoch: SeekEpoch) -> list[ConsumerEffect]:
        if seek_epoch <= known.seek_epoch:
            return []
        known.seek_epoch = seek_epoch
        self.messages.sought()
        return [*self.requests.sought(seek_epoch), ReportSought(seek_epoch), *self._flow()]

    def _ended(self, known: Attachment, error: OncelogError) -> list[ConsumerEffect]:
        self.trouble = error
        unreadable = unreadable_messages(error) if self.settings.skips_unreadable else None
        if unreadable is not None:
            # Until the acknowledgement is durable, an owner may end each new attachment in the same way.
            effects = self._reconnect(fresh=False)
            if self.requests.covered(*unreadable) != [unreadable]:
                effects.append(SkipUnreadable(known.seek_epoch, unreadable, error))
            return effects
        if not error.retriable:
            return self._fail(error)
        return self._reconnect(fresh=isinstance(error, errors.NotOwner | errors.ServiceUnavailable))

    def _ready(self) -> list[ConsumerEffect]:
        return [MessagesReady()] if self.messages.wakes() else []

    @property
    def available(self) -> int:
        """How many messages wait for the application."""
        return self.messages.available(self.requests.covered)

    # --- handing out --------------------------------------------------------------------------------------------------

    def _hand_out(self, count_max: int) -> list[ConsumerEffect]:
        if self.state is ConsumerSessionState.CLOSED:
            return [HandOut(())]
        runs = self.messages.take(count_max, self.requests.covered)
        return [HandOut(runs), *(self._flow() if runs else [])]

    def _flow(self) -> list[ConsumerEffect]:
        known = self.attachment
        if known is None or known.consumer is None:
            return []
        return [self._to_owner(self.messages.flow(known.consumer, known.seek_epoch))]

    def _to_owner(self, request: OwnerRequest) -> SendToOwner:
        return SendToOwner(self.opening.attempt, request)

    # --- acknowledging ------------------------------------------------------------------------------------------------

    def _ack_wanted(self, event: AckWanted | NackWanted) -> list[ConsumerEffect]:
        refused = self._refuse_ack(event)
        if refused is not None:
            return [AckEnded(event.request, refused)]
        if isinstance(event, NackWanted):
            self.messages.nack(event.ranges, event.delivery_counts)
        elif event.below is not None:
            event = up_to_nacked(event, self.messages.nacked)
        self.requests.add(event)
        return self._send()

    def _refuse_ack(self, event: AckWanted | NackWanted) -> OncelogError | None:
        if self.error is not None:
            return self.error
        known = self.attachment
        if known is None:
            raise InvariantViolated("an acknowledgement before the consumer was reported attached")
        return refusal(event, self.requests, known.seek_epoch, is_ordered=self.settings.is_ordered)

    def _ack_answered(self, answer: AnswerAck) -> list[ConsumerEffect]:
        self._progress.count += 1
        if answer.request in self.requests.effects:
            return [*self.requests.effects_answered(answer.request, answer.error)]
        if answer.request in self.requests.flushes.asked:
            return [*self.requests.question_answered(answer.request, answer.error, self.opening.attempt)]
        if answer.error is not None and answer.error.retriable:
            return [*self.requests.repeat_later(answer.request, self.opening.attempt)]
        settled = self.requests.settle(answer.request)
        if settled is None:
            return []
        self.opening.succeeded()
        if answer.error is not None:
            return [AckEnded(answer.request, answer.error), *self._ready()]
        credit = self.messages.credit
        complete = self.messages.settled(settled)
        self.messages.acknowledged_below(answer.acked_below)
        flow = self._flow() if self.messages.credit != credit else []
        return [AckEnded(answer.request, None, answer.durable, complete), *flow]

    def _seek_wanted(self, event: SeekWanted) -> list[ConsumerEffect]:
        refused = self.error or self.requests.refuse_more()
        if refused is not None:
            return [SeekEnded(event.request, refused)]
        self.requests.seeks[event.request] = (event, False)
        return self._send()

    def _seek_answered(self, answer: AnswerSeek) -> list[ConsumerEffect]:
        self._progress.count += 1
        if isinstance(answer.result, errors.NotOwner | errors.TopicLoading):  # refused: nothing was written
            return [*self.requests.seek_later(answer.call, self.opening.attempt)]
        if self.requests.seeks.pop(answer.call, None) is None:
            return []
        return [SeekEnded(answer.call, answer.result)]

    def _effects_wanted(self, event: EffectsWanted) -> list[ConsumerEffect]:
        request, known = event.asked.request, self.attachment
        if self.error is not None or known is None or known.consumer is None:
            return [EffectsEnded(request, self.error or errors.ServiceUnavailable("the consumer is not attached now"))]
        self.requests.effects[request] = None
        return [self._to_owner(replace(event.asked, consumer=known.consumer)), *self._watch()]

    def _flush_wanted(self, event: FlushWanted) -> list[ConsumerEffect]:
        if self.error is not None:
            return [FlushEnded(event.request, self.error)]
        self.requests.flushes.add(event, reported=self.attachment is not None)
        return self._question()

    def _question(self) -> list[ConsumerEffect]:
        """Ask behind the reports, if a flush wants that."""
        asked = self.requests.question(self.attachment)
        return [*map(self._to_owner, asked), *(self._watch() if asked else [])]

    def _watch(self) -> list[ConsumerEffect]:
        return [self._progress.watch(self.opening.attempt)] if self._progress.before is None else []

    def _send(self) -> list[ConsumerEffect]:
        """Send what the present stream has not carried, and set a deadline for its answers."""
        known = self.attachment
        if known is None or known.consumer is None:
            return []
        effects: list[ConsumerEffect] = [
            self._to_owner(request) for request in self.requests.unsent(known.consumer, known.number)
        ]
        return [*effects, *(self._watch() if effects else [])]

    def _timer_fired(self, key: TimerKey) -> list[ConsumerEffect]:
        if key.kind not in (TimerKind.REPEAT, TimerKind.ANSWER):
            return [*self.opening.timer_fired(key)]
        if key.number != self.opening.attempt or self.state is not ConsumerSessionState.ATTACHED:
            return []
        if key.kind is TimerKind.REPEAT:
            self.requests.repeats_later = False
            return [*self._send(), *self._question()]
        again = self._progress.expired(key.number, waiting=self.requests.any_sent)
        return self._reconnect() if again is None else [*again]

    # --- the end ------------------------------------------------------------------------------------------------------

    def _fail(self, error: OncelogError) -> list[ConsumerEffect]:
        return [FailSession(error), *self._end(error)]

    def _end(self, error: OncelogError) -> list[ConsumerEffect]:
        farewell = self._detached(lost=False)
        self.state, self.error = ConsumerSessionState.CLOSED, error
        self.messages.drop_all()
        return [*farewell, *self.requests.drain(error)]

    def check_invariants(self) -> None:
        """Called after every step of the simulation."""
        self.messages.check_invariants()
        self.requests.check_invariants()
        attached = self.attachment is not None and self.attachment.consumer is not None
        if attached != (self.state is ConsumerSessionState.ATTACHED):
            raise InvariantViolated(f"{self.state.value} with {self.attachment}")
        if (self.error is not None) != (self.state is ConsumerSessionState.CLOSED):
            raise InvariantViolated(f"{self.state.value} with error {self.error!r}")
        if self.error is not None and (len(self.requests) or self.requests.flushes or self.messages.held()):
            raise InvariantViolated("a consumer that is over holds something")
        if not attached and (self.requests.sent or self.requests.flushes.asked):
            raise InvariantViolated("something is in flight without a stream")
