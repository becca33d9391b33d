"""core/sdk/consumer: seeks of the consumer itself and of others."""

import pytest

from oncelog.core.acks.changes import SubscriptionType
from oncelog.core.delivery.events import (
    AckRequested,
    AnswerSeek,
    AnswerSubscribe,
    FlowReported,
    SeekRequested,
    SubscriptionSought,
)
from oncelog.core.errors import (
    DeadlineExceeded,
    NotOwner,
    OncelogError,
    StaleSeekEpoch,
    TopicLoading,
)
from oncelog.core.ids import ConsumerNumber, SeekEpoch
from oncelog.core.sdk.consumer.events import (
    AckEnded,
    AckWanted,
    ReportAttached,
    ReportSought,
    SeekEnded,
    SeekWanted,
    SendToOwner,
)
from oncelog.core.sdk.owner_attempts import (
    StartSessionTimer,
    StreamLost,
)
from tests.core.sdk.consumer_world import (
    NUMBER,
    WINDOW,
    asked,
    attached,
    frame,
    ranges,
    reported,
    requests,
    subscribed,
    taken,
)

C1, EPOCH0, EPOCH1 = ConsumerNumber(1), SeekEpoch(0), SeekEpoch(1)
FAILOVER, EXCLUSIVE = SubscriptionType.FAILOVER, SubscriptionType.EXCLUSIVE


@pytest.mark.hazard("late-ack-after-seek")
def test_seek_voids_messages_and_acknowledgements_of_lower_epochs() -> None:
    """A late acknowledgement of the former place must not count at the new one."""
    session = attached()
    reported(session, frame(0, 4))
    taken(session, 2)
    session.handle(AckWanted(1, EPOCH0, ranges((0, 0))))
    effects = reported(session, SubscriptionSought(C1, EPOCH1))
    assert isinstance(effects[0], AckEnded)
    assert isinstance(effects[0].error, StaleSeekEpoch)
    assert effects[1:] == [ReportSought(EPOCH1), SendToOwner(1, FlowReported(C1, 5, WINDOW, (), 5, EPOCH1))]
    assert session.messages.held() == ()
    (late,) = session.handle(AckWanted(2, EPOCH0, ranges((1, 1))))
    assert isinstance(late, AckEnded)
    assert isinstance(late.error, StaleSeekEpoch)
    reported(session, frame(0, 0))
    assert taken(session) == [], "a frame of the former epoch"
    reported(session, frame(0, 1, epoch=1))
    assert taken(session) == [0, 1]
    assert requests(session.handle(AckWanted(3, EPOCH1, ranges((0, 0))))) == [
        AckRequested(C1, 3, EPOCH1, ranges((0, 0)))
    ]


@pytest.mark.hazard("late-ack-after-seek")
def test_seek_while_disconnected_is_seen_at_the_reconnection() -> None:
    """The owner answers with the higher epoch, and nothing of the former one is kept."""
    session = attached()
    reported(session, frame(0, 1))
    taken(session)
    session.handle(AckWanted(1, EPOCH0, ranges((0, 0))))
    session.handle(StreamLost(1))
    asked(session)
    effects = reported(session, AnswerSubscribe(2, subscribed(consumer=2, epoch=1)))
    assert [type(effect) for effect in effects] == [ReportAttached, AckEnded, ReportSought, SendToOwner]
    assert (session.messages.held(), len(session.requests)) == ((), 0)


def test_seek_is_sent_once_and_its_outcome_is_unknown_when_the_stream_is_lost() -> None:
    """A repeated seek would void what was acknowledged after the first one."""
    session = attached()
    assert requests(session.handle(SeekWanted(1, 7))) == [SeekRequested(1, NUMBER, 7)]
    lost = session.handle(StreamLost(1))[1]
    assert isinstance(lost, SeekEnded)
    assert isinstance(lost.result, DeadlineExceeded)
    session.handle(SeekWanted(2, 8, redo=True))
    asked(session)
    sent = requests(reported(session, AnswerSubscribe(2, subscribed(consumer=2))))
    assert sent[:-1] == [SeekRequested(2, NUMBER, 8, redo=True)]
    assert reported(session, AnswerSeek(2, EPOCH1)) == [SeekEnded(2, EPOCH1)]


@pytest.mark.hazard("late-ack-after-seek")
@pytest.mark.parametrize(
    "refusal", [NotOwner("the topic is being moved"), TopicLoading("the topic is being taken over")]
)
def test_seek_that_an_owner_refused_goes_to_the_next_one(refusal: OncelogError) -> None:
    """It was not written there, so the application hears of no failure; one in flight is unknown."""
    session = attached()
    session.handle(SeekWanted(1, 7))
    (pause,) = reported(session, AnswerSeek(1, refusal))
    assert isinstance(pause, StartSessionTimer)
    session.handle(StreamLost(1))
    asked(session)
    sent = requests(reported(session, AnswerSubscribe(2, subscribed(consumer=2))))
    assert sent[0] == SeekRequested(1, NUMBER, 7)
    unknown = DeadlineExceeded("it may have been made")
    assert reported(session, AnswerSeek(1, unknown)) == [SeekEnded(1, unknown)]
    assert len(session.requests) == 0
