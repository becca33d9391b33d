"""Codecs: decoding an encoded value returns the same value, and method paths match the protocol."""

from typing import Any

import pytest

from oncelog.core.errors import InvalidArgument
from oncelog.core.formats.outcome import ResultKind, ResultRange
from oncelog.core.ids import (
    EntryId,
    Incarnation,
    LedgerId,
    Position,
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
from oncelog.rpc.codecs.storage_codec import AppendAnswer, AppendFrame, ReadFrame, ReadRequest
from oncelog.rpc.methods import Method, ReadMethod, StreamMethod
from oncelog.wire import clients_pb2, metadata_pb2, owner_pb2, storage_pb2, subscriptions_pb2

TOPIC = TopicId("0123456789abcdef0123456789abcdef")
NODE = Incarnation("fedcba9876543210fedcba9876543210")
SESSION = SessionNumber(7)


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


def test_opening_for_a_client_of_a_gateway_needs_an_instance_id() -> None:
    """Without it the gateway's own request could not be told from that of another gateway."""
    opening = owner_pb2.OpenProducer(open_id=1, client=clients_pb2.GatewayClient(epoch=3))
    opening.mode, opening.on_conflict = owner_pb2.SEQUENCE_MODE_MONOTONIC, owner_pb2.ON_CONFLICT_FENCE
    with pytest.raises(InvalidArgument, match="instance id"):
        owner_codec.decode_publish(owner_pb2.PublishFrame(opens=[opening]).SerializeToString())


def test_answer_without_results_or_error_is_refused() -> None:
    """An answer without results and without an error must not pass for a success."""
    message = owner_pb2.PublishAnswers(answers=[owner_pb2.BatchAnswer(session=1, request=2)])
    with pytest.raises(InvalidArgument, match="neither results nor an error"):
        owner_codec.decode_publish_answers(message.SerializeToString())


_STORED: dict[str, Any] = {
    f"stored_{name}": [1, 2] for name in ("sessions", "requests", "ledger_ids", "entry_ids", "counts", "indexes")
}


@pytest.mark.parametrize("column", ["stored_requests", "stored_indexes"])
def test_columns_of_unequal_length_are_refused(column: str) -> None:
    """A partial acknowledgement must not be accepted, nor the index of another batch."""
    message = owner_pb2.PublishAnswers(**(_STORED | {column: [1]}))
    with pytest.raises(InvalidArgument, match="columns"):
        owner_codec.decode_publish_answers(message.SerializeToString())


def test_an_owner_of_an_older_version_names_no_index() -> None:
    """It is unknown then, not 0."""
    message = owner_pb2.PublishAnswers(**(_STORED | {"stored_indexes": []}))
    answers = owner_codec.decode_publish_answers(message.SerializeToString()).answers
    assert [result for [(_, result)] in answers.values()] == [
        (ResultRange(ResultKind.STORED, number, Position(LedgerId(number), EntryId(number)), 0, index=None),)
        for number in (1, 2)
    ]


def test_reader_without_a_start_is_refused() -> None:
    """There is no default start."""
    message = owner_pb2.ReadControl(start=owner_pb2.ReaderStart(topic="a/b/c"))
    with pytest.raises(InvalidArgument, match="start"):
        reader_codec.decode_read_control(message.SerializeToString())


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
