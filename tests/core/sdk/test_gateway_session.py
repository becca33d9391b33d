"""The producer session of a gateway: what it presents, how it ends, and who holds its name."""

import pytest

from oncelog.core.errors import (
    DeadlineExceeded,
    InvalidArgument,
    InvalidBatch,
    ProducerBusy,
    ProducerExpired,
    ProducerFenced,
    SequenceGap,
    SessionEnded,
    SessionSuperseded,
    StaleSequence,
    UnknownProducer,
)
from oncelog.core.formats.batch import PayloadFormat, peek_batch
from oncelog.core.formats.entry import SequenceMode
from oncelog.core.formats.epoched_ids import first_of
from oncelog.core.formats.opening import ClientToken, GatewayClient, OnConflict, ProducerInstance
from oncelog.core.formats.outcome import Outcome, ResultKind, ResultRange
from oncelog.core.ids import EntryId, Generation, LedgerId, OwnerEpoch, Position, SequenceId, SessionNumber
from oncelog.core.sdk.owner_attempts import (
    CloseWanted,
    EpochSeen,
    FailSession,
    LookUp,
    OpenWanted,
    OwnerFound,
    StartSessionTimer,
    StreamLost,
)
from oncelog.core.sdk.producer.events import (
    ClientIsThere,
    Complete,
    Fail,
    HoldName,
    NameIsWanted,
    ProducerEffect,
    ProducerEvent,
    ReportOpen,
    ReportWanted,
    SessionClosedByOwner,
)
from oncelog.core.sdk.producer.opening import CloseSession, OpenProducer, OpenRefused
from oncelog.core.sdk.producer.pending_batches import BatchReady, SendBatches
from oncelog.core.sdk.producer.session import ProducerSession, ProducerSessionState
from tests.core.sdk.producer_world import (
    INSTANCE,
    PID,
    answered,
    explicit,
    grant,
    new_producer,
    opened,
    reopened,
    sent_requests,
    stored,
)

CLIENT = GatewayClient(4, ClientToken(Generation(2), 77))
SESSION = SessionNumber(1)


def gateway(last: int = -1) -> ProducerSession:
    """A producer of a gateway with its first grant, attempt 1."""
    return opened(client=CLIENT, last=last)


def asked(effects: list[ProducerEffect]) -> OpenProducer:
    (request,) = [effect for effect in effects if isinstance(effect, OpenProducer)]
    return request


def packed(request: int, payload: bytes = b"an entry") -> BatchReady:
    return BatchReady(request, payload, 1, explicit(request), 5, payload_format=PayloadFormat.CHUNK)


@pytest.mark.hazard("gateway-opens-anew")
def test_first_opening_presents_the_token() -> None:
    """With the name, the epoch, and what is to happen if the token counts as none."""
    producer = new_producer(client=CLIENT, on_conflict=OnConflict.REFUSE)
    producer.handle(OpenWanted())
    request = asked(producer.handle(OwnerFound(1, OwnerEpoch(1))))
    assert request.client == CLIENT
    assert (request.name, request.on_conflict, request.resume) == ("importer", OnConflict.REFUSE, None)
    (report,) = [each for each in producer.handle(grant(1, last=6, generation=2)) if isinstance(each, ReportOpen)]
    assert report.last_sequence_id == 6
    assert producer.opening.instance == ProducerInstance(PID, Generation(2))


@pytest.mark.hazard("sessions-end-each-other")
def test_resumption_presents_the_epoch_again_and_no_token() -> None:
    """The instance is known by then. The owner orders it by the epoch of the client's opening."""
    producer = gateway()
    producer.handle(StreamLost(1))
    request = asked(producer.handle(OwnerFound(2, OwnerEpoch(1))))
    assert request.resume == ProducerInstance(PID, Generation(1))
    assert request.client == GatewayClient(4)
    assert request.instance_id == INSTANCE


@pytest.mark.hazard("sessions-end-each-other")
@pytest.mark.parametrize("error", [SessionSuperseded("it goes on elsewhere"), ProducerFenced("a newer instance")])
def test_superseded_session_is_never_opened_again(error: SessionSuperseded | ProducerFenced) -> None:
    """It fails what is pending, as unknown if it was sent, and asks for nothing."""
    producer = gateway()
    producer.handle(packed(1))
    effects = producer.handle(SessionClosedByOwner(SESSION, error, OwnerEpoch(1)))
    assert effects == [
        FailSession(error), CloseSession(1, SESSION, keeps_name=True), Fail(1, error, stored=None)
    ]  # fmt: skip
    assert producer.state is ProducerSessionState.FAILED
    assert producer.handle(OwnerFound(2, OwnerEpoch(1))) == []


@pytest.mark.hazard("sessions-end-each-other")
def test_gateway_opens_no_superseded_session_again() -> None:
    """No look-up, and no timer for one."""
    producer = gateway()
    effects = producer.handle(SessionClosedByOwner(SESSION, SessionSuperseded("it goes on elsewhere"), OwnerEpoch(1)))
    assert not [effect for effect in effects if isinstance(effect, LookUp | StartSessionTimer)]
    assert producer.state is ProducerSessionState.FAILED


def test_late_resumption_is_the_end() -> None:
    """After a takeover, another gateway has the client: the owner refuses, and nothing is tried again."""
    producer = gateway()
    producer.handle(StreamLost(1))
    producer.handle(OwnerFound(2, OwnerEpoch(1)))
    late = ProducerFenced("a session of epoch 5")
    assert producer.handle(OpenRefused(2, late, OwnerEpoch(1))) == [FailSession(late)]


def test_retriable_end_of_a_session_is_not_the_end_of_a_gateway() -> None:
    """A failed write, a takeover: it opens again, as every producer, and sends what is pending."""
    producer = gateway()
    producer.handle(packed(1))
    producer.handle(SessionClosedByOwner(SESSION, SessionEnded("a write failed"), OwnerEpoch(1)))
    assert sent_requests(reopened(producer, session=2)) == [1]


def test_expired_producer_of_a_gateway_is_no_new_instance() -> None:
    """Its client holds the token of this one, and presents it: an ordinary producer goes on as a new instance here."""
    for producer, goes_on in ((gateway(), False), (opened(), True)):
        producer.handle(StreamLost(1))
        producer.handle(OwnerFound(2, OwnerEpoch(1)))
        producer.handle(OpenRefused(2, UnknownProducer(), OwnerEpoch(1)))
        reopening = producer.opening.attempt
        if producer.opening.phase.value == "waiting":
            reopened_at = producer.opening
            producer.handle(OpenWanted())
            reopening = reopened_at.attempt
        producer.handle(OwnerFound(reopening, OwnerEpoch(1)))
        producer.handle(OpenRefused(reopening, ProducerExpired(), OwnerEpoch(1)))
        assert (producer.error is None) is goes_on


def test_busy_name_is_final() -> None:
    """The owner has waited for the holder's gateway; the client decides what comes next."""
    producer = new_producer(client=GatewayClient(0), on_conflict=OnConflict.REFUSE)
    producer.handle(OpenWanted())
    producer.handle(OwnerFound(1, OwnerEpoch(1)))
    busy = ProducerBusy("another client holds it")
    assert producer.handle(OpenRefused(1, busy, OwnerEpoch(1))) == [FailSession(busy)]


@pytest.mark.hazard("gateway-at-an-older-owner")
def test_owner_of_an_older_version_is_refused() -> None:
    """It has opened an ordinary session, and knows no other way to end it. The error says what to do."""
    producer = new_producer(client=CLIENT)
    producer.handle(OpenWanted())
    producer.handle(OwnerFound(1, OwnerEpoch(1)))
    failed, closed = None, []
    for effect in producer.handle(grant(1, for_client=False)):
        if isinstance(effect, FailSession):
            failed = effect.error
        else:
            closed.append(effect)
    assert closed == [CloseSession(1, SESSION)]
    assert isinstance(failed, InvalidArgument)
    assert failed.details == {"field": "client", "limit": 9}
    assert "oncelog admin cluster finalize" in failed.message


# --- the name ---------------------------------------------------------------------------------------------------------


@pytest.mark.hazard("half-open-session")
def test_wanted_name_is_held_by_a_client_that_lives() -> None:
    """The gateway asks its client, and the owner hears one answer."""
    producer = gateway()
    assert producer.handle(NameIsWanted(SESSION)) == [ReportWanted()]
    assert producer.handle(ClientIsThere()) == [HoldName(1, SESSION)]
    assert producer.handle(ClientIsThere()) == []


def test_answer_belongs_to_the_session_that_was_asked() -> None:
    """A question about another session is ignored, and so is an answer after the session has ended."""
    producer = gateway()
    assert producer.handle(NameIsWanted(SessionNumber(9))) == []
    producer.handle(NameIsWanted(SESSION))
    producer.handle(StreamLost(1))
    reopened(producer, session=2)
    assert producer.handle(ClientIsThere()) == []


@pytest.mark.hazard("name-lost-by-a-restart")
def test_sessions_that_a_gateway_closes_keep_the_name() -> None:
    """Whatever the reason, but for a client that has closed its producer."""
    assert gateway().handle(CloseWanted())[0] == CloseSession(1, SESSION)
    assert gateway().handle(CloseWanted(gives_up_name=False))[0] == CloseSession(1, SESSION, keeps_name=True)
    assert gateway().handle(EpochSeen(OwnerEpoch(5)))[0] == CloseSession(1, SESSION, keeps_name=True)
    assert opened().handle(CloseWanted(gives_up_name=False))[0] == CloseSession(1, SESSION)


@pytest.mark.parametrize("gives_up", [True, False])
def test_grant_that_comes_after_the_close_is_closed_in_the_same_way(*, gives_up: bool) -> None:
    """The opening was withdrawn, and its grant was on its way."""
    producer = new_producer(client=CLIENT)
    producer.handle(OpenWanted())
    producer.handle(OwnerFound(1, OwnerEpoch(1)))
    producer.handle(CloseWanted(gives_up_name=gives_up))
    assert producer.handle(grant(1)) == [CloseSession(1, SESSION, keeps_name=not gives_up)]


# --- packed batches ---------------------------------------------------------------------------------------------------


def test_packed_batch_is_sent_as_it_is() -> None:
    """Its bytes and the number of its format are the gateway's; the header is of the instance. A resend has the same
    bytes."""
    producer = gateway()
    (sent,) = [each for each in producer.handle(packed(1, b"\x00\x01 any bytes")) if isinstance(each, SendBatches)]
    ((_, data),) = sent.batches
    header = peek_batch(data)
    assert (header.payload_format, header.producer_id, header.generation) == (PayloadFormat.CHUNK, PID, 1)
    assert (header.first, header.last, header.count, header.publish_time_ms) == (SequenceId(1), SequenceId(1), 1, 5)
    assert bytes(data).endswith(b"\x00\x01 any bytes")
    producer.handle(StreamLost(1))
    (again,) = [each for each in reopened(producer, session=2) if isinstance(each, SendBatches)]
    assert again.batches == sent.batches


def in_epoch(request: int, epoch: int, number: int, count: int = 1) -> BatchReady:
    first = first_of(epoch) + number
    return BatchReady(request, b"x", count, explicit(first, first + count - 1), 5)


def test_epoched_producer_goes_on_within_its_epoch_or_at_the_first_number_of_a_higher_one() -> None:
    """A gap would end the session, so it is refused here. The owner answers about the rest."""
    producer = opened(client=CLIENT, mode=SequenceMode.EPOCHED)
    assert not fails(producer.handle(in_epoch(1, 2, 0, 3)))
    assert not fails(producer.handle(in_epoch(2, 2, 3)))
    assert fails(producer.handle(in_epoch(3, 2, 5))) == [(3, first_of(2) + 4)]
    assert fails(producer.handle(in_epoch(4, 3, 1))) == [(4, first_of(2) + 4)]
    assert not fails(producer.handle(in_epoch(5, 3, 0)))
    assert not fails(producer.handle(in_epoch(6, 2, 3)))
    assert producer.error is None


def fails(effects: list[ProducerEffect]) -> list[tuple[int, object]]:
    return [(each.request, each.error.details["expected"]) for each in effects if isinstance(each, Fail)]


@pytest.mark.hazard("copy-of-an-older-epoch")
def test_late_copy_of_an_older_epoch_fails_alone() -> None:
    """Nothing follows it, so the producer goes on: the others are sent again. An earlier sending may have been stored,
    and forgotten since. Control: another refusal leaves a gap, and ends the producer."""
    for error, ends in ((StaleSequence("old"), False), (InvalidBatch("damaged"), True)):
        producer = opened(client=CLIENT, mode=SequenceMode.EPOCHED, last=first_of(2))
        producer.handle(in_epoch(1, 1, 5))
        producer.handle(in_epoch(2, 2, 1))
        producer.handle(StreamLost(1))
        assert sent_requests(reopened(producer, session=2)) == [1, 2]
        effects = producer.handle(answered(2, (1, error)))
        assert (producer.error is error) is ends
        failed = {each.request: each.stored for each in effects if isinstance(each, Fail)}
        assert failed[1] is None
        assert (2 in failed) is ends
        if not ends:
            assert sent_requests(reopened(producer, session=3)) == [2]


def test_gap_in_front_of_a_higher_epoch_is_closed_by_sending_again() -> None:
    """The batch that begins the epoch never arrived: the oldest pending one closes the gap. Control: one that does not
    begin an epoch would be refused for ever, and ends the producer."""
    for number, last, ends in ((0, first_of(1) + 4, False), (1, first_of(2), True)):
        producer = opened(client=CLIENT, mode=SequenceMode.EPOCHED, last=last)
        producer.handle(in_epoch(1, 2, number))
        producer.handle(in_epoch(2, 2, number + 1))
        gap = SequenceGap("a gap", expected=first_of(1) + 5)
        producer.handle(answered(1, (2, gap)))
        assert (producer.error is gap) is ends


def test_packed_batch_may_repeat_and_go_back() -> None:
    """The log decides about ids, not the session: clients send again from anywhere."""
    producer = gateway(last=9)
    for request, first in ((1, 4), (2, 2), (3, 2)):
        effects = producer.handle(BatchReady(request, b"x", 2, explicit(first, first + 1), 5))
        assert not [effect for effect in effects if isinstance(effect, Fail)]
    assert not isinstance(producer.error, DeadlineExceeded)


# --- chunks of the client ---------------------------------------------------------------------------------------------


def stored_chunk(entry: int) -> Outcome:
    return (ResultRange(ResultKind.CHUNK, 1, Position(LedgerId(1), EntryId(entry)), 0),)


def of_message(request: int, payload_format: PayloadFormat) -> BatchReady:
    """All of them have sequence id 7."""
    return BatchReady(request, b"a payload", 1, explicit(7), 5, payload_format=payload_format)


def with_chunks(*answers: int) -> ProducerSession:
    """Chunks 1 and 2 were given; these are stored."""
    producer = gateway()
    for request in (1, 2):
        producer.handle(of_message(request, PayloadFormat.CHUNK))
    for request in answers:
        effects = producer.handle(answered(1, (request, stored_chunk(request))))
        assert effects == [Complete(request, explicit(7), stored_chunk(request))]
    return producer


@pytest.mark.hazard("chunk-moves-the-mark")
def test_chunk_is_no_message_that_is_stored() -> None:
    """A grant whose mark is below it is no log that went back."""
    producer = with_chunks(1, 2)
    assert producer.numbers.stored == -1
    producer.handle(of_message(3, PayloadFormat.CHUNKED))
    producer.handle(answered(1, (3, stored(1, entry=3))))
    assert producer.numbers.stored == 7


ENDS = [
    StreamLost(1),
    SessionClosedByOwner(SESSION, SessionEnded("the ledger has rolled"), OwnerEpoch(1)),
    EpochSeen(OwnerEpoch(2)),
]


@pytest.mark.hazard("chunks-without-their-first")
@pytest.mark.parametrize("end", ENDS)
@pytest.mark.parametrize("named", [False, True], ids=["chunks", "message"])
def test_session_that_ends_between_chunks_is_the_end(end: ProducerEvent, named: bool) -> None:
    """The gateway does not have the stored ones any more: only its client can send all of them again."""
    producer = with_chunks(1, 2) if named else with_chunks(1)
    if named:
        producer.handle(of_message(3, PayloadFormat.CHUNKED))
    effects = producer.handle(end)
    assert isinstance(producer.error, SessionEnded)
    assert producer.state is ProducerSessionState.FAILED
    assert [each.stored for each in effects if isinstance(each, Fail)] == [None]
    assert not [each for each in effects if isinstance(each, LookUp)]
    producer.check_invariants()


@pytest.mark.parametrize("end", ENDS)
def test_chunks_that_are_not_stored_are_sent_again(end: ProducerEvent) -> None:
    producer = with_chunks()
    producer.handle(end)
    assert producer.state is ProducerSessionState.OPENING
    assert len(producer.pending) == 2


@pytest.mark.parametrize(
    "decides",
    [
        [of_message(3, PayloadFormat.CHUNKED), answered(1, (3, stored(1, entry=3)))],
        [of_message(3, PayloadFormat.CHUNKED), answered(1, (3, InvalidArgument("refused", field="payload")))],
        [BatchReady(3, b"another", 1, explicit(8), 5, payload_format=PayloadFormat.PULSAR)],
    ],
    ids=["stored", "refused", "given-up"],
)
def test_message_that_is_decided_or_given_up_ends_no_producer(decides: list[ProducerEvent]) -> None:
    producer = with_chunks(1, 2)
    for event in decides:
        producer.handle(event)
    if producer.state is ProducerSessionState.OPEN:
        producer.handle(StreamLost(1))
    assert producer.state is ProducerSessionState.OPENING


@pytest.mark.hazard("chunks-without-their-first")
def test_chunks_of_a_message_that_is_known_end_no_producer() -> None:
    """Nothing is stored of them now."""
    producer = with_chunks()
    known = (ResultRange(ResultKind.DUPLICATE, 1, Position(LedgerId(1), EntryId(5)), 0),)
    producer.handle(answered(1, (1, known), (2, known)))
    producer.handle(StreamLost(1))
    assert producer.state is ProducerSessionState.OPENING
