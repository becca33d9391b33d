"""Produce and InitProducerId: the batches of one connection, from the request to the answer.

Each batch is checked, in a thread if it is large, and then handed over in the order of the requests. What is not
decided when the time of a request is over, 20 s at most, is answered as unknown; the batch stays, and the client asks
again. A refusal that makes a client renumber its batches waits until nothing else of its producer id is undecided.
"""

import asyncio
from collections.abc import Coroutine
from typing import Any, NamedTuple, Protocol, TypeVar

from oncelog.core.errors import InvalidArgument, OncelogError
from oncelog.core.names import TopicName
from oncelog.runtime.tasks import BackgroundTasks
from oncelog_doors.connections.ports import Timers
from oncelog_doors.core.kafka.batch_checks import BatchRefusal, CheckedBatch
from oncelog_doors.core.kafka.error_codes import ErrorCode, code_of
from oncelog_doors.core.kafka.producer_ids import raised
from oncelog_doors.kafka.asking import Asking, log_of
from oncelog_doors.kafka.checking import Checking
from oncelog_doors.kafka.codec import Body
from oncelog_doors.kafka.producers import UNDECIDED, Answer, Producers

_Result = TypeVar("_Result")

ANSWER_MS_MAX = 20_000
_FIRST_VERSION = 3
#: Partitions whose names are kept, so that they are not looked up for each batch.
_LOGS_MAX = 10_000
_ACKS = {-1, 0, 1}
_NO_OFFSET = -1
#: Clients count the records of a batch from the offset that they get, so -1 would become -1, 0, 1: offsets that look
#: right. From this one on they all stay below 0 (hazard offsets-counted-from-none).
_NO_OFFSETS = -(2**31)


class Sending(Asking, Protocol):
    """What a produce needs of its connection."""

    timers: Timers
    tasks: BackgroundTasks

    @property
    def producers(self) -> Producers: ...

    def sent_without_numbers(self) -> None:
        """A batch comes without numbers: it is not known whether it comes again."""

    def bytes_taken(self, size: int) -> None:
        """They are kept."""

    def bytes_decided(self, size: int) -> None:
        """They are not any more."""


class _Part(NamedTuple):
    """Of a request: what it has for one partition."""

    name: str
    number: int
    records: memoryview | None


class _Ready(NamedTuple):
    log: TopicName
    batch: CheckedBatch


class Producing:
    """Of one connection."""

    def __init__(self, around: Sending) -> None:
        self._around = around
        #: set when the batches of the last request were handed over. No future: the end of a task that waits for one
        #: would end the future, too.
        self._turn: asyncio.Event | None = None
        self._logs: dict[tuple[str, int], TopicName] = {}
        self._checking = Checking(around.tasks)

    def produce(self, version: int, asked: Body) -> Coroutine[Any, Any, Body | None]:
        """The body of the answer; None: the client wants none. The calls are in the order of the requests."""
        turn, mine = self._turn, asyncio.Event()
        self._turn = mine
        return self._produce(version, asked, turn, mine)

    async def _produce(self, version: int, asked: Body, turn: asyncio.Event | None, mine: asyncio.Event) -> Body | None:
        due_ms = self._around.timers.now_ms() + min(max(0, asked["timeout_ms"]), ANSWER_MS_MAX)
        topics = asked["topic_data"]
        parts = [
            _Part(topic["name"], each["index"], each["records"]) for topic in topics for each in topic["partition_data"]
        ]
        refusal = _refusal_of(version, asked)
        try:
            ready = [refusal or await self._ready(part) for part in parts]
            if turn is not None:
                await turn.wait()
            answering = [self._offer(each, due_ms) for each in ready]
        finally:
            mine.set()
        answers = await _each(answering)
        for part, answer in zip(parts, answers, strict=True):
            if answer.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                self._logs.pop((part.name, part.number), None)
        if asked["acks"] == 0:
            _raise_first(answers)
            return None
        offsets = await _each([*map(self._offset_of, ready, answers)])
        bodies = map(_body, parts, answers, offsets)
        return {
            "responses": [
                {"name": topic["name"], "partition_responses": [next(bodies) for _ in topic["partition_data"]]}
                for topic in topics
            ]
        }

    # --- one batch ----------------------------------------------------------------------------------------------------

    async def _ready(self, part: _Part) -> _Ready | Answer:
        around = self._around
        try:
            log = await self._log_of(part)
        except OncelogError as error:
            return Answer(code_of(error), str(error))
        found = await self._checking.checked(part.records, around.cluster.batch_bytes_max)
        if isinstance(found, BatchRefusal):
            return Answer(found.code, found.sentence, final=True)
        if found.is_numbered and not around.cluster.is_ours(found.head.producer_id):
            sentence = f"producer id {found.head.producer_id} is not of this cluster: start the producer again"
            return Answer(ErrorCode.INVALID_PRODUCER_ID_MAPPING, sentence, final=True)
        return _Ready(log, found)

    async def _log_of(self, part: _Part) -> TopicName:
        log = self._logs.get((part.name, part.number))
        if log is None:
            log = await log_of(self._around, part.name, part.number)
            if len(self._logs) >= _LOGS_MAX:
                self._logs.clear()
            self._logs[part.name, part.number] = log
        return log

    def _offer(self, ready: _Ready | Answer, due_ms: int) -> Coroutine[Any, Any, Answer]:
        """Hand a batch over now. Returns what waits for its answer."""
        answer: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        producer_id = None
        if isinstance(ready, Answer):
            answer.set_result(ready)
        else:
            around, size = self._around, len(ready.batch.records)
            producer_id = ready.batch.head.producer_id if ready.batch.is_numbered else None

            def answered(found: Answer) -> None:
                around.bytes_decided(size)
                if not answer.done():
                    answer.set_result(found)

            if producer_id is None:
                around.sent_without_numbers()
            around.bytes_taken(size)
            around.producers.offer(ready.log, around.caller, ready.batch, answered)
        return self._answer(answer, producer_id, due_ms)

    async def _answer(self, answer: asyncio.Future[Answer], producer_id: int | None, due_ms: int) -> Answer:
        """What a client is answered: before the deadline, or that nothing is known."""
        late: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        def end() -> None:
            if not answer.done():
                answer.set_result(UNDECIDED)
            late.set_result(None)

        cancel = self._around.timers.at(due_ms, end)
        try:
            found = await answer
            if not found.final or producer_id is None:
                return found
            settled = asyncio.ensure_future(self._around.producers.settled(producer_id))
            try:
                await asyncio.wait((settled, late), return_when=asyncio.FIRST_COMPLETED)
                return found if settled.done() else UNDECIDED
            finally:
                settled.cancel()
        finally:
            cancel()

    async def _offset_of(self, ready: _Ready | Answer, answer: Answer) -> int:
        """What the client counts its records from."""
        if isinstance(ready, Answer) or answer.code not in {ErrorCode.NONE, ErrorCode.DUPLICATE_SEQUENCE_NUMBER}:
            return _NO_OFFSET
        unknown = _NO_OFFSET if ready.batch.head.count == 1 else _NO_OFFSETS
        if answer.place is None:
            return unknown
        if answer.place.offset is not None:
            return answer.place.offset
        try:
            return await self._around.cluster.offset_at_place(ready.log, answer.place)
        except OncelogError:
            return unknown  # it is stored; only where is not known now

    # --- producer ids -------------------------------------------------------------------------------------------------

    async def init_producer_id(self, asked: Body) -> Body:
        """The body of the answer."""
        if asked["transactional_id"] is not None:
            return _no_producer_id(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
        cluster = self._around.cluster
        known = raised(asked.get("producer_id", -1), asked.get("producer_epoch", -1))
        if known is not None and cluster.is_ours(known.producer_id):
            return {"producer_id": known.producer_id, "producer_epoch": known.epoch}
        try:
            return {"producer_id": await cluster.new_producer_id(), "producer_epoch": 0}
        except OncelogError:
            return _no_producer_id(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)  # clients ask again


async def _each(work: list[Coroutine[Any, Any, _Result]]) -> list[_Result]:
    """All at the same time. Most requests have one batch, for which no task is worth its cost."""
    return [await work[0]] if len(work) == 1 else await asyncio.gather(*work)


def _no_producer_id(code: ErrorCode) -> Body:
    return {"error_code": code, "producer_id": -1, "producer_epoch": -1}


def _refusal_of(version: int, asked: Body) -> Answer | None:
    """Of the whole request. It is final."""
    if version < _FIRST_VERSION:
        return Answer(ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT, final=True)
    if asked["transactional_id"] is not None:
        return Answer(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, "transactions are not offered", final=True)
    if asked["acks"] not in _ACKS:
        return Answer(ErrorCode.INVALID_REQUIRED_ACKS, f"acks is {asked['acks']}: it is -1, 0 or 1", final=True)
    return None


def _raise_first(answers: list[Answer]) -> None:
    """A client that wants no answer notices an error only by the end of its connection. Raises InvalidArgument."""
    for answer in answers:
        if answer.code not in {ErrorCode.NONE, ErrorCode.DUPLICATE_SEQUENCE_NUMBER}:
            message = f"a batch with acks 0 was not stored: {answer.sentence or answer.code.name}"
            raise InvalidArgument(message, field="acks")


def _body(part: _Part, answer: Answer, offset: int) -> Body:
    return {
        "index": part.number,
        "error_code": answer.code,
        "base_offset": offset,
        "error_message": answer.sentence,
    }
