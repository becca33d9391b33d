"""Messages of the TopicOwner's consume stream as plain values; consumer.proto describes the fields.

Requests and events are those of the cores (`core/delivery/events`), and keep their order. Received bytes are
untrusted: counts are checked before Python objects are made of them.
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple, assert_never

from oncelog.core.acks.changes import IndexRange, SubscriptionType
from oncelog.core.delivery.events import (
    AckRequested,
    AnswerAck,
    AnswerSeek,
    AnswerSubscribe,
    ConsumerActive,
    ConsumerDetached,
    ConsumerOpening,
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
    SubscriptionNumber,
    TopicId,
)
from oncelog.rpc.codecs.effects_codec import (
    check_store_id,
    effects_from_wire,
    effects_request_from_wire,
    effects_request_to_wire,
    effects_to_wire,
)
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
)  # fmt: skip
ConsumerReport = (
    AnswerSubscribe | DeliverMessages | AnswerAck | RecallMessages | ConsumerActive | SubscriptionSought | AnswerSeek
    | AnswerEffects | EndConsumer
)  # fmt: skip


class ReportedEvent(NamedTuple):
    """owner_epoch: of the consumer's topic; 0: the topic is not served here."""

    owner_epoch: OwnerEpoch
    report: ConsumerReport


def _check_count(name: str, count: int, limit: int) -> None:
    if count > limit:
        raise InvalidArgument(f"a frame holds {count} {name}, at most {limit}", field=name, limit=limit)


# --- requests ---------------------------------------------------------------------------------------------------------


def encode_consumer_frame(requests: Sequence[ConsumerRequest]) -> bytes:
    out = pb.ConsumerFrame()
    for request in requests:
        _request_to_wire(request, out.requests.add())
    return out.SerializeToString()


def _request_to_wire(request: ConsumerRequest, out: pb.ConsumerRequest) -> None:
    match request:
        case OpenConsumer():
            _open_to_wire(request, out.subscribe)
        case FlowReported():
            flow = out.flow
            flow.consumer, flow.handed_out, flow.window = request.consumer, request.handed_out, request.window
            flow.begun.extend(pack_ranges(request.begun))
            for name in ("arrived", "seek_epoch", "bytes_max"):
                if (value := getattr(request, name)) is not None:
                    setattr(flow, name, value)
        case AckRequested():
            ack = out.acknowledge
            ack.consumer, ack.request, ack.seek_epoch = request.consumer, request.request, request.seek_epoch
            ack.ranges.extend(pack_ranges(request.ranges))
            ack.generation = request.generation
            if request.below is not None:
                ack.below = request.below
        case NackRequested():
            nack = out.acknowledge_negatively
            nack.consumer, nack.request, nack.seek_epoch = request.consumer, request.request, request.seek_epoch
            nack.ranges.extend(pack_ranges(request.ranges))
            if request.delay_ms is not None:
                nack.delay_ms = request.delay_ms
            if request.delivery_counts is not None:
                _counts_to_wire(request.delivery_counts, nack.delivery_counts)
        case SeekThrough(consumer, seek):
            out.seek.consumer, out.seek.call, out.seek.subscription_number = consumer, seek.call, seek.number
            out.seek.index, out.seek.redo = seek.index, seek.redo
        case EffectsAsked() | BindRequested() | RewindRequested() | DeadLetterRequested():
            effects_request_to_wire(request, out)
        case ConsumerDetached():
            out.detach.consumer, out.detach.lost = request.consumer, request.lost
        case _:
            assert_never(request)


def _counts_to_wire(counts: dict[int, int], out: pb.DeliveryCounts) -> None:
    out.SetInParent()  # an empty one says that all counts are 1
    out.indexes.extend(counts)
    out.counts.extend(counts.values())


def _counts_from_wire(counts: pb.DeliveryCounts) -> dict[int, int]:
    if len(counts.indexes) != len(counts.counts):
        message = f"{len(counts.indexes)} messages have {len(counts.counts)} delivery counts"
        raise InvalidArgument(message, field="delivery_counts")
    return dict(zip(counts.indexes, counts.counts, strict=True))


def _open_to_wire(request: OpenConsumer, out: pb.Subscribe) -> None:
    opening = request.opening
    out.call, out.topic, out.topic_id = opening.call, request.topic, request.topic_id
    out.subscription, out.consumer_name = opening.subscription, opening.consumer_name
    out.type = pb.SubscriptionType.ValueType(opening.type)
    out.instance_id, out.priority, out.max_deliveries = opening.instance_id, opening.priority, opening.max_deliveries
    out.dead_letter_topic, out.ack_timeout_ms = opening.dead_letter_topic, opening.ack_timeout_ms
    out.owner_epoch_seen = opening.owner_epoch_seen
    out.store_id, out.effect = opening.store_id, opening.effect
    if opening.first_index is not None:
        out.first_index = opening.first_index
    for name, value in opening.properties:
        out.properties.add(name=name, value=value)
    held = opening.resume
    if held is not None:
        out.resume.subscription_id, out.resume.seek_epoch = held.subscription_id, held.seek_epoch
        out.resume.generation = held.generation
        out.resume.ranges.extend(pack_ranges(held.ranges))
        out.resume.begun.extend(pack_ranges(held.begun))
        if held.delivery_counts is not None:
            _counts_to_wire(held.delivery_counts, out.resume.delivery_counts)


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
    match request.WhichOneof("request"):
        case "subscribe":
            return _open_from_wire(request.subscribe)
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
        case "seek":
            seek = request.seek
            number = SubscriptionNumber(seek.subscription_number)
            return SeekThrough(ConsumerNumber(seek.consumer), SeekRequested(seek.call, number, seek.index, seek.redo))
        case "ask_effects" | "bind_effects" | "rewind" | "dead_letter":
            return effects_request_from_wire(request)
        case "detach":
            return ConsumerDetached(ConsumerNumber(request.detach.consumer), lost=request.detach.lost)
    raise InvalidArgument("a request of a consumer is of an unknown kind", field="requests")


def _open_from_wire(wire: pb.Subscribe) -> OpenConsumer:
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
        kind = SubscriptionType(wire.type)
    except ValueError as error:
        raise InvalidArgument(f"subscribe {wire.call}: {error}", field="type") from error
    opening = ConsumerOpening(
        wire.call,
        wire.subscription,
        kind,
        wire.consumer_name,
        wire.instance_id,
        first_index=wire.first_index if wire.HasField("first_index") else None,
        resume=_held_from_wire(wire.resume) if wire.HasField("resume") else None,
        priority=wire.priority,
        max_deliveries=wire.max_deliveries,
        dead_letter_topic=wire.dead_letter_topic,
        ack_timeout_ms=wire.ack_timeout_ms,
        owner_epoch_seen=OwnerEpoch(wire.owner_epoch_seen),
        properties=tuple((each.name, each.value) for each in wire.properties),
        store_id=wire.store_id,
        effect=wire.effect,
    )
    return OpenConsumer(wire.topic, TopicId(wire.topic_id), opening)


def _held_from_wire(held: pb.HeldMessages) -> HeldMessages:
    return HeldMessages(
        held.subscription_id,
        SeekEpoch(held.seek_epoch),
        Generation(held.generation),
        unpack_ranges(held.ranges, field="ranges"),
        unpack_ranges(held.begun, field="begun"),
        _counts_from_wire(held.delivery_counts) if held.HasField("delivery_counts") else None,
    )


# --- events -----------------------------------------------------------------------------------------------------------


def encode_consumer_events(events: Sequence[ReportedEvent]) -> bytes:
    head = pb.ConsumerEvents()
    entries: list[Blob] = []
    for owner_epoch, report in events:
        out = head.events.add(owner_epoch=owner_epoch)
        if isinstance(report, DeliverMessages):
            _delivery_to_wire(report, out.delivery)
            entries += [delivered.entry.data for delivered in report.entries]
        else:
            _report_to_wire(report, out)
    return join_frame(head.SerializeToString(), entries)


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


def _report_to_wire(
    report: AnswerSubscribe
    | AnswerAck
    | RecallMessages
    | ConsumerActive
    | SubscriptionSought
    | AnswerSeek
    | AnswerEffects
    | EndConsumer,
    out: pb.ConsumerEvent,
) -> None:
    match report:
        case AnswerSubscribe():
            _attachment_to_wire(report, out)
        case AnswerAck():
            out.acknowledged.consumer, out.acknowledged.request = report.consumer, report.request
            out.acknowledged.in_memory, out.acknowledged.acked_below = not report.durable, report.acked_below
            if report.error is not None:
                out.acknowledged.error.CopyFrom(error_to_wire(report.error))
        case RecallMessages():
            out.recall.consumer = report.consumer
            out.recall.ranges.extend(pack_ranges(report.ranges))
        case ConsumerActive():
            out.active.consumer, out.active.generation = report.consumer, report.generation
        case SubscriptionSought():
            out.sought.consumer, out.sought.seek_epoch = report.consumer, report.seek_epoch
        case AnswerSeek():
            out.seek.call = report.call
            if isinstance(report.result, OncelogError):
                out.seek.error.CopyFrom(error_to_wire(report.result))
            else:
                out.seek.seek_epoch = report.result
        case AnswerEffects():
            effects_to_wire(report, out.effects)
        case EndConsumer():
            out.ended.consumer = report.consumer
            out.ended.error.CopyFrom(error_to_wire(report.error))
        case _:
            assert_never(report)


def _attachment_to_wire(report: AnswerSubscribe, out: pb.ConsumerEvent) -> None:
    answer = report.result
    if isinstance(answer, OncelogError):
        out.refused.call = report.call
        out.refused.error.CopyFrom(error_to_wire(answer))
        return
    wire = out.subscribed
    wire.call, wire.consumer, wire.subscription_number = report.call, answer.consumer, answer.number
    wire.subscription_id, wire.seek_epoch = answer.subscription_id, answer.seek_epoch
    wire.generation, wire.created = answer.generation, answer.created
    wire.kept.extend(pack_ranges(answer.kept))


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
    match event.WhichOneof("event"):
        case "subscribed":
            wire = event.subscribed
            answer = Subscribed(
                ConsumerNumber(wire.consumer),
                SubscriptionNumber(wire.subscription_number),
                wire.subscription_id,
                SeekEpoch(wire.seek_epoch),
                Generation(wire.generation),
                unpack_ranges(wire.kept, field="kept"),
                wire.created,
            )
            return AnswerSubscribe(wire.call, answer)
        case "refused":
            return AnswerSubscribe(event.refused.call, error_from_wire(event.refused.error))
        case "delivery":
            return _delivery_from_wire(event.delivery, blobs)
        case "acknowledged":
            ack = event.acknowledged
            error = error_from_wire(ack.error) if ack.HasField("error") else None
            return AnswerAck(
                ConsumerNumber(ack.consumer), ack.request, error, durable=not ack.in_memory, acked_below=ack.acked_below
            )
        case "recall":
            return RecallMessages(
                ConsumerNumber(event.recall.consumer), unpack_ranges(event.recall.ranges, field="ranges")
            )
        case "active":
            return ConsumerActive(ConsumerNumber(event.active.consumer), Generation(event.active.generation))
        case "sought":
            return SubscriptionSought(ConsumerNumber(event.sought.consumer), SeekEpoch(event.sought.seek_epoch))
        case "seek":
            seek = event.seek
            failed = seek.HasField("error")
            return AnswerSeek(seek.call, error_from_wire(seek.error) if failed else SeekEpoch(seek.seek_epoch))
        case "effects":
            return effects_from_wire(event.effects)
        case "ended":
            return EndConsumer(ConsumerNumber(event.ended.consumer), error_from_wire(event.ended.error))
    raise InvalidArgument("an event of a consumer is of an unknown kind", field="events")


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
