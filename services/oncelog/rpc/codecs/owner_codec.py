"""Messages of the TopicOwner's publish stream as plain values; owner.proto describes the fields.

The common case is in columns: batches with their sessions and requests in requests, batches that were stored whole in
answers. A protobuf message for each batch would cost more than the batch itself.
"""

from collections.abc import Sequence
from itertools import repeat
from typing import NamedTuple, Protocol, cast

from oncelog.core.access import Caller
from oncelog.core.errors import InvalidArgument, OncelogError
from oncelog.core.formats.entry import SequenceMode
from oncelog.core.formats.opening import ClientToken, GatewayClient, OnConflict, ProducerInstance
from oncelog.core.formats.outcome import Outcome, ResultKind, ResultRange
from oncelog.core.ids import (
    GROWTHS_MAX,
    INSTANCE_ID_BYTES,
    NO_INSTANCE,
    NO_SEQUENCE,
    SEQUENCE_ID_MAX,
    EntryId,
    Generation,
    InstanceId,
    LedgerId,
    OwnerEpoch,
    Position,
    ProducerId,
    SequenceId,
    SessionNumber,
    TopicId,
)
from oncelog.core.names import check_part
from oncelog.rpc.codecs.layout import FAILED, MAY_FAIL, Field, Layout, inside
from oncelog.rpc.frames import Blob, join_frame, parse, split_frame
from oncelog.rpc.methods import StreamMethod, unary_of
from oncelog.rpc.status import error_from_wire, error_to_wire
from oncelog.wire import clients_pb2, observation_pb2, truncation_pb2
from oncelog.wire import owner_pb2 as pb

#: Limits of openings and closings in one frame, checked before Python objects are made of them.
OPENS_MAX = 1_000
CLOSES_MAX = 16_384
#: Limit of a topic's name and id in an opening, because errors repeat them. A producer name that is too long fails only
#: its own opening, whose error does not repeat it.
_NAME_CHARACTERS_MAX = 1_024


class OpenRequest(NamedTuple):
    """producer_name None: assigned by the owner. resume: continue as this instance; present: open again and present it.

    instance_id: 16 bytes, the same in all requests of one producer instance. on_behalf_of: the caller for whom a
    superuser opens the producer. growths: 0 to GROWTHS_MAX, see ProducerOpened. initial_mark: of a new name: ids up to
    it count as stored; -1: none. client: whom a gateway opens it for; None: not of a gateway.
    """

    open_id: int
    topic: str
    topic_id: TopicId
    producer_name: str | None
    mode: SequenceMode = SequenceMode.MONOTONIC
    on_conflict: OnConflict = OnConflict.FENCE
    resume: ProducerInstance | None = None
    present: ProducerInstance | None = None
    owner_epoch_seen: OwnerEpoch = OwnerEpoch(0)
    instance_id: InstanceId = NO_INSTANCE
    on_behalf_of: Caller | None = None
    growths: int = 0
    initial_mark: SequenceId = NO_SEQUENCE
    client: GatewayClient | None = None


class PublishFrame(NamedTuple):
    """batches[i] belongs to sessions[i] and is that session's request requests[i]. cancels: open ids withdrawn.

    closes_keeping: sessions to close whose names are kept for the clients of gateways. held: sessions whose names were
    wanted, and whose clients are there.
    """

    sessions: Sequence[SessionNumber] = ()
    requests: Sequence[int] = ()
    batches: Sequence[Blob] = ()
    opens: Sequence[OpenRequest] = ()
    closes: Sequence[SessionNumber] = ()
    cancels: Sequence[int] = ()
    closes_keeping: Sequence[SessionNumber] = ()
    held: Sequence[SessionNumber] = ()


class ReceivedPublish(NamedTuple):
    """A PublishFrame as it arrived: the batches are slices of the received frame."""

    sessions: list[SessionNumber]
    requests: list[int]
    batches: list[memoryview]
    opens: list[OpenRequest]
    closes: list[SessionNumber]
    cancels: Sequence[int] = ()
    closes_keeping: Sequence[SessionNumber] = ()
    held: Sequence[SessionNumber] = ()


class OpenGranted(NamedTuple):
    """last_sequence_id -1: nothing stored yet. final: from now on only this session can change it. for_client: it is
    for the client of a gateway; an owner that does not know these says False."""

    open_id: int
    session: SessionNumber
    producer_name: str
    producer_id: ProducerId
    generation: Generation
    last_sequence_id: SequenceId
    final: bool
    owner_epoch: OwnerEpoch
    topic_id: TopicId
    message_bytes_max: int
    deduplication_off: bool = False
    growths: int = 0
    for_client: bool = False


class OpenDenied(NamedTuple):
    """owner_epoch 0: unknown, because the topic is not served here."""

    open_id: int
    error: OncelogError
    owner_epoch: OwnerEpoch = OwnerEpoch(0)


class EndedSession(NamedTuple):
    """error None: closed by the client. Otherwise the session's unanswered batches are undecided."""

    session: SessionNumber
    error: OncelogError | None
    owner_epoch: OwnerEpoch


class Switched(NamedTuple):
    """Deduplication was switched on or off for the topic of a session."""

    session: SessionNumber
    off: bool


class OutgoingAnswer(Protocol):
    """The answer to one batch; implemented by `core.publishing.sessions.BatchAnswer`."""

    @property
    def session(self) -> SessionNumber: ...
    @property
    def request(self) -> int: ...
    @property
    def result(self) -> Outcome | OncelogError: ...


class PublishAnswers(NamedTuple):
    """An owner's frame; to be handled in this order: granted, denied, answers, switched, wanted, ended.

    wanted: sessions of gateways' clients whose names others want.
    """

    answers: Sequence[OutgoingAnswer] = ()
    granted: Sequence[OpenGranted] = ()
    denied: Sequence[OpenDenied] = ()
    ended: Sequence[EndedSession] = ()
    switched: Sequence[Switched] = ()
    wanted: Sequence[SessionNumber] = ()


class ReceivedAnswers(NamedTuple):
    """PublishAnswers as they arrived. answers: {session: [(request, result of the batch)]}."""

    answers: dict[SessionNumber, list[tuple[int, Outcome | OncelogError]]]
    granted: list[OpenGranted]
    denied: list[OpenDenied]
    ended: list[EndedSession]
    switched: list[Switched]
    wanted: Sequence[SessionNumber] = ()


_RESULT_KINDS = {int(kind): kind for kind in ResultKind}


def _sessions(column: Sequence[int]) -> list[SessionNumber]:
    return cast("list[SessionNumber]", column[:])  # a slice of protobuf is a list, and twice as fast as list()


def encode_publish(frame: PublishFrame) -> bytes:
    head = pb.PublishFrame(sessions=frame.sessions, requests=frame.requests)
    if frame.closes:
        head.closes.extend(frame.closes)
    if frame.cancels:
        head.cancels.extend(frame.cancels)
    if frame.closes_keeping:
        head.closes_keeping.extend(frame.closes_keeping)
    if frame.held:
        head.held.extend(frame.held)
    for opening in frame.opens:
        head.opens.add(**_OPEN.to_wire(opening))
    return join_frame(head.SerializeToString(), frame.batches)


def decode_publish(data: bytes) -> ReceivedPublish:
    """Raises InvalidArgument, also when the numbers of sessions, requests and batches differ."""
    head_bytes, batches = split_frame(data)
    head = parse(pb.PublishFrame.FromString, head_bytes)
    if not len(head.sessions) == len(head.requests) == len(batches):
        raise InvalidArgument("each batch needs a session and a request", field="sessions")
    bounds = (
        ("opens", len(head.opens), OPENS_MAX), ("closes", len(head.closes), CLOSES_MAX),
        ("cancels", len(head.cancels), CLOSES_MAX), ("closes_keeping", len(head.closes_keeping), CLOSES_MAX),
        ("held", len(head.held), CLOSES_MAX),
    )  # fmt: skip
    for name, count, limit in bounds:
        if count > limit:
            raise InvalidArgument(f"a frame holds {count} {name}, at most {limit}", field=name, limit=limit)
    return ReceivedPublish(
        _sessions(head.sessions),
        head.requests[:],
        batches,
        [_open_from_wire(opening) for opening in head.opens],
        _sessions(head.closes),
        head.cancels[:],
        _sessions(head.closes_keeping),
        _sessions(head.held),
    )


def encode_publish_answers(frame: PublishAnswers) -> bytes:
    """Batches that were stored whole, from index 0 of their entry, go into the columns."""
    out = pb.PublishAnswers()
    stored: list[tuple[int, int, int, int, int, int]] = []
    for answer in frame.answers:
        result = answer.result
        if isinstance(result, OncelogError):
            out.answers.add(session=answer.session, request=answer.request, error=error_to_wire(result))
            continue
        kind, count, position, offset, _, index = result[0]
        whole = len(result) == 1 and kind is ResultKind.STORED and offset == 0
        if whole and position is not None and index is not None:
            stored.append((answer.session, answer.request, position[0], position[1], count, index))
        else:
            _ranges_to_wire(result, out.answers.add(session=answer.session, request=answer.request))
    if stored:
        sessions, requests, ledger_ids, entry_ids, counts, indexes = zip(*stored, strict=True)
        out.stored_sessions.extend(sessions)
        out.stored_requests.extend(requests)
        out.stored_ledger_ids.extend(ledger_ids)
        out.stored_entry_ids.extend(entry_ids)
        out.stored_counts.extend(counts)
        out.stored_indexes.extend(indexes)
    for granted in frame.granted:
        out.granted.add(**_GRANTED.to_wire(granted))
    for denied in frame.denied:
        out.refused.add(**_DENIED.to_wire(denied))
    for ended in frame.ended:
        out.ended.add(**_ENDED.to_wire(ended))
    for switched in frame.switched:
        out.switched.add(**_SWITCHED.to_wire(switched))
    if frame.wanted:
        out.wanted.extend(frame.wanted)
    return out.SerializeToString()


def decode_publish_answers(data: bytes) -> ReceivedAnswers:
    frame = parse(pb.PublishAnswers.FromString, data)
    return ReceivedAnswers(
        _answers_from_wire(frame),
        list(map(_GRANTED.from_wire, frame.granted)),
        list(map(_DENIED.from_wire, frame.refused)),
        list(map(_ENDED.from_wire, frame.ended)),
        list(map(_SWITCHED.from_wire, frame.switched)),
        _sessions(frame.wanted),
    )


def _answers_from_wire(frame: pb.PublishAnswers) -> dict[SessionNumber, list[tuple[int, Outcome | OncelogError]]]:
    columns = (
        frame.stored_sessions[:],
        frame.stored_requests[:],
        frame.stored_ledger_ids[:],
        frame.stored_entry_ids[:],
        frame.stored_counts[:],
    )
    indexes: Sequence[int | None] = frame.stored_indexes[:] or [None] * len(columns[0])
    if len(set(map(len, (*columns, indexes)))) != 1:
        raise InvalidArgument("the columns of stored batches differ in length", field="stored_sessions")
    answers: dict[SessionNumber, list[tuple[int, Outcome | OncelogError]]] = {}
    sessions, requests, ledger_ids, entry_ids, counts = columns
    # _make halves the cost of this loop, which runs for each batch.
    positions = map(Position._make, zip(ledger_ids, entry_ids, strict=True))
    stored = map(ResultRange._make, zip(repeat(ResultKind.STORED), counts, positions, repeat(0), repeat(None), indexes))
    for session, request, range_ in zip(_sessions(sessions), requests, stored, strict=True):
        if session in answers:
            answers[session].append((request, (range_,)))
        else:
            answers[session] = [(request, (range_,))]
    for answer in frame.answers:
        answers.setdefault(SessionNumber(answer.session), []).append((answer.request, _result_from_wire(answer)))
    return answers


def caller_to_wire(caller: Caller) -> clients_pb2.OnBehalfOf:
    return clients_pb2.OnBehalfOf(role=caller.role, superuser=caller.superuser)


def caller_from_wire(caller: clients_pb2.OnBehalfOf) -> Caller:
    """Raises InvalidName for a role that no token can have."""
    if caller.role:
        check_part(caller.role, field="on_behalf_of")
    return Caller(caller.role, superuser=caller.superuser)


def _open_from_wire(opening: pb.OpenProducer) -> OpenRequest:
    try:
        SequenceMode(opening.mode), OnConflict(opening.on_conflict)
    except ValueError as error:
        raise InvalidArgument(f"opening {opening.open_id}: {error}", field="mode") from error
    if max(len(opening.topic), len(opening.topic_id)) > _NAME_CHARACTERS_MAX:
        message = f"opening {opening.open_id}: a name has at most {_NAME_CHARACTERS_MAX} characters"
        raise InvalidArgument(message, field="topic", limit=_NAME_CHARACTERS_MAX)
    if len(opening.instance_id) not in (0, INSTANCE_ID_BYTES):
        message = f"an instance id has {INSTANCE_ID_BYTES} bytes or none, not {len(opening.instance_id)}"
        raise InvalidArgument(message, field="instance_id", limit=INSTANCE_ID_BYTES)
    if opening.growths > GROWTHS_MAX:
        message = f"a topic gets more partitions at most {GROWTHS_MAX} times, not {opening.growths}"
        raise InvalidArgument(message, field="growths", limit=GROWTHS_MAX)
    if opening.HasField("initial_mark") and not (opening.producer_name and opening.initial_mark < SEQUENCE_ID_MAX):
        message = f"an initial mark is at most {SEQUENCE_ID_MAX - 1}, and of a producer with a name"
        raise InvalidArgument(message, field="initial_mark", limit=SEQUENCE_ID_MAX - 1)
    if opening.HasField("client") and not opening.instance_id:
        raise InvalidArgument("an opening for a client of a gateway needs an instance id", field="instance_id")
    return _OPEN.from_wire(opening)


_TOKEN = inside(Layout(ClientToken, clients_pb2.ClientToken))
_CLIENT = inside(Layout(GatewayClient, clients_pb2.GatewayClient, token=_TOKEN))
_INSTANCE = inside(Layout(ProducerInstance, clients_pb2.ProducerInstance))
_OPEN = Layout(
    OpenRequest, pb.OpenProducer, producer_name=Field("", str, lambda name: name or None),
    mode=Field("", int, SequenceMode), on_conflict=Field("", int, OnConflict), resume=_INSTANCE, present=_INSTANCE,
    on_behalf_of=Field("", caller_to_wire, caller_from_wire), initial_mark=Field(absent=NO_SEQUENCE),
    client=_CLIENT,
)  # fmt: skip
_GRANTED = Layout(OpenGranted, pb.ProducerGranted)
_DENIED = Layout(OpenDenied, pb.OpenRefused, error=FAILED)
_ENDED = Layout(EndedSession, pb.SessionEnded, error=MAY_FAIL)
_SWITCHED = Layout(Switched, pb.DeduplicationSwitched)


def _ranges_to_wire(outcome: Outcome, out: pb.BatchAnswer) -> None:
    for kind, count, position, offset, content_differs, index in outcome:
        ledger_id, entry_id = (None, None) if position is None else position
        out.ranges.add(
            kind=pb.ResultKind.ValueType(kind),
            count=count,
            ledger_id=ledger_id,
            entry_id=entry_id,
            offset=offset,
            content_differs=content_differs,
            index=index,
        )


def _result_from_wire(answer: pb.BatchAnswer) -> Outcome | OncelogError:
    if answer.HasField("error"):
        return error_from_wire(answer.error)
    if not answer.ranges:
        raise InvalidArgument("an answer has neither results nor an error", field="ranges")
    return tuple(map(_range_from_wire, answer.ranges))


def _range_from_wire(range_: pb.ResultRange) -> ResultRange:
    kind = _RESULT_KINDS.get(range_.kind)
    if kind is None:
        raise InvalidArgument(f"an answer of unknown kind {range_.kind}", field="ranges")
    placed = range_.HasField("ledger_id") and range_.HasField("entry_id")
    position = Position(LedgerId(range_.ledger_id), EntryId(range_.entry_id)) if placed else None
    differs = range_.content_differs if range_.HasField("content_differs") else None
    index = range_.index if range_.HasField("index") else None
    return ResultRange(kind, range_.count, position, range_.offset, differs, index)


_SERVICE = "/oncelog.wire.v1.TopicOwner"
PUBLISH = StreamMethod(
    f"{_SERVICE}/Publish", encode_publish, decode_publish, encode_publish_answers, decode_publish_answers
)
LAST_MESSAGE = unary_of(f"{_SERVICE}/LastMessage", pb.LastMessageRequest, pb.LastMessageAnswer)
LEASE_PRODUCER_ID = unary_of(f"{_SERVICE}/LeaseProducerId", pb.LeaseProducerIdRequest, pb.LeaseProducerIdAnswer)
READ_CHUNK = unary_of(f"{_SERVICE}/ReadChunk", pb.ReadChunkRequest, pb.ReadChunkAnswer)
PRODUCER_NAMES = unary_of(f"{_SERVICE}/ProducerNames", pb.ProducerNamesRequest, pb.ProducerNamesAnswer)
TOPIC_STATES = unary_of(f"{_SERVICE}/TopicStates", pb.TopicStatesRequest, pb.TopicStatesAnswer)
LIST_TOPICS = unary_of(f"{_SERVICE}/ListTopics", observation_pb2.ListTopicsRequest, observation_pb2.ListTopicsAnswer)
LIST_LAGS = unary_of(f"{_SERVICE}/ListLags", observation_pb2.ListLagsRequest, observation_pb2.ListLagsAnswer)
RATES = unary_of(f"{_SERVICE}/Rates", observation_pb2.RatesRequest, observation_pb2.RatesAnswer)
SAMPLE_TOPICS = unary_of(
    f"{_SERVICE}/SampleTopics", observation_pb2.SampleTopicsRequest, observation_pb2.SampleTopicsAnswer
)
ASSIGN = unary_of(f"{_SERVICE}/Assign", pb.AssignRequest, pb.AssignAnswer)
UNLOAD = unary_of(f"{_SERVICE}/Unload", pb.UnloadRequest, pb.UnloadAnswer)
TRUNCATE = unary_of(f"{_SERVICE}/Truncate", truncation_pb2.TruncateRequest, truncation_pb2.TruncateAnswer)
TRIM = unary_of(f"{_SERVICE}/Trim", truncation_pb2.TrimRequest, truncation_pb2.TrimAnswer)
CACHED_ENTRIES = unary_of(f"{_SERVICE}/CachedEntries", pb.CachedEntriesRequest, pb.CachedEntriesAnswer)
