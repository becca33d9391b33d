"""A producer that sends a message in chunks to an owner that dies, with both cores: one message, at every point."""

from collections import deque
from dataclasses import dataclass, field

import pytest

from oncelog.core.errors import MessageTooLarge, OncelogError
from oncelog.core.formats.batch_check import BatchLimits, check_batch
from oncelog.core.formats.chunks import CHUNKED_BYTES_MAX, CHUNKS_MAX, decode_chunk_names
from oncelog.core.formats.columns import encode_keys, encode_values
from oncelog.core.formats.entry import SequenceMode
from oncelog.core.formats.opening import Granted
from oncelog.core.formats.outcome import Outcome, ResultKind
from oncelog.core.ids import EntryId, OwnerEpoch, Position
from oncelog.core.sdk.owner_attempts import (
    FailSession,
    LookUp,
    OpenWanted,
    OwnerFound,
    SessionTimerFired,
    StartSessionTimer,
    StreamLost,
    TimerKind,
)
from oncelog.core.sdk.producer.chunked_send import CHUNK_BYTES, ChunkedSend, chunked_bytes_max
from oncelog.core.sdk.producer.events import BatchesAnswered, Complete, Fail, ProducerEffect, SessionClosedByOwner
from oncelog.core.sdk.producer.opening import OpenProducer, ProducerGranted, ProducerSettings
from oncelog.core.sdk.producer.pending_batches import BatchReady, SendBatches
from oncelog.core.sdk.producer.session import ProducerSession
from oncelog.core.topic_events.effects import EndSession
from oncelog.core.topic_events.events import ReceivedBatch
from tests.core.builders import checksum
from tests.core.chunked_log import whole_messages
from tests.core.sdk.producer_world import INSTANCE
from tests.core.topic.topic_world import Owner, World

MESSAGE_BYTES_MAX = 10
LARGE = bytes(range(35))  # four chunks


@dataclass
class Run:
    """One producer, and the owners that serve it. Each batch and each answer is a step; the owner may die between."""

    mode: SequenceMode = SequenceMode.MONOTONIC
    in_flight_count_max: int = 64
    world: World = field(default_factory=World)
    outcomes: dict[int, Outcome] = field(default_factory=dict)
    failed: dict[int, OncelogError] = field(default_factory=dict)
    #: {failed request: whether it is stored}
    told: dict[int, bool | None] = field(default_factory=dict)
    #: whether the owner may refuse the producer for good
    may_end: bool = False
    frames: deque[SendBatches] = field(default_factory=deque)
    owners: int = 0
    answered: int = 0
    ended: int = 0
    attempt: int = 0

    def __post_init__(self) -> None:
        settings = ProducerSettings(name="p", mode=self.mode, in_flight_count_max=self.in_flight_count_max)
        self.producer = ProducerSession(settings, checksum, INSTANCE)
        self.next_owner()
        self.feed(OpenWanted())

    def next_owner(self) -> None:
        self.owners += 1
        self.owner = Owner(self.world, f"o{self.owners}").take_over()
        self.answered = self.ended = 0
        self.frames.clear()

    def feed(self, event: object) -> None:
        for effect in self.producer.handle(event):  # type: ignore[arg-type]
            self._perform(effect)
        self.producer.check_invariants()

    def _perform(self, effect: ProducerEffect) -> None:
        match effect:
            case LookUp(attempt=attempt):
                self.attempt = attempt
                self.feed(OwnerFound(attempt, OwnerEpoch(self.world.record.owner_epoch)))
            case OpenProducer():
                granted = self.owner.open("p", mode=self.mode, resume=effect.resume, instance_id=effect.instance_id)
                self._granted(effect.attempt, granted)
            case SendBatches():
                self.frames.append(effect)
            case Complete():
                self.outcomes[effect.request] = effect.outcome
            case Fail():
                self.failed[effect.request], self.told[effect.request] = effect.error, effect.stored
            case StartSessionTimer() if effect.key.kind is TimerKind.RETRY:
                self.feed(SessionTimerFired(effect.key))
            case FailSession() if not self.may_end:
                raise AssertionError(effect)
            case _:
                pass

    def _granted(self, attempt: int, granted: Granted) -> None:
        epoch = OwnerEpoch(self.world.record.owner_epoch)
        self.feed(
            ProducerGranted(
                attempt, granted.session, granted.name, *granted.instance, granted.last_sequence_id, granted.final,
                epoch, MESSAGE_BYTES_MAX,
            )
        )  # fmt: skip

    def step(self) -> bool:
        """One batch reaches the owner, or else one answer the producer. False: nothing is under way."""
        if self.frames:
            frame = self.frames[0]
            (request, data), *rest = frame.batches
            self.frames[0] = SendBatches(frame.attempt, frame.session, tuple(rest))
            if not rest:
                self.frames.popleft()
            header = check_batch(data, checksum, BatchLimits(1 << 20))
            self.owner.send(frame.session, ReceivedBatch(request, header, data))
            self.owner.run()
            return True
        epoch = OwnerEpoch(self.world.record.owner_epoch)
        if self.answered < len(self.owner.batches):
            answer = self.owner.batches[self.answered]
            self.answered += 1
            self.feed(BatchesAnswered(answer.session, [(answer.request, answer.result)], epoch))
            return True
        ended = self.owner.emitted(EndSession)
        if self.ended < len(ended):
            self.ended += 1
            self.feed(SessionClosedByOwner(ended[self.ended - 1].session, ended[self.ended - 1].error, epoch))
            return True
        return False

    def send(self, request: int, value: bytes) -> None:
        self.feed(BatchReady(request, encode_values([value]), 1, None, 1))

    def send_large(self, request: int, value: bytes = LARGE) -> None:
        payload = encode_values([b""]) + encode_keys([b"key"])
        self.feed(BatchReady(request, payload, 1, None, 1, chunked=ChunkedSend(value, MESSAGE_BYTES_MAX)))

    def messages(self) -> list[tuple[Position, bytes]]:
        return whole_messages(self.world)


def started(mode: SequenceMode, in_flight_count_max: int, world: World | None = None) -> Run:
    run = Run(mode, in_flight_count_max, world or World())
    run.send(1, b"before")
    run.send_large(6)
    run.send(7, b"behind")
    return run


def steps_of(mode: SequenceMode, in_flight_count_max: int) -> int:
    run, count = started(mode, in_flight_count_max), 0
    while run.step():
        count += 1
    return count


@pytest.mark.parametrize("in_flight_count_max", [1, 3, 64])
@pytest.mark.parametrize("mode", list(SequenceMode))
@pytest.mark.parametrize("end", ["owner dies", "stream breaks", "ledger rolls"])
def test_every_point_between_two_chunks_leaves_one_message(
    end: str, mode: SequenceMode, in_flight_count_max: int
) -> None:
    """The owner dies before or after it has written, or its answer is lost; twice in a row, too."""
    count = steps_of(mode, in_flight_count_max)
    assert count > 12, "four chunks, three messages, and their answers"
    for point in range(count + 1):
        run = started(mode, in_flight_count_max)
        for _ in range(point):
            assert run.step()
        for _ in range(2):
            if end == "owner dies":
                run.next_owner()
            if end == "ledger rolls":
                run.owner.roll()
                run.owner.run()
            else:
                run.frames.clear()
                run.feed(StreamLost(run.producer.opening.attempt))
            for _ in range(3):
                run.step()
        while run.step():
            pass
        assert run.failed == {}
        assert [value for _, value in run.messages()] == [b"before", LARGE, b"behind"], (end, point)
        positions = [at for at, _ in run.messages()]
        assert [run.outcomes[request][0].position for request in (1, 6, 7)] == positions
        assert not len(run.producer.pending)


def test_duplicate_answer_to_a_chunk_completes_the_message() -> None:
    """The answer to the message was lost: its first chunk is enough to learn that it is stored."""
    run = Run()
    run.send_large(5)
    while run.frames or run.answered < len(run.owner.batches):
        if run.answered < len(run.owner.batches) and run.owner.batches[run.answered].request == 5:
            break  # the answer to the message
        run.step()
    run.feed(StreamLost(run.producer.opening.attempt))
    held = len(run.world.entries_of(run.messages()[0][0].ledger_id))
    run.answered = len(run.owner.batches)
    while run.step():
        pass
    (result,) = run.outcomes[5]
    assert (result.kind, result.position) == (ResultKind.DUPLICATE, run.messages()[0][0])
    assert len(run.world.entries_of(run.messages()[0][0].ledger_id)) == held


def test_chunks_share_the_window_with_batches() -> None:
    """The memory of what is in flight is bounded, whatever the size of the value."""
    run = Run(in_flight_count_max=3)
    run.send_large(6)
    run.send(7, b"behind")
    (frame,) = run.frames
    assert [request for request, _ in frame.batches] == [2, 3, 4], "of four chunks; nothing overtakes them"
    assert run.producer.pending.in_flight_count == 3
    run.frames.clear()


def test_refused_chunk_fails_its_message_and_no_other() -> None:
    """As a refused batch does: what is behind it is sent again in a session of its own."""
    run = Run()
    run.send_large(5)
    run.send(6, b"behind")
    session = run.producer.session
    assert session is not None
    run.frames.clear()
    too_large = MessageTooLarge("a batch of 12 bytes exceeds the limit of 10", field="batch", limit=10)
    run.feed(BatchesAnswered(session, [(1, too_large)], OwnerEpoch(run.world.record.owner_epoch)))
    assert isinstance(run.failed[5], MessageTooLarge)
    while run.step():
        pass
    assert [value for _, value in run.messages()] == [b"behind"]


def test_chunks_of_the_largest_value_are_named_in_one_message() -> None:
    """1 GiB at the default limit; less where the limit of a message is small."""
    assert chunked_bytes_max(5 * 1024 * 1024) == CHUNKED_BYTES_MAX == 1 << 30
    assert chunked_bytes_max(1000) == CHUNKS_MAX * 1000
    assert CHUNKED_BYTES_MAX // CHUNK_BYTES <= CHUNKS_MAX
    assert ChunkedSend(bytes(21), 10).count == 3


def test_message_names_its_chunks_in_the_order_of_the_value() -> None:
    """Also when their answers arrive in another order."""
    chunked = ChunkedSend(LARGE, MESSAGE_BYTES_MAX)
    sent = [chunked.take(*_INSTANCE, 0, 1, checksum) for _ in range(chunked.count)]  # type: ignore[arg-type]
    assert chunked.next_bytes == 0
    for number in (2, 0, 3, 1):
        assert not chunked.stored
        chunked.answered(number, Position(3, EntryId(10 + number)))  # type: ignore[arg-type]
    assert chunked.stored
    names = decode_chunk_names(encode_values([b""]) + chunked.names())
    assert [name.entry_id for name in names.chunks] == [10, 11, 12, 13]
    assert [name.checksum for name in names.chunks] == [int.from_bytes(data[4:8], "little") for _, data in sent]
    assert (names.ledger_id, names.value_bytes) == (3, len(LARGE))


_INSTANCE = (1, 1)
