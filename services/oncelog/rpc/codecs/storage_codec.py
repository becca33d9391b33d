"""Messages of the LogStorage service; storage.proto describes the fields.

Frames with entries are plain values, because their bulk bytes bypass protobuf (`rpc.frames`). The other messages are
few and small: the generated ones are used as they are.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple, TypeVar, cast

from oncelog.core.errors import InvalidArgument
from oncelog.core.ids import NO_ENTRY, EntryId, Incarnation, LedgerId
from oncelog.core.ledger.entry_reading import ReceivedRead
from oncelog.core.ledger.member_status import AppendStatus, ReadStatus
from oncelog.rpc.frames import Blob, join_frame, parse, parse_request, split_frame
from oncelog.rpc.methods import ReadMethod, StreamMethod, unary_of
from oncelog.wire import storage_pb2 as pb

StatusT = TypeVar("StatusT", AppendStatus, ReadStatus)


class AppendFrame(NamedTuple):
    """entries: whole encoded entries; a sender may give each in pieces (header, body)."""

    target: Incarnation
    recovery: bool
    entries: Sequence[Blob]
    repair: bool = False


class ReceivedAppend(NamedTuple):
    """An AppendFrame as it arrived: the entries are slices of the received frame."""

    target: Incarnation
    recovery: bool
    entries: list[memoryview]
    repair: bool = False


class AppendAnswer(NamedTuple):
    """The common status of some entries of one ledger."""

    ledger_id: LedgerId
    entry_ids: Sequence[EntryId]
    status: AppendStatus


class ReadRequest(NamedTuple):
    """bytes_max 0: no limit. fence: fence the ledger durably first. headers_only: only headers and id deltas.
    ticket: of a caller who is no superuser."""

    target: Incarnation
    ledger_id: LedgerId
    first_entry: EntryId
    entries_max: int
    bytes_max: int = 0
    fence: bool = False
    headers_only: bool = False
    ticket: bytes = b""


class ReadFrame(NamedTuple):
    """entries[i] is entry entry_ids[i]. missing_ids: certainly not stored; unreadable_ids: stored, but unreadable."""

    status: ReadStatus
    entry_ids: Sequence[EntryId] = ()
    missing_ids: Sequence[EntryId] = ()
    unreadable_ids: Sequence[EntryId] = ()
    last_entry: EntryId = NO_ENTRY
    last_add_confirmed: EntryId = NO_ENTRY
    entries: Sequence[Blob] = ()


#: Entries of one Verify call.
VERIFY_ENTRIES_MAX = 4096
#: Ledgers of one Damage call.
DAMAGE_LEDGERS_MAX = 4096
#: Ledgers that one FenceStates call asks about.
FENCE_STATES_MAX = 4096
_APPEND_STATUSES = {int(status): status for status in AppendStatus}
_READ_STATUSES = {int(status): status for status in ReadStatus}


def _status(number: int, known: Mapping[int, StatusT]) -> StatusT:
    status = known.get(number)
    if status is None:
        raise InvalidArgument(f"unknown storage status {number}", field="status")
    return status


def read_status(number: int) -> ReadStatus:
    """The status of an answer. Raises InvalidArgument for an unknown one."""
    return _status(number, _READ_STATUSES)


def wire_status(status: ReadStatus) -> pb.StorageStatus.ValueType:
    """The same number, as the generated messages take it."""
    return pb.StorageStatus.ValueType(status)


def _ids(column: Sequence[int]) -> list[EntryId]:
    return cast("list[EntryId]", column[:])  # a slice of protobuf is a list, and twice as fast as list()


def encode_append(frame: AppendFrame) -> bytes:
    head = pb.AppendFrame(target=frame.target, recovery=frame.recovery, repair=frame.repair)
    return join_frame(head.SerializeToString(), frame.entries)


def decode_append(data: bytes) -> ReceivedAppend:
    head_bytes, entries = split_frame(data)
    head = parse(pb.AppendFrame.FromString, head_bytes)
    return ReceivedAppend(Incarnation(head.target), head.recovery, entries, head.repair)


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


def encode_read_request(request: ReadRequest) -> bytes:
    return pb.ReadRequest(
        target=request.target,
        ledger_id=request.ledger_id,
        first_entry=request.first_entry,
        entries_max=request.entries_max,
        bytes_max=request.bytes_max,
        fence=request.fence,
        headers_only=request.headers_only,
        ticket=request.ticket,
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
        ticket=r.ticket,
    )


def encode_read(frame: ReadFrame) -> bytes:
    head = pb.ReadFrame(
        status=wire_status(frame.status),
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
        read_status(head.status),
        _ids(head.entry_ids),
        _ids(head.missing_ids),
        _ids(head.unreadable_ids),
        EntryId(head.last_entry),
        EntryId(head.last_add_confirmed),
        entries,
    )


def _check_fence_states(request: pb.FenceStatesRequest) -> None:
    count = len(request.ledger_ids)
    if count > FENCE_STATES_MAX:
        message = f"a request for {count} ledgers exceeds the limit of {FENCE_STATES_MAX}"
        raise InvalidArgument(message, field="ledger_ids", limit=FENCE_STATES_MAX)


def _check_verify(request: pb.VerifyRequest) -> None:
    _check_count("entries_max", request.entries_max, VERIFY_ENTRIES_MAX)


def _check_damage(request: pb.DamageRequest) -> None:
    _check_count("ledgers_max", request.ledgers_max, DAMAGE_LEDGERS_MAX)


def _check_count(field: str, count: int, limit: int) -> None:
    """Raises InvalidArgument."""
    if not 1 <= count <= limit:
        raise InvalidArgument(f"{field} must be from 1 to {limit}, not {count}", field=field, limit=limit)


_SERVICE = "/oncelog.wire.v1.LogStorage"
APPEND = StreamMethod(f"{_SERVICE}/Append", encode_append, decode_append, encode_append_answers, decode_append_answers)
FENCE = unary_of(f"{_SERVICE}/Fence", pb.FenceRequest, pb.FenceAnswer)
FENCE_STATES = unary_of(
    f"{_SERVICE}/FenceStates", pb.FenceStatesRequest, pb.FenceStatesAnswer, check=_check_fence_states
)
READ = ReadMethod(f"{_SERVICE}/Read", encode_read_request, decode_read_request, encode_read, decode_read)
ISSUE_READ_TICKET = unary_of(f"{_SERVICE}/IssueReadTicket", pb.ReadTicketRequest, pb.ReadTicketAnswer)
VERIFY = unary_of(f"{_SERVICE}/Verify", pb.VerifyRequest, pb.VerifyAnswer, check=_check_verify)
REVIEW_LEDGER = unary_of(f"{_SERVICE}/ReviewLedger", pb.ReviewLedgerRequest, pb.ReviewLedgerAnswer)
DAMAGE = unary_of(f"{_SERVICE}/Damage", pb.DamageRequest, pb.DamageAnswer, check=_check_damage)
DESCRIBE = unary_of(f"{_SERVICE}/Describe", pb.DescribeRequest, pb.DescribeAnswer)
