"""The cases of Pulsar's SubscriptionPauseOnAckStatPersistTest (PIP-299), on a topic at its owner, for all four types.

A limit of 50 ranges, 200 messages, of which every second one is acknowledged. Unlike Pulsar's, exclusive and failover
subscriptions pause, too, and what lowers the state below 80 % of the limit lets delivery go on.
"""

from collections.abc import Callable

import pytest

from oncelog.core.acks.changes import IndexRange, SubscriptionType
from oncelog.core.delivery.events import (
    AckRequested,
    AnswerSubscribe,
    ConsumerDetached,
    ConsumerOpening,
    DeliverMessages,
    FlowReported,
    SeekRequested,
    SkipRequested,
    Subscribed,
    SubscriptionSought,
)
from oncelog.core.formats.batch import peek_batch
from oncelog.core.formats.columns import encode_keys, encode_values
from oncelog.core.ids import ConsumerNumber, SubscriptionNumber
from oncelog.core.policies.ack_state_limit import PausePolicy
from oncelog.core.policies.topic_policies import TopicPolicies
from oncelog.core.topic_events.events import PoliciesChanged, ReceivedBatch
from tests.core.builders import batch
from tests.core.topic.topic_world import Owner, World

ON = PoliciesChanged(TopicPolicies(pause=PausePolicy(enabled=True, unacked_ranges_max=50)))
OFF = PoliciesChanged(TopicPolicies())
MESSAGES = 200
ODD = range(1, MESSAGES, 2)
every_type = pytest.mark.parametrize("type_", list(SubscriptionType))


class Paused:
    """A topic with one subscription, whose consumers acknowledge every second message."""

    def __init__(self, type_: SubscriptionType, policy: PoliciesChanged = ON, consumers: int = 1) -> None:
        self.type = type_
        self.owner = Owner(World(), "o1").take_over()
        self.owner.handle(policy)
        self.published = 0
        self.publish(MESSAGES)
        self.consumers = [self.attach(f"c{number}") for number in range(consumers)]
        for consumer in self.consumers:
            self.ack(consumer, *(index for index in ODD if index in self.got(consumer)))

    def publish(self, count: int) -> None:
        granted = self.owner.open("p")
        pid, generation = granted.instance
        for number in range(self.published, self.published + count):
            payload = encode_values([b"v"]) + encode_keys([b"%d" % number])
            data = batch([number], pid=pid, generation=generation, payload=payload)
            self.owner.send(granted.session, ReceivedBatch(number, peek_batch(data), data))
        self.owner.run()
        self.published += count

    def attach(self, name: str) -> Subscribed:
        for _ in range(2):
            self.owner.tick(1_000).run()
        call = 100 + len(self.owner.emitted(AnswerSubscribe))
        opening = ConsumerOpening(call, "billing", self.type, name, name.encode().ljust(16, b"."), first_index=0)
        self.owner.handle(opening)
        self.owner.run()
        result = self.owner.emitted(AnswerSubscribe)[-1].result
        assert isinstance(result, Subscribed), result
        self.owner.handle(FlowReported(result.consumer, 0, 10 * MESSAGES))
        self.owner.run()
        return result

    def got(self, subscribed: Subscribed) -> list[int]:
        frames = [effect for effect in self.owner.emitted(DeliverMessages) if effect.consumer == subscribed.consumer]
        ranges = [each for frame in frames for entry in frame.entries for each in entry.ranges]
        return [index for first, last in ranges for index in range(first, last + 1)]

    def ack(self, subscribed: Subscribed, *indexes: int) -> None:
        if indexes:
            ranges = tuple(IndexRange(index, index) for index in sorted(set(indexes)))
            self.owner.handle(AckRequested(subscribed.consumer, 1, self.epoch, ranges))  # type: ignore[arg-type]
            self.owner.run()

    @property
    def epoch(self) -> int:
        sought = self.owner.emitted(SubscriptionSought)
        return sought[-1].seek_epoch if sought else 0

    @property
    def number(self) -> SubscriptionNumber:
        serving = self.owner.core.serving
        assert serving is not None
        (subscription,) = serving.subscriptions
        return subscription.state.number

    @property
    def reason(self) -> str:
        serving = self.owner.core.serving
        assert serving is not None
        (subscription,) = serving.subscriptions
        return subscription.pause_reason

    def new_is_delivered(self) -> bool:
        """Publishes a message, and returns whether a consumer gets it."""
        self.publish(1)
        return any(self.published - 1 in self.got(consumer) for consumer in self.consumers)


@pytest.mark.hazard("dispatch-paused-for-ever")
@every_type
def test_policy_pauses_and_its_end_resumes(type_: SubscriptionType) -> None:
    """At run time, with every message that came meanwhile; without the policy nothing is ever withheld."""
    case = Paused(type_)
    assert case.reason
    assert not case.new_is_delivered()
    case.owner.handle(OFF)
    case.owner.run()
    assert case.reason == ""
    assert MESSAGES in case.got(case.consumers[0])
    never = Paused(type_, OFF)
    assert never.reason == ""
    assert never.new_is_delivered()


def _acks_the_rest(case: Paused) -> None:
    case.ack(case.consumers[0], *range(0, MESSAGES, 2))


def _skips(case: Paused) -> None:
    case.owner.handle(SkipRequested(7, case.number, count=80))


def _clears(case: Paused) -> None:
    case.owner.handle(SkipRequested(7, case.number, below=MESSAGES))


def _seeks(case: Paused) -> None:
    case.owner.handle(SeekRequested(7, case.number, 10))


@pytest.mark.hazard("dispatch-paused-for-ever")
@every_type
@pytest.mark.parametrize("lower", [_acks_the_rest, _skips, _clears, _seeks])
def test_what_lowers_the_state_resumes(type_: SubscriptionType, lower: Callable[[Paused], None]) -> None:
    """Acknowledging the rest, skipping, clearing the backlog, and a seek."""
    case = Paused(type_)
    assert case.reason
    lower(case)
    case.owner.run()
    assert case.reason == ""
    assert case.new_is_delivered()


@pytest.mark.hazard("wrong-delivery-count", "dispatch-paused-for-ever")
@every_type
@pytest.mark.parametrize("count", [1, 2])
def test_unacknowledged_messages_of_a_closed_consumer_go_to_another_one_during_the_pause(
    type_: SubscriptionType, count: int
) -> None:
    """One for one, and two for two; every message gets acknowledged in the end, and delivery goes on."""
    alone = type_ in (SubscriptionType.EXCLUSIVE, SubscriptionType.FAILOVER)
    case = Paused(type_, consumers=1 if type_ is SubscriptionType.EXCLUSIVE else count)
    assert case.reason
    for consumer in case.consumers:
        case.owner.handle(ConsumerDetached(ConsumerNumber(consumer.consumer), lost=False))
    case.owner.run()
    case.consumers = [case.attach(f"d{number}") for number in range(1 if alone else count)]
    for _ in range(70):
        case.owner.tick(1_000).run()
    assert {index for consumer in case.consumers for index in case.got(consumer)} == set(range(0, MESSAGES, 2))
    for consumer in case.consumers:
        case.ack(consumer, *case.got(consumer))
    assert case.reason == ""
    assert case.new_is_delivered()
