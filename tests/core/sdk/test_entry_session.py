"""core/sdk/consumer/entries: consumers of whole entries for gateways: permits, what is begun, redelivery in order."""

import pytest

from oncelog.core.acks.changes import SubscriptionType
from oncelog.core.delivery.events import (
    AnswerAck,
    AnswerSubscribe,
    ConsumerActive,
    ConsumerDetached,
    ConsumerHeld,
    ConsumerOpening,
    ConsumerWanted,
    DeliveredEntry,
    DeliverMessages,
    FlowReported,
    NackRequested,
    RecallMessages,
    SubscriptionSought,
)
from oncelog.core.errors import ConsumerClosed, InvalidArgument, InvariantViolated
from oncelog.core.ids import ConsumerNumber, Generation, SeekEpoch
from oncelog.core.sdk.consumer.entries import EntrySession
from oncelog.core.sdk.consumer.events import (
    AckWanted,
    ClientLives,
    ConsumerEffect,
    ConsumerEvent,
    ConsumerSettings,
    EntryWanted,
    GiveBackWanted,
    HandOut,
    MessageRange,
    NackWanted,
    PermitsGiven,
    ReportSought,
    ReportTakenBack,
    ReportWanted,
    RestartWanted,
    SeekWanted,
    SendToOwner,
)
from oncelog.core.sdk.consumer.session import ConsumerSessionState
from oncelog.core.sdk.owner_attempts import FailSession, OpenWanted, StreamLost
from tests.core.sdk.consumer_world import (
    INSTANCE,
    World,
    asked,
    entry_of,
    flow,
    frame,
    new_session,
    ranges,
    reported,
    requests,
    subscribed,
)

C1, EPOCH0 = ConsumerNumber(1), SeekEpoch(0)
SHARED, EXCLUSIVE = SubscriptionType.SHARED, SubscriptionType.EXCLUSIVE


def new_entries(kind: SubscriptionType = SHARED) -> EntrySession:
    return EntrySession(ConsumerSettings("billing", kind, "worker", first_index=0, whole_entries=True), INSTANCE)


def attached(kind: SubscriptionType = SHARED, *, generation: int = 0) -> EntrySession:
    session = new_entries(kind)
    session.handle(OpenWanted())
    assert asked(session).whole_entries
    reported(session, AnswerSubscribe(1, subscribed(generation=generation, whole_entries=True)))
    assert session.state is ConsumerSessionState.ATTACHED
    return session


def returned(session: EntrySession, kept: tuple[tuple[int, int], ...], *, generation: int = 0) -> ConsumerOpening:
    """The session attaches again, as consumer 2."""
    opening = asked(session)
    answer = subscribed(consumer=2, generation=generation, kept=ranges(*kept), whole_entries=True)
    reported(session, AnswerSubscribe(opening.call, answer))
    return opening


def handed(effects: list[ConsumerEffect]) -> list[MessageRange]:
    return [run for effect in effects if isinstance(effect, HandOut) for run in effect.runs]


def taken(session: EntrySession) -> list[tuple[int, int]]:
    return [(run.first, run.last) for run in handed(session.handle(EntryWanted()))]


def taken_back(effects: list[ConsumerEffect]) -> list[tuple[int, int]]:
    return [(part.first, part.last) for each in effects if isinstance(each, ReportTakenBack) for part in each.ranges]


def limit(report: FlowReported) -> int:
    """Up to where the owner may send on the stream."""
    return report.handed_out + report.window


# --- permits ----------------------------------------------------------------------------------------------------------


@pytest.mark.hazard("entry-above-the-permits", "relative-credit")
def test_permits_are_the_credit_of_the_consumer() -> None:
    """Their sum. Messages that were handed out have used theirs for ever, also above the sum."""
    session = attached()
    assert session.messages.credit == (0, 0)
    assert limit(flow(session.handle(PermitsGiven(2)))) == 2
    assert session.handle(PermitsGiven(2)) == session.handle(PermitsGiven(1)) == []
    reported(session, frame(0, 4))
    assert session.messages.credit == (0, 2)
    assert limit(flow(session.handle(EntryWanted()))) == 5, "the owner has sent 5, and sends no more"
    assert limit(flow(session.handle(PermitsGiven(5)))) == 5
    assert limit(flow(session.handle(PermitsGiven(6)))) == 6


@pytest.mark.hazard("entry-above-the-permits")
def test_new_stream_has_the_permits_that_are_neither_used_nor_taken() -> None:
    """Messages of the former stream that still wait take theirs; a message that was dropped unseen has used none."""
    session = attached()
    session.handle(PermitsGiven(20))
    for first in (0, 5, 10):
        reported(session, frame(first, first + 4))
    assert taken(session) == [(0, 4)]
    session.handle(StreamLost(1))
    returned(session, ((0, 9),))
    assert session.messages.credit == (0, 10)
    assert taken(session) == [(5, 9)]
    assert session.messages.credit == (0, 10)
    assert taken(session) == []


def test_dropped_messages_use_no_permit() -> None:
    """Sought, or taken back while they wait."""
    session = attached()
    session.handle(PermitsGiven(10))
    reported(session, frame(0, 4))
    assert limit(flow(reported(session, RecallMessages(C1, ranges((0, 4)))))) == 15
    reported(session, frame(5, 9))
    assert limit(flow(reported(session, SubscriptionSought(C1, SeekEpoch(1))))) == 20


# --- entries ----------------------------------------------------------------------------------------------------------


def test_entry_is_handed_out_with_all_its_ranges() -> None:
    """Of one delivery, or of two that follow each other: the second one would have to wait for the first."""
    session = attached()
    session.handle(PermitsGiven(100))
    parts = (DeliveredEntry(entry_of(0, 6), ranges((4, 5), (0, 1))), DeliveredEntry(entry_of(6, 2), ranges((6, 7))))
    reported(session, DeliverMessages(C1, EPOCH0, Generation(0), parts, {4: 2}))
    reported(session, DeliverMessages(C1, EPOCH0, Generation(0), (DeliveredEntry(entry_of(6, 2), ranges((6, 6))),)))
    runs = handed(session.handle(EntryWanted()))
    assert [(run.first, run.last, run.delivery_counts) for run in runs] == [(0, 1, {}), (4, 5, {4: 2})]
    assert taken(session) == [(6, 6), (7, 7)]


def test_message_whose_acknowledgement_is_in_flight_is_not_handed_out() -> None:
    """Nor does it hide the others of its entry; it comes if it was not acknowledged."""
    session = attached()
    session.handle(PermitsGiven(100))
    reported(session, frame(0, 4))
    session.handle(AckWanted(1, EPOCH0, ranges((1, 2))))
    assert taken(session) == [(0, 0), (3, 4)]
    assert taken(session) == []
    reported(session, AnswerAck(C1, 1, InvalidArgument("no")))
    assert taken(session) == [(1, 2)]


@pytest.mark.hazard("wrong-delivery-count")
def test_oldest_message_of_the_client_is_reported_as_begun() -> None:
    """In reports and where it comes back: of the others it is unknown whether the application has them. An acknowledged
    one makes the next one the oldest."""
    session = attached()
    session.handle(PermitsGiven(100))
    reported(session, frame(0, 4))
    assert flow(session.handle(EntryWanted())).begun == ranges((0, 0))
    session.handle(AckWanted(1, EPOCH0, ranges((0, 1))))
    assert flow(reported(session, AnswerAck(C1, 1))).begun == ranges((2, 2))
    session.handle(StreamLost(1))
    resume = asked(session).resume
    assert resume is not None
    assert (resume.ranges, resume.begun) == (ranges((2, 4)), ranges((2, 2)))


@pytest.mark.hazard("wrong-delivery-count")
@pytest.mark.parametrize(("counts", "begun"), [(True, ranges((0, 0))), (False, ())])
def test_end_says_what_counts(counts: bool, begun: object) -> None:
    """Before the consumer is detached, because no report follows."""
    session = attached()
    session.handle(PermitsGiven(100))
    reported(session, frame(0, 4))
    taken(session)
    report, detached = requests(session.handle(GiveBackWanted(counts)))
    assert isinstance(report, FlowReported)
    assert (report.begun, detached) == (begun, ConsumerDetached(C1, lost=False))
    assert isinstance(session.error, ConsumerClosed)
    assert session.handle(EntryWanted()) == [HandOut(())]
    assert session.handle(PermitsGiven(101)) == session.handle(RestartWanted()) == []


# --- what is taken back -----------------------------------------------------------------------------------------------


def test_recall_reports_what_the_client_has() -> None:
    """Not what only waits here, nor what is being acknowledged."""
    session = attached()
    session.handle(PermitsGiven(100))
    reported(session, frame(0, 4))
    reported(session, frame(5, 9))
    taken(session)
    session.handle(AckWanted(1, EPOCH0, ranges((1, 1))))
    assert taken_back(reported(session, RecallMessages(C1, ranges((0, 2), (5, 6))))) == [(0, 0), (2, 2)]
    assert session.messages.held() == ranges((3, 4), (7, 9))
    assert taken_back(reported(session, RecallMessages(C1, ranges((0, 2))))) == []


def test_what_a_new_owner_does_not_leave_here_is_reported() -> None:
    session = attached()
    session.handle(PermitsGiven(100))
    reported(session, frame(0, 4))
    taken(session)
    session.handle(StreamLost(1))
    opening = asked(session)
    answer = subscribed(consumer=2, kept=ranges((1, 2)), whole_entries=True)
    assert taken_back(reported(session, AnswerSubscribe(opening.call, answer))) == [(0, 0), (3, 4)]


def test_seek_and_another_active_consumer_have_reports_of_their_own() -> None:
    """Everything is void."""
    session = attached(EXCLUSIVE, generation=1)
    session.handle(PermitsGiven(100))
    reported(session, frame(0, 4, generation=1))
    taken(session)
    effects = reported(session, SubscriptionSought(C1, SeekEpoch(1)))
    assert (taken_back(effects), ReportSought(SeekEpoch(1)) in effects) == ([], True)
    reported(session, frame(0, 4, epoch=1, generation=1))
    taken(session)
    assert taken_back(reported(session, ConsumerActive(C1, Generation(0)))) == []


# --- redelivery in order ----------------------------------------------------------------------------------------------


def test_restart_presents_nothing_and_takes_the_place_of_the_stream() -> None:
    """So the owner begins with the lowest message; the consumer stays attached until then, and active. What the former
    stream still brings is ignored."""
    session = attached(EXCLUSIVE, generation=1)
    session.handle(PermitsGiven(12))
    for first in (0, 5):
        reported(session, frame(first, first + 4, generation=1))
    assert taken(session) == [(0, 4)]
    session.handle(NackWanted(1, EPOCH0, ranges((0, 4)), 0))
    effects = session.handle(RestartWanted())
    assert requests(effects) == [], "no farewell"
    resume = returned(session, (), generation=1).resume
    assert resume is not None
    assert (resume.ranges, resume.begun, resume.generation) == ((), (), 1)
    assert session.messages.credit == (0, 7), "the client has had 5"
    assert taken(session) == []
    reported(session, frame(10, 14, generation=1))
    assert session.messages.received == 0
    reported(session, frame(0, 4, consumer=2, generation=1, counts={0: 2}))
    assert taken(session) == [(0, 4)]


def test_acknowledgements_in_flight_are_sent_again_behind_a_restart() -> None:
    session = attached()
    session.handle(PermitsGiven(12))
    reported(session, frame(0, 4))
    taken(session)
    session.handle(NackWanted(1, EPOCH0, ranges((0, 4)), 0))
    session.handle(RestartWanted())
    opening = asked(session)
    answer = AnswerSubscribe(opening.call, subscribed(consumer=2, whole_entries=True))
    assert isinstance(requests(reported(session, answer))[0], NackRequested)


def test_seek_in_flight_makes_a_restart_needless() -> None:
    """And its outcome stays known."""
    session = attached()
    session.handle(SeekWanted(1, 0))
    assert session.handle(RestartWanted()) == []
    assert session.state is ConsumerSessionState.ATTACHED


def test_end_during_a_restart_detaches_the_former_stream() -> None:
    """Otherwise the owner would keep a consumer that nobody has."""
    session = attached()
    attempt = session.opening.attempt
    session.handle(RestartWanted())
    assert SendToOwner(attempt, ConsumerDetached(C1, lost=False)) in session.handle(GiveBackWanted(counts=False))


def test_restart_without_a_stream_keeps_nothing_for_the_next_one() -> None:
    session = attached()
    session.handle(PermitsGiven(12))
    reported(session, frame(0, 4))
    taken(session)
    session.handle(StreamLost(1))
    assert session.handle(RestartWanted()) == []
    resume = returned(session, ()).resume
    assert resume is not None
    assert resume.ranges == ()


@pytest.mark.hazard("half-open-consumer")
def test_gateway_answers_for_its_client() -> None:
    """On the stream that has asked: a later owner asks again."""
    session = attached(EXCLUSIVE, generation=1)
    assert reported(session, ConsumerWanted(C1)) == [ReportWanted()]
    assert requests(session.handle(ClientLives())) == [ConsumerHeld(C1)]
    session.handle(StreamLost(1))
    assert session.handle(ClientLives()) == []


# --- versions, and other sessions -------------------------------------------------------------------------------------


def test_owner_that_does_not_know_whole_entries_is_left() -> None:
    """It would cut them. The attachment is given back."""
    session = new_entries()
    session.handle(OpenWanted())
    asked(session)
    effects = reported(session, AnswerSubscribe(1, subscribed()))
    assert requests(effects) == [ConsumerDetached(C1, lost=False)]
    (failed,) = [effect.error for effect in effects if isinstance(effect, FailSession)]
    assert isinstance(failed, InvalidArgument)
    assert failed.details["field"] == "client"


def test_other_sessions_know_no_entries() -> None:
    with pytest.raises(InvariantViolated):
        new_session().handle(EntryWanted())


# --- at random --------------------------------------------------------------------------------------------------------


class EntryWorld(World):
    """The client asks for some messages at a time, and sometimes for everything again."""

    def __init__(self, seed: int) -> None:
        self.permitted = self.had = 0
        super().__init__(seed, session=new_entries())

    def feed(self, event: ConsumerEvent) -> None:
        super().feed(event)
        if isinstance(event, EntryWanted):
            had = self.session.messages.handed  # type: ignore[attr-defined]
            if had > self.had:
                assert self.had < self.permitted, "an entry comes while a permit is left"
            self.had = had

    def wanted(self) -> ConsumerEvent:
        return EntryWanted()

    def step(self, *, faults: bool) -> bool:
        if faults and self.random.random() < 0.03:
            self.working.clear()
            self.feed(RestartWanted())
        elif self.random.random() < 0.1 or not super().step(faults=faults):
            self.permitted += self.random.randint(1, 4)
            self.feed(PermitsGiven(self.permitted))
        return True


@pytest.mark.parametrize("seed", range(20))
def test_every_message_is_acknowledged_and_none_comes_beyond_the_permits(seed: int) -> None:
    """With lost streams, takeovers, seeks and restarts."""
    EntryWorld(seed).run(faults=300)
