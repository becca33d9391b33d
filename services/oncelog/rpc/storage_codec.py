"""Messages of the LogStorage service as plain values; storage.proto describes the fields."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple, TypeVar, cast

from oncelog.core.errors import InvalidArgument
from oncelog.core.ids import NO_ENTRY, EntryId, Incarnation, LedgerId, TopicId
from oncelog.core.ledger.member_status import AppendStatus, CopyState, FenceState, ReadStatus
from oncelog.rpc.frames import Blob, join_frame, parse, parse_request, split_frame
from oncelog.rpc.methods import ReadMethod, StreamMethod, UnaryMethod, unary_of
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


class ReceivedRead(NamedTuple):
    """A ReadFrame as it arrived: the entries are slices of the received frame."""

    status: ReadStatus
    entry_ids: list[EntryId]
    missing_ids: list[EntryId]
    unreadable_ids: list[EntryId]
    last_entry: EntryId
    last_add_confirmed: EntryId
    entries: list[memoryview]


class VerifyRequest(NamedTuple):
    """At most VERIFY_ENTRIES_MAX entries. bytes_max 0: no limit. topic_id: of the ledger; empty: of any topic."""

    target: Incarnation
    ledger_id: LedgerId
    first_entry: EntryId
    entries_max: int
    bytes_max: int = 0
    topic_id: TopicId = TopicId("")


class VerifyAnswer(NamedTuple):
    """checksums: of the ids from the request's first_entry to next_entry - 1; 0 where the entry is not sound.

    bytes: of the sound entries.
    """

    status: ReadStatus
    checksums: Sequence[int] = ()
    missing_ids: Sequence[EntryId] = ()
    unreadable_ids: Sequence[EntryId] = ()
    next_entry: EntryId = EntryId(0)
    bytes: int = 0


class ReviewLedgerRequest(NamedTuple):
    target: Incarnation
    ledger_id: LedgerId


class ReviewLedgerAnswer(NamedTuple):
    """state: None unless the status is OK."""

    status: ReadStatus
    state: CopyState | None = None


class DamageRequest(NamedTuple):
    """Ledgers above `after_ledger`, at most DAMAGE_LEDGERS_MAX."""

    target: Incarnation
    after_ledger: LedgerId
    ledgers_max: int


class DamageAnswer(NamedTuple):
    """ledger_ids: ascending. The counts are of all ledgers of the node."""

    status: ReadStatus
    ledger_ids: Sequence[LedgerId] = ()
    limbo_count: int = 0
    damaged_count: int = 0


#: Entries of one Verify call.
VERIFY_ENTRIES_MAX = 4096
#: Ledgers of one Damage call.
DAMAGE_LEDGERS_MAX = 4096
#: Ledgers that one FenceStates call asks about.
FENCE_STATES_MAX = 4096
_FENCE_STATES = {int(state): state for state in FenceState}
_COPY_STATES = {int(state): state for state in CopyState}
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


def encode_verify_request(request: VerifyRequest) -> bytes:
    return pb.VerifyRequest(**request._asdict()).SerializeToString()


def decode_verify_request(data: bytes) -> VerifyRequest:
    """Raises InvalidArgument."""
    r = parse_request(pb.VerifyRequest.FromString, data)
    _check_count("entries_max", r.entries_max, VERIFY_ENTRIES_MAX)
    return VerifyRequest(
        Incarnation(r.target), LedgerId(r.ledger_id), EntryId(r.first_entry), r.entries_max, r.bytes_max,
        TopicId(r.topic_id),
    )  # fmt: skip


def encode_verify_answer(answer: VerifyAnswer) -> bytes:
    return pb.VerifyAnswer(
        status=pb.StorageStatus.ValueType(answer.status),
        checksums=answer.checksums,
        missing_ids=answer.missing_ids,
        unreadable_ids=answer.unreadable_ids,
        next_entry=answer.next_entry,
        bytes=answer.bytes,
    ).SerializeToString()


def decode_verify_answer(data: bytes) -> VerifyAnswer:
    answer = parse(pb.VerifyAnswer.FromString, data)
    return VerifyAnswer(
        _status(answer.status, _READ_STATUSES),
        answer.checksums[:],
        _ids(answer.missing_ids),
        _ids(answer.unreadable_ids),
        EntryId(answer.next_entry),
        answer.bytes,
    )


def encode_review_request(request: ReviewLedgerRequest) -> bytes:
    return pb.ReviewLedgerRequest(target=request.target, ledger_id=request.ledger_id).SerializeToString()


def decode_review_request(data: bytes) -> ReviewLedgerRequest:
    request = parse_request(pb.ReviewLedgerRequest.FromString, data)
    return ReviewLedgerRequest(Incarnation(request.target), LedgerId(request.ledger_id))


def encode_review_answer(answer: ReviewLedgerAnswer) -> bytes:
    state = pb.CopyState.ValueType(answer.state or 0)
    return pb.ReviewLedgerAnswer(status=pb.StorageStatus.ValueType(answer.status), state=state).SerializeToString()


def decode_review_answer(data: bytes) -> ReviewLedgerAnswer:
    answer = parse(pb.ReviewLedgerAnswer.FromString, data)
    return ReviewLedgerAnswer(_status(answer.status, _READ_STATUSES), _COPY_STATES.get(answer.state))


def encode_damage_request(request: DamageRequest) -> bytes:
    target, after_ledger, ledgers_max = request
    return pb.DamageRequest(target=target, after_ledger=after_ledger, ledgers_max=ledgers_max).SerializeToString()


def decode_damage_request(data: bytes) -> DamageRequest:
    """Raises InvalidArgument."""
    request = parse_request(pb.DamageRequest.FromString, data)
    _check_count("ledgers_max", request.ledgers_max, DAMAGE_LEDGERS_MAX)
    return DamageRequest(Incarnation(request.target), LedgerId(request.after_ledger), request.ledgers_max)


def encode_damage_answer(answer: DamageAnswer) -> bytes:
    status, ledger_ids, limbo_count, damaged_count = answer
    return pb.DamageAnswer(
        status=pb.StorageStatus.ValueType(status),
        ledger_ids=ledger_ids,
        limbo_count=limbo_count,
        damaged_count=damaged_count,
    ).SerializeToString()


def decode_damage_answer(data: bytes) -> DamageAnswer:
    answer = parse(pb.DamageAnswer.FromString, data)
    ledger_ids = [LedgerId(number) for number in answer.ledger_ids]
    return DamageAnswer(_status(answer.status, _READ_STATUSES), ledger_ids, answer.limbo_count, answer.damaged_count)


def _check_count(field: str, count: int, limit: int) -> None:
    """Raises InvalidArgument."""
    if not 1 <= count <= limit:
        raise InvalidArgument(f"{field} must be from 1 to {limit}, not {count}", field=field, limit=limit)


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
ISSUE_READ_TICKET = unary_of(f"{_SERVICE}/IssueReadTicket", pb.ReadTicketRequest, pb.ReadTicketAnswer)
VERIFY = UnaryMethod(
    f"{_SERVICE}/Verify", encode_verify_request, decode_verify_request, encode_verify_answer, decode_verify_answer
)
REVIEW_LEDGER = UnaryMethod(
    f"{_SERVICE}/ReviewLedger",
    encode_review_request,
    decode_review_request,
    encode_review_answer,
    decode_review_answer,
)
DAMAGE = UnaryMethod(
    f"{_SERVICE}/Damage", encode_damage_request, decode_damage_request, encode_damage_answer, decode_damage_answer
)
DESCRIBE = unary_of(f"{_SERVICE}/Describe", pb.DescribeRequest, pb.DescribeAnswer)
