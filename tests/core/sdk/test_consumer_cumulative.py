"""Cumulative acknowledgements of the consumer session, and its own negative ones."""

import pytest

from oncelog.core.acks.changes import SubscriptionType
from oncelog.core.delivery.events import AckRequested, AnswerAck, AnswerSubscribe, RecallMessages
from oncelog.core.errors import InvalidArgument
from oncelog.core.ids import ConsumerNumber, Generation, SeekEpoch
from oncelog.core.sdk.consumer.events import AckEnded, AckWanted, NackWanted, OwnerRequest
from oncelog.core.sdk.consumer.session import ConsumerSession
from oncelog.core.sdk.owner_attempts import StreamLost
from tests.core.sdk.consumer_world import (
    asked,
    attached,
    frame,
    ranges,
    reported,
    requests,
    subscribed,
    taken,
)

C1, EPOCH0 = ConsumerNumber(1), SeekEpoch(0)
FAILOVER, EXCLUSIVE = SubscriptionType.FAILOVER, SubscriptionType.EXCLUSIVE


def ack_below(session: ConsumerSession, request: int, below: int) -> list[OwnerRequest]:
    wanted = AckWanted(request, EPOCH0, below=below, generation=Generation(1))
    return requests(session.handle(wanted))


@pytest.mark.hazard("former-consumer-acks")
def test_cumulative_acknowledgement_ends_before_an_own_negative_one() -> None:
    """Beyond, it would acknowledge the message that the consumer asked for again. After its redelivery it may."""
    session = attached(EXCLUSIVE, generation=1)
    reported(session, frame(0, 2, generation=1))
    taken(session)
    session.handle(NackWanted(1, EPOCH0, ranges((1, 1))))
    assert ack_below(session, 2, 3) == [AckRequested(C1, 2, EPOCH0, (), 1, Generation(1))]
    reported(session, AnswerAck(C1, 1))
    assert reported(session, AnswerAck(C1, 2, acked_below=1))[0] == AckEnded(2, complete=False)
    assert session.messages.held() == ranges((2, 2))
    reported(session, frame(1, 1, generation=1, counts={1: 2}))
    assert ack_below(session, 3, 3) == [AckRequested(C1, 3, EPOCH0, (), 1, Generation(1))], "it was not received yet"
    reported(session, AnswerAck(C1, 3, acked_below=1))
    assert taken(session) == [1]
    assert ack_below(session, 4, 3) == [AckRequested(C1, 4, EPOCH0, (), 3, Generation(1))]
    assert reported(session, AnswerAck(C1, 4))[0] == AckEnded(4)
    assert (taken(session), session.messages.held()) == ([], ())


@pytest.mark.hazard("former-consumer-acks")
@pytest.mark.parametrize("newer", ["waits", "is recalled"])
def test_newer_delivery_that_nobody_received_does_not_void_a_negative_acknowledgement(newer: str) -> None:
    """A time-out delivered 0 and 1 again. The application, which has not received them, still rejects what it has."""
    session = attached(EXCLUSIVE, generation=1)
    reported(session, frame(0, 1, generation=1))
    taken(session)
    reported(session, RecallMessages(C1, ranges((0, 1))))
    reported(session, frame(0, 1, generation=1, counts={0: 2, 1: 2}))
    if newer == "is recalled":
        reported(session, RecallMessages(C1, ranges((0, 1))))
    session.handle(NackWanted(1, EPOCH0, ranges((1, 1))))
    assert ack_below(session, 2, 2) == [AckRequested(C1, 2, EPOCH0, (), 1, Generation(1))]


@pytest.mark.hazard("former-consumer-acks")
def test_negative_acknowledgement_of_a_former_delivery_ends_nothing_once_the_newer_one_was_received() -> None:
    """What the application says last of a message is what it says of the newest delivery that it has received."""
    session = attached(EXCLUSIVE, generation=1)
    reported(session, frame(0, 1, generation=1))
    taken(session)
    reported(session, RecallMessages(C1, ranges((0, 1))))
    reported(session, frame(0, 1, generation=1, counts={0: 2, 1: 2}))
    assert taken(session) == [0, 1]
    session.handle(NackWanted(1, EPOCH0, ranges((1, 1))))
    assert ack_below(session, 2, 2) == [AckRequested(C1, 2, EPOCH0, (), 2, Generation(1))]


def test_cumulative_acknowledgement_before_nothing_but_a_negative_one_acknowledges_nothing() -> None:
    """The owner answers it all the same: another consumer may have become active."""
    session = attached(EXCLUSIVE, generation=1)
    reported(session, frame(0, 1, generation=1))
    taken(session)
    session.handle(NackWanted(1, EPOCH0, ranges((0, 0))))
    assert ack_below(session, 2, 2) == [AckRequested(C1, 2, EPOCH0, (), 0, Generation(1))]
    assert reported(session, AnswerAck(C1, 2))[0] == AckEnded(2, complete=False)
    assert session.messages.held() == ranges((0, 1))


@pytest.mark.hazard("former-consumer-acks")
def test_cumulative_acknowledgement_passes_a_dead_letter_once_it_is_stored() -> None:
    """It is never received again, but the owner reports that it is acknowledged: nothing behind it waits for ever."""
    session = attached(EXCLUSIVE, generation=1)
    reported(session, frame(0, 4, generation=1))
    taken(session)
    session.handle(NackWanted(1, EPOCH0, ranges((1, 1))))
    reported(session, AnswerAck(C1, 1))
    ack_below(session, 2, 3)
    reported(session, AnswerAck(C1, 2, acked_below=2))
    assert ack_below(session, 3, 3) == [AckRequested(C1, 3, EPOCH0, (), 3, Generation(1))]


@pytest.mark.hazard("former-consumer-acks")
def test_cumulative_acknowledgement_keeps_the_generation_of_its_message() -> None:
    """The consumer was active, then another one, now this one again: the owner must see the old generation."""
    session = attached(FAILOVER, generation=1)
    reported(session, frame(0, 0, generation=1))
    taken(session)
    session.handle(AckWanted(1, EPOCH0, below=1, generation=Generation(1)))
    session.handle(StreamLost(1))
    asked(session)
    sent = requests(reported(session, AnswerSubscribe(2, subscribed(consumer=2, generation=3))))
    assert sent[:-1] == [AckRequested(ConsumerNumber(2), 1, EPOCH0, (), 1, Generation(1))]


@pytest.mark.hazard("former-consumer-acks")
@pytest.mark.parametrize("generation", [1, 3])
def test_negative_acknowledgement_outlives_a_reconnection(generation: int) -> None:
    """Its delay may be long, and later messages come meanwhile; also when another consumer was active since."""
    session = attached(FAILOVER, generation=1)
    reported(session, frame(0, 1, generation=1))
    taken(session)
    session.handle(NackWanted(1, EPOCH0, ranges((0, 0))))
    reported(session, AnswerAck(C1, 1))
    session.handle(StreamLost(1))
    asked(session)
    reported(session, AnswerSubscribe(2, subscribed(consumer=2, generation=generation)))
    wanted = AckWanted(2, EPOCH0, below=2, generation=Generation(generation))
    assert requests(session.handle(wanted)) == [
        AckRequested(ConsumerNumber(2), 2, EPOCH0, (), 0, Generation(generation))
    ]


def test_cumulative_acknowledgement_needs_one_active_consumer() -> None:
    """On shared subscriptions it would cover messages of other consumers."""
    (refused,) = attached().handle(AckWanted(1, EPOCH0, below=1))
    assert isinstance(refused, AckEnded)
    assert isinstance(refused.error, InvalidArgument)
