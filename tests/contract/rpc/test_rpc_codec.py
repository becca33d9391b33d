"""Codecs: decoding an encoded value returns the same value, and method paths match the protocol."""

from typing import NamedTuple

import pytest

from oncelog.core.access import Caller
from oncelog.core.errors import InvalidArgument, NotOwner, OncelogError, SequenceGap, SessionEnded
from oncelog.core.formats.entry import SequenceMode
from oncelog.core.formats.opening import OnConflict, ProducerInstance
from oncelog.core.formats.outcome import Outcome, ResultKind, ResultRange
from oncelog.core.ids import (
    BEFORE_ALL,
    EntryId,
    Generation,
    Incarnation,
    InstanceId,
    LedgerId,
    OwnerEpoch,
    Position,
    ProducerId,
    SequenceId,
    SessionNumber,
    TopicId,
)
from oncelog.core.ledger.member_status import AppendStatus, CopyState, FenceState, ReadStatus
from oncelog.rpc.codecs import (
    consumer_codec,
    metadata_codec,
    owner_codec,
    reader_codec,
    recovery_codec,
    storage_codec,
    subscription_codec,
)
from oncelog.rpc.codecs.owner_codec import (
    EndedSession,
    OpenDenied,
    OpenGranted,
    OpenRequest,
    PublishAnswers,
    PublishFrame,
    ReceivedAnswers,
    Switched,
)
from oncelog.rpc.codecs.reader_codec import (
    ReadControl,
    ReaderFrame,
    ReaderStart,
    StartAt,
    StartEdge,
    StartIndex,
    StartMessage,
    StartTime,
)
from oncelog.rpc.codecs.storage_codec import AppendAnswer, AppendFrame, ReadFrame, ReadRequest
from oncelog.rpc.methods import Method, ReadMethod, StreamMethod
from oncelog.wire import metadata_pb2, owner_pb2, storage_pb2, subscriptions_pb2

TOPIC = TopicId("0123456789abcdef0123456789abcdef")
NODE = Incarnation("fedcba9876543210fedcba9876543210")
SESSION = SessionNumber(7)


class BatchAnswer(NamedTuple):
    """What an owner's core answers to a batch, in small."""

    session: SessionNumber
    request: int
    result: Outcome | OncelogError


def test_append_keeps_target_recovery_and_entries() -> None:
    """The storage node stores exactly what the writer sends."""
    sent = AppendFrame(NODE, recovery=True, entries=[(b"header", b"body"), b"whole"])
    received = storage_codec.decode_append(storage_codec.encode_append(sent))
    assert tuple(received) == (NODE, True, [b"headerbody", b"whole"], False)


def test_repair_is_told_and_a_count_beyond_the_limit_is_refused() -> None:
    """Ordinary adds are refused where copies of a repair are taken."""
    codec = storage_codec
    copied = codec.decode_append(codec.encode_append(AppendFrame(NODE, recovery=False, entries=[b"x"], repair=True)))
    assert (copied.recovery, copied.repair) == (False, True)
    for count in (0, 4097):
        with pytest.raises(InvalidArgument) as refused:
            codec.VERIFY.decode_request(storage_pb2.VerifyRequest(entries_max=count).SerializeToString())
        assert refused.value.details["field"] == "entries_max"
        with pytest.raises(InvalidArgument) as refused:
            codec.DAMAGE.decode_request(storage_pb2.DamageRequest(ledgers_max=count).SerializeToString())
        assert refused.value.details["field"] == "ledgers_max"
    with pytest.raises(InvalidArgument) as refused:
        codec.FENCE_STATES.decode_request(storage_pb2.FenceStatesRequest(ledger_ids=range(4097)).SerializeToString())
    assert refused.value.details["field"] == "ledger_ids"


def test_append_answers_keep_ledger_ids_and_status() -> None:
    """Each status of the protocol crosses, and entry 0 of ledger 0 is an entry like any other."""
    sent = [AppendAnswer(LedgerId(n), [EntryId(0), EntryId(2**40)], status) for n, status in enumerate(AppendStatus)]
    assert storage_codec.decode_append_answers(storage_codec.encode_append_answers(sent)) == sent


def test_unknown_status_is_refused() -> None:
    """An unknown status must not be read as a known one."""
    data = storage_pb2.AppendAnswers(answers=[storage_pb2.AppendAnswer(ledger_id=1)]).SerializeToString()
    with pytest.raises(InvalidArgument, match="unknown storage status 0"):
        storage_codec.decode_append_answers(data)


def test_statuses_are_numbered_as_in_the_protocol() -> None:
    """The plain enumeration and the generated one have the same members."""
    wire = {name.removeprefix("STORAGE_STATUS_"): number for name, number in storage_pb2.StorageStatus.items()}
    assert {status.name: status.value for status in AppendStatus} | {"UNSPECIFIED": 0} == wire
    assert {status.name: status.value for status in ReadStatus}.items() <= wire.items()
    copies = {name.removeprefix("COPY_STATE_"): number for name, number in storage_pb2.CopyState.items()}
    assert {state.name: state.value for state in CopyState} | {"UNSPECIFIED": 0} == copies
    fences = {name.removeprefix("FENCE_STATE_"): number for name, number in storage_pb2.FenceState.items()}
    assert {state.name: state.value for state in FenceState} | {"UNSPECIFIED": 0} == fences


@pytest.mark.parametrize("flags", [(False, False), (True, False), (False, True)])
def test_read_request_keeps_all_fields(flags: tuple[bool, bool]) -> None:
    """A lost fence flag would lose messages."""
    sent = ReadRequest(NODE, LedgerId(5), EntryId(0), 100, 2**20, *flags)
    assert storage_codec.decode_read_request(storage_codec.encode_read_request(sent)) == sent


def test_read_frame_distinguishes_missing_from_unreadable_entries() -> None:
    """A missing and a damaged copy mean opposite things to a recovery."""
    sent = ReadFrame(
        ReadStatus.OK, [EntryId(3)], [EntryId(4)], [EntryId(5)], EntryId(-1), EntryId(-1), entries=[b"entry"]
    )
    assert tuple(storage_codec.decode_read(storage_codec.encode_read(sent))) == tuple(sent)


def test_entries_without_their_ids_are_refused() -> None:
    """An entry under the id of another would be a wrong answer."""
    data = storage_codec.encode_read(ReadFrame(ReadStatus.OK, [EntryId(3)], entries=[b"a", b"b"]))
    with pytest.raises(InvalidArgument, match="2 entries came with 1 ids"):
        storage_codec.decode_read(data)


def test_publish_frame_keeps_batches_openings_and_closes() -> None:
    """All fields of an opening are kept; absent ones stay absent."""
    instance = ProducerInstance(ProducerId(0), Generation(0))
    sent = PublishFrame(
        sessions=[SESSION, SESSION],
        requests=[0, 1],
        batches=[b"first", b"second"],
        opens=[
            OpenRequest(0, "public/default/flights", TOPIC, None),
            OpenRequest(
                1,
                "a/b/c",
                TOPIC,
                "n",
                SequenceMode.CONTIGUOUS,
                OnConflict.REFUSE,
                instance,
                None,
                OwnerEpoch(9),
                InstanceId(b"\0" * 15 + b"x"),
            ),
            OpenRequest(2, "a/b/c", TOPIC, "n", present=ProducerInstance(ProducerId(5), Generation(6))),
            OpenRequest(3, "a/b/c", TOPIC, "n", on_behalf_of=Caller("importer", superuser=True)),
        ],
        closes=[SessionNumber(0)],
        cancels=[0, 7],
    )
    assert tuple(owner_codec.decode_publish(owner_codec.encode_publish(sent))) == tuple(sent)


@pytest.mark.parametrize(("sessions", "requests"), [(1, 2), (2, 1), (3, 3)])
def test_batches_without_session_or_request_are_refused(sessions: int, requests: int) -> None:
    """A batch of the wrong session would be deduplicated as another producer's."""
    message = owner_pb2.PublishFrame(sessions=range(sessions), requests=range(requests), batches=[b"a", b"b"])
    with pytest.raises(InvalidArgument, match="session"):
        owner_codec.decode_publish(message.SerializeToString())


def test_opening_without_a_mode_is_refused() -> None:
    """A name keeps its mode permanently, so the mode must be explicit."""
    message = owner_pb2.PublishFrame(opens=[owner_pb2.OpenProducer(open_id=1, on_conflict=owner_pb2.ON_CONFLICT_FENCE)])
    with pytest.raises(InvalidArgument, match="opening 1"):
        owner_codec.decode_publish(message.SerializeToString())


def _told(error: Outcome | OncelogError | None) -> object:
    return (type(error), error.message, error.details) if isinstance(error, OncelogError) else error


def _crossed(sent: PublishAnswers) -> ReceivedAnswers:
    return owner_codec.decode_publish_answers(owner_codec.encode_publish_answers(sent))


PLACE = Position(LedgerId(5), EntryId(6))


@pytest.mark.parametrize(
    "fate",
    [
        (ResultRange(ResultKind.STORED, 4, PLACE, 0),),
        (ResultRange(ResultKind.STORED, 4, PLACE, 3),),
        (ResultRange(ResultKind.DUPLICATE, 4, Position(LedgerId(0), EntryId(0)), 0),),
        (ResultRange(ResultKind.BELOW_MARK, 4, None, 0),),
        (ResultRange(ResultKind.DUPLICATE, 3, None, 0), ResultRange(ResultKind.STORED, 4, PLACE, 3)),
        SequenceGap("send 10 first", expected=10),
    ],
)
def test_each_result_of_a_batch_is_kept(fate: Outcome | OncelogError) -> None:
    """In columns and alone; an answer without a position must not get one."""
    received = _crossed(PublishAnswers([BatchAnswer(SESSION, 3, fate)]))
    ((request, result),) = received.answers[SESSION]
    assert (request, _told(result)) == (3, _told(fate))


def test_answers_keep_their_sessions() -> None:
    """One stream carries all producers of a client."""
    sent = [BatchAnswer(SessionNumber(n % 3), n, (ResultRange(ResultKind.STORED, n + 1, PLACE, 0),)) for n in range(9)]
    received = _crossed(PublishAnswers(sent))
    assert {session: [request for request, _ in fates] for session, fates in received.answers.items()} == {
        0: [0, 3, 6],
        1: [1, 4, 7],
        2: [2, 5, 8],
    }


def test_only_whole_batches_are_encoded_in_columns() -> None:
    """The common answer is compact, and the others stay exact."""
    whole = (ResultRange(ResultKind.STORED, 4, PLACE, 0),)
    straddling = (ResultRange(ResultKind.DUPLICATE, 3, None, 0), ResultRange(ResultKind.STORED, 4, PLACE, 3))
    sent = PublishAnswers([BatchAnswer(SESSION, 1, whole), BatchAnswer(SESSION, 2, straddling)])
    message = owner_pb2.PublishAnswers.FromString(owner_codec.encode_publish_answers(sent))
    assert list(message.stored_requests) == [1]
    assert [answer.request for answer in message.answers] == [2]


def test_answer_without_results_or_error_is_refused() -> None:
    """An answer without results and without an error must not pass for a success."""
    message = owner_pb2.PublishAnswers(answers=[owner_pb2.BatchAnswer(session=1, request=2)])
    with pytest.raises(InvalidArgument, match="neither results nor an error"):
        owner_codec.decode_publish_answers(message.SerializeToString())


def test_grants_denials_and_ends_keep_all_fields() -> None:
    """An end without an error stays without one."""
    granted = OpenGranted(
        1, SESSION, "importer", ProducerId(101), Generation(3), SequenceId(-1), True, OwnerEpoch(4), TOPIC, 5 << 20
    )
    denied = OpenDenied(2, NotOwner("look again", owner="10.0.0.1:6650", owner_epoch=5), OwnerEpoch(4))
    ended = [
        EndedSession(SessionNumber(8), SessionEnded("the write failed"), OwnerEpoch(4)),
        EndedSession(SessionNumber(9), None, OwnerEpoch(4)),
    ]
    unjudged = granted._replace(open_id=3, deduplication_off=True)
    switched = [Switched(SessionNumber(8), off=True), Switched(SessionNumber(9), off=False)]
    received = _crossed(PublishAnswers(granted=[granted, unjudged], denied=[denied], ended=ended, switched=switched))
    assert received.switched == switched
    assert received.granted == [granted, unjudged]
    assert [(d.open_id, _told(d.error), d.owner_epoch) for d in received.denied] == [(2, _told(denied.error), 4)]
    assert [(e.session, _told(e.error), e.owner_epoch) for e in received.ended] == [
        (8, _told(ended[0].error), 4),
        (9, None, 4),
    ]


def test_columns_of_unequal_length_are_refused() -> None:
    """A partial acknowledgement must not be accepted."""
    message = owner_pb2.PublishAnswers(stored_sessions=[1, 2], stored_requests=[1])
    with pytest.raises(InvalidArgument, match="columns"):
        owner_codec.decode_publish_answers(message.SerializeToString())


@pytest.mark.parametrize(
    "at",
    [
        StartEdge.EARLIEST,
        StartEdge.LATEST,
        StartMessage(Position(LedgerId(0), EntryId(0)), 0, inclusive=True),
        StartMessage(Position(LedgerId(3), EntryId(4)), 5, inclusive=False),
        StartTime(0),
        StartIndex(0),
        StartIndex(2**40),
    ],
)
def test_each_start_of_a_reader_is_kept(at: StartAt) -> None:
    """Zeros are valid positions and times, not absent ones."""
    sent = ReadControl(ReaderStart("a/b/c", TOPIC, at, OwnerEpoch(3)), 1 << 20)
    assert reader_codec.decode_read_control(reader_codec.encode_read_control(sent)) == sent


def test_reader_without_a_start_is_refused() -> None:
    """There is no default start."""
    message = owner_pb2.ReadControl(start=owner_pb2.ReaderStart(topic="a/b/c"))
    with pytest.raises(InvalidArgument, match="start"):
        reader_codec.decode_read_control(message.SerializeToString())


def test_message_with_only_permits_is_kept() -> None:
    """Later messages of a read stream only grant permits."""
    sent = ReadControl(None, 4096)
    assert reader_codec.decode_read_control(reader_codec.encode_read_control(sent)) == sent


@pytest.mark.parametrize(
    "at", [StartEdge.LATEST, StartMessage(Position(LedgerId(4), EntryId(2)), 7, True), StartTime(9)]
)
def test_start_of_a_reader_keeps_its_place(at: StartAt) -> None:
    """Consumers seek to any place at which a reader can start."""
    sent = ReaderStart("a/b/c", TopicId("0" * 32), at, OwnerEpoch(3))
    assert reader_codec.start_from_wire(reader_codec.start_to_wire(sent)) == sent


def test_reader_frame_keeps_entries_names_and_positions() -> None:
    """The position of an empty log is negative and stays negative."""
    for confirmed in (BEFORE_ALL, Position(LedgerId(0), EntryId(0))):
        sent = ReaderFrame(OwnerEpoch(2), confirmed, True, 17, {ProducerId(101): "importer"}, None, [b"one", b"two"], 9)
        assert tuple(reader_codec.decode_reader_frame(reader_codec.encode_reader_frame(sent))) == tuple(sent)


def test_reader_frame_keeps_the_error_that_ends_the_stream() -> None:
    """The reader gets the reason as an error class."""
    sent = ReaderFrame(OwnerEpoch(2), error=NotOwner("look again", owner_epoch=3))
    error = reader_codec.decode_reader_frame(reader_codec.encode_reader_frame(sent)).error
    assert isinstance(error, NotOwner)
    assert error.details == {"owner_epoch": 3}


def test_method_paths_and_kinds_match_the_protocol() -> None:
    """A path is text: one that differs from the protocol would only show when called.

    REST_SERVED is the same method as its server reads it: as a stream, so that the token is checked before the message.
    """
    found = {
        method.path: (
            isinstance(method, StreamMethod),
            isinstance(method, StreamMethod | ReadMethod),
        )
        for codec in (
            *(storage_codec, recovery_codec, owner_codec, reader_codec),
            *(consumer_codec, subscription_codec, metadata_codec),
        )
        for name, method in vars(codec).items()
        if isinstance(method, Method) and name != "REST_SERVED"
    }
    declared = {
        f"/{service.full_name}/{method.name}": (method.client_streaming, method.server_streaming)
        for file in (storage_pb2, owner_pb2, subscriptions_pb2, metadata_pb2)
        for service in file.DESCRIPTOR.services_by_name.values()
        for method in service.methods
    }
    assert found == declared
