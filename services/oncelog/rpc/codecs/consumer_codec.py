"""Messages of the TopicOwner's consume stream as plain values; consumer.proto describes the fields.

Requests and events are those of the cores (`core/delivery/events`), and keep their order. Received bytes are
untrusted: counts are checked before Python objects are made of them.
"""

import re
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple, cast

from oncelog.core.acks.changes import IndexRange, SubscriptionType
from oncelog.core.delivery.events import (
    AckRequested,
    AnswerAck,
    AnswerSeek,
    AnswerSubscribe,
    ConsumerActive,
    ConsumerDetached,
    ConsumerHeld,
    ConsumerOpening,
    ConsumerWanted,
    DeliveredEntry,
    DeliverMessages,
    EndConsumer,
    FlowReported,
    HeldMessages,
    NackRequested,
    RecallMessages,
    SeekRequested,
    StoredEntry,
    Subscribed,
    SubscriptionSought,
)
from oncelog.core.delivery.store_binding.events import (
    AnswerEffects,
    BindRequested,
    DeadLetterRequested,
    EffectsAsked,
    EffectsRequest,
    RewindRequested,
    SubscriptionEffects,
)
from oncelog.core.errors import InvalidArgument, OncelogError
from oncelog.core.ids import (
    INSTANCE_ID_BYTES,
    ConsumerNumber,
    EntryId,
    Generation,
    LedgerId,
    OwnerEpoch,
    Position,
    SeekEpoch,
    TopicId,
)
from oncelog.rpc.codecs.layout import FAILED, Field, Layout, inside, ranges_of
from oncelog.rpc.frames import Blob, join_frame, parse, parse_request, split_frame
from oncelog.rpc.methods import StreamMethod
from oncelog.rpc.packed_ranges import pack_ranges, unpack_ranges
from oncelog.rpc.status import error_from_wire, error_to_wire
from oncelog.wire import consumer_pb2 as pb

#: Requests or events of one frame.
EVENTS_MAX = 16_384
#: Numbers in the ranges of one frame, two for each range.
RANGE_NUMBERS_MAX = 131_072
PROPERTIES_MAX = 64
#: Names and values of all properties of a subscription, in UTF-8.
PROPERTIES_BYTES_MAX = 16_384
#: Of a topic's name and id, and of each text that an opening carries.
_CHARACTERS_MAX = 1_024
_STORE_ID = re.compile("[0-9a-f]{32}")


class OpenConsumer(NamedTuple):
    """A request to attach to a subscription of this topic. The role is the caller's, and not on the wire."""

    topic: str
    topic_id: TopicId
    opening: ConsumerOpening


class SeekThrough(NamedTuple):
    """A seek of the subscription to which this consumer is attached."""

    consumer: ConsumerNumber
    request: SeekRequested


ConsumerRequest = (
    OpenConsumer | FlowReported | AckRequested | NackRequested | SeekThrough | EffectsRequest | ConsumerDetached
    | ConsumerHeld
)  # fmt: skip
ConsumerReport = (
    AnswerSubscribe | DeliverMessages | AnswerAck | RecallMessages | ConsumerActive | ConsumerWanted
    | SubscriptionSought | AnswerSeek | AnswerEffects | EndConsumer
)  # fmt: skip


class ReportedEvent(NamedTuple):
    """owner_epoch: of the consumer's topic; 0: the topic is not served here."""

    owner_epoch: OwnerEpoch
    report: ConsumerReport


def _check_count(name: str, count: int, limit: int) -> None:
    if count > limit:
        raise InvalidArgument(f"a frame holds {count} {name}, at most {limit}", field=name, limit=limit)


def check_store_id(store_id: str, *, empty: bool = True) -> None:
    """32 hexadecimal digits; or empty, if that is allowed. Raises InvalidArgument."""
    if (store_id or not empty) and not _STORE_ID.fullmatch(store_id):
        raise InvalidArgument("a store id has 32 hexadecimal digits", field="store_id", limit=32)


# --- rows -------------------------------------------------------------------------------------------------------------


def _counts_from_wire(counts: pb.DeliveryCounts) -> dict[int, int]:
    if len(counts.indexes) != len(counts.counts):
        message = f"{len(counts.indexes)} messages have {len(counts.counts)} delivery counts"
        raise InvalidArgument(message, field="delivery_counts")
    return dict(zip(counts.indexes, counts.counts, strict=True))


_RANGES, _BEGUN = ranges_of("ranges"), ranges_of("begun")
_COUNTS = Field("", lambda counts: {"indexes": counts, "counts": counts.values()}, _counts_from_wire)
_NUMBER = Field("subscription_number")
_HELD = Layout(HeldMessages, pb.HeldMessages, ranges=_RANGES, begun=_BEGUN, delivery_counts=_COUNTS)
_OPENING = Layout(
    ConsumerOpening, pb.Subscribe, part=True, local=("role", "outbox", "is_creator", "peer"),
    type=Field("", int, SubscriptionType), resume=inside(_HELD),
    properties=Field(
        "",
        lambda properties: [{"name": name, "value": value} for name, value in properties],
        lambda properties: tuple((each.name, each.value) for each in properties),
    ),
)  # fmt: skip
_SEEK = Layout(SeekRequested, pb.SeekSubscription, part=True, number=_NUMBER)
#: {kind of a request on the wire: its row}. Written by hand: flow, acknowledgements and negative ones.
_REQUESTS: dict[str, Layout[Any]] = {
    "subscribe": Layout(OpenConsumer, pb.Subscribe, opening=_OPENING),
    "seek": Layout(SeekThrough, pb.SeekSubscription, request=_SEEK),
    "detach": Layout(ConsumerDetached, pb.DetachConsumer),
    "hold": Layout(ConsumerHeld, pb.HoldConsumer),
    "ask_effects": Layout(EffectsAsked, pb.AskEffects),
    "bind_effects": Layout(BindRequested, pb.BindEffects),
    "rewind": Layout(RewindRequested, pb.RewindSubscription, ranges=_RANGES),
    "dead_letter": Layout(DeadLetterRequested, pb.RequestDeadLetter),
}
_REQUEST_KINDS = {layout.value: kind for kind, layout in _REQUESTS.items()}
_SUBSCRIBED = Layout(Subscribed, pb.Subscribed, part=True, number=_NUMBER, kept=ranges_of("kept"))
_EFFECTS = Layout(
    SubscriptionEffects, pb.SubscriptionEffects, part=True, number=_NUMBER, consumed=ranges_of("consumed")
)
#: {kind of an event on the wire: its row}. Written by hand: deliveries, answers to acknowledgements, and those to a
#: seek, which have one of two fields.
_EVENTS: dict[str, Layout[Any]] = {
    "subscribed": Layout(AnswerSubscribe, pb.Subscribed, result=_SUBSCRIBED),
    "refused": Layout(AnswerSubscribe, pb.SubscribeRefused, result=FAILED),
    "recall": Layout(RecallMessages, pb.RecallMessages, ranges=_RANGES),
    "active": Layout(ConsumerActive, pb.ConsumerActive),
    "wanted": Layout(ConsumerWanted, pb.ConsumerWanted),
    "sought": Layout(SubscriptionSought, pb.SubscriptionSought),
    "effects": Layout(AnswerEffects, pb.SubscriptionEffects, effects=_EFFECTS),
    "ended": Layout(EndConsumer, pb.ConsumerEnded, error=FAILED),
}
_EVENT_KINDS = {layout.value: kind for kind, layout in _EVENTS.items() if kind != "refused"}


# --- requests ---------------------------------------------------------------------------------------------------------


def encode_consumer_frame(requests: Sequence[ConsumerRequest]) -> bytes:
    out = pb.ConsumerFrame()
    for request in requests:
        _request_to_wire(request, out)
    return out.SerializeToString()


def _request_to_wire(request: ConsumerRequest, out: pb.ConsumerFrame) -> None:
    match request:
        case FlowReported():
            flow = out.requests.add().flow
            flow.consumer, flow.handed_out, flow.window = request.consumer, request.handed_out, request.window
            flow.begun.extend(pack_ranges(request.begun))
            for name in ("arrived", "seek_epoch", "bytes_max"):
                if (value := getattr(request, name)) is not None:
                    setattr(flow, name, value)
        case AckRequested():
            ack = out.requests.add().acknowledge
            ack.consumer, ack.request, ack.seek_epoch = request.consumer, request.request, request.seek_epoch
            ack.ranges.extend(pack_ranges(request.ranges))
            ack.generation = request.generation
            if request.below is not None:
                ack.below = request.below
        case NackRequested():
            nack = out.requests.add().acknowledge_negatively
            nack.consumer, nack.request, nack.seek_epoch = request.consumer, request.request, request.seek_epoch
            nack.ranges.extend(pack_ranges(request.ranges))
            if request.delay_ms is not None:
                nack.delay_ms = request.delay_ms
            if request.delivery_counts is not None:
                counts = nack.delivery_counts
                counts.SetInParent()  # an empty one says that all counts are 1
                counts.indexes.extend(request.delivery_counts)
                counts.counts.extend(request.delivery_counts.values())
        case _:
            kind = _REQUEST_KINDS[type(request)]
            out.requests.add(**{kind: _REQUESTS[kind].to_wire(request)})


def decode_consumer_frame(data: bytes) -> list[ConsumerRequest]:
    """Raises InvalidArgument."""
    frame = parse_request(pb.ConsumerFrame.FromString, data)
    _check_count("requests", len(frame.requests), EVENTS_MAX)
    _check_count("ranges", sum(map(_range_numbers, frame.requests)), RANGE_NUMBERS_MAX)
    return [_request_from_wire(request) for request in frame.requests]


def _range_numbers(request: pb.ConsumerRequest) -> int:
    match request.WhichOneof("request"):
        case "subscribe":
            resume = request.subscribe.resume
            return len(resume.ranges) + len(resume.begun) + _count_numbers(resume.delivery_counts)
        case "flow":
            return len(request.flow.begun)
        case "acknowledge":
            return len(request.acknowledge.ranges)
        case "acknowledge_negatively":
            nack = request.acknowledge_negatively
            return len(nack.ranges) + _count_numbers(nack.delivery_counts)
        case "rewind":
            return len(request.rewind.ranges)
    return 0


def _count_numbers(counts: pb.DeliveryCounts) -> int:
    return len(counts.indexes) + len(counts.counts)


def _request_from_wire(request: pb.ConsumerRequest) -> ConsumerRequest:
    kind = request.WhichOneof("request")
    match kind:
        case "flow":
            flow = request.flow
            begun = unpack_ranges(flow.begun, field="begun")
            return FlowReported(
                ConsumerNumber(flow.consumer),
                flow.handed_out,
                flow.window,
                begun,
                flow.arrived if flow.HasField("arrived") else None,
                SeekEpoch(flow.seek_epoch) if flow.HasField("seek_epoch") else None,
                flow.bytes_max if flow.HasField("bytes_max") else None,
            )
        case "acknowledge":
            ack = request.acknowledge
            return AckRequested(
                ConsumerNumber(ack.consumer),
                ack.request,
                SeekEpoch(ack.seek_epoch),
                unpack_ranges(ack.ranges, field="ranges"),
                ack.below if ack.HasField("below") else None,
                Generation(ack.generation),
            )
        case "acknowledge_negatively":
            nack = request.acknowledge_negatively
            return NackRequested(
                ConsumerNumber(nack.consumer),
                nack.request,
                SeekEpoch(nack.seek_epoch),
                unpack_ranges(nack.ranges, field="ranges"),
                nack.delay_ms if nack.HasField("delay_ms") else None,
                _counts_from_wire(nack.delivery_counts) if nack.HasField("delivery_counts") else None,
            )
        case None:
            raise InvalidArgument("a request of a consumer is of an unknown kind", field="requests")
        case "subscribe":
            _check_opening(request.subscribe)
    return cast("ConsumerRequest", _REQUESTS[kind].from_wire(getattr(request, kind)))


def _check_opening(wire: pb.Subscribe) -> None:
    texts = {
        "topic": wire.topic, "topic_id": wire.topic_id, "subscription": wire.subscription,
        "consumer_name": wire.consumer_name, "dead_letter_topic": wire.dead_letter_topic,
        "subscription_id": wire.resume.subscription_id, "effect": wire.effect,
    }  # fmt: skip
    for field, text in texts.items():
        if len(text) > _CHARACTERS_MAX:
            message = f"subscribe {wire.call}: {field} has at most {_CHARACTERS_MAX} characters"
            raise InvalidArgument(message, field=field, limit=_CHARACTERS_MAX)
    if len(wire.instance_id) != INSTANCE_ID_BYTES:
        message = f"an instance id has {INSTANCE_ID_BYTES} bytes, not {len(wire.instance_id)}"
        raise InvalidArgument(message, field="instance_id", limit=INSTANCE_ID_BYTES)
    check_store_id(wire.store_id)
    _check_count("properties", len(wire.properties), PROPERTIES_MAX)
    size = sum(len(each.name.encode()) + len(each.value.encode()) for each in wire.properties)
    if size > PROPERTIES_BYTES_MAX:
        message = f"subscribe {wire.call}: the properties have {size} bytes, at most {PROPERTIES_BYTES_MAX}"
        raise InvalidArgument(message, field="properties", limit=PROPERTIES_BYTES_MAX)
    try:
        SubscriptionType(wire.type)
    except ValueError as error:
        raise InvalidArgument(f"subscribe {wire.call}: {error}", field="type") from error


# --- events -----------------------------------------------------------------------------------------------------------


def encode_consumer_events(events: Sequence[ReportedEvent]) -> bytes:
    head = pb.ConsumerEvents()
    entries: list[Blob] = []
    for owner_epoch, report in events:
        match report:
            case DeliverMessages():
                _delivery_to_wire(report, head.events.add(owner_epoch=owner_epoch).delivery)
                entries += [delivered.entry.data for delivered in report.entries]
            case AnswerAck():
                ack = head.events.add(owner_epoch=owner_epoch).acknowledged
                ack.consumer, ack.request = report.consumer, report.request
                ack.in_memory, ack.acked_below = not report.durable, report.acked_below
                if report.error is not None:
                    ack.error.CopyFrom(error_to_wire(report.error))
            case AnswerSeek(call, result):
                out = head.events.add(owner_epoch=owner_epoch).seek
                out.call = call
                if isinstance(result, OncelogError):
                    out.error.CopyFrom(error_to_wire(result))
                else:
                    out.seek_epoch = result
            case _:
                kind = _event_kind(report)
                head.events.add(owner_epoch=owner_epoch, **{kind: _EVENTS[kind].to_wire(report)})
    return join_frame(head.SerializeToString(), entries)


def _event_kind(report: ConsumerReport) -> str:
    if isinstance(report, AnswerSubscribe) and isinstance(report.result, OncelogError):
        return "refused"
    return _EVENT_KINDS[type(report)]


def _delivery_to_wire(report: DeliverMessages, out: pb.MessageDelivery) -> None:
    out.consumer, out.seek_epoch, out.generation = report.consumer, report.seek_epoch, report.generation
    for entry, ranges in ((delivered.entry, delivered.ranges) for delivered in report.entries):
        out.entries.add(
            ledger_id=entry.position.ledger_id,
            entry_id=entry.position.entry_id,
            base_index=entry.base_index,
            count=entry.count,
            skip_first=entry.skip_first,
            ranges=pack_ranges(ranges),
        )
    out.redelivered.extend(report.delivery_counts)
    out.delivery_counts.extend(report.delivery_counts.values())


def decode_consumer_events(data: bytes) -> list[ReportedEvent]:
    """Raises InvalidArgument. The data of entries are slices of the frame."""
    head_bytes, entries = split_frame(data)
    head = parse(pb.ConsumerEvents.FromString, head_bytes)
    delivered = sum(len(event.delivery.entries) for event in head.events)
    if delivered != len(entries):
        raise InvalidArgument(f"{len(entries)} entries came with {delivered} descriptions", field="entries")
    blobs = iter(entries)
    return [ReportedEvent(OwnerEpoch(event.owner_epoch), _report_from_wire(event, blobs)) for event in head.events]


def _report_from_wire(event: pb.ConsumerEvent, blobs: Iterator[memoryview]) -> ConsumerReport:
    kind = event.WhichOneof("event")
    match kind:
        case "delivery":
            return _delivery_from_wire(event.delivery, blobs)
        case "acknowledged":
            ack = event.acknowledged
            error = error_from_wire(ack.error) if ack.HasField("error") else None
            return AnswerAck(
                ConsumerNumber(ack.consumer), ack.request, error, durable=not ack.in_memory, acked_below=ack.acked_below
            )
        case "seek":
            seek = event.seek
            failed = seek.HasField("error")
            return AnswerSeek(seek.call, error_from_wire(seek.error) if failed else SeekEpoch(seek.seek_epoch))
        case None:
            raise InvalidArgument("an event of a consumer is of an unknown kind", field="events")
    return cast("ConsumerReport", _EVENTS[kind].from_wire(getattr(event, kind)))


def _delivery_from_wire(wire: pb.MessageDelivery, blobs: Iterator[memoryview]) -> DeliverMessages:
    if len(wire.redelivered) != len(wire.delivery_counts):
        raise InvalidArgument("the columns of delivery counts differ in length", field="redelivered")
    entries = tuple(
        DeliveredEntry(
            StoredEntry(
                Position(LedgerId(each.ledger_id), EntryId(each.entry_id)),
                each.base_index,
                each.count,
                each.skip_first,
                next(blobs),
            ),
            _ranges_of_entry(each),
        )
        for each in wire.entries
    )
    counts = dict(zip(wire.redelivered, wire.delivery_counts, strict=True))
    return DeliverMessages(
        ConsumerNumber(wire.consumer), SeekEpoch(wire.seek_epoch), Generation(wire.generation), entries, counts
    )


def _ranges_of_entry(wire: pb.DeliveredEntry) -> tuple[IndexRange, ...]:
    ranges = unpack_ranges(wire.ranges, field="ranges")
    if not ranges or ranges[0].first < wire.base_index or ranges[-1].last >= wire.base_index + wire.count:
        raise InvalidArgument("a delivery names messages that its entry does not hold", field="ranges")
    return ranges


CONSUME = StreamMethod(
    "/oncelog.wire.v1.TopicOwner/Consume",
    encode_consumer_frame,
    decode_consumer_frame,
    encode_consumer_events,
    decode_consumer_events,
)
