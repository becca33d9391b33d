"""Messages of the TopicOwner's read stream as plain values; owner.proto describes the fields."""

from collections.abc import Mapping, Sequence
from enum import Enum
from typing import NamedTuple

from oncelog.core.errors import InvalidArgument, OncelogError
from oncelog.core.ids import BEFORE_ALL, EntryId, Incarnation, LedgerId, OwnerEpoch, Position, ProducerId, TopicId
from oncelog.core.process_version import PROCESS_VERSION
from oncelog.rpc.codecs.layout import Field, Layout, each_inside
from oncelog.rpc.frames import Blob, join_frame, parse, parse_request, split_frame
from oncelog.rpc.methods import StreamMethod, unary_of
from oncelog.rpc.status import error_from_wire, error_to_wire
from oncelog.wire import owner_pb2 as pb


class StartEdge(Enum):
    """EARLIEST: the first message that is kept. LATEST: only messages stored from now on."""

    EARLIEST = "earliest"
    LATEST = "latest"


class StartMessage(NamedTuple):
    """inclusive: start with this message, otherwise with the next one."""

    position: Position
    batch_index: int
    inclusive: bool


class StartTime(NamedTuple):
    """The first entry appended at or after this time, ms since 1970."""

    time_ms: int


class StartIndex(NamedTuple):
    """The message of this number in the topic; the first kept message when that one was trimmed."""

    number: int


StartAt = StartEdge | StartMessage | StartTime | StartIndex


class ReaderStart(NamedTuple):
    """storage_reads: the owner may offer entries that the reader then reads from storage nodes. version: of the
    reader's program; 0: an older one does not say."""

    topic: str
    topic_id: TopicId
    at: StartAt
    owner_epoch_seen: OwnerEpoch = OwnerEpoch(0)
    storage_reads: bool = False
    version: int = PROCESS_VERSION


class OfferedMember(NamedTuple):
    """A storage node, its "host:port", and the ticket with which the reader may read from it."""

    incarnation: Incarnation
    address: str
    ticket: bytes


class StorageOffer(NamedTuple):
    """Confirmed entries first..last of a ledger that its members give to the holder of their tickets."""

    ledger_id: LedgerId
    first: EntryId
    last: EntryId
    members: Sequence[OfferedMember]
    lifetime_ms: int


class OfferEnd(Enum):
    """Why a reader reads no further entries of an offer; the numbers are those on the wire. Only metrics use it."""

    #: not told, by a client of an older version
    UNKNOWN = 0
    COMPLETE = 1
    #: the tickets expire
    EXPIRED = 2
    #: no member accepted a connection
    UNREACHABLE = 3
    #: no member gave the next entry undamaged and in time
    NOT_GIVEN = 4
    #: the owner did not tell the names of the producers
    NAMES_UNKNOWN = 5


#: {number on the wire: end}; a newer client may tell another one
_OFFER_ENDS = {end.value: end for end in OfferEnd}


class StorageResume(NamedTuple):
    """The answer to an offer: the reader has the entries before `at`. storage_reads: it takes further offers."""

    at: Position
    storage_reads: bool
    end: OfferEnd = OfferEnd.UNKNOWN


class ReadControl(NamedTuple):
    """start: only in the first message of a stream. permit_bytes: bytes the reader accepts beyond earlier permits.
    resume: the answer to an offer."""

    start: ReaderStart | None
    permit_bytes: int
    resume: StorageResume | None = None


class ReaderFrame(NamedTuple):
    """Entries of messages in the order of the log. first_batch_index: the first wanted message of the first entry.

    confirmed: the log is confirmed up to this position. at_end: all entries up to it were sent.
    names: of producers that are new on this stream. error: ends the stream. trimmed_below: of the first frame, if the
    start was a message id in a trimmed ledger: the index of the first message that the log has; else 0. offer: instead
    of entries; the owner waits for the answer.
    """

    owner_epoch: OwnerEpoch
    confirmed: Position = BEFORE_ALL
    at_end: bool = False
    first_batch_index: int = 0
    names: Mapping[ProducerId, str] = {}
    error: OncelogError | None = None
    entries: Sequence[Blob] = ()
    trimmed_below: int = 0
    offer: StorageOffer | None = None


class ReceivedEntries(NamedTuple):
    """A ReaderFrame as it arrived: the entries are slices of the received frame."""

    owner_epoch: OwnerEpoch
    confirmed: Position
    at_end: bool
    first_batch_index: int
    names: Mapping[ProducerId, str]
    error: OncelogError | None
    entries: list[memoryview]
    trimmed_below: int = 0
    offer: StorageOffer | None = None


_OFFER = Layout(
    StorageOffer, pb.StorageOffer, first=Field("first_entry"), last=Field("last_entry"),
    members=each_inside(Layout(OfferedMember, pb.OfferedMember)),
)  # fmt: skip


def encode_read_control(control: ReadControl) -> bytes:
    out = pb.ReadControl(permit_bytes=control.permit_bytes)
    if control.start is not None:
        out.start.CopyFrom(start_to_wire(control.start))
    if control.resume is not None:
        (out.resume.ledger_id, out.resume.entry_id), out.resume.storage_reads, end = control.resume
        out.resume.end = pb.OfferEnd.ValueType(end.value)
    return out.SerializeToString()


def start_to_wire(start: ReaderStart) -> pb.ReaderStart:
    out = pb.ReaderStart()
    out.topic, out.topic_id, at, out.owner_epoch_seen, out.storage_reads, out.version = start
    match at:
        case StartEdge.EARLIEST:
            out.earliest.SetInParent()
        case StartEdge.LATEST:
            out.latest.SetInParent()
        case StartMessage((ledger_id, entry_id), batch_index, inclusive):
            out.message_id.ledger_id, out.message_id.entry_id = ledger_id, entry_id
            out.message_id.batch_index, out.message_id.inclusive = batch_index, inclusive
        case StartTime(time_ms):
            out.time_ms = time_ms
        case StartIndex(number):
            out.index = number
    return out


def decode_read_control(data: bytes) -> ReadControl:
    control = parse_request(pb.ReadControl.FromString, data)
    resume = None
    if control.HasField("resume"):
        r = control.resume
        end = _OFFER_ENDS.get(r.end, OfferEnd.UNKNOWN)
        resume = StorageResume(Position(LedgerId(r.ledger_id), EntryId(r.entry_id)), r.storage_reads, end)
    start = start_from_wire(control.start) if control.HasField("start") else None
    return ReadControl(start, control.permit_bytes, resume)


def start_message(at: StartAt) -> pb.ReaderStart:
    """The place alone, without a topic."""
    return start_to_wire(ReaderStart("", TopicId(""), at))


def start_from_wire(start: pb.ReaderStart) -> ReaderStart:
    """Raises InvalidArgument."""
    at: StartAt
    match start.WhichOneof("start"):
        case "earliest":
            at = StartEdge.EARLIEST
        case "latest":
            at = StartEdge.LATEST
        case "message_id":
            m = start.message_id
            at = StartMessage(Position(LedgerId(m.ledger_id), EntryId(m.entry_id)), m.batch_index, m.inclusive)
        case "time_ms":
            at = StartTime(start.time_ms)
        case "index":
            at = StartIndex(start.index)
        case _:
            raise InvalidArgument("`start` is missing", field="start")
    seen = OwnerEpoch(start.owner_epoch_seen)
    return ReaderStart(start.topic, TopicId(start.topic_id), at, seen, start.storage_reads, start.version)


def encode_reader_frame(frame: ReaderFrame) -> bytes:
    head = pb.ReaderFrame(
        owner_epoch=frame.owner_epoch,
        confirmed_ledger_id=frame.confirmed.ledger_id,
        confirmed_entry_id=frame.confirmed.entry_id,
        at_end=frame.at_end,
        first_batch_index=frame.first_batch_index,
        error=None if frame.error is None else error_to_wire(frame.error),
        trimmed_below=frame.trimmed_below,
    )
    for producer_id, name in frame.names.items():
        head.names.add(producer_id=producer_id, name=name)
    if frame.offer is not None:
        head.offer.CopyFrom(pb.StorageOffer(**_OFFER.to_wire(frame.offer)))
    return join_frame(head.SerializeToString(), frame.entries)


def decode_reader_frame(data: bytes) -> ReceivedEntries:
    head_bytes, entries = split_frame(data)
    head = parse(pb.ReaderFrame.FromString, head_bytes)
    return ReceivedEntries(
        OwnerEpoch(head.owner_epoch),
        Position(LedgerId(head.confirmed_ledger_id), EntryId(head.confirmed_entry_id)),
        head.at_end,
        head.first_batch_index,
        {ProducerId(n.producer_id): n.name for n in head.names},
        error_from_wire(head.error) if head.HasField("error") else None,
        entries,
        head.trimmed_below,
        _OFFER.from_wire(head.offer) if head.HasField("offer") else None,
    )


READ = StreamMethod(
    "/oncelog.wire.v1.TopicOwner/Read",
    encode_read_control,
    decode_read_control,
    encode_reader_frame,
    decode_reader_frame,
)
FIND_INDEX = unary_of("/oncelog.wire.v1.TopicOwner/FindIndex", pb.FindIndexRequest, pb.FindIndexAnswer)
