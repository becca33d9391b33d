"""Messages of the LogStorage service as plain values; storage.proto describes the fields."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple, TypeVar, cast

from oncelog.core.errors import InvalidArgument
from oncelog.core.ids import NO_ENTRY, EntryId, Incarnation, LedgerId
from oncelog.core.ledger.member_status import AppendStatus, FenceState, ReadStatus
from oncelog.rpc.frames import Blob, join_frame, parse, parse_request, split_frame
from oncelog.rpc.methods import ReadMethod, StreamMethod, UnaryMethod, unary_of
from oncelog.wire import storage_pb2 as pb

StatusT = TypeVar("StatusT", AppendStatus, ReadStatus)


class AppendFrame(NamedTuple):
    """entries: whole encoded entries; a sender may give each in pieces (header, body)."""

    target: Incarnation
    recovery: bool
    entries: Sequence[Blob]


class ReceivedAppend(NamedTuple):
    """An AppendFrame as it arrived: the entries are slices of the received frame."""

    target: Incarnation
    recovery: bool
    entries: list[memoryview]


class AppendAnswer(NamedTuple):
    """The common status of some entries of one ledger."""

    ledger_id: LedgerId
    entry_ids: Sequence[EntryId]
    status: AppendStatus


class FenceRequest(NamedTuple):
    target: Incarnation
    ledger_id: LedgerId


class FenceAnswer(NamedTuple):
    """last_entry, last_add_confirmed: -1 when the node holds no entry."""

    status: ReadStatus
    last_entry: EntryId = NO_ENTRY
    last_add_confirmed: EntryId = NO_ENTRY


class FenceStatesRequest(NamedTuple):
    """At most FENCE_STATES_MAX ledgers."""

    target: Incarnation
    ledger_ids: Sequence[LedgerId]


class FenceStatesAnswer(NamedTuple):
    """states: parallel to the request's ledger_ids; empty unless the status is OK."""

    status: ReadStatus
    states: Sequence[FenceState] = ()


class ReadRequest(NamedTuple):
    """bytes_max 0: no limit. fence: fence the ledger durably first. headers_only: only headers and id deltas."""

    target: Incarnation
    ledger_id: LedgerId
    first_entry: EntryId
    entries_max: int
    bytes_max: int = 0
    fence: bool = False
    headers_only: bool = False


class ReadFrame(NamedTuple):
    """entries[i] is entry entry_ids[i]. missing_ids: certainly not stored; unreadable_ids: stored, but unreadable."""

    status: ReadStatus
    entry_ids: Sequence[EntryId] = ()
    missing_ids: Sequence[EntryId] = ()
    unreadable_ids: Sequence[EntryId] = ()
    last_entry: EntryId = NO_ENTRY
    last_add_confirmed: EntryId = NO_ENTRY
    entries: Sequence[Blob] = ()


class ReceivedRead(NamedTuple):
    """A ReadFrame as it arrived: the entries are slices of the received frame."""

    status: ReadStatus
    entry_ids: list[EntryId]
    missing_ids: list[EntryId]
    unreadable_ids: list[EntryId]
    last_entry: EntryId
    last_add_confirmed: EntryId
    entries: list[memoryview]


#: Ledgers that one FenceStates call asks about.
FENCE_STATES_MAX = 4096
_FENCE_STATES = {int(state): state for state in FenceState}
_APPEND_STATUSES = {int(status): status for status in AppendStatus}
_READ_STATUSES = {int(status): status for status in ReadStatus}


def _status(number: int, known: Mapping[int, StatusT]) -> StatusT:
    status = known.get(number)
    if status is None:
        raise InvalidArgument(f"unknown storage status {number}", field="status")
    return status


def _ids(column: Sequence[int]) -> list[EntryId]:
    return cast("list[EntryId]", column[:])  # a slice of protobuf is a list, and twice as fast as list()


def encode_append(frame: AppendFrame) -> bytes:
    head = pb.AppendFrame(target=frame.target, recovery=frame.recovery)
    return join_frame(head.SerializeToString(), frame.entries)


def decode_append(data: bytes) -> ReceivedAppend:
    head_bytes, entries = split_frame(data)
    head = parse(pb.AppendFrame.FromString, head_bytes)
    return ReceivedAppend(Incarnation(head.target), head.recovery, entries)


def encode_append_answers(answers: Sequence[AppendAnswer]) -> bytes:
    frame = pb.AppendAnswers()
    add = frame.answers.add
    for ledger_id, entry_ids, status in answers:
        add(ledger_id=ledger_id, entry_ids=entry_ids, status=status)
    return frame.SerializeToString()


def decode_append_answers(data: bytes) -> list[AppendAnswer]:
    frame = parse(pb.AppendAnswers.FromString, data)
    return [
        AppendAnswer(LedgerId(a.ledger_id), _ids(a.entry_ids), _status(a.status, _APPEND_STATUSES))
        for a in frame.answers
    ]


def encode_fence_request(request: FenceRequest) -> bytes:
    return pb.FenceRequest(target=request.target, ledger_id=request.ledger_id).SerializeToString()


def decode_fence_request(data: bytes) -> FenceRequest:
    request = parse_request(pb.FenceRequest.FromString, data)
    return FenceRequest(Incarnation(request.target), LedgerId(request.ledger_id))


def encode_fence_answer(answer: FenceAnswer) -> bytes:
    return pb.FenceAnswer(
        status=pb.StorageStatus.ValueType(answer.status),
        last_entry=answer.last_entry,
        last_add_confirmed=answer.last_add_confirmed,
    ).SerializeToString()


def decode_fence_answer(data: bytes) -> FenceAnswer:
    answer = parse(pb.FenceAnswer.FromString, data)
    status = _status(answer.status, _READ_STATUSES)
    return FenceAnswer(status, EntryId(answer.last_entry), EntryId(answer.last_add_confirmed))


def encode_fence_states_request(request: FenceStatesRequest) -> bytes:
    return pb.FenceStatesRequest(target=request.target, ledger_ids=request.ledger_ids).SerializeToString()


def decode_fence_states_request(data: bytes) -> FenceStatesRequest:
    """Raises InvalidArgument."""
    request = parse(pb.FenceStatesRequest.FromString, data)
    count = len(request.ledger_ids)
    if count > FENCE_STATES_MAX:
        raise InvalidArgument(
            f"a request for {count} ledgers exceeds the limit of {FENCE_STATES_MAX}",
            field="ledger_ids",
            limit=FENCE_STATES_MAX,
        )
    return FenceStatesRequest(Incarnation(request.target), [LedgerId(number) for number in request.ledger_ids])


def encode_fence_states(answer: FenceStatesAnswer) -> bytes:
    return pb.FenceStatesAnswer(
        status=pb.StorageStatus.ValueType(answer.status),
        states=[pb.FenceState.ValueType(state) for state in answer.states],
    ).SerializeToString()


def decode_fence_states(data: bytes) -> FenceStatesAnswer:
    """An unknown state becomes FenceState.UNKNOWN, which proves nothing."""
    answer = parse(pb.FenceStatesAnswer.FromString, data)
    states = [_FENCE_STATES.get(state, FenceState.UNKNOWN) for state in answer.states]
    return FenceStatesAnswer(_status(answer.status, _READ_STATUSES), states)


def encode_read_request(request: ReadRequest) -> bytes:
    return pb.ReadRequest(
        target=request.target,
        ledger_id=request.ledger_id,
        first_entry=request.first_entry,
        entries_max=request.entries_max,
        bytes_max=request.bytes_max,
        fence=request.fence,
        headers_only=request.headers_only,
    ).SerializeToString()


def decode_read_request(data: bytes) -> ReadRequest:
    r = parse_request(pb.ReadRequest.FromString, data)
    return ReadRequest(
        target=Incarnation(r.target),
        ledger_id=LedgerId(r.ledger_id),
        first_entry=EntryId(r.first_entry),
        entries_max=r.entries_max,
        bytes_max=r.bytes_max,
        fence=r.fence,
        headers_only=r.headers_only,
    )


def encode_read(frame: ReadFrame) -> bytes:
    head = pb.ReadFrame(
        status=pb.StorageStatus.ValueType(frame.status),
        entry_ids=frame.entry_ids,
        missing_ids=frame.missing_ids,
        unreadable_ids=frame.unreadable_ids,
        last_entry=frame.last_entry,
        last_add_confirmed=frame.last_add_confirmed,
    )
    return join_frame(head.SerializeToString(), frame.entries)


def decode_read(data: bytes) -> ReceivedRead:
    head_bytes, entries = split_frame(data)
    head = parse(pb.ReadFrame.FromString, head_bytes)
    if len(head.entry_ids) != len(entries):
        raise InvalidArgument(f"{len(entries)} entries came with {len(head.entry_ids)} ids", field="entry_ids")
    return ReceivedRead(
        _status(head.status, _READ_STATUSES),
        _ids(head.entry_ids),
        _ids(head.missing_ids),
        _ids(head.unreadable_ids),
        EntryId(head.last_entry),
        EntryId(head.last_add_confirmed),
        entries,
    )


_SERVICE = "/oncelog.wire.v1.LogStorage"
APPEND = StreamMethod(f"{_SERVICE}/Append", encode_append, decode_append, encode_append_answers, decode_append_answers)
FENCE = UnaryMethod(
    f"{_SERVICE}/Fence", encode_fence_request, decode_fence_request, encode_fence_answer, decode_fence_answer
)
FENCE_STATES = UnaryMethod(
    f"{_SERVICE}/FenceStates",
    encode_fence_states_request,
    decode_fence_states_request,
    encode_fence_states,
    decode_fence_states,
)
READ = ReadMethod(f"{_SERVICE}/Read", encode_read_request, decode_read_request, encode_read, decode_read)
DESCRIBE = unary_of(f"{_SERVICE}/Describe", pb.DescribeRequest, pb.DescribeAnswer)
