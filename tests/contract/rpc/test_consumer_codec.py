"""The codec of the consume stream: values cross unchanged, and bytes that are not sound are refused."""

from itertools import pairwise
from random import Random

import pytest

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
    RewindRequested,
    SubscriptionEffects,
)
from oncelog.core.errors import InvalidArgument, NotOwner, OncelogError, SubscriptionGone
from oncelog.core.ids import (
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
from oncelog.rpc.codecs import consumer_codec as codec
from oncelog.rpc.codecs.consumer_codec import ConsumerReport, ConsumerRequest, OpenConsumer, ReportedEvent, SeekThrough
from oncelog.rpc.packed_ranges import pack_ranges, unpack_ranges
from oncelog.wire import consumer_pb2 as pb

C, NUMBER = ConsumerNumber(2**40 + 1), SubscriptionNumber(3)
EPOCH, GENERATION, OWNER = SeekEpoch(2), Generation(5), OwnerEpoch(9)
RANGES = (IndexRange(0, 0), IndexRange(1, 4), IndexRange(100, 2**50))
INSTANCE = bytes(range(16))


def opening(**fields: object) -> OpenConsumer:
    return OpenConsumer(
        "a/b/c", TopicId("ab" * 16), ConsumerOpening(0, "s", SubscriptionType.SHARED, "n", INSTANCE, **fields)  # type: ignore[arg-type]
    )  # fmt: skip


REQUESTS: tuple[ConsumerRequest, ...] = (
    opening(),
    opening(
        first_index=0, priority=-3, max_deliveries=7, dead_letter_topic="a/b/dead", ack_timeout_ms=500,
        owner_epoch_seen=OWNER, properties=(("team", "x"), ("", "")),
    ),
    *(
        OpenConsumer("t", TopicId(""), ConsumerOpening(n, "s", kind, "", INSTANCE))
        for n, kind in enumerate(SubscriptionType)
    ),
    opening(resume=HeldMessages("cd" * 16, EPOCH, GENERATION, RANGES, RANGES[1:])),
    opening(resume=HeldMessages("", SeekEpoch(0), Generation(0), ())),
    FlowReported(C, 0, 0),
    FlowReported(C, 2**40, 10_000, RANGES),
    FlowReported(C, 1, 1, arrived=0, seek_epoch=SeekEpoch(0)),
    FlowReported(C, 1, 1, arrived=2**40, seek_epoch=EPOCH),
    FlowReported(C, 1, 1, bytes_max=2**40),
    opening(resume=HeldMessages("cd" * 16, EPOCH, GENERATION, RANGES, delivery_counts={100: 2, 2**50: 3})),
    opening(resume=HeldMessages("cd" * 16, EPOCH, GENERATION, RANGES, delivery_counts={})),
    NackRequested(C, 2, EPOCH, RANGES, delivery_counts={}),
    NackRequested(C, 2, EPOCH, RANGES, 5, {1: 2, 4: 2**31}),
    opening(store_id="5a" * 16, effect="invoices"),
    EffectsAsked(C, 0, 0),
    EffectsAsked(C, 1, 2**50),
    BindRequested(C, 2, EPOCH, GENERATION),
    BindRequested(C, 3, EPOCH, GENERATION, 2**50),
    RewindRequested(C, 4, EPOCH, GENERATION, RANGES),
    DeadLetterRequested(C, 5, EPOCH, GENERATION, 2**50, "ValueError: no total"),
    AckRequested(C, 0, EPOCH, RANGES),
    AckRequested(C, 1, EPOCH, below=0, generation=GENERATION),
    NackRequested(C, 2, EPOCH, RANGES),
    NackRequested(C, 3, EPOCH, RANGES, delay_ms=0),
    SeekThrough(C, SeekRequested(4, NUMBER, 0)),
    SeekThrough(C, SeekRequested(5, NUMBER, 2**50, redo=True)),
    ConsumerDetached(C, lost=True),
    ConsumerDetached(C, lost=False),
)  # fmt: skip


def stored(entry_id: int, data: bytes) -> StoredEntry:
    return StoredEntry(Position(LedgerId(2**40), EntryId(entry_id)), 100, 7, 2, data)


DELIVERY = DeliverMessages(
    C,
    EPOCH,
    GENERATION,
    (
        DeliveredEntry(stored(0, b"first"), (IndexRange(100, 100), IndexRange(103, 106))),
        DeliveredEntry(stored(1, b""), (IndexRange(101, 102),)),
    ),
    {104: 2, 101: 9},
)
REPORTS: tuple[ConsumerReport, ...] = (
    AnswerSubscribe(0, Subscribed(C, NUMBER, "ab" * 16, EPOCH, GENERATION, RANGES)),
    AnswerSubscribe(1, Subscribed(C, NUMBER, "ab" * 16, EPOCH, GENERATION, (), created=True)),
    AnswerSubscribe(1, SubscriptionGone("deleted")),
    DELIVERY,
    AnswerAck(C, 0),
    AnswerAck(C, 1, NotOwner("moved")),
    AnswerAck(C, 2, durable=False),
    AnswerAck(C, 3, acked_below=1 << 40),
    RecallMessages(C, RANGES),
    ConsumerActive(C, Generation(0)),
    SubscriptionSought(C, EPOCH),
    AnswerSeek(0, EPOCH),
    AnswerSeek(1, NotOwner("moved")),
    AnswerEffects(
        C, 4, SubscriptionEffects(NUMBER, "", "", EPOCH, SeekEpoch(0), 0, GENERATION, 7, 0, 9, 7, 0, (), complete=True)
    ),
    AnswerEffects(
        C,
        5,
        SubscriptionEffects(
            NUMBER, "5a" * 16, "invoices", EPOCH, SeekEpoch(1), 3, GENERATION, 7, 2, 9, 5, 4, RANGES, complete=False
        ),
    ),
    EndConsumer(C, SubscriptionGone("deleted")),
    DELIVERY,
)


def _told(value: object) -> object:
    """Errors are equal when type and message are."""
    if isinstance(value, OncelogError):
        return type(value), value.message
    return value


def test_requests_keep_their_fields_and_order() -> None:
    """All kinds in one frame; absent fields stay absent, and zeros stay zeros."""
    assert codec.decode_consumer_frame(codec.encode_consumer_frame(REQUESTS)) == list(REQUESTS)


def test_events_keep_their_fields_and_order() -> None:
    """Each delivery gets its own entries. Events of several topics share a frame, so each carries its owner epoch."""
    sent = [ReportedEvent(OwnerEpoch(n), report) for n, report in enumerate(REPORTS)]
    received = codec.decode_consumer_events(codec.encode_consumer_events(sent))
    assert [event.owner_epoch for event in received] == list(range(len(sent)))
    for (_, before), (_, after) in zip(sent, received, strict=True):
        assert type(before) is type(after)
        fields = type(before).__dataclass_fields__
        assert [_told(getattr(before, f)) for f in fields] == [_told(getattr(after, f)) for f in fields]


def test_subscription_types_are_numbered_as_in_the_protocol() -> None:
    """The plain enumeration and the generated one have the same members."""
    wire = {name.removeprefix("SUBSCRIPTION_TYPE_"): number for name, number in pb.SubscriptionType.items()}
    assert {kind.name: kind.value for kind in SubscriptionType} | {"UNSPECIFIED": 0} == wire


@pytest.mark.parametrize("seed", range(5))
def test_any_numbers_are_ascending_disjoint_ranges(seed: int) -> None:
    """What is untrusted cannot break the order that the cores rely on."""
    random = Random(seed)
    numbers = [random.choice((0, 1, random.getrandbits(30))) for _ in range(40)]
    ranges = unpack_ranges(numbers, field="ranges")
    assert all(first <= last for first, last in ranges)
    assert all(before.last < after.first for before, after in pairwise(ranges))
    assert list(pack_ranges(ranges)) == numbers


@pytest.mark.parametrize("numbers", [[1], [2**62, 0], [0, 2**64 - 1]])
def test_odd_and_huge_ranges_are_refused(numbers: list[int]) -> None:
    """An index is a 63-bit number in every store of it."""
    frame = pb.ConsumerFrame(requests=[pb.ConsumerRequest(acknowledge=pb.Acknowledge(ranges=numbers))])
    with pytest.raises(InvalidArgument):
        codec.decode_consumer_frame(frame.SerializeToString())


@pytest.mark.parametrize(
    ("subscribe", "field"),
    [
        (pb.Subscribe(type=pb.SUBSCRIPTION_TYPE_SHARED, instance_id=b"short"), "instance_id"),
        (pb.Subscribe(instance_id=INSTANCE), "type"),
        (pb.Subscribe(type=pb.SUBSCRIPTION_TYPE_SHARED, instance_id=INSTANCE, topic="x" * 1025), "topic"),
        (
            pb.Subscribe(type=pb.SUBSCRIPTION_TYPE_SHARED, instance_id=INSTANCE, subscription="x" * 1025),
            "subscription",
        ),
        (
            pb.Subscribe(
                type=pb.SUBSCRIPTION_TYPE_SHARED, instance_id=INSTANCE, properties=[pb.SubscriptionProperty()] * 65
            ),
            "properties",
        ),
        (
            pb.Subscribe(
                type=pb.SUBSCRIPTION_TYPE_SHARED,
                instance_id=INSTANCE,
                properties=[pb.SubscriptionProperty(name="a", value="é" * 8_192)],
            ),
            "properties",
        ),
    ],
)
def test_unsound_openings_are_refused(subscribe: pb.Subscribe, field: str) -> None:
    """The error names the field."""
    data = pb.ConsumerFrame(requests=[pb.ConsumerRequest(subscribe=subscribe)]).SerializeToString()
    with pytest.raises(InvalidArgument) as refused:
        codec.decode_consumer_frame(data)
    assert refused.value.details["field"] == field


def test_counts_of_a_frame_are_bounded() -> None:
    """Before Python objects are made of them."""
    many = pb.ConsumerFrame(requests=[pb.ConsumerRequest()] * (codec.EVENTS_MAX + 1))
    wide = pb.ConsumerFrame(
        requests=[pb.ConsumerRequest(flow=pb.ConsumerFlow(begun=[0] * codec.RANGE_NUMBERS_MAX))] * 2
    )
    for frame, field in ((many, "requests"), (wide, "ranges")):
        with pytest.raises(InvalidArgument) as refused:
            codec.decode_consumer_frame(frame.SerializeToString())
        assert refused.value.details["field"] == field


def test_unknown_requests_and_events_are_refused() -> None:
    """A kind of a newer peer must not be taken for nothing: the stream would be out of step."""
    with pytest.raises(InvalidArgument):
        codec.decode_consumer_frame(pb.ConsumerFrame(requests=[pb.ConsumerRequest()]).SerializeToString())
    with pytest.raises(InvalidArgument):
        codec.decode_consumer_events(pb.ConsumerEvents(events=[pb.ConsumerEvent()]).SerializeToString())


@pytest.mark.parametrize(
    "delivery",
    [
        pb.MessageDelivery(entries=[pb.DeliveredEntry(count=1, ranges=[0, 0])] * 2),
        pb.MessageDelivery(entries=[pb.DeliveredEntry(count=1, ranges=[0, 1])]),
        pb.MessageDelivery(entries=[pb.DeliveredEntry(count=1)]),
        pb.MessageDelivery(entries=[pb.DeliveredEntry(base_index=5, count=1, ranges=[4, 0])]),
        pb.MessageDelivery(entries=[pb.DeliveredEntry(count=1, ranges=[0, 0])], redelivered=[0]),
    ],
)
def test_unsound_deliveries_are_refused(delivery: pb.MessageDelivery) -> None:
    """A message of another entry would be handed to the application as this one."""
    frame = pb.ConsumerEvents(events=[pb.ConsumerEvent(delivery=delivery)], entries=[b"entry"])
    with pytest.raises(InvalidArgument):
        codec.decode_consumer_events(frame.SerializeToString())
