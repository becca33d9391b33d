"""Planted bugs of the half of the system that consumes, each found by its first seed of the consuming simulation."""

from dataclasses import replace
from functools import partial
from typing import Any

from pyroaring import BitMap64

from oncelog.core.acks.index_ranges import bits_of
from oncelog.core.delivery import attachments
from oncelog.core.delivery.acknowledging import Acknowledging
from oncelog.core.delivery.activation import Activation
from oncelog.core.delivery.attachments import Attachments
from oncelog.core.delivery.credit import Credit
from oncelog.core.delivery.dead_letters import DeadLetters
from oncelog.core.delivery.events import AckRequested, AnswerAck, ConsumerActive, ConsumerOpening
from oncelog.core.delivery.key_shared import KeyShared
from oncelog.core.delivery.outstanding import Outstanding
from oncelog.core.delivery.redelivery import Redeliveries
from oncelog.core.delivery.subscriptions import Subscriptions
from oncelog.core.errors import ConsumerBusy, StaleSeekEpoch
from oncelog.core.policies import retention_rules as retention
from oncelog.core.policies.retention_rules import trim_of
from oncelog.core.sdk.consumer import session as consumer_session
from oncelog.core.sdk.consumer.requests import PendingRequests
from oncelog.core.sdk.owner_attempts import OwnerAttempts
from oncelog.core.stream_budget import StreamBudget, StreamOutbox
from tests.simulation.consuming import expiry
from tests.simulation.consuming.owner import Ownership, Parts, Rules
from tests.simulation.consuming.run import run
from tests.simulation.planted_bug import Mutant

ConsumingMutant = partial(Mutant, runs=run)

_append, _refusal = Acknowledging.append, Acknowledging.refusal
_open, _choose = Subscriptions._open, Activation.choose
_stream_lost = PendingRequests.stream_lost
_refusal_to_attach = Attachments._refusal


def _answered_at_once(acks: Acknowledging, consumer: Any, event: Any) -> None:
    _append(acks, consumer, event)
    acks._context.step.emit(AnswerAck(consumer.number, event.request))


def _acknowledged_up_to_the_end(acks: Acknowledging, consumer: Any, request: int) -> None:
    acks._context.step.emit(AnswerAck(consumer.number, request, acked_below=acks._log.next_index))


def _any_epoch(acks: Acknowledging, event: Any, type_: Any) -> Any:
    refused = _refusal(acks, event, type_)
    return None if isinstance(refused, StaleSeekEpoch) else refused


def _any_generation(acks: Acknowledging, event: Any, type_: Any) -> Any:
    if isinstance(event, AckRequested):
        event = replace(event, generation=acks._context.state.generation)
    return _refusal(acks, event, type_)


def _active_at_once(grants: Activation) -> None:
    """Tells the consumer before its grant is durable."""
    before = grants.granting
    _choose(grants)
    token = grants.granting
    if token is not None and token is not before:
        if grants.active is not None:
            grants.active.generation = type(token.generation)(0)
            grants._deposed(grants.active)
        grants.active, token.consumer.generation = token.consumer, token.generation
        if token.consumer.answered:
            grants._context.step.emit(ConsumerActive(token.consumer.number, token.generation))


def _busy_while_it_may_return(attachments: Attachments, opening: ConsumerOpening, former: Any) -> Any:
    refused = _refusal_to_attach(attachments, opening, former)
    return ConsumerBusy("its holder may return") if attachments._waits_for_holder(opening) else refused


def _grants_what_was_overtaken(attachments: Attachments, opening: ConsumerOpening, former: Any) -> Any:
    return _refusal_to_attach(attachments, replace(opening, call=1 << 60), former)


def _with_what_is_in_flight(ownership: Ownership) -> int:
    """Counts acknowledgements in flight."""
    bounds = [ownership.core.log.next_index]
    for subscription in ownership.core:
        at = subscription.state.acks.mark_delete
        while subscription.state.acks.contains(at) or at in subscription._context.deliverable.hidden:
            at += 1
        bounds.append(at)
    return min(bounds)


def _beside_a_step_back(ownership: Ownership) -> int:
    needed = ownership.state.first_needed
    return ownership.core.log.next_index if needed is None else needed


def _numbered_in_memory(letters: DeadLetters, index: int, topic_id: Any) -> None:
    state = letters._context.state
    number = letters._next.get(topic_id, 0)
    before, state.dead_letter_next = state.dead_letter_next, {topic_id: number}
    try:
        _number(letters, index, topic_id)
    finally:
        state.dead_letter_next = before


_number = DeadLetters._number


def _without_redelivery(redeliveries: Redeliveries, *, paused: bool) -> None:
    """Holes that a consumer holds get no time-out, and delays go on."""
    redeliveries._context.deliverable.paused = paused


def _counted(credit: Credit, *, handed_out: int, window: int) -> None:
    """Each report adds what was handed out since, and the window of the first one."""
    former = getattr(credit, "handed_out", 0)
    credit.window = max(credit.window, window) + max(0, handed_out - former)
    credit.handed_out = handed_out


def _any_subscription_of_the_name(topic: Subscriptions, opening: ConsumerOpening) -> None:
    number = topic._state.names.get(opening.subscription)
    if opening.resume is not None and number is not None:
        subscription_id = topic._state.subscriptions[number].subscription_id
        opening = replace(opening, resume=replace(opening.resume, subscription_id=subscription_id))
    _open(topic, opening)


def _same_id(_: Parts) -> str:
    return "ab" * 16


def _any_receiver(keys: KeyShared, index: int, slot: int, entry: Any, picks: Any) -> Any:
    consumers = keys._context.consumers
    return (
        next((c for c in consumers.by_number.values() if picks.may_take(c, entry)), None)
        if index not in keys._context.deliverable.hidden
        else None
    )


def _forgets_acknowledgements(pending: PendingRequests) -> Any:
    settled = _stream_lost(pending)
    pending.acks.clear()
    return settled


def _whatever_is_needed(*given: Any, first_needed: Any, **others: Any) -> Any:
    return trim_of(*given, first_needed=None, **others)


def _oldest_decides(entries: Any, *, ttl_ms: int, now_ms: int) -> int | None:
    """All messages expire with the oldest one."""
    known = list(entries)
    return known[-1][0] if known and now_ms - known[0][1] >= ttl_ms else None


def _room_between_frames_only(outbox: StreamOutbox, waiter: Any) -> bool:
    """A stream is asked for room when its client reports, and not for each entry."""
    return _ask(outbox, waiter) or bool(outbox.bytes)


_ask = StreamOutbox.ask


def _timed_in_the_window(out: Outstanding, ranges: Any, now_ms: int) -> None:
    """The ack time-out runs from the delivery to the consumer."""
    _added(out, ranges, now_ms)
    out.begin(out.begun | bits_of(ranges), now_ms)


_added = Outstanding.add


def _alone_again(redeliveries: Redeliveries, consumer: Any, expired: Any) -> None:
    """Also where delivery is in order, a timed-out message comes again without those behind it."""
    redeliveries._append(expired, consumer.out.counted, consumer=consumer)


def _kept_over_a_seek(letters: DeadLetters, *, written: bool) -> None:
    letters.work()


def _none(*_: Any) -> Any:
    return BitMap64()


def _always(value: Any) -> Any:
    return lambda *_, **__: value


def _keeps_lower(attempts: OwnerAttempts, owner_epoch: Any) -> bool:
    attempts.owner_epoch = max(attempts.owner_epoch, owner_epoch)
    return True


CONSUMING_MUTANTS = (
    ConsumingMutant(
        "ack answered before it is durable", "failed-ack-write", 0,
        ((Acknowledging, "append", _answered_at_once),),
    ),
    ConsumingMutant("seek without epoch", "late-ack-after-seek", 10, ((Acknowledging, "refusal", _any_epoch),)),
    ConsumingMutant("grant not durable", "activation-not-durable", 2, ((Activation, "choose", _active_at_once),)),
    ConsumingMutant(
        "busy with a holder that may return", "activation-not-durable", 3,
        ((Attachments, "_refusal", _busy_while_it_may_return),),
    ),
    ConsumingMutant(
        "a request that was overtaken is granted", "activation-not-durable", 163,
        ((Attachments, "_refusal", _grants_what_was_overtaken),),
    ),
    ConsumingMutant(
        "consumers wait for long after a takeover", "delivered-while-held", 63,
        ((attachments, "RETURN_WAIT_MS", 20_000),),
    ),
    ConsumingMutant(
        "delivery counts forgotten", "wrong-delivery-count", 0,
        ((Redeliveries, "deliveries", _always(0)),),
    ),
    ConsumingMutant("a key handed over early", "key-moves-too-early", 0, ((KeyShared, "_receiver", _any_receiver),)),
    ConsumingMutant(
        "trim from the layer in flight", "failed-ack-write", 5,
        rules=Rules(trim_bound=_with_what_is_in_flight),
    ),
    ConsumingMutant("trim beside a step back", "seek-below-a-trim", 20, rules=Rules(trim_bound=_beside_a_step_back)),
    ConsumingMutant(
        "step back beside a trim", "seek-below-a-trim", 54,
        ((Subscriptions, "trim_began", _always(None)),),
    ),
    ConsumingMutant(
        "retention ignores subscriptions", "seek-below-a-trim", 160,
        ((expiry, "trim_of", _whatever_is_needed),),
    ),
    ConsumingMutant(
        "a clock that is ahead decides", "wrong-clock-expires", 169,
        rules=Rules(clock_agrees=_always(True)),
    ),
    ConsumingMutant(
        "messages expire with the oldest one", "wrong-clock-expires", 168,
        ((expiry, "expired_below", _oldest_decides),),
    ),
    ConsumingMutant(
        "quota evicts the whole backlog", "full-disk-refuses-acks", 160,
        ((retention, "EVICT_PERCENT", 0),),
    ),
    ConsumingMutant(
        "pause without redelivery", "dispatch-paused-for-ever", 129,
        ((Redeliveries, "pause", _without_redelivery),),
    ),
    ConsumingMutant(
        "full state keeps its lowest hole in memory", "ack-state-at-its-limit", 120,
        ((Acknowledging, "write_lowest", _always(None)),),
    ),
    ConsumingMutant(
        "dead-letter number in memory", "dead-letter-number-lost", 7,
        ((DeadLetters, "_number", _numbered_in_memory),),
    ),
    ConsumingMutant("credit as a counter", "relative-credit", 0, ((Credit, "report", _counted),)),
    ConsumingMutant(
        "recreated subscription under an old id", "recreated-subscription", 1, ((Parts, "new_id", _same_id),)
    ),
    ConsumingMutant("ack log not fenced", "deposed-owner-acks", 12, rules=Rules(fence=_always(None))),
    ConsumingMutant(
        "frames of a deposed owner are taken", "deposed-owner-delivers", 17,
        ((OwnerAttempts, "believes", _keeps_lower),),
    ),
    ConsumingMutant(
        "acknowledgements are forgotten with their stream", "delivered-while-held", 0,
        ((PendingRequests, "stream_lost", _forgets_acknowledgements),),
    ),
    ConsumingMutant(
        "cumulative ack over an own negative one", "former-consumer-acks", 2,
        ((consumer_session, "up_to_nacked", lambda request, _: request),),
    ),
    ConsumingMutant(
        "more is reported as acknowledged than is", "former-consumer-acks", 2,
        ((Acknowledging, "_answer", _acknowledged_up_to_the_end),),
    ),
    ConsumingMutant(
        "room is asked for once a frame", "unread-windows", 201,
        ((StreamOutbox, "ask", _room_between_frames_only),),
    ),
    ConsumingMutant(
        "the wake-up of a stream is lost", "unread-windows", 201,
        ((StreamBudget, "join_line", _always(None)),),
    ),
    ConsumingMutant(
        "a stream that ends keeps its part", "unread-windows", 205,
        ((StreamOutbox, "close", _always(None)),),
    ),
    ConsumingMutant(
        "cumulative ack of a former generation", "former-consumer-acks", 123,
        ((Acknowledging, "refusal", _any_generation),),
    ),
    ConsumingMutant(
        "ack time-out in the window", "timeout-in-the-window", 4,
        ((Outstanding, "add", _timed_in_the_window),),
    ),
    ConsumingMutant(
        "time-out returns one message alone", "timeout-in-the-window", 532,
        ((Redeliveries, "_from_there_on", _alone_again),),
    ),
    ConsumingMutant(
        "report of a former delivery starts a time", "timeout-in-the-window", 200,
        ((Outstanding, "came_again", _always(None)),),
    ),
    ConsumingMutant(
        "wanted dead letters survive a seek", "late-ack-after-seek", 468,
        ((DeadLetters, "seek", _always(None)), (DeadLetters, "sought", _kept_over_a_seek)),
    ),
    ConsumingMutant(
        "repeated negative ack counts again", "nack-counted-twice", 61,
        ((Redeliveries, "_answered_before", _none), (Redeliveries, "counted_before", _none)),
    ),
)  # fmt: skip
