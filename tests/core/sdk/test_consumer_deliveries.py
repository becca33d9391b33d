"""core/sdk/consumer: which delivery of a message a consumer means, in what it asks and in what it presents."""

import pytest

from oncelog.core.acks.changes import SubscriptionType
from oncelog.core.delivery.events import AnswerAck, NackRequested, RecallMessages
from oncelog.core.ids import ConsumerNumber, Generation, SeekEpoch
from oncelog.core.sdk.consumer.events import AckWanted, HandOut, MessagesWanted, NackWanted
from oncelog.core.sdk.consumer.messages import COUNTS_MIN
from oncelog.core.sdk.owner_attempts import StreamLost
from tests.core.sdk.consumer_world import WINDOW, asked, attached, frame, ranges, reported, requests, taken

C1, EPOCH0 = ConsumerNumber(1), SeekEpoch(0)


@pytest.mark.hazard("nack-counted-twice")
def test_reconnection_and_negative_acknowledgement_name_the_delivery() -> None:
    """So that the owner counts each delivery once, however often it is asked."""
    session = attached()
    reported(session, frame(0, 4, counts={1: 3, 2: 2}))
    assert taken(session, 3) == [0, 1, 2]
    sent = requests(session.handle(NackWanted(1, EPOCH0, ranges((1, 1)), 0, {1: 3})))
    assert sent == [NackRequested(C1, 1, EPOCH0, ranges((1, 1)), 0, {1: 3})]
    session.handle(AckWanted(2, EPOCH0, ranges((2, 2))))
    reported(session, AnswerAck(C1, 2))
    session.handle(StreamLost(1))
    resume = asked(session).resume
    assert resume is not None
    assert (resume.ranges, resume.delivery_counts) == (ranges((0, 1), (3, 4)), {1: 3})


@pytest.mark.hazard("former-consumer-acks", "nack-counted-twice")
def test_negative_acknowledgement_of_a_former_delivery_leaves_the_newer_one_with_the_application() -> None:
    """It is still held, and a cumulative acknowledgement may cover it."""
    session = attached(SubscriptionType.EXCLUSIVE, generation=1)
    reported(session, frame(0, 1, generation=1))
    assert taken(session) == [0, 1]
    reported(session, RecallMessages(C1, ranges((0, 1))))
    assert session.messages.held() == ()
    reported(session, frame(0, 1, generation=1, counts={0: 2, 1: 2}))
    assert taken(session) == [0, 1]
    session.handle(NackWanted(1, EPOCH0, ranges((0, 0))))
    reported(session, AnswerAck(C1, 1))
    assert session.messages.held() == ranges((0, 1))
    assert requests(session.handle(AckWanted(2, EPOCH0, below=2, generation=Generation(1))))


@pytest.mark.hazard("nack-counted-twice")
def test_newer_delivery_takes_the_place_of_one_that_waits() -> None:
    """Found by the simulation: the application rejected the delivery that was recalled, while the next one waited. The
    owner counted it and delivered the message again. What the application got had the former count, so its next
    negative acknowledgement meant a former delivery to the owner, and the message stayed with the consumer for ever."""
    session = attached()
    reported(session, frame(0, 0))
    assert taken(session) == [0]
    reported(session, RecallMessages(C1, ranges((0, 0))))
    reported(session, frame(0, 1))
    session.handle(NackWanted(1, EPOCH0, ranges((0, 0)), 0))
    reported(session, AnswerAck(C1, 1))
    reported(session, frame(0, 0, counts={0: 2}))
    (handed_out,) = [effect for effect in session.handle(MessagesWanted(5)) if isinstance(effect, HandOut)]
    given = [(run.first, run.last, dict(run.delivery_counts)) for run in handed_out.runs]
    assert given == [(1, 1, {}), (0, 0, {0: 2})]
    assert session.messages.credit == (4, WINDOW), "each of the four has left: two to the application"


def test_delivery_counts_of_messages_that_are_gone_are_dropped() -> None:
    """A consumer that rejects messages for days must not keep the counts of all of them."""
    session = attached()
    for index in range(3 * COUNTS_MIN):
        reported(session, frame(index, index, counts={index: 2}))
        taken(session)
        session.handle(AckWanted(index, EPOCH0, ranges((index, index))))
        reported(session, AnswerAck(C1, index))
    assert len(session.messages.delivery_counts) <= COUNTS_MIN + 1
