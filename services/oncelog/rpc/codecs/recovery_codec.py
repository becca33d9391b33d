"""The call that recovers many ledgers at once, as plain values; storage.proto describes the fields."""

from collections.abc import Sequence
from typing import NamedTuple

from oncelog.core.errors import InvalidArgument
from oncelog.core.ids import EntryId, Incarnation, LedgerId
from oncelog.core.ledger.entry_reading import ReceivedRead
from oncelog.rpc.codecs.storage_codec import ReadFrame, decode_read, encode_read, read_status, wire_status
from oncelog.rpc.frames import join_frame, parse, parse_request, split_frame
from oncelog.rpc.methods import UnaryMethod
from oncelog.wire import storage_pb2 as pb

#: Fences and reads of one call.
RECOVER_MAX = 64
#: Bytes of entries that one call may ask for: the answer is one message.
RECOVER_BYTES_MAX = 4 * 1024 * 1024


class ShortRead(NamedTuple):
    """A fencing read of ids first .. first + entries_max - 1."""

    ledger_id: LedgerId
    first: EntryId
    entries_max: int


class RecoverRequest(NamedTuple):
    """bytes_max: of each read, at least 1."""

    target: Incarnation
    fences: Sequence[LedgerId] = ()
    reads: Sequence[ShortRead] = ()
    bytes_max: int = 1


class RecoverAnswer(NamedTuple):
    """Parallel to the request's fences and reads."""

    fences: Sequence[pb.FenceAnswer] = ()
    reads: Sequence[ReadFrame] = ()


class ReceivedRecovery(NamedTuple):
    """A RecoverAnswer as it arrived."""

    fences: list[pb.FenceAnswer]
    reads: list[ReceivedRead]


def encode_request(request: RecoverRequest) -> bytes:
    return pb.RecoverRequest(
        target=request.target,
        fences=request.fences,
        read_ledger_ids=[read.ledger_id for read in request.reads],
        read_first_entries=[read.first for read in request.reads],
        read_entries_max=[read.entries_max for read in request.reads],
        read_bytes_max=request.bytes_max,
    ).SerializeToString()


def decode_request(data: bytes) -> RecoverRequest:
    """Raises InvalidArgument, which names the field."""
    request = parse_request(pb.RecoverRequest.FromString, data)
    columns = (request.read_ledger_ids, request.read_first_entries, request.read_entries_max)
    if len({len(column) for column in columns}) > 1:
        raise InvalidArgument("the columns of the reads have different lengths", field="read_ledger_ids")
    reads = [ShortRead(LedgerId(a), EntryId(b), c) for a, b, c in zip(*columns, strict=True)]
    if not 1 <= len(request.fences) + len(reads) <= RECOVER_MAX:
        message = f"fences and reads must be from 1 to {RECOVER_MAX}, not {len(request.fences) + len(reads)}"
        raise InvalidArgument(message, field="fences", limit=RECOVER_MAX)
    if any(read.entries_max < 1 for read in reads):
        raise InvalidArgument("entries_max of each read must be at least 1", field="read_entries_max")
    if reads and not 1 <= request.read_bytes_max * len(reads) <= RECOVER_BYTES_MAX:
        message = f"read_bytes_max of all reads must be from 1 to {RECOVER_BYTES_MAX} together"
        raise InvalidArgument(message, field="read_bytes_max", limit=RECOVER_BYTES_MAX)
    fences = [LedgerId(number) for number in request.fences]
    return RecoverRequest(Incarnation(request.target), fences, reads, request.read_bytes_max)


def encode_answer(answer: RecoverAnswer) -> bytes:
    head = pb.RecoverAnswer(
        statuses=[fence.status for fence in answer.fences],
        last_entries=[fence.last_entry for fence in answer.fences],
        last_add_confirmed=[fence.last_add_confirmed for fence in answer.fences],
        topic_ids=[fence.topic_id for fence in answer.fences],
    )
    return join_frame(head.SerializeToString(), [encode_read(frame) for frame in answer.reads])


def decode_answer(data: bytes) -> ReceivedRecovery:
    """Raises InvalidArgument."""
    head_bytes, frames = split_frame(data)
    head = parse(pb.RecoverAnswer.FromString, head_bytes)
    topic_ids = head.topic_ids or [""] * len(head.statuses)
    columns = (head.statuses, head.last_entries, head.last_add_confirmed, topic_ids)
    try:
        fences = [
            pb.FenceAnswer(
                status=wire_status(read_status(status)),
                last_entry=last,
                last_add_confirmed=confirmed,
                topic_id=topic_id,
            )
            for status, last, confirmed, topic_id in zip(*columns, strict=True)
        ]
    except ValueError as error:
        raise InvalidArgument(f"cannot read the answers to fences: {error}", field="statuses") from error
    return ReceivedRecovery(fences, [decode_read(bytes(frame)) for frame in frames])


RECOVER = UnaryMethod(
    "/oncelog.wire.v1.LogStorage/Recover", encode_request, decode_request, encode_answer, decode_answer
)
