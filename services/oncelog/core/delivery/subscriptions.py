"""All subscriptions of one topic at its owner: found by name, by number and by consumer, created and deleted.

    name unknown, start given --> SubscriptionCreated in flight; requests to attach wait
        durable -> attached        dropped -> answered with a retriable error
    DeleteRequested --> SubscriptionDeleted in flight; requests to attach wait
        durable -> consumers get SubscriptionGone        both -> waiting requests are looked at again

A reconnecting consumer names the id of its subscription: it is never created again, and never gets another one of the
same name (hazard recreated-subscription).

A step back, which is a creation, a seek or a commit of a lower offset, and a trim exclude each other (`trim_gate`).
"""

from collections.abc import Callable, Iterator
from dataclasses import replace

from oncelog.core.acks.ack_state import SubscriptionsState
from oncelog.core.acks.changes import (
    Change,
    EvictionReason,
    IndexRange,
    SubscriptionCreated,
    SubscriptionDeleted,
    SubscriptionType,
)
from oncelog.core.delivery.activity import Activity
from oncelog.core.delivery.context import Append, moved, no_room, outcome_unknown
from oncelog.core.delivery.deliverable import LogRange
from oncelog.core.delivery.events import (
    AnswerAck,
    AnswerAdmin,
    AnswerSubscribe,
    ChangeRequest,
    ConsumerDetached,
    ConsumerEvent,
    ConsumerHeld,
    ConsumerOpening,
    ConsumerOpeningAbandoned,
    CreateRequested,
    DeadLetterEvent,
    DeadLetterStored,
    DeadLettersWaiting,
    DeadLetterTopicReplaced,
    DeadLetterTopicResolved,
    DeleteRequested,
    FlowReported,
    MessagesRead,
    OfOneConsumer,
    PropertiesRequested,
    RoomReturned,
    SeekRequested,
    SkipRequested,
    SubscriptionStep,
)
from oncelog.core.delivery.group_offsets.committing import refuse_offset
from oncelog.core.delivery.group_offsets.events import (
    GenerationRaiseRequested,
    GroupChange,
    GroupRequest,
    OffsetAsked,
    OffsetCommitRequested,
)
from oncelog.core.delivery.in_flight import CreateToken, DeleteToken, Routed, refused
from oncelog.core.delivery.limits import NO_LIMITS, AckStateCheck, AckStateLimits, refuse_creation
from oncelog.core.delivery.store_binding.events import (
    EffectsAsked,
    RebindRequested,
    RewindRequested,
)
from oncelog.core.delivery.subscription import Subscription
from oncelog.core.delivery.trim_gate import TrimGate
from oncelog.core.errors import (
    Conflict,
    OncelogError,
    ServiceUnavailable,
    SubscriptionGone,
    SubscriptionNotFound,
)
from oncelog.core.ids import ConsumerNumber, SubscriptionNumber


class Subscriptions:
    """Routes events to subscriptions, and the ack log's answers."""

    def __init__(
        self,
        step: SubscriptionStep,
        state: SubscriptionsState,
        append: Append,
        *,
        first_index: int,
        next_index: int,
        first_consumer: ConsumerNumber,
        new_id: Callable[[], str],
        partition: int = 0,
        taken_over: bool = True,
        ack_limit: AckStateCheck = NO_LIMITS,
        has_room: Callable[[], bool] = lambda: True,
    ) -> None:
        """state: the durable fold of the ack log. append: to the ack log; its token comes back in `settled` or
        `dropped`. first_index, next_index: the messages that the topic has durably. new_id: a UUID hex. partition: of
        the topic, for failover. has_room: whether more acknowledgements may wait for the ack log."""
        self._step = step
        self._state = state
        self._append = append
        self._has_room = has_room
        self._new_id = new_id
        self._partition = partition
        self.log = LogRange(first_index, next_index)
        self.next_consumer = first_consumer
        self._subscriptions: dict[SubscriptionNumber, Subscription] = {}
        #: connected consumers
        self._of_consumer: dict[ConsumerNumber, Subscription] = {}
        self.activity = Activity()
        self._creating: dict[str, CreateToken] = {}
        self._deleting: dict[SubscriptionNumber, DeleteToken] = {}
        #: numbers given to creations in flight
        self._next_number = state.next_number
        self._trims = TrimGate()
        self._draining = False
        self._limits = AckStateLimits(ack_limit, state, self._subscriptions)
        for number in state.subscriptions:
            self._touch(self._add(number, taken_over=taken_over))
        self.check_all()

    def _add(self, number: SubscriptionNumber, *, taken_over: bool) -> Subscription:
        def append(change: Change, token: object) -> None:
            self._append(change, None if token is None else Routed(number, token))

        subscription = self._subscriptions[number] = Subscription(
            self._step, self._state.subscriptions[number], append, self.log,
            partition=self._partition, taken_over=taken_over, registry=self._of_consumer,
        )  # fmt: skip
        return subscription

    def __iter__(self) -> Iterator[Subscription]:
        return iter(self._subscriptions.values())

    # --- events -------------------------------------------------------------------------------------------------------

    def handle(self, event: ConsumerEvent) -> None:
        """One event of a consumer or an administrator. `end_step` delivers what became possible."""
        match event:
            case ConsumerOpening():
                self._open(event)
            case ConsumerOpeningAbandoned():
                self._abandon(event.call)
            case CreateRequested():
                self._create_for_admin(event)
            case SeekRequested() | PropertiesRequested() | SkipRequested() | DeleteRequested() | RebindRequested():
                self._administer(event)
            case OffsetCommitRequested() | GenerationRaiseRequested() | OffsetAsked():
                self._of_a_group(event)
            case MessagesRead() | DeadLetterTopicResolved() | DeadLetterStored() | DeadLettersWaiting():
                self._of_a_subscription(event)
            case DeadLetterTopicReplaced():
                self._of_a_subscription(event)
            case _:
                self._of_a_consumer(event)

    def _of_a_consumer(self, event: OfOneConsumer) -> None:
        subscription = self._of_consumer.get(event.consumer)
        if subscription is None:
            return
        self._touch(subscription)
        match event:
            case FlowReported():
                subscription.flow(event)
            case RoomReturned():
                subscription.room_returned(event.consumer)
            case ConsumerDetached():
                subscription.attachments.detach(event.consumer, lost=event.lost)
            case ConsumerHeld():
                subscription.attachments.holder_lives()
            case EffectsAsked():
                subscription.effects.ask(event)
            case _:
                if self._draining:
                    self._step.emit(AnswerAck(event.consumer, event.request, moved()))
                elif not self._has_room() or subscription.is_full:
                    self._step.emit(AnswerAck(event.consumer, event.request, no_room()))
                elif not isinstance(event, RewindRequested) or not self._trims.holds(event):
                    subscription.request(event)

    def _of_a_subscription(self, event: MessagesRead | DeadLetterEvent) -> None:
        subscription = self._subscriptions.get(event.number)
        if subscription is None:
            return
        if not isinstance(event, MessagesRead):
            subscription.dead_letters.handle(event)
        elif not subscription.messages_read(event):
            return  # nothing could be read yet: the next event asks again
        self._touch(subscription)

    def _touch(self, subscription: Subscription) -> None:
        self.activity.touch(subscription)

    # --- attaching ----------------------------------------------------------------------------------------------------

    def _open(self, opening: ConsumerOpening) -> None:
        number = self._state.names.get(opening.subscription)
        subscription = None if number is None else self._subscriptions.get(number)
        deleting = None if number is None else self._deleting.get(number)
        creating = self._creating.get(opening.subscription)
        error: OncelogError | None = None
        if self._draining:
            error = moved()
        elif deleting is not None:
            deleting.waiting.append(opening)
        elif opening.resume is not None and (
            subscription is None or subscription.state.subscription_id != opening.resume.subscription_id
        ):
            error = SubscriptionGone(
                f"subscription {opening.subscription} was deleted since: subscribe again to begin a new one"
            )
        elif subscription is not None:
            self._touch(subscription)
            consumer, self.next_consumer = self.next_consumer, ConsumerNumber(self.next_consumer + 1)
            error = subscription.attachments.open(opening, consumer)
            self.activity.served(subscription)
        elif creating is not None:
            creating.waiting.append(opening)
        elif opening.first_index is None:
            error = SubscriptionNotFound(f"the topic has no subscription {opening.subscription}: create it first")
        elif (full := self._refuse_creation(opening.role)) is not None:
            error = full
        elif not self._trims.holds(opening):
            self._create(opening, opening.first_index, opening.type).waiting.append(opening)
        if error is not None:
            self._step.emit(AnswerSubscribe(opening.call, error))

    def _create(
        self, request: ConsumerOpening | CreateRequested | GroupChange, first_index: int, type_: SubscriptionType
    ) -> CreateToken:
        first_index = max(self.log.first_index, min(first_index, self.log.next_index))
        number, self._next_number = self._next_number, SubscriptionNumber(self._next_number + 1)
        properties = request.properties if isinstance(request, ConsumerOpening | CreateRequested) else ()
        change = SubscriptionCreated(
            number, self._new_id(), request.subscription, type_, first_index, request.role, properties
        )
        token = self._creating[request.subscription] = CreateToken(change)
        self._append(change, token)
        return token

    def _refuse_creation(self, role: str) -> OncelogError | None:
        existing = (subscription.state.role for subscription in self._subscriptions.values())
        return refuse_creation([*existing, *(token.change.role for token in self._creating.values())], role)

    def _create_for_admin(self, event: CreateRequested) -> None:
        number = self._state.names.get(event.subscription)
        error: OncelogError | None = None
        if self._draining:
            error = moved()
        elif number is not None and number in self._deleting:
            error = ServiceUnavailable("a subscription of this name is being deleted: try again")
        elif number is not None or event.subscription in self._creating:
            error = Conflict(f"subscription {event.subscription} exists already")
        elif (full := self._refuse_creation(event.role)) is not None:
            error = full
        elif not self._trims.holds(event):
            self._create(event, event.first_index, SubscriptionType.EXCLUSIVE).call = event.call
        if error is not None:
            self._step.emit(AnswerAdmin(event.call, error))

    def _abandon(self, call: int) -> None:
        for waiting in self._waiting():
            waiting[:] = [each for each in waiting if each.call != call]
        self._trims.abandon(call)
        for subscription in self._subscriptions.values():
            subscription.attachments.abandon(call)

    def _waiting(self) -> list[list[ConsumerOpening | GroupRequest]]:
        """The requests that wait for a creation or a deletion."""
        creating = [token.waiting for token in self._creating.values()]
        return creating + [token.waiting for token in self._deleting.values()]

    # --- administration, groups ---------------------------------------------------------------------------------------

    def _administer(self, event: ChangeRequest) -> None:
        number = self._state.names.get(event.subscription) if isinstance(event, DeleteRequested) else event.number
        subscription = None if number is None else self._subscriptions.get(number)
        error: OncelogError | None = None
        if self._draining:
            error = moved()
        elif subscription is None:
            error = SubscriptionNotFound("the topic has no such subscription")
        elif subscription.state.number in self._deleting:
            error = SubscriptionGone("the subscription is being deleted")
        if error is not None or subscription is None:
            self._step.emit(refused(event, error or moved()))
            return
        self._touch(subscription)
        match event:
            case SeekRequested():
                if not self._trims.holds(event):
                    subscription.seeking.request(event)
            case DeleteRequested():
                self._delete(subscription, event)
            case PropertiesRequested() | SkipRequested() | RebindRequested():
                subscription.administer(event)

    def _delete(self, subscription: Subscription, event: DeleteRequested) -> None:
        error = subscription.committing.refuse_deletion(event)
        if error is not None:
            self._step.emit(AnswerAdmin(event.call, error))
            return
        number = subscription.state.number
        token = self._deleting[number] = DeleteToken(number, event.call)
        self._append(SubscriptionDeleted(number), token)

    def _of_a_group(self, event: GroupRequest) -> None:
        number = self._state.names.get(event.subscription)
        subscription = None if number is None else self._subscriptions.get(number)
        error: OncelogError | None = None
        if self._draining:
            error = moved()
        elif not self._has_room():
            error = no_room()
        elif self._trims.holds(event):
            return
        elif event.subscription in self._creating:
            self._creating[event.subscription].waiting.append(event)
        elif number in self._deleting:
            self._deleting[number].waiting.append(event)
        elif subscription is not None:
            self._touch(subscription)
            subscription.committing.request(event)
        elif isinstance(event, OffsetAsked) or (isinstance(event, GenerationRaiseRequested) and not event.create):
            self._step.emit(AnswerAdmin(event.call))
        else:
            error = refuse_offset(event, self.log) or self._refuse_creation(event.role)
            if error is None:
                first_index = event.offset if isinstance(event, OffsetCommitRequested) else self.log.next_index
                self._create(event, first_index, SubscriptionType.FAILOVER).waiting.append(event)
        if error is not None:
            self._step.emit(AnswerAdmin(event.call, error))

    def evict(self, number: SubscriptionNumber, ranges: tuple[IndexRange, ...], reason: EvictionReason) -> None:
        """Messages are acknowledged because of their age or of a backlog quota."""
        subscription = self._subscriptions.get(number)
        if subscription is not None and number not in self._deleting:
            self._touch(subscription)
            subscription.evict(ranges, reason)

    def skip_below(self, index: int) -> None:
        """Messages below an index are acknowledged in every subscription. Asked again until that is durable."""
        for number, subscription in self._subscriptions.items():
            if number not in self._deleting and subscription.state.acks.mark_delete < index:
                self._touch(subscription)
                subscription.skip_below(index)

    # --- the ack log's answers --------------------------------------------------------------------------------------

    def settled(self, tokens: list[object]) -> None:
        """These changes are durable and folded, in this order."""
        judged: dict[SubscriptionNumber, Subscription] = {}
        for each in tokens:
            match each:
                case CreateToken():
                    self._created(each)
                case DeleteToken():
                    self._deleted(each)
                case Routed(number, token):
                    subscription = self._subscriptions.get(number)
                    if subscription is not None:
                        self._touch(subscription)
                        subscription.settled(token)
                        judged[number] = subscription
        for subscription in judged.values():
            subscription.all_settled()
            self._limits.judge(subscription)
        self._limits.look_for_room()

    def _created(self, token: CreateToken) -> None:
        del self._creating[token.change.name]
        if token.change.number in self._state.subscriptions:
            self._add(token.change.number, taken_over=False)
        if token.call is not None:
            self._step.emit(AnswerAdmin(token.call))
        first = token.waiting[0] if token.waiting and token.call is None else None
        if isinstance(first, ConsumerOpening):
            token.waiting[0] = replace(first, is_creator=True)
        for each in token.waiting:
            self.handle(each)

    def _deleted(self, token: DeleteToken) -> None:
        del self._deleting[token.number]
        subscription = self._subscriptions.pop(token.number)
        self.activity.forget(token.number)
        subscription.end(SubscriptionGone("the subscription was deleted: subscribe again to begin a new one"))
        self._step.emit(AnswerAdmin(token.call))
        for each in token.waiting:
            self.handle(each)

    def dropped(self, tokens: list[object]) -> None:
        """These changes were not written, and nothing that was appended after them was."""
        error = ServiceUnavailable("the change was not written: try again")
        of_subscriptions: dict[SubscriptionNumber, list[object]] = {}
        again: list[ConsumerOpening | GroupRequest] = []
        for each in tokens:
            match each:
                case CreateToken():
                    del self._creating[each.change.name]
                    for event in each.waiting:
                        self._step.emit(refused(event, error))
                    if each.call is not None:
                        self._step.emit(AnswerAdmin(each.call, error))
                case DeleteToken():
                    del self._deleting[each.number]
                    self._step.emit(AnswerAdmin(each.call, error))
                    again += each.waiting
                case Routed(number, token):
                    of_subscriptions.setdefault(number, []).append(token)
        self._next_number = self._state.next_number
        for number, dropped in of_subscriptions.items():
            subscription = self._subscriptions.get(number)
            if subscription is not None:
                self._touch(subscription)
                subscription.dropped(dropped)
        for event in again:
            self.handle(event)

    # --- limits of the ack state --------------------------------------------------------------------------------------

    def set_ack_state_limit(self, ack_limit: AckStateCheck) -> None:
        """The policy has changed."""
        self._limits.check = ack_limit
        self.check_all()

    def check_all(self) -> None:
        """Decide for each subscription whether new messages are withheld: at load, when the policy changes, and when
        the ack log cannot be written, or can be again."""
        for subscription in self._subscriptions.values():
            self._touch(subscription)
            self._limits.judge(subscription)
        self._limits.look_for_room()

    # --- the log ------------------------------------------------------------------------------------------------------

    def messages_end(self, next_index: int) -> None:
        """The durable end of the log moved."""
        self.log.next_index = next_index
        self.activity.messages_arrived()

    def steps_back_to(self) -> int | None:
        """The lowest place of a creation, seek or commit in flight: no trim begins above it. None: there is none."""
        places = [token.change.first_index for token in self._creating.values()]
        for subscription in self._subscriptions.values():
            steps = (subscription.seeking.index, subscription.committing.step_back)
            places += [index for index in steps if index is not None]
        return min(places, default=None)

    def trim_began(self, below: int) -> None:
        """A trim of messages below an index is in flight: steps back below it wait."""
        self._trims.close(below)

    def trim_ended(self, first_index: int) -> None:
        """The trim is over; the topic begins at `first_index`."""
        self.log.first_index = first_index
        for event in self._trims.open():
            self.handle(event)

    # --- of each step -------------------------------------------------------------------------------------------------

    def tick(self) -> None:
        """Time has passed. Costs nothing for subscriptions that wait for nothing."""
        self.activity.tick()

    def end_step(self) -> None:
        """Deliver what this step has made possible."""
        for subscription in self.activity.take_touched():
            subscription.deliver()

    def drain(self) -> None:
        """Nothing new is taken or delivered; what is in flight will be answered."""
        self._draining = True
        for subscription in self._subscriptions.values():
            subscription.close()

    def end(self, error: OncelogError) -> None:
        """The topic is not served here any more: every consumer's stream ends. What waits was not written."""
        self._draining = True
        for waiting in self._waiting():
            for each in waiting:
                self._step.emit(refused(each, error))
        for deleting in self._deleting.values():
            self._step.emit(AnswerAdmin(deleting.call, outcome_unknown()))
        for creating in self._creating.values():
            if creating.call is not None:
                self._step.emit(AnswerAdmin(creating.call, outcome_unknown()))
        for event in self._trims.take():
            self._step.emit(refused(event, error))
        self._creating.clear()
        self._deleting.clear()
        for subscription in self._subscriptions.values():
            subscription.end(error)

    def check_invariants(self) -> None:
        for subscription in self._subscriptions.values():
            subscription.check_invariants()
