"""Fetch: what a client reads, of many partitions in one answer.

An answer waits until it has as many bytes as the client wants, until a partition has an error, or for as long as the
client says, 30 s at most. A request without partitions waits for nothing: Java's consumer ends with one. An answer has
whole batches, at least one, whatever their size, so that every client moves on. Each answer begins with another
partition, so a busy one starves no other. There are no sessions of fetches: a request names all its partitions.
"""

import asyncio
from typing import Any, NamedTuple

from oncelog.runtime.tasks import BackgroundTasks
from oncelog_doors.connections.ports import Timers
from oncelog_doors.core.kafka.error_codes import ErrorCode
from oncelog_doors.kafka.asking import Asking
from oncelog_doors.kafka.codec import Body
from oncelog_doors.kafka.partition_reads import PartitionReads

WAIT_MS_MAX = 30_000
ANSWER_BYTES_MAX = 16 * 1024 * 1024
#: Partitions that one connection reads. Of those beyond it, the ones that were asked for least recently are closed.
PARTITIONS_MAX = 1_000
#: A partition that is not asked for is closed.
IDLE_MS = 60_000
_UNKNOWN = -1


class _Asked(NamedTuple):
    """One partition of a request. reads: None: there are too many."""

    partition: Body
    reads: PartitionReads | None


class Fetching:
    """Of one connection. tasks: of its door."""

    def __init__(self, around: Asking, tasks: BackgroundTasks, timers: Timers) -> None:
        self._around, self._tasks, self._timers = around, tasks, timers
        self._reads: dict[tuple[str, int], PartitionReads] = {}
        #: something has come
        self._changed = asyncio.Event()
        #: requests of one connection are answered one after the other
        self._answering = asyncio.Lock()
        self._turn = 0
        self._hurries = False

    async def fetch(self, asked: Body) -> Body:
        """The body of the answer."""
        if asked.get("session_id", 0):
            return {"error_code": ErrorCode.FETCH_SESSION_ID_NOT_FOUND}
        async with self._answering:
            topics = self._begin(asked)
            every = [each for _, partitions in topics for each in partitions]
            await self._wait(every, asked["min_bytes"], min(max(0, asked["max_wait_ms"]), WAIT_MS_MAX))
            answers = self._taken(every, min(asked["max_bytes"], ANSWER_BYTES_MAX))
            self._close_idle()
        found = iter(answers)
        return {"responses": [{"topic": name, "partitions": [next(found) for _ in each]} for name, each in topics]}

    def hurry(self) -> None:
        """Answer what waits, with what there is."""
        self._hurries = True
        self._changed.set()

    def close(self) -> None:
        for reads in self._reads.values():
            reads.close()
        self._reads.clear()

    # --- one request --------------------------------------------------------------------------------------------------

    def _begin(self, asked: Body) -> list[tuple[str, list[_Asked]]]:
        """{name of a topic: its partitions}, as the request has them; all of them are read from now on."""
        now_ms = self._timers.now_ms()
        topics = []
        for topic in asked["topics"]:
            partitions = []
            for partition in topic["partitions"]:
                reads = self._reads_of(topic["topic"], partition["partition"], now_ms)
                if reads is not None:
                    reads.read_from(partition["fetch_offset"], partition["partition_max_bytes"], now_ms)
                partitions.append(_Asked(partition, reads))
            topics.append((topic["topic"], partitions))
        return topics

    def _reads_of(self, name: str, index: int, now_ms: int) -> PartitionReads | None:
        found = self._reads.pop((name, index), None)
        if found is None:
            if len(self._reads) >= PARTITIONS_MAX:
                oldest = next(iter(self._reads))
                if self._reads[oldest].asked_ms == now_ms:
                    return None
                self._reads.pop(oldest).close()
            found = PartitionReads(self._around, self._tasks, name, index, self._changed.set)
        # The one that was asked for least recently comes first.
        self._reads[name, index] = found
        return found

    async def _wait(self, every: list[_Asked], bytes_min: int, wait_ms: int) -> None:
        """Return when there is an answer."""
        over = False

        def end() -> None:
            nonlocal over
            over = True
            self._changed.set()

        cancel = self._timers.at(self._timers.now_ms() + wait_ms, end)
        try:
            while not (over or self._hurries or _is_enough(every, bytes_min)):
                self._changed.clear()
                await self._changed.wait()
        finally:
            cancel()

    def _taken(self, every: list[_Asked], bytes_max: int) -> list[Body]:
        """The answers, in the order of the partitions."""
        count = len(every)
        answers: list[Body] = [{}] * count
        now_ms, any_bytes = self._timers.now_ms(), False
        for turn in range(self._turn, self._turn + count):
            at = turn % count
            answer = _answer(every[at], bytes_max, at_least_one=not any_bytes)
            size = len(answer["records"])
            any_bytes, bytes_max = any_bytes or size > 0, bytes_max - size
            answers[at] = answer
            if (reads := every[at].reads) is not None and size:
                reads.look(now_ms)
        self._turn += 1
        return answers

    def _close_idle(self) -> None:
        due_ms = self._timers.now_ms() - IDLE_MS
        for key in [key for key, reads in self._reads.items() if reads.asked_ms < due_ms]:
            self._reads.pop(key).close()


def _is_enough(every: list[_Asked], bytes_min: int) -> bool:
    reads = [each.reads for each in every if each.reads is not None]
    return not every or sum(each.ready_bytes for each in reads) >= bytes_min or any(each.is_full for each in reads)


def _answer(asked: _Asked, bytes_max: int, *, at_least_one: bool) -> dict[str, Any]:
    partition, reads = asked
    answer = {"partition_index": partition["partition"], "high_watermark": _UNKNOWN, "aborted_transactions": None}
    if reads is None:
        return answer | {"records": b""}
    error = reads.take_error()
    if error is not ErrorCode.NONE:
        return answer | {"error_code": error, "records": b""}
    batches = reads.take(min(bytes_max, partition["partition_max_bytes"]), at_least_one=at_least_one)
    bounds = reads.bounds
    if bounds is not None:
        answer |= {"high_watermark": bounds.end, "last_stable_offset": bounds.end, "log_start_offset": bounds.first}
    return answer | {"records": b"".join(batch.records for batch in batches)}
