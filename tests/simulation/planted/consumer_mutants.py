"""Planted bugs of the half of the system that consumes, each found by a run with consumers or by a test of its core.

A test of the core finds those that need a coincidence of time-outs, seeks and policies which one run in hundreds has.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from pyroaring import BitMap64

from oncelog.core.acks.index_ranges import bits_of
from oncelog.core.delivery import attachments
from oncelog.core.delivery.acknowledging import Acknowledging
from oncelog.core.delivery.activation import Activation
from oncelog.core.delivery.attachments import Attachments
from oncelog.core.delivery.credit import Credit
from oncelog.core.delivery.dead_letters import DeadLetters
from oncelog.core.delivery.events import AckRequested, AnswerAck, ConsumerActive, ConsumerOpening, DeliverMessages
from oncelog.core.delivery.key_shared import KeyShared
from oncelog.core.delivery.outstanding import Outstanding
from oncelog.core.delivery.redelivery import Redeliveries
from oncelog.core.delivery.subscriptions import Subscriptions
from oncelog.core.errors import ConsumerBusy, StaleSeekEpoch
from oncelog.core.policies import retention_rules
from oncelog.core.policies.retention_rules import ClockCheck, trim_of
from oncelog.core.retention import topic_retention
from oncelog.core.retention.topic_retention import TopicRetention
from oncelog.core.sdk.consumer import session as consumer_session
from oncelog.core.sdk.consumer.events import FlushEnded, MessageRange
from oncelog.core.sdk.consumer.flushes import Flushes
from oncelog.core.sdk.consumer.messages import ReceivedMessages
from oncelog.core.sdk.consumer.requests import PendingRequests
from oncelog.core.sdk.owner_attempts import OwnerAttempts
from oncelog.core.stream_budget import StreamBudget, StreamOutbox
from oncelog.core.topic.topic import Topic
from tests.core.delivery.test_delivery_stories import test_story
from tests.core.delivery.test_subscription import test_request_to_attach_that_was_overtaken_ends_no_newer_stream
from tests.core.retention.test_topic_space import (
    test_clock_that_disagrees_with_zookeepers_deletes_nothing,
    test_expired_messages_count_as_acknowledged,
)
from tests.core.sdk.test_consumer_cumulative import (
    test_newer_delivery_that_nobody_received_does_not_void_a_negative_acknowledgement,
)
from tests.core.sdk.test_consumer_deliveries import test_newer_delivery_takes_the_place_of_one_that_waits
from tests.core.sdk.test_consumer_flush import test_flush_waits_for_every_acknowledgement_before_it
from tests.core.sdk.test_consumer_session import test_frame_of_a_lower_owner_epoch_is_refused
from tests.simulation.planted.planted_bug import Mutant
from tests.simulation.servers.owners.ownership_proofs import OwnershipWatch

_append, _refusal = Acknowledging.append, Acknowledging.refusal
_open, _choose = Subscriptions._open, Activation.choose
_stream_lost = PendingRequests.stream_lost
_refusal_to_attach, _kept = Attachments._refusal, Attachments._kept


def _answered_at_once(acks: Acknowledging, consumer: Any, event: Any) -> None:
    _append(acks, consumer, event)
    acks._context.step.emit(AnswerAck(consumer.number, event.request))


def _acknowledged_up_to_the_end(acks: Acknowledging, consumer: Any, request: int) -> None:
    acks._context.step.emit(AnswerAck(consumer.number, request, acked_below=acks._log.next_index))


def _given_up_to_an_eviction(attachments: Attachments, held: Any, own: BitMap64) -> BitMap64:
    """What an acknowledgement in flight hides does not stay with a consumer that reconnects."""
    return _kept(attachments, held, own - attachments._context.deliverable.hidden)


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


def _with_what_is_in_flight(retention: TopicRetention) -> int | None:
    """Counts acknowledgements in flight."""
    bounds = []
    for subscription in retention._subscriptions:
        at, acks = subscription.state.acks.mark_delete, subscription.state.acks
        while at < retention._subscriptions.log.next_index and (
            acks.contains(at) or at in subscription._context.deliverable.hidden
        ):
            at += 1
        bounds.append(at)
    return min(bounds, default=None)


def _numbered_in_memory(letters: DeadLetters, index: int, topic_id: Any) -> None:
    state = letters._context.state
    number = letters._next.get(topic_id, 0)
    before, state.dead_letter_next = state.dead_letter_next, {topic_id: number}
    try:
        _number(letters, index, topic_id)
    finally:
        state.dead_letter_next = before


_number, _stored = DeadLetters._number, DeadLetters._stored


def _with_those_in_flight(letters: DeadLetters, event: Any) -> None:
    """A change acknowledges again what one in flight acknowledges."""
    publishing, letters._publishing = letters._publishing, {}
    if event.sequence > publishing.get(event.topic_id, -1):
        _stored(letters, event)
    letters._publishing = publishing | letters._publishing


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


def _keep_unknown(keys: KeyShared, bits: BitMap64, _lost: BitMap64) -> BitMap64:
    """A message that nobody has looked at is kept, although an earlier one of its key is with another consumer."""
    return bits - BitMap64([i for i in bits & keys._known if keys._out.get(keys._slot_of[i])])


def _any_receiver(keys: KeyShared, index: int, slot: int, entry: Any, picks: Any) -> Any:
    consumers = keys._context.consumers
    return (
        next((c for c in consumers.by_number.values() if picks.may_take(c, entry)), None)
        if index not in keys._context.deliverable.hidden
        else None
    )


def _void_before_it_is_received(messages: ReceivedMessages, ranges: Any, counts: Any) -> None:
    """A newer delivery that waits, or was taken back, voids a negative acknowledgement of the former one."""
    for first, last in messages._newest(ranges, counts):
        messages.nacked.add(first, last)


def _former_delivery_stays(messages: ReceivedMessages, frame: DeliverMessages) -> None:
    """A message that waits already is handed out as it was delivered before."""
    messages._count(frame)
    for delivered in frame.entries:
        for first, last in delivered.ranges:
            messages.left += last - first + 1
            for part in messages.waiting.gaps(first, last):
                messages.left -= part.last - part.first + 1
                messages._wait(MessageRange(delivered.entry, *part, frame.seek_epoch, frame.generation), frame)


def _ends_at_once(flushes: Flushes, _: int | None) -> list[FlushEnded]:
    ended, flushes._open = [FlushEnded(request) for request in flushes._open], {}
    return ended


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


def _always(value: Any) -> Callable[..., Any]:
    return lambda *_, **__: value


def _keeps_lower(attempts: OwnerAttempts, owner_epoch: Any) -> bool:
    attempts.owner_epoch = max(attempts.owner_epoch, owner_epoch)
    return True


CONSUMER_MUTANTS = (
    Mutant(
        "ack answered before it is durable", "failed-ack-write", 2_000_000,
        ((Acknowledging, "append", _answered_at_once),),
    ),
    Mutant("seek without epoch", "late-ack-after-seek", 2_000_006, ((Acknowledging, "refusal", _any_epoch),)),
    Mutant("grant not durable", "activation-not-durable", 2_000_009, ((Activation, "choose", _active_at_once),)),
    Mutant(
        "busy with a holder that may return", "activation-not-durable", 2_000_002,
        ((Attachments, "_refusal", _busy_while_it_may_return),),
    ),
    Mutant(
        "a request that was overtaken is granted", "activation-not-durable", None,
        ((Attachments, "_refusal", _grants_what_was_overtaken),),
        core_test=test_request_to_attach_that_was_overtaken_ends_no_newer_stream,
    ),
    Mutant(
        "consumers wait for long after a takeover", "delivered-while-held", 2_000_000,
        ((attachments, "RETURN_WAIT_MS", 20_000),),
    ),
    Mutant(
        "delivery counts forgotten", "wrong-delivery-count", 2_000_002,
        ((Redeliveries, "deliveries", _always(0)),),
    ),
    Mutant(
        "unknown keys are kept", "key-moves-too-early", None, ((KeyShared, "may_keep", _keep_unknown),),
        core_test=test_story,
        core_arguments=("key_shared: A consumer keeps no message behind one that another has kept",),
    ),
    Mutant("a key handed over early", "key-moves-too-early", 2_000_000, ((KeyShared, "_receiver", _any_receiver),)),
    Mutant(
        "trim from the layer in flight", "failed-ack-write", 2_000_021,
        ((TopicRetention, "_first_needed", _with_what_is_in_flight),),
    ),
    Mutant(
        "trim beside a step back", "seek-below-a-trim", 2_000_114,
        ((Subscriptions, "steps_back_to", _always(None)),),
    ),
    Mutant(
        "step back beside a trim", "seek-below-a-trim", None,
        ((Subscriptions, "trim_began", _always(None)),),
        core_test=test_story,
        core_arguments=("seeking: A step back waits for a trim in flight",),
    ),
    Mutant(
        "retention ignores subscriptions", "seek-below-a-trim", 2_000_021,
        ((topic_retention, "trim_of", _whatever_is_needed),),
    ),
    Mutant(
        "a clock that is ahead decides", "wrong-clock-expires", None,
        ((ClockCheck, "agrees", _always(True)),),
        core_test=test_clock_that_disagrees_with_zookeepers_deletes_nothing,
    ),
    Mutant(
        "messages expire with the oldest one", "wrong-clock-expires", None,
        ((topic_retention, "expired_below", _oldest_decides),),
        core_test=test_expired_messages_count_as_acknowledged,
    ),
    Mutant(
        "quota evicts the whole backlog", "full-disk-refuses-acks", 2_000_017,
        ((retention_rules, "EVICT_PERCENT", 0),),
    ),
    Mutant(
        # The time-out that ends a pause is longer than many runs.
        "pause without redelivery", "dispatch-paused-for-ever", None,
        ((Redeliveries, "pause", _without_redelivery),), core_test=test_story,
        core_arguments=("pause: Delays end while new messages are withheld",),
    ),
    Mutant(
        "full state keeps its lowest hole in memory", "ack-state-at-its-limit", None,
        ((Acknowledging, "write_lowest", _always(None)),),
        core_test=test_story,
        core_arguments=("pause: The lowest acknowledgements in memory are written although the state is full",),
    ),
    Mutant(
        "dead-letter number in memory", "dead-letter-number-lost", 2_000_002,
        ((DeadLetters, "_number", _numbered_in_memory),),
    ),
    Mutant("credit as a counter", "relative-credit", 2_000_000, ((Credit, "report", _counted),)),
    Mutant(
        "recreated subscription under an old id", "recreated-subscription", 2_000_000,
        ((Topic, "_new_subscription_id", _always("ab" * 16)),),
    ),
    Mutant(
        "frames of a deposed owner are taken", "deposed-owner-delivers", None,
        ((OwnerAttempts, "believes", _keeps_lower),),
        core_test=test_frame_of_a_lower_owner_epoch_is_refused,
    ),
    Mutant(
        "nobody watches for consumers that get nothing", "deposed-owner-delivers", 2_870_378,
        ((OwnershipWatch, "_look", _always(None)),),
    ),
    Mutant(
        "acknowledgements are forgotten with their stream", "delivered-while-held", 2_000_011,
        ((PendingRequests, "stream_lost", _forgets_acknowledgements),),
    ),
    Mutant(
        "a flush ends before it is answered", "flushed-before-applied", None,
        ((Flushes, "ended", _ends_at_once),),
        core_test=test_flush_waits_for_every_acknowledgement_before_it,
    ),
    Mutant(
        "cumulative ack over an own negative one", "former-consumer-acks", 2_000_014,
        ((consumer_session, "up_to_nacked", lambda request, _: request),),
    ),
    Mutant(
        "a newer delivery voids a negative ack before it is received", "former-consumer-acks", None,
        ((ReceivedMessages, "nack", _void_before_it_is_received),),
        core_test=test_newer_delivery_that_nobody_received_does_not_void_a_negative_acknowledgement,
        core_arguments=("waits",),
    ),
    Mutant(
        "more is reported as acknowledged than is", "former-consumer-acks", 2_000_032,
        ((Acknowledging, "_answer", _acknowledged_up_to_the_end),),
    ),
    Mutant(
        "room is asked for once a frame", "unread-windows", 2_000_002,
        ((StreamOutbox, "ask", _room_between_frames_only),),
    ),
    Mutant(
        "the wake-up of a stream is lost", "unread-windows", 2_000_010,
        ((StreamBudget, "join_line", _always(None)),),
    ),
    Mutant(
        "a stream that ends keeps its part", "unread-windows", 2_000_014,
        ((StreamOutbox, "close", _always(None)),),
    ),
    Mutant(
        "cumulative ack of a former generation", "former-consumer-acks", None,
        ((Acknowledging, "refusal", _any_generation),),
        core_test=test_story,
        core_arguments=("acknowledging: A cumulative acknowledgement of a former consumer is fenced",),
    ),
    Mutant(
        "ack time-out in the window", "timeout-in-the-window", 2_000_002,
        ((Outstanding, "add", _timed_in_the_window),),
    ),
    Mutant(
        "time-out returns one message alone", "timeout-in-the-window", None,
        ((Redeliveries, "_from_there_on", _alone_again),),
        core_test=test_story,
        core_arguments=("ack_timeout: Order is kept when the counts of a time-out are dropped",),
    ),
    Mutant(
        "report of a former delivery starts a time", "timeout-in-the-window", None,
        ((Outstanding, "came_again", _always(None)),),
        core_test=test_story,
        core_arguments=("ack_timeout: A report of a former delivery starts no time",),
    ),
    Mutant(
        "wanted dead letters survive a seek", "late-ack-after-seek", None,
        ((DeadLetters, "seek", _always(None)), (DeadLetters, "sought", _kept_over_a_seek)),
        core_test=test_story,
        core_arguments=("dead_letters: A seek voids a dead letter whose number is asked for behind it",),
    ),
    Mutant(
        "dead letters are acknowledged twice", "late-ack-after-seek", 2_066_951,
        ((DeadLetters, "_stored", _with_those_in_flight),),
    ),
    Mutant(
        "repeated negative ack counts again", "nack-counted-twice", 2_000_006,
        ((Redeliveries, "_answered_before", _none), (Redeliveries, "counted_before", _none)),
    ),
    Mutant(
        "a reconnection loses what an eviction in flight hides", "failed-ack-write", 2_967_581,
        ((Attachments, "_kept", _given_up_to_an_eviction),),
    ),
    Mutant(
        "a newer delivery is dropped while a former one waits", "nack-counted-twice", None,
        ((ReceivedMessages, "delivered", _former_delivery_stays),),
        core_test=test_newer_delivery_takes_the_place_of_one_that_waits,
    ),
)  # fmt: skip
