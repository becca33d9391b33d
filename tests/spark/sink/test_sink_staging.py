"""Staging and the driver's commit, against a log in memory: killed at each call, they leave each row once."""

from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from threading import Barrier
from typing import Any, cast

import pyarrow as pa
import pytest

from oncelog.client.sync import Client
from oncelog.core.errors import Conflict, CorruptEntry, LogHole, OncelogError, Retriable
from oncelog.core.formats.message_id import MessageId
from oncelog_spark.sink.batch_publisher import commit_to
from oncelog_spark.sink.batch_replay import Replay
from oncelog_spark.sink.batch_staging import PAGE_ATTEMPTS, read_staged, stage_rows
from oncelog_spark.sink.journal_records import (
    BatchRecord,
    StagedAttempt,
    decode_batch_record,
    decode_page,
    encode_page,
)
from oncelog_spark.sink.log import SinkLog
from oncelog_spark.sink.names import journal_topic, stage_topic
from oncelog_spark.sink.position_writer import publish_by_position
from oncelog_spark.sink.rows import CALL_BYTES_MAX, rows_of
from oncelog_spark.sink.writer import write_rows
from tests.spark.memory_log import Died, MemoryClient, MemoryLog, after_each_death, batch, calls_of

TARGET = "public/default/out"
STAGE = stage_topic(TARGET, "copy", "query q", 0)


def values_of(rows: list[str]) -> Any:
    keys = [f"k{row[:1]}" for row in rows]
    return rows_of(
        pa.RecordBatch.from_pydict({"value": pa.array(rows, pa.string()), "key": pa.array(keys, pa.string())})
    )


def stage_tasks(log: MemoryLog, tasks: list[list[list[str]]]) -> tuple[StagedAttempt, ...]:
    """Each task with its pieces; those without rows tell nothing."""
    found = []
    for partition, pieces in enumerate(tasks):
        sink_log, _ = log.sink_log(mode="batch")
        found.append(stage_rows(sink_log, STAGE, partition, 0, map(values_of, pieces)))
    return tuple(attempt for attempt in found if attempt is not None)


def commit(log: MemoryLog, number: int, attempts: tuple[StagedAttempt, ...]) -> BatchRecord | None:
    sink_log, options = log.sink_log(mode="batch")
    return commit_to(sink_log, options, batch(number), Replay(attempts)).record


FIRST: list[list[list[str]]] = [[["a", "b"], ["c"]], [[]], [["d"], ["e", "f"]]]


def test_an_attempt_names_the_position_of_its_first_row() -> None:
    """Under a name that no other attempt has; without rows there is none."""
    log = MemoryLog()
    attempts = stage_tasks(log, FIRST)
    assert [(each.partition, each.topic, each.count) for each in attempts] == [(0, STAGE, 3), (2, STAGE, 3)]
    assert len({each.name for each in attempts}) == 2
    sink_log, _ = log.sink_log(mode="batch")
    record = BatchRecord(batch(0), {TARGET: 0}, attempts)
    for done in range(7):
        rows = [bytes(value) for _, piece in read_staged(sink_log, record, done) for value in piece.values]
        assert rows == [b"a", b"b", b"c", b"d", b"e", b"f"][done:]


def test_every_column_is_resumed_at_the_same_row() -> None:
    """A copy that continues within an entry gives no row the key, time or property of another one."""
    log = MemoryLog()
    numbers = range(4)
    piece = pa.RecordBatch.from_pydict(
        {
            "value": [f"v{n}" for n in numbers],
            "key": [f"k{n}" for n in numbers],
            "event_time": pa.array([n * 1000 for n in numbers], pa.timestamp("us", "UTC")),
            "properties": [{"n": str(n)} for n in numbers],
        }
    )
    sink_log, _ = log.sink_log(mode="batch")
    attempt = stage_rows(sink_log, STAGE, 0, 0, iter([rows_of(piece)]))
    assert attempt is not None
    for done in numbers:
        [(_, rows)] = read_staged(sink_log, BatchRecord(batch(0), {TARGET: 0}, (attempt,)), done)
        assert [bytes(value) for value in rows.values] == [b"v%d" % n for n in numbers[done:]]
        assert rows.keys == [b"k%d" % n for n in numbers[done:]]
        assert rows.event_times_ms == list(numbers[done:])
        assert rows.properties == [{"n": str(n)} for n in numbers[done:]]


def test_attempts_of_one_task_never_share_a_name() -> None:
    """A zombie continues to stage: its rows never count, and it does not fence the attempt that counts."""
    log = MemoryLog()
    winner: list[StagedAttempt] = []

    def zombie() -> Iterator[Any]:
        yield values_of(["a"])
        winner.extend(stage_tasks(log, [[["a"], ["b"]]]))
        yield values_of(["b"])

    late = stage_rows(log.sink_log(mode="batch")[0], STAGE, 0, 0, zombie())
    assert late is not None
    assert late.name != winner[0].name
    commit(log, 0, tuple(winner))
    assert [value for _, _, value in log.rows()] == [b"a", b"b"]


def test_batches_are_copied_in_the_order_of_partitions_with_dense_ids() -> None:
    """With their keys, one batch behind the other; a batch without rows has no record."""
    log = MemoryLog()
    commit(log, 0, tuple(reversed(stage_tasks(log, FIRST))))
    assert commit(log, 1, stage_tasks(log, [[[]], [[]]])) is None
    commit(log, 2, stage_tasks(log, [[["g"]]]))
    assert log.rows() == [("copy", number, b"%c" % letter) for number, letter in enumerate(b"abcdefg")]
    assert [key for entry in log.topic(TARGET).entries for key in entry.keys or []] == [b"k%c" % c for c in b"abcdefg"]
    records = [decode_batch_record(value) for _, _, value in log.rows(journal_topic(TARGET, "copy"))]
    assert [(record.batch.batch_id, record.bases[TARGET], record.count) for record in records] == [(0, 0, 6), (2, 6, 1)]


def test_a_driver_killed_at_any_call_is_completed_by_a_replay_split_differently() -> None:
    """Recorded attempts count, and copied rows stay: the replay publishes only missing rows."""

    def work(log: MemoryLog) -> None:
        commit(log, 0, stage_tasks(log, [[["z"]]]))
        commit(log, 1, stage_tasks(log, FIRST))

    for log in after_each_death(work, calls_of(work)):
        if not log.rows() or not log.hidden("journal"):
            commit(log, 0, stage_tasks(log, [[["z"]]]))
        before = log.rows()
        commit(log, 1, stage_tasks(log, [[["f", "a"]], [["c", "b", "e"]], [["d"]]]))
        assert log.rows()[: len(before)] == before
        assert Counter(value for _, _, value in log.rows()) == Counter(b"%c" % letter for letter in b"zabcdef")
        assert [number for _, number, _ in log.rows()] == list(range(7))


def test_a_batch_that_was_copied_in_part_is_completed_first() -> None:
    """A query that skips a batch, because Spark has it in its checkpoint, publishes the rest of it before its own."""
    log = MemoryLog()
    attempts = stage_tasks(log, FIRST)
    log.dies_at = (log.calls + 2, True)
    with pytest.raises(Died):
        commit(log, 0, attempts)
    assert 0 < len(log.rows()) < 6
    commit(log, 1, stage_tasks(log, [[["g"]]]))
    assert b"".join(value for _, _, value in log.rows()) == b"abcdefg"


def test_staged_rows_that_are_gone_stop_the_job() -> None:
    """With retries where the log only did not answer; nothing is copied in their place."""
    log = MemoryLog()
    attempts = stage_tasks(log, FIRST)
    staged_entries = log.topic(STAGE).entries
    staged_entries[3:] = []
    with pytest.raises(Conflict, match=r"interrupted 5 times.*no further message"):
        commit(log, 0, attempts)
    longer = (replace(attempts[0], count=1, counts={TARGET: 1}),)
    with pytest.raises(LogHole, match="has 2 rows instead of 1"):
        commit(MemoryLog(topics={STAGE: log.topic(STAGE)}), 0, longer)


def test_rows_of_other_attempts_are_skipped() -> None:
    """Attempts share a topic, and their calls interleave."""
    log = MemoryLog()
    inner: list[StagedAttempt | None] = []

    def pieces() -> Iterator[Any]:
        yield values_of(["a"])
        inner.append(stage_rows(log.sink_log(mode="batch")[0], STAGE, 1, 0, iter([values_of(["x", "y"])])))
        yield values_of(["b"])

    outer = stage_rows(log.sink_log(mode="batch")[0], STAGE, 0, 0, pieces())
    assert outer is not None
    commit(log, 0, (outer,))
    assert [value for _, _, value in log.rows()] == [b"a", b"b"]


def test_calls_are_limited_by_bytes() -> None:
    """The first message id is that of the first call."""
    log = MemoryLog()
    large = "x" * (CALL_BYTES_MAX // 2)
    attempts = stage_tasks(log, [[[large, large, large]]])
    assert [len(entry) for entry in log.topic(STAGE).entries] == [1, 1, 1]
    commit(log, 0, attempts)
    assert len(log.rows()) == 3


def test_names_are_contiguous_where_ids_are_dense() -> None:
    """A gap in journals, or in rows that a driver copies, is an error; positions may have gaps."""
    log = MemoryLog()
    piece = pa.RecordBatch.from_pydict({"value": ["a", "b"], "producer_name": ["p", "p"], "sequence_id": [1, 5]})
    publish_by_position(*log.sink_log(), batch(0), iter([piece]))
    commit(log, 0, stage_tasks(log, FIRST))
    modes = {topic: {name.mode for name in log.topic(topic).names.values()} for topic in log.topics}
    target = {name: each.mode for name, each in log.topic(TARGET).names.items()}
    assert target == {"copy/p": "monotonic", "copy": "contiguous"}
    assert modes[STAGE] == {"monotonic"}
    assert [modes[topic] for topic in log.hidden("journal")] == [{"contiguous"}] * 2


def test_driver_reads_each_staged_row_once_with_many_parallel_tasks() -> None:
    """Tasks that run at the same time do not share a staging topic: the copy reads only the rows that it copies."""
    log, tasks, calls = MemoryLog(), 32, 5
    together = Barrier(tasks)

    def work(partition: int) -> StagedAttempt | None:
        def batches() -> Iterator[Any]:
            for number in range(calls):
                together.wait(60)
                yield pa.RecordBatch.from_pydict({"value": [f"{partition}:{number}"]})

        sink_log, options = log.sink_log(mode="batch")
        return write_rows(sink_log, options, batch(0), (partition, 0), batches()).attempt

    with ThreadPoolExecutor(tasks) as pool:
        attempts = tuple(each for each in pool.map(work, range(tasks)) if each is not None)
    log.entries_read = 0
    commit(log, 0, attempts)
    assert [value for _, _, value in log.rows()] == [b"%d:%d" % (p, n) for p in range(tasks) for n in range(calls)]
    assert log.entries_read == tasks * calls
    assert len(log.hidden(".stage.0.")) == tasks


def test_more_tasks_than_one_message_lists_are_committed_and_replayed() -> None:
    """Their list is on pages beside the staged rows; the record stays one message, stored atomically."""
    log, tasks = MemoryLog(), PAGE_ATTEMPTS + 1
    attempts = stage_tasks(log, [[[str(number)]] for number in range(tasks)])
    log.dies_at = (log.calls + 4, True)  # two pages, the record, a call of the copy
    with pytest.raises(Died):
        commit(log, 0, attempts)
    log.dies_at = None
    commit(log, 0, stage_tasks(log, [[[str(number)]] for number in reversed(range(tasks))]))
    assert [value for _, _, value in log.rows()] == [str(number).encode() for number in range(tasks)]
    [data] = [value for _, _, value in log.rows(journal_topic(TARGET, "copy"))]
    record = decode_batch_record(data)
    assert record.paged is not None
    assert (len(record.paged.ids), record.attempts, record.count, len(data) < 2000) == (2, (), tasks, True)
    with pytest.raises(Conflict, match="was published before with other rows"):
        commit(log, 0, stage_tasks(log, FIRST))
    commit(log, 1, stage_tasks(log, FIRST))
    assert len(log.rows()) == tasks + 6


def test_damaged_pages_are_refused() -> None:
    """Nothing is guessed from other bytes."""
    for data in (b"", b"{}", b"hello", encode_page(())[:-1]):
        with pytest.raises(CorruptEntry):
            decode_page(data)


# --- journals ---------------------------------------------------------------------------------------------------------


def test_a_journal_with_foreign_messages_is_refused() -> None:
    """By the producer's name: only the sink may write to it."""
    log = MemoryLog()
    journal = journal_topic(TARGET, "copy")
    commit(log, 0, stage_tasks(log, FIRST))
    sink_log, _ = log.sink_log()
    sink_log.producer(journal, "somebody", "monotonic").send(b"hello", sequence_id=7)
    with pytest.raises(Conflict, match="only this sink may publish"):
        commit(log, 1, stage_tasks(log, FIRST))


def test_a_journal_whose_last_record_is_gone_is_refused() -> None:
    """The log knows the id, but the message is gone: its rows would be published again."""
    log = MemoryLog()
    commit(log, 0, stage_tasks(log, FIRST))
    log.topic(journal_topic(TARGET, "copy")).entries.clear()
    with pytest.raises(Conflict, match="only this sink may publish"):
        commit(log, 1, stage_tasks(log, FIRST))


class Late(MemoryClient):
    """Another driver opens and writes, between this one's opening and its look at the end."""

    def __init__(self, log: MemoryLog) -> None:
        super().__init__(log)
        self._other = log.sink_log()[0].journal("copy")

    def last_message_id(self, topic: str) -> MessageId | None:
        self._other.append(self._other.open()[0] + 1, b"of the other one")
        return super().last_message_id(topic)


def test_a_journal_that_grew_while_it_was_opened_is_opened_again() -> None:
    """This is an interruption, not an error."""
    log = MemoryLog()
    _, options = log.sink_log()
    with pytest.raises(Retriable, match="has written to journal"):
        SinkLog(cast("Client", Late(log)), options).journal("copy").open()


def test_a_journal_accepts_records_only_from_its_newest_instance() -> None:
    """An older one is fenced, a taken number is an error, and a closed journal accepts nothing."""
    log = MemoryLog()
    sink_log, _ = log.sink_log()
    journal = sink_log.journal("copy")
    assert journal.open() == (-1, None)
    assert journal.last_id == ""
    journal.append(0, b"first")
    newer = sink_log.journal("copy")
    assert newer.open() == (0, b"first")
    with pytest.raises(OncelogError, match="newer instance"):
        journal.append(1, b"late")
    newer.append(1, b"second")
    assert list(newer.records(newer.last_id, 1)) == [b"first", b"second"]
    assert list(newer.records("", 1)) == [b"first", b"second"]
    with pytest.raises(OncelogError, match="was stored already"):
        newer.append(1, b"other")
    newer.close()
    with pytest.raises(OncelogError, match="not open"):
        newer.append(2, b"closed")
