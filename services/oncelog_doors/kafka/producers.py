"""The producers of a door: one for each producer id and partition that clients send batches of, and for each partition
one of the door itself, for batches without numbers.

    opening ──▶ open ──▶ ended, or closed when nothing came for a minute
        └──────────────▶ refused

A producer is that of the door and not of a connection: a client that comes back on another connection finds the batches
that it sent before, and joins them. A batch that was given stays until the log has decided, whoever waits for it.
"""

import asyncio
from collections import Counter, deque
from collections.abc import Callable
from typing import NamedTuple, Protocol, assert_never

from oncelog.core.access import Caller
from oncelog.core.errors import OncelogError, PermissionDenied, ProducerFenced
from oncelog.core.ids import SequenceId
from oncelog.core.names import TopicName
from oncelog.runtime.tasks import BackgroundTasks
from oncelog_doors.connections.ports import Timers
from oncelog_doors.core.kafka.batch_checks import CheckedBatch
from oncelog_doors.core.kafka.batch_numbers import BatchNumbers, Give, GivenIds, Join, Refuse
from oncelog_doors.core.kafka.error_codes import ErrorCode, code_of
from oncelog_doors.kafka.ports import ClusterPort, Decision, NotStored, ProducerPort, StoredAt, StoredPlace

IDLE_MS = 60_000


class Answer(NamedTuple):
    """Of one batch. final: the client gives it up, or renumbers what is behind it. place: of the first record, if
    the batch is stored and its place is remembered."""

    code: ErrorCode
    sentence: str | None = None
    final: bool = False
    place: StoredPlace | None = None


#: Nothing is known: the client asks again, and counts the batch as one that may be stored.
UNDECIDED = Answer(ErrorCode.REQUEST_TIMED_OUT)
Answering = Callable[[Answer], None]


class _Offered(NamedTuple):
    batch: CheckedBatch
    answer: Answering


class _Key(NamedTuple):
    """producer_id: None: that of the door."""

    log: TopicName
    producer_id: int | None
    role: str


class Owner(Protocol):
    """What a producer needs of its door."""

    cluster: ClusterPort
    timers: Timers
    tasks: BackgroundTasks

    def over(self, key: _Key, producer: "PartitionProducer") -> None: ...
    def given(self, producer_id: int | None) -> None: ...
    def decided(self, producer_id: int | None) -> None: ...


class PartitionProducer:
    """Of one producer id and one partition."""

    def __init__(self, door: Owner, key: _Key, caller: Caller) -> None:
        self._door, self._key, self._caller = door, key, caller
        self._port: ProducerPort | None = None
        #: None: batches have no numbers of a client
        self._numbers: BatchNumbers | None = None
        self._next = SequenceId(0)
        self._queue: deque[_Offered] = deque()
        #: who waits for each batch that was given
        self._waiting: dict[GivenIds, list[Answering]] = {}
        self._handing = False
        self._is_over = False
        self._cancel_idle: Callable[[], None] | None = None
        door.tasks.start(self._run(), what=f"a producer of {key.log}")

    def offer(self, batch: CheckedBatch, answer: Answering) -> None:
        """Take a batch, in the order of the client. answer: called once, possibly before this returns."""
        self._door.given(self._key.producer_id)
        self._queue.append(_Offered(batch, answer))
        self._hand_over()

    # --- its session --------------------------------------------------------------------------------------------------

    async def _run(self) -> None:
        key = self._key
        try:
            port = await self._door.cluster.open_producer(key.log, self._caller, key.producer_id)
        except OncelogError as error:
            self._end(error)
            return
        self._port = port
        if key.producer_id is not None:
            self._numbers = BatchNumbers(port.mark)
        self._hand_over()
        self._end(await port.ended())
        await port.close()

    def _end(self, error: OncelogError) -> None:
        """Nothing is taken any more; a batch that comes opens another producer."""
        self._is_over = True
        self._door.over(self._key, self)
        self._stop_idle()
        answer = _answer_at_end(error)
        for offered in self._queue:
            self._answer(offered.answer, answer)
        self._queue.clear()
        given, self._waiting = self._waiting, {}
        for waiting in given.values():
            for each in waiting:
                self._answer(each, answer)

    def _stop_idle(self) -> None:
        if self._cancel_idle is not None:
            self._cancel_idle()
            self._cancel_idle = None

    def _watch_idle(self) -> None:
        self._stop_idle()
        if not self._is_over and not self._queue and not self._waiting:
            self._cancel_idle = self._door.timers.at(self._door.timers.now_ms() + IDLE_MS, self._close_idle)

    def _close_idle(self) -> None:
        if self._port is not None:
            self._door.over(self._key, self)
            self._door.tasks.start(self._port.close(), what=f"the end of a producer of {self._key.log}")

    # --- batches ------------------------------------------------------------------------------------------------------

    def _hand_over(self) -> None:
        """Give the log what it takes at once; else a task does."""
        while self._queue and not self._handing and not self._is_over and self._port is not None:
            if not self._port.has_room(len(self._queue[0].batch.records)):
                self._handing = True
                self._door.tasks.start(self._hand_over_slowly(self._port), what=f"the batches to {self._key.log}")
                return
            self._give(self._port, self._queue.popleft())

    async def _hand_over_slowly(self, port: ProducerPort) -> None:
        while self._queue and not self._is_over:
            await port.room(len(self._queue[0].batch.records))
            if self._queue and not self._is_over:
                self._give(port, self._queue.popleft())
        self._handing = False

    def _give(self, port: ProducerPort, offered: _Offered) -> None:
        self._stop_idle()
        head = offered.batch.head
        if self._numbers is None:
            ids = GivenIds(self._next, SequenceId(self._next + head.count - 1))
            self._next = SequenceId(ids.last + 1)
            verdict: Give | Join | Refuse = Give(ids)
        else:
            now_ms = self._door.timers.now_ms()
            verdict = self._numbers.judge(head.producer_epoch, head.base_sequence, head.count, now_ms)
        match verdict:
            case Refuse(code, final):
                self._answer(offered.answer, Answer(code, final=final))
                self._watch_idle()
            case Join(ids):
                self._waiting[ids].append(offered.answer)
            case Give(ids):
                self._waiting[ids] = [offered.answer]
                port.give(offered.batch, ids, lambda decision: self._decided(ids, decision))
            case _:
                assert_never(verdict)

    def _decided(self, ids: GivenIds, decision: Decision | None) -> None:
        if decision is None:
            return  # the producer has ended, and `_end` answers
        if self._numbers is not None:
            self._numbers.decided(ids, refused=isinstance(decision, NotStored))
        answer = _answer_of(decision)
        for each in self._waiting.pop(ids, ()):
            self._answer(each, answer)
        self._watch_idle()

    def _answer(self, answering: Answering, answer: Answer) -> None:
        self._door.decided(self._key.producer_id)
        answering(answer)


def _answer_of(decision: Decision) -> Answer:
    match decision:
        case StoredAt(place):
            # A client takes both as success.
            code = ErrorCode.NONE if place is not None else ErrorCode.DUPLICATE_SEQUENCE_NUMBER
            return Answer(code, place=place)
        case NotStored(code, sentence):
            return Answer(code, sentence, final=code not in _TRIED_AGAIN)
        case _:
            assert_never(decision)


#: Codes at which clients send the batch again under the same numbers.
_TRIED_AGAIN = {
    ErrorCode.REQUEST_TIMED_OUT,
    ErrorCode.NOT_ENOUGH_REPLICAS,
    ErrorCode.KAFKA_STORAGE_ERROR,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.CORRUPT_MESSAGE,
}


def _answer_at_end(error: OncelogError) -> Answer:
    """Of batches of which nothing is known, because their producer has ended."""
    if isinstance(error, ProducerFenced):
        return Answer(ErrorCode.INVALID_PRODUCER_EPOCH, str(error), final=True)
    if isinstance(error, PermissionDenied):
        return Answer(ErrorCode.TOPIC_AUTHORIZATION_FAILED, str(error), final=True)
    code = code_of(error)
    return Answer(code, str(error)) if code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION else UNDECIDED


class Producers:
    """Of one door."""

    def __init__(self, cluster: ClusterPort, timers: Timers, tasks: BackgroundTasks) -> None:
        self.cluster, self.timers, self.tasks = cluster, timers, tasks
        self._open: dict[_Key, PartitionProducer] = {}
        #: {producer id: batches without an answer}
        self._undecided: Counter[int] = Counter()
        self._settled: dict[int, asyncio.Event] = {}

    def __len__(self) -> int:
        return len(self._open)

    def offer(self, log: TopicName, caller: Caller, batch: CheckedBatch, answer: Answering) -> None:
        """As `PartitionProducer.offer`."""
        key = _Key(log, batch.head.producer_id if batch.is_numbered else None, caller.role)
        found = self._open.get(key)
        if found is None:
            found = self._open[key] = PartitionProducer(self, key, caller)
        found.offer(batch, answer)

    async def settled(self, producer_id: int) -> None:
        """Return when no batch of the producer id is undecided.

        A final refusal waits for that: at it clients raise their epoch, and give new numbers to all batches without
        an answer. What is stored meanwhile would be stored again under them (hazard renumbered-while-undecided).
        """
        while self._undecided[producer_id] > 0:
            await self._settled.setdefault(producer_id, asyncio.Event()).wait()

    # --- of producers -------------------------------------------------------------------------------------------------

    def over(self, key: _Key, producer: PartitionProducer) -> None:
        if self._open.get(key) is producer:
            del self._open[key]

    def given(self, producer_id: int | None) -> None:
        if producer_id is not None:
            self._undecided[producer_id] += 1

    def decided(self, producer_id: int | None) -> None:
        if producer_id is None:
            return
        self._undecided[producer_id] -= 1
        if not self._undecided[producer_id]:
            del self._undecided[producer_id]
            event = self._settled.pop(producer_id, None)
            if event is not None:
                event.set()
