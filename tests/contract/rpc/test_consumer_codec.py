"""The codec of the consume stream refuses bytes that are not sound."""

from itertools import pairwise
from random import Random

import pytest

from oncelog.core.acks.changes import SubscriptionType
from oncelog.core.errors import InvalidArgument
from oncelog.rpc.codecs import consumer_codec as codec
from oncelog.rpc.packed_ranges import pack_ranges, unpack_ranges
from oncelog.wire import consumer_pb2 as pb

INSTANCE = bytes(range(16))


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
