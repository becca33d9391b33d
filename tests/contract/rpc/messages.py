"""A representative of each message that crosses the wire as a plain value, with and without what is optional.

`encoded_messages.txt` has the bytes of each, in this order. An error has one detail at most: protobuf writes them in
any order.
"""

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from oncelog.core.access import Caller
from oncelog.core.acks.changes import IndexRange, SubscriptionType
from oncelog.core.delivery.events import (
    AckRequested,
    AnswerAck,
    AnswerSeek,
    AnswerSubscribe,
    ConsumerActive,
    ConsumerDetached,
    ConsumerHeld,
    ConsumerOpening,
    ConsumerWanted,
    DeliveredEntry,
    DeliverMessages,
    EndConsumer,
    FlowReported,
    HeldMessages,
    NackRequested,
    RecallMessages,
    SeekRequested,
    StoredEntry,
    Subscribed,
    SubscriptionSought,
)
from oncelog.core.delivery.store_binding.events import (
    AnswerEffects,
    BindRequested,
    DeadLetterRequested,
    EffectsAsked,
    RewindRequested,
    SubscriptionEffects,
)
from oncelog.core.errors import (
    NotOwner,
    OncelogError,
    SequenceGap,
    SessionEnded,
    SessionSuperseded,
    SubscriptionGone,
)
from oncelog.core.formats.entry import SequenceMode
from oncelog.core.formats.opening import ClientToken, GatewayClient, OnConflict, ProducerInstance
from oncelog.core.formats.outcome import Outcome, ResultKind, ResultRange
from oncelog.core.ids import (
    BEFORE_ALL,
    ConsumerNumber,
    EntryId,
    Generation,
    Incarnation,
    InstanceId,
    LedgerId,
    OwnerEpoch,
    Position,
    ProducerId,
    SeekEpoch,
    SequenceId,
    SessionNumber,
    SubscriptionNumber,
    TopicId,
)
from oncelog.rpc.codecs import consumer_codec, owner_codec, reader_codec
from oncelog.rpc.codecs.consumer_codec import ConsumerReport, ConsumerRequest, OpenConsumer, ReportedEvent, SeekThrough
from oncelog.rpc.codecs.owner_codec import (
    EndedSession,
    OpenDenied,
    OpenGranted,
    OpenRequest,
    PublishAnswers,
    PublishFrame,
    Switched,
)
from oncelog.rpc.codecs.reader_codec import (
    OfferedMember,
    OfferEnd,
    ReadControl,
    ReaderFrame,
    ReaderStart,
    StartEdge,
    StartIndex,
    StartMessage,
    StartTime,
    StorageOffer,
    StorageResume,
)

C, NUMBER = ConsumerNumber(2**40 + 1), SubscriptionNumber(3)
EPOCH, GENERATION, OWNER = SeekEpoch(2), Generation(5), OwnerEpoch(9)
RANGES = (IndexRange(0, 0), IndexRange(1, 4), IndexRange(100, 2**50))
INSTANCE = bytes(range(16))


def opening(version: int = 0, **fields: object) -> OpenConsumer:
    """version 0: as a program writes it that has none."""
    request = ConsumerOpening(0, "s", SubscriptionType.SHARED, "n", INSTANCE, version=version, **fields)  # type: ignore[arg-type]
    return OpenConsumer("a/b/c", TopicId("ab" * 16), request)


REQUESTS: tuple[ConsumerRequest, ...] = (
    opening(),
    opening(
        first_index=0, priority=-3, max_deliveries=7, dead_letter_topic="a/b/dead", ack_timeout_ms=500,
        owner_epoch_seen=OWNER, properties=(("team", "x"), ("", "")),
    ),
    *(
        OpenConsumer("t", TopicId(""), ConsumerOpening(n, "s", kind, "", INSTANCE, version=0))
        for n, kind in enumerate(SubscriptionType)
    ),
    opening(resume=HeldMessages("cd" * 16, EPOCH, GENERATION, RANGES, RANGES[1:])),
    opening(resume=HeldMessages("", SeekEpoch(0), Generation(0), ())),
    FlowReported(C, 0, 0),
    FlowReported(C, 2**40, 10_000, RANGES),
    FlowReported(C, 1, 1, arrived=0, seek_epoch=SeekEpoch(0)),
    FlowReported(C, 1, 1, arrived=2**40, seek_epoch=EPOCH),
    FlowReported(C, 1, 1, bytes_max=2**40),
    opening(resume=HeldMessages("cd" * 16, EPOCH, GENERATION, RANGES, delivery_counts={100: 2, 2**50: 3})),
    opening(resume=HeldMessages("cd" * 16, EPOCH, GENERATION, RANGES, delivery_counts={})),
    NackRequested(C, 2, EPOCH, RANGES, delivery_counts={}),
    NackRequested(C, 2, EPOCH, RANGES, 5, {1: 2, 4: 2**31}),
    opening(store_id="5a" * 16, effect="invoices"),
    EffectsAsked(C, 0, 0),
    EffectsAsked(C, 1, 2**50),
    BindRequested(C, 2, EPOCH, GENERATION),
    BindRequested(C, 3, EPOCH, GENERATION, 2**50),
    RewindRequested(C, 4, EPOCH, GENERATION, RANGES),
    DeadLetterRequested(C, 5, EPOCH, GENERATION, 2**50, "ValueError: no total"),
    AckRequested(C, 0, EPOCH, RANGES),
    AckRequested(C, 1, EPOCH, below=0, generation=GENERATION),
    NackRequested(C, 2, EPOCH, RANGES),
    NackRequested(C, 3, EPOCH, RANGES, delay_ms=0),
    SeekThrough(C, SeekRequested(4, NUMBER, 0)),
    SeekThrough(C, SeekRequested(5, NUMBER, 2**50, redo=True)),
    ConsumerDetached(C, lost=True),
    ConsumerDetached(C, lost=False),
    opening(9),
    opening(9, whole_entries=True),
    ConsumerHeld(C),
)  # fmt: skip


def stored(entry_id: int, data: bytes) -> StoredEntry:
    return StoredEntry(Position(LedgerId(2**40), EntryId(entry_id)), 100, 7, 2, data)


DELIVERY = DeliverMessages(
    C,
    EPOCH,
    GENERATION,
    (
        DeliveredEntry(stored(0, b"first"), (IndexRange(100, 100), IndexRange(103, 106))),
        DeliveredEntry(stored(1, b""), (IndexRange(101, 102),)),
    ),
    {104: 2, 101: 9},
)
REPORTS: tuple[ConsumerReport, ...] = (
    AnswerSubscribe(0, Subscribed(C, NUMBER, "ab" * 16, EPOCH, GENERATION, RANGES)),
    AnswerSubscribe(1, Subscribed(C, NUMBER, "ab" * 16, EPOCH, GENERATION, (), created=True)),
    AnswerSubscribe(1, SubscriptionGone("deleted")),
    DELIVERY,
    AnswerAck(C, 0),
    AnswerAck(C, 1, NotOwner("moved")),
    AnswerAck(C, 2, durable=False),
    AnswerAck(C, 3, acked_below=1 << 40),
    RecallMessages(C, RANGES),
    ConsumerActive(C, Generation(0)),
    SubscriptionSought(C, EPOCH),
    AnswerSeek(0, EPOCH),
    AnswerSeek(1, NotOwner("moved")),
    AnswerEffects(
        C, 4, SubscriptionEffects(NUMBER, "", "", EPOCH, SeekEpoch(0), 0, GENERATION, 7, 0, 9, 7, 0, (), complete=True)
    ),
    AnswerEffects(
        C,
        5,
        SubscriptionEffects(
            NUMBER, "5a" * 16, "invoices", EPOCH, SeekEpoch(1), 3, GENERATION, 7, 2, 9, 5, 4, RANGES, complete=False
        ),
    ),
    EndConsumer(C, SubscriptionGone("deleted")),
    DELIVERY,
    AnswerSubscribe(2, Subscribed(C, NUMBER, "ab" * 16, EPOCH, GENERATION, whole_entries=True)),
    ConsumerWanted(C),
)

TOPIC = TopicId("0123456789abcdef0123456789abcdef")
SESSION = SessionNumber(7)
INSTANCE_OF_PRODUCER = ProducerInstance(ProducerId(5), Generation(6))
OPENINGS = (
    OpenRequest(0, "public/default/flights", TOPIC, None),
    OpenRequest(
        1, "a/b/c", TOPIC, "n", SequenceMode.CONTIGUOUS, OnConflict.REFUSE,
        ProducerInstance(ProducerId(0), Generation(0)), None, OwnerEpoch(9),
        InstanceId(b"\0" * 15 + b"x"), growths=3, initial_mark=SequenceId(0),
    ),
    OpenRequest(2, "a/b/c", TOPIC, "n", present=INSTANCE_OF_PRODUCER, initial_mark=SequenceId(2**40)),
    OpenRequest(3, "a/b/c", TOPIC, "n", on_behalf_of=Caller("importer", superuser=True)),
    OpenRequest(4, "a/b/c", TOPIC, "n", on_behalf_of=Caller("")),
)  # fmt: skip
GATEWAY_OPENINGS = (
    OpenRequest(5, "a/b/c", TOPIC, "n", instance_id=InstanceId(b"\0" * 16), client=GatewayClient()),
    OpenRequest(
        6, "a/b/c", TOPIC, "n", instance_id=InstanceId(b"\0" * 16),
        client=GatewayClient(0, ClientToken(Generation(2**32 - 1), 2**31 - 1)),
    ),
    OpenRequest(7, "a/b/c", TOPIC, None, instance_id=InstanceId(b"\0" * 16), client=GatewayClient(2**64 - 1)),
)  # fmt: skip
FRAMES = (
    PublishFrame(),
    PublishFrame([SESSION, SESSION], [0, 1], [b"first", b"second"]),
    PublishFrame(opens=OPENINGS),
    PublishFrame([SESSION], [2**40], [b"first"], OPENINGS[:1], [SessionNumber(0), SESSION], [0, 7]),
    PublishFrame(opens=GATEWAY_OPENINGS),
    PublishFrame(closes_keeping=[SessionNumber(0), SESSION], held=[SESSION]),
)


class BatchAnswer(NamedTuple):
    """What an owner's core answers to a batch, in small."""

    session: SessionNumber
    request: int
    result: Outcome | OncelogError


PLACE = Position(LedgerId(5), EntryId(6))
RESULTS: tuple[Outcome | OncelogError, ...] = (
    (ResultRange(ResultKind.STORED, 4, PLACE, 0, index=2**40),),
    (ResultRange(ResultKind.STORED, 4, PLACE, 0),),
    (ResultRange(ResultKind.STORED, 4, PLACE, 3, index=0),),
    (ResultRange(ResultKind.DUPLICATE, 4, Position(LedgerId(0), EntryId(0)), 0, content_differs=False),),
    (ResultRange(ResultKind.BELOW_MARK, 4, None, 0),),
    (ResultRange(ResultKind.DUPLICATE, 3, None, 0, content_differs=True), ResultRange(ResultKind.STORED, 4, PLACE, 3)),
    SequenceGap("send 10 first", expected=10),
)
GRANTED = OpenGranted(
    1, SESSION, "importer", ProducerId(101), Generation(3), SequenceId(-1), True, OwnerEpoch(4), TOPIC, 5 << 20
)
ANSWERS = (
    *(PublishAnswers([BatchAnswer(SESSION, 3, result)]) for result in RESULTS),
    PublishAnswers([BatchAnswer(SessionNumber(n % 3), n, RESULTS[0]) for n in range(9)]),
    PublishAnswers([BatchAnswer(SESSION, n, result) for n, result in enumerate(RESULTS)]),
    PublishAnswers(granted=[GRANTED, GRANTED._replace(open_id=3, final=False, deduplication_off=True, growths=2)]),
    PublishAnswers(
        denied=[OpenDenied(2, NotOwner("look again", owner_epoch=5), OwnerEpoch(4)), OpenDenied(0, NotOwner())]
    ),
    PublishAnswers(
        ended=[
            EndedSession(SessionNumber(8), SessionEnded("the write failed"), OwnerEpoch(4)),
            EndedSession(SessionNumber(9), None, OwnerEpoch(4)),
        ],
        switched=[Switched(SessionNumber(8), off=True), Switched(SessionNumber(9), off=False)],
    ),
    PublishAnswers(
        granted=[GRANTED._replace(for_client=True)],
        wanted=[SessionNumber(0), SESSION],
        ended=[EndedSession(SESSION, SessionSuperseded(), OwnerEpoch(4))],
    ),
)
STARTS = (
    StartEdge.EARLIEST,
    StartEdge.LATEST,
    StartMessage(Position(LedgerId(0), EntryId(0)), 0, inclusive=True),
    StartMessage(Position(LedgerId(3), EntryId(4)), 5, inclusive=False),
    StartTime(0),
    StartTime(9),
    StartIndex(0),
    StartIndex(2**40),
)
CONTROLS = (
    *(ReadControl(ReaderStart("a/b/c", TOPIC, at, OwnerEpoch(3), version=0), 1 << 20) for at in STARTS),
    ReadControl(ReaderStart("a/b/c", TopicId(""), StartIndex(1), storage_reads=True, version=0), 0),
    ReadControl(None, 4096),
    ReadControl(None, 0, StorageResume(Position(LedgerId(0), EntryId(0)), storage_reads=False)),
    *(ReadControl(None, 1, StorageResume(PLACE, storage_reads=True, end=end)) for end in OfferEnd),
    ReadControl(ReaderStart("a/b/c", TOPIC, StartIndex(1), version=9), 0),
)
MEMBERS = [OfferedMember(Incarnation("fe" * 16), "10.0.0.1:6650", b"ticket"), OfferedMember(Incarnation(""), "", b"")]
READER_FRAMES = (
    ReaderFrame(OwnerEpoch(0)),
    ReaderFrame(OwnerEpoch(2), BEFORE_ALL, True, 17, {ProducerId(101): "importer"}, None, [b"one", b"two"], 9),
    ReaderFrame(OwnerEpoch(2), Position(LedgerId(0), EntryId(0)), entries=[b"one", b""]),
    ReaderFrame(OwnerEpoch(2), error=NotOwner("look again", owner_epoch=3)),
    ReaderFrame(OwnerEpoch(2), offer=StorageOffer(LedgerId(0), EntryId(0), EntryId(2**40), MEMBERS, 30_000)),
)


class Message(NamedTuple):
    """name: of the test. sent: what is encoded."""

    name: str
    sent: Any
    encode: Callable[[Any], bytes]
    decode: Callable[[bytes], Any]


def messages() -> Iterator[Message]:
    kinds: tuple[tuple[str, tuple[Any, ...], Callable[[Any], bytes], Callable[[bytes], Any]], ...] = (
        ("request", tuple([each] for each in REQUESTS), consumer_codec.encode_consumer_frame,
         consumer_codec.decode_consumer_frame),
        ("event", tuple([ReportedEvent(OwnerEpoch(n), each)] for n, each in enumerate(REPORTS)),
         consumer_codec.encode_consumer_events, consumer_codec.decode_consumer_events),
        ("publish", FRAMES, owner_codec.encode_publish, owner_codec.decode_publish),
        ("answers", ANSWERS, owner_codec.encode_publish_answers, owner_codec.decode_publish_answers),
        ("control", CONTROLS, reader_codec.encode_read_control, reader_codec.decode_read_control),
        ("read", READER_FRAMES, reader_codec.encode_reader_frame, reader_codec.decode_reader_frame),
    )  # fmt: skip
    for kind, values, encode, decode in kinds:
        for number, sent in enumerate(values):
            yield Message(f"{kind}-{number}", sent, encode, decode)
