"""Messages of the LogStorage service as plain values. The fields' meaning is told in storage.proto."""

from collections.abc import Sequence
from enum import IntEnum
from typing import NamedTuple, cast

from oncelog.core.errors import InvalidArgument
from oncelog.core.ids import NO_ENTRY, EntryId, Incarnation, LedgerId
from oncelog.rpc.frames import Blob, join_frame, parse, split_frame
from oncelog.rpc.methods import ReadMethod, StreamMethod, unary_of
from oncelog.wire import storage_pb2 as pb


class StorageStatus(IntEnum):
    """What a storage node says to an add, a fence or a read; numbers of storage.proto."""

    OK = 1
    FENCED = 2
    WRONG_INCARNATION = 3
    NOT_WRITABLE = 4
    CORRUPT = 5
    CONFLICTING = 6
    READ_ONLY = 7
    TOO_MANY_REQUESTS = 8


class AppendFrame(NamedTuple):
    """entries: whole encoded entries; to send, each may be given in pieces (header, body)."""

    target: Incarnation
    recovery: bool
    entries: Sequence[Blob]


class ReceivedAppend(NamedTuple):
    """An AppendFrame as it arrived: the entries are slices of the received frame."""

    target: Incarnation
    recovery: bool
    entries: list[memoryview]


class AppendAnswer(NamedTuple):
    """What became of some entries of one ledger, all alike."""

    ledger_id: LedgerId
    entry_ids: Sequence[EntryId]
    status: StorageStatus


class ReadRequest(NamedTuple):
    """bytes_max 0: no bound. fence: the ledger is durably fenced first. heads_only: headers and id deltas alone."""

    target: Incarnation
    ledger_id: LedgerId
    first_entry: EntryId
    entries_max: int
    bytes_max: int = 0
    fence: bool = False
    heads_only: bool = False


class ReadFrame(NamedTuple):
    """entries[i] is entry entry_ids[i]. missing_ids are explicit negatives; unreadable_ids are not."""

    status: StorageStatus
    entry_ids: Sequence[EntryId] = ()
    missing_ids: Sequence[EntryId] = ()
    unreadable_ids: Sequence[EntryId] = ()
    last_entry: EntryId = NO_ENTRY
    last_add_confirmed: EntryId = NO_ENTRY
    entries: Sequence[Blob] = ()


class ReceivedRead(NamedTuple):
    """A ReadFrame as it arrived: the entries are slices of the received frame."""

    status: StorageStatus
    entry_ids: list[EntryId]
    missing_ids: list[EntryId]
    unreadable_ids: list[EntryId]
    last_entry: EntryId
    last_add_confirmed: EntryId
    entries: list[memoryview]


_STATUSES = {int(status): status for status in StorageStatus}


def status_of(number: int) -> StorageStatus:
    """Raises InvalidArgument for a number that this version does not know."""
    status = _STATUSES.get(number)
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
    return [AppendAnswer(LedgerId(a.ledger_id), _ids(a.entry_ids), status_of(a.status)) for a in frame.answers]


def encode_read_request(request: ReadRequest) -> bytes:
    return pb.ReadRequest(
        target=request.target,
        ledger_id=request.ledger_id,
        first_entry=request.first_entry,
        entries_max=request.entries_max,
        bytes_max=request.bytes_max,
        fence=request.fence,
        heads_only=request.heads_only,
    ).SerializeToString()


def decode_read_request(data: bytes) -> ReadRequest:
    r = parse(pb.ReadRequest.FromString, data)
    return ReadRequest(
        target=Incarnation(r.target),
        ledger_id=LedgerId(r.ledger_id),
        first_entry=EntryId(r.first_entry),
        entries_max=r.entries_max,
        bytes_max=r.bytes_max,
        fence=r.fence,
        heads_only=r.heads_only,
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
        status_of(head.status),
        _ids(head.entry_ids),
        _ids(head.missing_ids),
        _ids(head.unreadable_ids),
        EntryId(head.last_entry),
        EntryId(head.last_add_confirmed),
        entries,
    )


_SERVICE = "/oncelog.wire.v1.LogStorage"
APPEND = StreamMethod(f"{_SERVICE}/Append", encode_append, decode_append, encode_append_answers, decode_append_answers)
FENCE = unary_of(f"{_SERVICE}/Fence", pb.FenceRequest, pb.FenceAnswer)
READ = ReadMethod(f"{_SERVICE}/Read", encode_read_request, decode_read_request, encode_read, decode_read)
DESCRIBE = unary_of(f"{_SERVICE}/Describe", pb.DescribeRequest, pb.DescribeAnswer)
