"""What performs the sink's decisions, against a log in memory: killed at each of its calls, it leaves each row once."""

from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import pyarrow as pa
import pytest

from oncelog.core.errors import Conflict, InvalidSequenceId, LogHole, OncelogError, TopicNotFound
from oncelog.pipeline.sink_batch import _Commit
from oncelog.pipeline.sink_commit import BatchCommit
from oncelog.pipeline.sink_log import JOURNAL
from oncelog.pipeline.sink_names import journal_topic, stage_topic
from oncelog.pipeline.sink_position import publish_by_position
from oncelog.pipeline.sink_records import Attempt, RunBatch, WinnersRecord, decode_claim, decode_winners
from oncelog.pipeline.sink_rows import CALL_BYTES_MAX, rows_of
from oncelog.pipeline.staging import stage, staged
from tests.pipeline.memory_log import Died, MemoryLog

TARGET = "public/default/out"
STAGE = stage_topic(TARGET, "copy", "query q", 0)
NAMES = [f"copy/public/default/in-partition-{part}" for part in (0, 1)]


def batch(number: int) -> RunBatch:
    return RunBatch("query q", number)


# --- mode position ----------------------------------------------------------------------------------------------------


def columns(ids: list[int], part: int = 0, **more: list[Any]) -> Any:
    """An Arrow batch as the source gives it."""
    return pa.RecordBatch.from_pydict(
        {
            "value": pa.array([b"%d:%d" % (part, number) for number in ids], pa.binary()),
            "topic": ["public/default/in"] * len(ids),
            "partition": [part] * len(ids),
            "index": ids,
            **more,
        }
    )


def publish(log: MemoryLog, number: int, batches: list[Any], **given: str) -> dict[str, int]:
    """One task."""
    sink_log, options = log.sink_log(**{"rowsPerClaim": "4", **given})
    return publish_by_position(sink_log, options, batch(number), iter(batches))


def claims(log: MemoryLog, name: str) -> list[tuple[int, int]]:
    """(batch, rows) of each claim."""
    rows = log.rows(journal_topic(TARGET, name))
    assert {producer for producer, _, _ in rows} <= {JOURNAL}
    found = [decode_claim(value) for _, _, value in rows]
    return [(claim.batch.batch_id, claim.ids.count) for claim in found]


def of_name(log: MemoryLog, name: str) -> list[tuple[int, bytes]]:
    return [(number, value) for producer, number, value in log.rows() if producer == name]


def test_rows_are_published_under_their_places_in_claims_of_their_size() -> None:
    """Two parts in one task, pieces that fit no claim: claims are as large as they may be, the last one is the rest."""
    log = MemoryLog()
    batches = [columns([0, 2, 4]), columns([]), columns([5, 6, 7, 9, 10, 11]), columns([3], 1), columns([12])]
    assert publish(log, 0, batches) == {NAMES[0]: 10, NAMES[1]: 1}
    assert of_name(log, NAMES[0]) == [(n, b"0:%d" % n) for n in (0, 2, 4, 5, 6, 7, 9, 10, 11, 12)]
    assert of_name(log, NAMES[1]) == [(3, b"1:3")]
    assert claims(log, NAMES[0]) == [(0, 4), (0, 4), (0, 2)]
    assert claims(log, NAMES[1]) == [(0, 1)]


def test_rows_of_several_producers_in_one_arrow_batch_stay_apart() -> None:
    """A task that reads two parts, or rows with names of their own, which come in stretches."""
    log = MemoryLog()
    names, ids = ["a", "a", "b", "a", "b", "b"], [1, 2, 7, 3, 8, 9]
    values = [f"{name}{number}" for name, number in zip(names, ids, strict=True)]
    piece = pa.RecordBatch.from_pydict({"value": values, "producer_name": names, "sequence_id": ids})
    assert publish(log, 0, [piece]) == {"copy/a": 3, "copy/b": 3}
    assert of_name(log, "copy/a") == [(number, b"a%d" % number) for number in (1, 2, 3)]
    assert of_name(log, "copy/b") == [(number, b"b%d" % number) for number in (7, 8, 9)]


def test_ids_ascend_from_one_arrow_batch_to_the_next() -> None:
    """What comes too late in a task would pass for known, and be lost; an id that comes twice, too."""
    for late in (6, 3):
        log = MemoryLog()
        with pytest.raises(InvalidSequenceId, match=f"id {late} comes after 6 in one task"):
            publish(log, 0, [columns([5, 6]), columns([late, 9])])
        assert log.rows() == []


def test_every_column_is_published() -> None:
    """Keys, event times and properties stay with their values, through pieces that lack a column."""
    log = MemoryLog()
    times = pa.array([5_000, None], pa.timestamp("us", "UTC"))
    full = columns([0, 1], key=["a", None], event_time=times, properties=[{"p": "1"}, None])
    publish(log, 0, [full, columns([2])])
    [entry] = log.topic(TARGET).entries
    assert (entry.keys, entry.event_times_ms) == ([b"a", None, None], [5, None, None])
    assert entry.properties == [{"p": "1"}, {}, {}]


def test_rows_are_published_as_soon_as_they_fill_a_claim() -> None:
    """A task of millions holds no more than that."""
    log = MemoryLog()
    seen = []

    def batches() -> Iterator[Any]:
        for first in range(0, 12, 2):
            seen.append(len(log.rows()))
            yield columns([first, first + 1])

    publish_by_position(*log.sink_log(rowsPerClaim="4"), batch(0), batches())
    assert seen == [0, 0, 4, 4, 8, 8]


def test_large_rows_wait_for_no_full_claim() -> None:
    """Sixteen mebibytes are claimed together at most, however few rows they are."""
    log = MemoryLog()
    large = bytes(5 << 20)[:-64]
    values = [large] * 7
    piece = pa.RecordBatch.from_pydict({"value": values, "topic": ["in"] * 7, "index": list(range(7))})
    publish(log, 0, [piece], rowsPerClaim="100")
    assert [count for _, count in claims(log, "copy/in")] == [3, 3, 1]
    assert [number for _, number, _ in log.rows()] == list(range(7))


def after_each_death(work: Callable[[MemoryLog], None], calls: int) -> Iterator[MemoryLog]:
    """A log for each call that may be the last one, stored or not; `work` died there."""
    for call in range(1, calls + 1):
        for stored in (False, True):
            log = MemoryLog(dies_at=(call, stored))
            with pytest.raises(Died):
                work(log)
            log.dies_at = None
            yield log


def calls_of(work: Callable[[MemoryLog], None]) -> int:
    log = MemoryLog()
    work(log)
    return log.calls


def test_a_task_killed_at_any_call_is_finished_by_the_next_attempt() -> None:
    """With the same rows in other pieces, and another rowsPerClaim: claims that are stored keep their size."""
    ids = list(range(0, 30, 3))

    def work(log: MemoryLog) -> None:
        publish(log, 0, [columns([0, 1]), columns([2])])
        publish(log, 1, [columns(ids[:5], 1), columns(ids[5:], 1), columns([3, 4])])

    calls = calls_of(work)
    assert calls == 2 * (1 + 3 + 1), "a claim goes before each of its publishes"
    for log in after_each_death(work, calls):
        if log.rows() and not claims(log, NAMES[1]) and len(of_name(log, NAMES[0])) == 3:
            publish(log, 0, [columns([0, 1, 2])])
        if len(of_name(log, NAMES[0])) < 3:
            publish(log, 0, [columns([0, 1, 2])], rowsPerClaim="2")
        publish(log, 1, [columns([n], 1) for n in ids] + [columns([3, 4])], rowsPerClaim="7")
        assert of_name(log, NAMES[0]) == [(n, b"0:%d" % n) for n in range(5)]
        assert of_name(log, NAMES[1]) == [(n, b"1:%d" % n) for n in ids]


def test_a_replay_that_lacks_claimed_rows_is_refused() -> None:
    """Another task has them: nothing of this one is published behind them."""
    log = MemoryLog()
    publish(log, 0, [columns([0, 1, 2, 3, 4, 5])])
    before = log.rows()
    for ids in ([0, 1, 2, 3], [0, 1, 2, 4, 5, 6], [6, 7, 8, 9]):
        with pytest.raises(Conflict, match="mode=batch"):
            publish(log, 0, [columns(ids)])
    assert log.rows() == before


def test_a_task_that_everybody_took_for_dead_ends_fenced() -> None:
    """It goes on after a newer attempt has published the rest, and publishes nothing further."""
    log = MemoryLog()
    ids = list(range(12))

    def batches() -> Iterator[Any]:
        yield columns(ids[:6])
        publish(log, 0, [columns(ids)])
        yield columns(ids[6:])

    with pytest.raises(Conflict, match="another attempt came between"):
        publish_by_position(*log.sink_log(rowsPerClaim="4"), batch(0), batches())
    assert [number for _, number, _ in log.rows()] == ids
    assert [count for _, count in claims(log, NAMES[0])] == [4, 4, 4]


def test_a_topic_that_use_may_not_create_is_named() -> None:
    """The first one is the journal."""
    with pytest.raises(TopicNotFound, match=r"__sink\.out\..*\.journal does not exist.*create it"):
        publish(MemoryLog(creates=False), 0, [columns([1])])


# --- mode batch -------------------------------------------------------------------------------------------------------


def values_of(rows: list[str]) -> Any:
    keys = [f"k{row[:1]}" for row in rows]
    return rows_of(
        pa.RecordBatch.from_pydict({"value": pa.array(rows, pa.string()), "key": pa.array(keys, pa.string())})
    )


def stage_tasks(log: MemoryLog, tasks: list[list[list[str]]]) -> tuple[Attempt, ...]:
    """Each task with its pieces; those without rows tell nothing."""
    found = []
    for partition, pieces in enumerate(tasks):
        sink_log, _ = log.sink_log(mode="batch")
        found.append(stage(sink_log, STAGE, partition, 0, map(values_of, pieces)))
    return tuple(attempt for attempt in found if attempt is not None)


def commit(log: MemoryLog, number: int, attempts: tuple[Attempt, ...]) -> WinnersRecord | None:
    sink_log, options = log.sink_log(mode="batch")
    return _Commit(sink_log, options.scope).run(BatchCommit(batch(number), attempts, continues=False))


FIRST: list[list[list[str]]] = [[["a", "b"], ["c"]], [[]], [["d"], ["e", "f"]]]


def test_an_attempt_tells_where_its_rows_begin() -> None:
    """Under a name that no other attempt has; of no rows there is none."""
    log = MemoryLog()
    attempts = stage_tasks(log, FIRST)
    assert [(each.partition, each.topic, each.count) for each in attempts] == [(0, STAGE, 3), (2, STAGE, 3)]
    assert len({each.name for each in attempts}) == 2
    sink_log, _ = log.sink_log(mode="batch")
    record = WinnersRecord(batch(0), 0, attempts)
    for done in range(7):
        rows = [bytes(value) for piece in staged(sink_log, record, done) for value in piece.values]
        assert rows == [b"a", b"b", b"c", b"d", b"e", b"f"][done:]


def test_batches_are_copied_in_the_order_of_partitions_with_dense_ids() -> None:
    """With their keys, one batch behind the other; a batch without rows leaves no record."""
    log = MemoryLog()
    commit(log, 0, tuple(reversed(stage_tasks(log, FIRST))))
    assert commit(log, 1, stage_tasks(log, [[[]], [[]]])) is None
    commit(log, 2, stage_tasks(log, [[["g"]]]))
    assert log.rows() == [("copy", number, b"%c" % letter) for number, letter in enumerate(b"abcdefg")]
    assert [key for entry in log.topic(TARGET).entries for key in entry.keys or []] == [b"k%c" % c for c in b"abcdefg"]
    records = [decode_winners(value) for _, _, value in log.rows(journal_topic(TARGET, "copy"))]
    assert [(record.batch.batch_id, record.base, record.count) for record in records] == [(0, 0, 6), (2, 6, 1)]


def test_a_driver_killed_at_any_call_is_finished_by_a_replay_cut_otherwise() -> None:
    """What is recorded counts, and what is copied stays: the replay brings only what the target lacks."""

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


def test_a_batch_that_was_left_amid_its_copy_is_copied_first() -> None:
    """A query that skips a batch, since Spark has it in its checkpoint, publishes the rest of it before its own."""
    log = MemoryLog()
    attempts = stage_tasks(log, FIRST)
    log.dies_at = (log.calls + 2, True)
    with pytest.raises(Died):
        commit(log, 0, attempts)
    assert 0 < len(log.rows()) < 6
    commit(log, 1, stage_tasks(log, [[["g"]]]))
    assert b"".join(value for _, _, value in log.rows()) == b"abcdefg"


def test_staged_rows_that_are_gone_stop_the_job() -> None:
    """Told with the partition; nothing is copied in their place."""
    log = MemoryLog()
    attempts = stage_tasks(log, FIRST)
    staged_entries = log.topic(STAGE).entries
    staged_entries[3:] = []
    with pytest.raises(OncelogError, match="no further message"):
        commit(log, 0, attempts)
    longer = (Attempt(0, 0, STAGE, attempts[0].name, attempts[0].start, 1),)
    with pytest.raises(LogHole, match="has 2 rows, 1 were told"):
        commit(MemoryLog(topics={STAGE: log.topic(STAGE)}), 0, longer)


def test_rows_of_other_attempts_between_are_passed_over() -> None:
    """Attempts share a topic, and their calls interleave."""
    log = MemoryLog()
    inner: list[Attempt | None] = []

    def pieces() -> Iterator[Any]:
        yield values_of(["a"])
        inner.append(stage(log.sink_log(mode="batch")[0], STAGE, 1, 0, iter([values_of(["x", "y"])])))
        yield values_of(["b"])

    outer = stage(log.sink_log(mode="batch")[0], STAGE, 0, 0, pieces())
    assert outer is not None
    commit(log, 0, (outer,))
    assert [value for _, _, value in log.rows()] == [b"a", b"b"]


def test_calls_are_cut_by_bytes() -> None:
    """The first message id is that of the first call."""
    log = MemoryLog()
    large = "x" * (CALL_BYTES_MAX // 2)
    attempts = stage_tasks(log, [[[large, large, large]]])
    assert [len(entry) for entry in log.topic(STAGE).entries] == [1, 1, 1]
    commit(log, 0, attempts)
    assert len(log.rows()) == 3


def test_names_are_contiguous_where_ids_are_dense() -> None:
    """A hole in journals, or in what a driver copies, is an error of the log; positions have holes of their own."""
    log = MemoryLog()
    publish(log, 0, [columns([1, 5])])
    commit(log, 0, stage_tasks(log, FIRST))
    modes = {topic: {name.mode for name in log.topic(topic).names.values()} for topic in log.topics}
    target = {name: each.mode for name, each in log.topic(TARGET).names.items()}
    assert target == {NAMES[0]: "monotonic", "copy": "contiguous"}
    assert modes[STAGE] == {"monotonic"}
    assert [modes[topic] for topic in log.hidden("journal")] == [{"contiguous"}] * 2


# --- journals ---------------------------------------------------------------------------------------------------------


def test_a_journal_with_foreign_messages_is_refused() -> None:
    """By name, whoever wrote: the sink's word is only what the sink has written."""
    log = MemoryLog()
    journal = journal_topic(TARGET, "copy")
    commit(log, 0, stage_tasks(log, FIRST))
    sink_log, _ = log.sink_log()
    sink_log.producer(journal, "somebody", "monotonic").send(b"hello", sequence_id=7)
    with pytest.raises(Conflict, match="who else publishes"):
        commit(log, 1, stage_tasks(log, FIRST))


def test_a_journal_that_grew_since_it_was_opened_is_opened_again() -> None:
    """Another driver wrote between the opening and the reading: that is an interruption, and no foreign message."""
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
    assert newer.records(newer.last_id, 1) == [b"first", b"second"]
    with pytest.raises(OncelogError, match="was there already"):
        newer.append(1, b"other")
    newer.close()
    with pytest.raises(OncelogError, match="not open"):
        newer.append(2, b"closed")
