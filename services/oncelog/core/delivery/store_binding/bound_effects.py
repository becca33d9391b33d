"""What the consumers of one subscription ask about its effects: where the log is, and that the store is bound.

    BindRequested -> EffectsBound in flight -> durable: answered, or refused if another store was written first
                                            -> dropped: answered with a retriable error
    RebindRequested -> EffectsBound in flight, the same; meanwhile no consumer attaches

All consumers of a subscription keep its effects in the same store, or none does: one that keeps none would acknowledge
messages without effects (hazard consumer-without-effects). So a subscription gets another store only while it has no
consumers (hazard store-changed-under-a-consumer). Rewinds: see `seeking`.
"""

from dataclasses import dataclass

from oncelog.core.acks.changes import EffectsBound
from oncelog.core.delivery.acknowledging import refuse_epoch, refuse_generation
from oncelog.core.delivery.consumers import ConnectedConsumer
from oncelog.core.delivery.context import Context, outcome_unknown
from oncelog.core.delivery.deliverable import LogRange
from oncelog.core.delivery.events import (
    AnswerAck,
    AnswerAdmin,
    ConsumerOpening,
)
from oncelog.core.delivery.store_binding.events import (
    REASON_MAX,
    AnswerEffects,
    BindRequested,
    DeadLetterRequested,
    EffectsAsked,
    RebindRequested,
    RewindRequested,
    SubscriptionEffects,
)
from oncelog.core.errors import (
    Conflict,
    ConsumerFenced,
    InvalidArgument,
    OncelogError,
    ServiceUnavailable,
    StoreMismatch,
)

#: Ranges of consumed messages in one answer, and of one rewind.
EFFECTS_RANGES_MAX = 10_000


@dataclass(slots=True, eq=False)
class BindToken:
    """An EffectsBound in flight."""

    consumer: ConnectedConsumer
    request: int


@dataclass(slots=True, eq=False)
class RebindToken:
    """The EffectsBound of an administrator in flight."""

    call: int
    store_id: str


def refuse_store(context: Context, opening: ConsumerOpening) -> OncelogError | None:
    """Why a consumer with this store must not attach; None: it may."""
    binding, store = context.state.binding, (opening.store_id, opening.effect)
    if bool(opening.store_id) != bool(opening.effect):
        return InvalidArgument("a store of effects and the name of the effect are given together", field="effect")
    if opening.store_id and opening.max_deliveries:
        message = "the store of the effects decides on dead letters: max_deliveries must be 0"
        return InvalidArgument(message, field="max_deliveries", limit=0)
    if binding is not None and store != (binding.store_id, binding.effect):
        return _other_store(binding.store_id, binding.effect, opening)
    if context.rebinding:
        return ServiceUnavailable("the subscription is being bound to another store: try again")
    others = (each.opening for each in context.consumers.by_number.values())
    if any((each.store_id, each.effect) != store for each in others if each.instance_id != opening.instance_id):
        return StoreMismatch("the subscription has consumers that keep its effects elsewhere, or keep none")
    return None


def _other_store(store_id: str, effect: str, opening: ConsumerOpening) -> StoreMismatch:
    bound = f"the effects of the subscription are those of {effect} in store {store_id}"
    if not opening.store_id:
        return StoreMismatch(
            f"{bound}; this consumer has no store, and would acknowledge messages without an effect. To read them, use "
            "`oncelog read`, `oncelog admin subscriptions peek`, or another subscription"
        )
    return StoreMismatch(
        f"{bound}; this program has those of {opening.effect} in store {opening.store_id}. Start it with that store "
        "and effect, or with another subscription. A database that replaces the former one: `oncelog effects rebind`. "
        "Files are another store without their PATH.oncelog.id; TopicEffects, if the list of outputs or fanout_max was "
        "changed, or an output was deleted and created again"
    )


class BoundEffects:
    """Answers for one subscription."""

    def __init__(self, context: Context, log: LogRange) -> None:
        self._context = context
        self._log = log
        self._rebind: RebindToken | None = None

    def ask(self, event: EffectsAsked) -> None:
        self._context.step.emit(AnswerEffects(event.consumer, event.request, self.known(event.from_index)))

    def known(self, from_index: int) -> SubscriptionEffects:
        """What the log has durably; consumed messages from this index on."""
        state, binding = self._context.state, self._context.state.binding
        consumed = [] if binding is None else binding.consumed.ranges(from_index, EFFECTS_RANGES_MAX + 1)
        return SubscriptionEffects(
            number=state.number,
            store_id="" if binding is None else binding.store_id,
            effect="" if binding is None else binding.effect,
            seek_epoch=state.seek_epoch,
            redo_epoch=state.redo_epoch,
            redo_index=state.redo_index,
            generation=state.generation,
            mark_delete=state.mark_delete,
            first_index=self._log.first_index,
            next_index=self._log.next_index,
            known_from=state.mark_delete if binding is None else binding.consumed.known_from,
            forgotten_below=0 if binding is None else binding.consumed.forgotten_below,
            consumed=tuple(consumed[:EFFECTS_RANGES_MAX]),
            complete=len(consumed) <= EFFECTS_RANGES_MAX,
        )

    def refusal(
        self, consumer: ConnectedConsumer, event: BindRequested | RewindRequested | DeadLetterRequested
    ) -> OncelogError | None:
        """Why the request is void; None: it is not."""
        if not consumer.opening.store_id:
            return InvalidArgument("the consumer was attached without a store of effects", field="store_id")
        if isinstance(event, RewindRequested) and not 1 <= len(event.ranges) <= EFFECTS_RANGES_MAX:
            message = f"a rewind names 1 to {EFFECTS_RANGES_MAX} ranges, not {len(event.ranges)}"
            return InvalidArgument(message, field="ranges", limit=EFFECTS_RANGES_MAX)
        if isinstance(event, BindRequested) and event.forgotten_below > self._context.state.mark_delete:
            message = f"messages from {self._context.state.mark_delete} on are not all acknowledged"
            return InvalidArgument(message, field="forgotten_below", limit=self._context.state.mark_delete)
        if isinstance(event, DeadLetterRequested):
            if not consumer.opening.dead_letter_topic:
                message = "the consumer was attached without a dead-letter topic"
                return InvalidArgument(message, field="dead_letter_topic")
            if not 0 <= event.index < self._log.next_index:
                message = f"the topic has messages up to {self._log.next_index - 1}, not {event.index}"
                return InvalidArgument(message, field="index", limit=self._log.next_index - 1)
            if len(event.reason) > REASON_MAX:
                message = f"the reason has {len(event.reason)} characters"
                return InvalidArgument(message, field="reason", limit=REASON_MAX)
        return refuse_epoch(self._context, event.seek_epoch) or refuse_generation(self._context, event.generation)

    def bind(self, consumer: ConnectedConsumer, event: BindRequested) -> None:
        """A request that was not refused."""
        state, opening = self._context.state, consumer.opening
        if state.binding is not None and state.binding.consumed.known_from >= event.forgotten_below:
            self._answer(consumer, event.request, None)  # it is as asked for
            return
        change = EffectsBound(
            state.number, event.seek_epoch, event.generation, opening.store_id, opening.effect, event.forgotten_below,
            rebind=False,
        )  # fmt: skip
        self._context.append(change, BindToken(consumer, event.request))

    def rebind(self, event: RebindRequested, *, used: bool) -> None:
        """used: whether consumers are connected, or wait to be."""
        state, binding = self._context.state, self._context.state.binding
        error: OncelogError | None = None
        if binding is None:
            error = Conflict(
                "the subscription has no store of effects yet: the first program with effects binds its own"
            )
        elif used:
            error = Conflict("the subscription has connected consumers: stop the programs, and try again")
        elif self._rebind is not None:
            error = ServiceUnavailable("the subscription is being bound to another store: try again")
        if error is not None or binding is None or binding.store_id == event.store_id:
            self._context.step.emit(AnswerAdmin(event.call, error))
            return
        self._rebind = RebindToken(event.call, event.store_id)
        self._context.rebinding = True
        change = EffectsBound(
            state.number, state.seek_epoch, state.generation, event.store_id, binding.effect, forgotten_below=0,
            rebind=True,
        )  # fmt: skip
        self._context.append(change, self._rebind)

    def rebound(self, token: RebindToken, *, written: bool) -> None:
        """The change is durable, unless the fold has ignored it; or it was dropped."""
        binding = self._context.state.binding
        done = written and binding is not None and binding.store_id == token.store_id
        self._end_rebind(None if done else ServiceUnavailable("the store was not changed: try again"))

    def end(self) -> None:
        """The outcome of a change in flight is unknown."""
        if self._rebind is not None:
            self._end_rebind(outcome_unknown())

    def _end_rebind(self, error: OncelogError | None) -> None:
        token, self._rebind = self._rebind, None
        self._context.rebinding = False
        if token is not None:
            self._context.step.emit(AnswerAdmin(token.call, error))

    def settled(self, token: BindToken) -> None:
        """The change is durable, and the fold may have ignored it."""
        binding, opening = self._context.state.binding, token.consumer.opening
        error: OncelogError | None = None
        if binding is None:
            error = ConsumerFenced("the subscription was sought, or another consumer is active since")
        elif (binding.store_id, binding.effect) != (opening.store_id, opening.effect):
            error = refuse_store(self._context, opening)
        self._answer(token.consumer, token.request, error)

    def dropped(self, token: BindToken) -> None:
        self._answer(token.consumer, token.request, ServiceUnavailable("the store was not bound: try again"))

    def _answer(self, consumer: ConnectedConsumer, request: int, error: OncelogError | None) -> None:
        if self._context.consumers.connected(consumer):
            self._context.step.emit(AnswerAck(consumer.number, request, error))
