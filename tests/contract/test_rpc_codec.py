"""Codecs: what one side encodes the other decodes to the same values, and paths are those of the protocol."""

import pytest

from oncelog.core.entry import SequenceMode
from oncelog.core.errors import InvalidArgument, NotOwner, OncelogError, SequenceGap, SessionEnded
from oncelog.core.ids import (
    BEFORE_ALL,
    EntryId,
    Generation,
    Incarnation,
    LedgerId,
    OwnerEpoch,
    Position,
    ProducerId,
    SequenceId,
    SessionNumber,
    TopicId,
)
from oncelog.core.outcome import Part, PartKind
from oncelog.rpc import metadata_codec, owner_codec, reader_codec, storage_codec
from oncelog.rpc.methods import Method, ReadMethod, StreamMethod
from oncelog.rpc.owner_codec import (
    BatchAnswer,
    OnConflict,
    OpenProducer,
    OpenRefused,
    ProducerGranted,
    ProducerInstance,
    PublishAnswers,
    PublishFrame,
    SessionClosed,
    StoredBatch,
)
from oncelog.rpc.reader_codec import ReadControl, ReaderFrame, ReaderStart, StartAt, StartEdge, StartMessage, StartTime
from oncelog.rpc.storage_codec import AppendAnswer, AppendFrame, ReadFrame, ReadRequest, StorageStatus
from oncelog.wire import metadata_pb2, owner_pb2, storage_pb2

TOPIC = TopicId("0123456789abcdef0123456789abcdef")
NODE = Incarnation("fedcba9876543210fedcba9876543210")
SESSION = SessionNumber(7)


def test_an_append_keeps_target_recovery_and_entries() -> None:
    """What the writer sends is what the node stores."""
    sent = AppendFrame(NODE, recovery=True, entries=[(b"header", b"body"), b"whole"])
    received = storage_codec.decode_append(storage_codec.encode_append(sent))
    assert tuple(received) == (NODE, True, [b"headerbody", b"whole"])


def test_append_answers_keep_ledger_ids_and_status() -> None:
    """Each status of the protocol crosses, and entry 0 of ledger 0 is an entry like any other."""
    sent = [AppendAnswer(LedgerId(n), [EntryId(0), EntryId(2**40)], status) for n, status in enumerate(StorageStatus)]
    assert storage_codec.decode_append_answers(storage_codec.encode_append_answers(sent)) == sent


def test_an_unknown_status_is_refused() -> None:
    """An answer that this version cannot understand must not pass for any that it can."""
    data = storage_pb2.AppendAnswers(answers=[storage_pb2.AppendAnswer(ledger_id=1)]).SerializeToString()
    with pytest.raises(InvalidArgument, match="unknown storage status 0"):
        storage_codec.decode_append_answers(data)


def test_statuses_are_numbered_as_in_the_protocol() -> None:
    """The plain enumeration and the generated one are one list."""
    wire = {name.removeprefix("STORAGE_STATUS_"): number for name, number in storage_pb2.StorageStatus.items()}
    assert {status.name: status.value for status in StorageStatus} | {"UNSPECIFIED": 0} == wire


@pytest.mark.parametrize("flags", [(False, False), (True, False), (False, True)])
def test_a_read_request_keeps_all_fields(flags: tuple[bool, bool]) -> None:
    """A fence that gets lost between the two would lose messages."""
    sent = ReadRequest(NODE, LedgerId(5), EntryId(0), 100, 2**20, *flags)
    assert storage_codec.decode_read_request(storage_codec.encode_read_request(sent)) == sent


def test_a_read_frame_keeps_missing_and_unreadable_apart() -> None:
    """A negative and a damaged copy mean opposite things to a recovery."""
    sent = ReadFrame(
        StorageStatus.OK, [EntryId(3)], [EntryId(4)], [EntryId(5)], EntryId(-1), EntryId(-1), entries=[b"entry"]
    )
    assert tuple(storage_codec.decode_read(storage_codec.encode_read(sent))) == tuple(sent)


def test_entries_without_their_ids_are_refused() -> None:
    """An entry under the id of another would be a wrong answer."""
    data = storage_codec.encode_read(ReadFrame(StorageStatus.OK, [EntryId(3)], entries=[b"a", b"b"]))
    with pytest.raises(InvalidArgument, match="2 entries came with 1 ids"):
        storage_codec.decode_read(data)


def test_a_publish_frame_keeps_batches_openings_and_closes() -> None:
    """Every field of an opening crosses, the absent ones as absent."""
    instance = ProducerInstance(ProducerId(0), Generation(0))
    sent = PublishFrame(
        sessions=[SESSION, SESSION],
        requests=[0, 1],
        batches=[b"first", b"second"],
        opens=[
            OpenProducer(0, "public/default/flights", TOPIC, None),
            OpenProducer(
                1, "a/b/c", TOPIC, "n", SequenceMode.CONTIGUOUS, OnConflict.REFUSE, instance, None, OwnerEpoch(9)
            ),
            OpenProducer(2, "a/b/c", TOPIC, "n", present=ProducerInstance(ProducerId(5), Generation(6))),
        ],
        closes=[SessionNumber(0)],
    )
    assert tuple(owner_codec.decode_publish(owner_codec.encode_publish(sent))) == tuple(sent)


@pytest.mark.parametrize(("sessions", "requests"), [(1, 2), (2, 1), (3, 3)])
def test_batches_without_session_or_request_are_refused(sessions: int, requests: int) -> None:
    """A batch counted to the wrong session would be judged as another producer's."""
    message = owner_pb2.PublishFrame(sessions=range(sessions), requests=range(requests), batches=[b"a", b"b"])
    with pytest.raises(InvalidArgument, match="session"):
        owner_codec.decode_publish(message.SerializeToString())


def test_an_opening_without_a_mode_is_refused() -> None:
    """A mode is bound to a name for ever: it must be said, never assumed."""
    message = owner_pb2.PublishFrame(opens=[owner_pb2.OpenProducer(open_id=1, on_conflict=owner_pb2.ON_CONFLICT_FENCE)])
    with pytest.raises(InvalidArgument, match="opening 1"):
        owner_codec.decode_publish(message.SerializeToString())


def _comparable(answers: PublishAnswers) -> list[object]:
    def told(error: OncelogError | None) -> object:
        return None if error is None else (type(error), error.message, error.details)

    return [
        list(answers.stored),
        [(a.session, a.request, told(a.result) if isinstance(a.result, OncelogError) else a.result)
         for a in answers.answers],
        list(answers.granted),
        [(r.open_id, told(r.error), r.owner_epoch) for r in answers.refused],
        [(e.session, told(e.error), e.owner_epoch) for e in answers.ended],
    ]  # fmt: skip


def test_publish_answers_keep_every_kind() -> None:
    """Stored batches in columns, parts with and without a position, errors with their details, grants, ends."""
    parts = (
        Part(PartKind.DUPLICATE, 2, Position(LedgerId(0), EntryId(0)), 3),
        Part(PartKind.BELOW_MARK, 1, None, 0),
        Part(PartKind.STORED, 4, Position(LedgerId(5), EntryId(6)), 3),
    )
    sent = PublishAnswers(
        stored=[StoredBatch(SESSION, n, LedgerId(5), EntryId(n), 100) for n in range(3)],
        answers=[
            BatchAnswer(SESSION, 3, parts),
            BatchAnswer(SESSION, 4, SequenceGap("send 10 first", expected=10)),
        ],
        granted=[
            ProducerGranted(
                1,
                SESSION,
                "importer",
                ProducerId(101),
                Generation(3),
                SequenceId(-1),
                True,
                OwnerEpoch(4),
                TOPIC,
                5 << 20,
            )
        ],
        refused=[OpenRefused(2, NotOwner("look again", owner="10.0.0.1:6650", owner_epoch=5), OwnerEpoch(4))],
        ended=[
            SessionClosed(SessionNumber(8), SessionEnded("the write failed"), OwnerEpoch(4)),
            SessionClosed(SessionNumber(9), None, OwnerEpoch(4)),
        ],
    )
    received = owner_codec.decode_publish_answers(owner_codec.encode_publish_answers(sent))
    assert _comparable(received) == _comparable(sent)


def test_columns_of_unequal_length_are_refused() -> None:
    """Half an acknowledgement is none."""
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
    ],
)
def test_each_start_of_a_reader_crosses(at: StartAt) -> None:
    """Zeros are legal positions and times, not absent ones."""
    sent = ReadControl(ReaderStart("a/b/c", TOPIC, at, OwnerEpoch(3)), 1 << 20)
    assert reader_codec.decode_read_control(reader_codec.encode_read_control(sent)) == sent


def test_a_reader_without_a_start_is_refused() -> None:
    """Where to begin is never guessed."""
    message = owner_pb2.ReadControl(start=owner_pb2.ReaderStart(topic="a/b/c"))
    with pytest.raises(InvalidArgument, match="start"):
        reader_codec.decode_read_control(message.SerializeToString())


def test_permits_alone_cross() -> None:
    """Later messages of a read stream only grant permits."""
    sent = ReadControl(None, 4096)
    assert reader_codec.decode_read_control(reader_codec.encode_read_control(sent)) == sent


def test_a_reader_frame_keeps_entries_names_and_places() -> None:
    """The empty log's position is below zero and crosses as it is."""
    for confirmed in (BEFORE_ALL, Position(LedgerId(0), EntryId(0))):
        sent = ReaderFrame(OwnerEpoch(2), confirmed, True, 17, {ProducerId(101): "importer"}, None, [b"one", b"two"])
        assert tuple(reader_codec.decode_reader_frame(reader_codec.encode_reader_frame(sent))) == tuple(sent)


def test_a_reader_frame_carries_the_error_that_ends_the_stream() -> None:
    """A reader learns why, by the class of the error."""
    sent = ReaderFrame(OwnerEpoch(2), error=NotOwner("look again", owner_epoch=3))
    error = reader_codec.decode_reader_frame(reader_codec.encode_reader_frame(sent)).error
    assert isinstance(error, NotOwner)
    assert error.details == {"owner_epoch": 3}


def test_every_method_of_the_protocol_has_its_path_and_kind() -> None:
    """A path is text: one that differs from the protocol would only show when called."""
    found = {
        method.path: (
            isinstance(method, StreamMethod),
            isinstance(method, StreamMethod | ReadMethod),
        )
        for codec in (storage_codec, owner_codec, reader_codec, metadata_codec)
        for method in vars(codec).values()
        if isinstance(method, Method)
    }
    declared = {
        f"/{service.full_name}/{method.name}": (method.client_streaming, method.server_streaming)
        for file in (storage_pb2, owner_pb2, metadata_pb2)
        for service in file.DESCRIPTOR.services_by_name.values()
        for method in service.methods
    }
    assert found == declared
