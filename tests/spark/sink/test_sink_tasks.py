"""A task in mode position, against a log in memory: killed at each of its calls, it leaves each row once."""

from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest

from oncelog.core.errors import Conflict, InvalidSequenceId, TopicNotFound
from oncelog_spark.sink.journal_records import RangeBatch, decode_claim_record
from oncelog_spark.sink.log import JOURNAL
from oncelog_spark.sink.names import journal_topic, stage_topic
from oncelog_spark.sink.position_writer import publish_by_position
from tests.spark.memory_log import MemoryLog, after_each_death, batch, calls_of

TARGET = "public/default/out"
STAGE = stage_topic(TARGET, "copy", "query q", 0)
NAMES = [f"copy/public/default/in-partition-{part}#0123456789abcdef" for part in (0, 1)]


def columns(ids: list[int], part: int = 0, **more: list[Any]) -> Any:
    """An Arrow batch as the source gives it."""
    return pa.RecordBatch.from_pydict(
        {
            "value": pa.array([b"%d:%d" % (part, number) for number in ids], pa.binary()),
            "topic": ["public/default/in"] * len(ids),
            "partition": [part] * len(ids),
            "topic_id": ["0123456789abcdef" * 2] * len(ids),
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
    found = [decode_claim_record(value) for _, _, value in rows]
    return [(claim.batch.batch_id, claim.ids.count) for claim in found]


def of_name(log: MemoryLog, name: str) -> list[tuple[int, bytes]]:
    return [(number, value) for producer, number, value in log.rows() if producer == name]


def test_rows_are_published_under_their_positions_in_claims_of_the_set_size() -> None:
    """Two partitions in one task, pieces of other sizes than claims: claims are full, except the last one."""
    log = MemoryLog()
    batches = [columns([0, 2, 4]), columns([]), columns([5, 6, 7, 9, 10, 11]), columns([3], 1), columns([12])]
    assert publish(log, 0, batches) == {NAMES[0]: 10, NAMES[1]: 1}
    assert of_name(log, NAMES[0]) == [(n, b"0:%d" % n) for n in (0, 2, 4, 5, 6, 7, 9, 10, 11, 12)]
    assert of_name(log, NAMES[1]) == [(3, b"1:3")]
    assert claims(log, NAMES[0]) == [(0, 4), (0, 4), (0, 2)]
    assert claims(log, NAMES[1]) == [(0, 1)]


def test_rows_of_several_producers_in_one_arrow_batch_stay_apart() -> None:
    """A task that reads two partitions, or rows with producer names of their own."""
    log = MemoryLog()
    names, ids = ["a", "a", "b", "a", "b", "b"], [1, 2, 7, 3, 8, 9]
    values = [f"{name}{number}" for name, number in zip(names, ids, strict=True)]
    piece = pa.RecordBatch.from_pydict({"value": values, "producer_name": names, "sequence_id": ids})
    assert publish(log, 0, [piece]) == {"copy/a": 3, "copy/b": 3}
    assert of_name(log, "copy/a") == [(number, b"a%d" % number) for number in (1, 2, 3)]
    assert of_name(log, "copy/b") == [(number, b"b%d" % number) for number in (7, 8, 9)]


def test_ids_ascend_from_one_arrow_batch_to_the_next() -> None:
    """A lower id would be taken for a duplicate, and be lost; so would a repeated id."""
    for late in (6, 3):
        log = MemoryLog()
        with pytest.raises(InvalidSequenceId, match=f"id {late} comes after 6 in one task"):
            publish(log, 0, [columns([5, 6]), columns([late, 9])])
        assert log.rows() == []


def test_every_column_is_published() -> None:
    """Keys, event times and properties stay with their values, also where pieces lack a column."""
    log = MemoryLog()
    times = pa.array([5_000, None], pa.timestamp("us", "UTC"))
    full = columns([0, 1], key=["a", None], event_time=times, properties=[{"p": "1"}, None])
    publish(log, 0, [full, columns([2])])
    [entry] = log.topic(TARGET).entries
    assert (entry.keys, entry.event_times_ms) == ([b"a", None, None], [5, None, None])
    assert entry.properties == [{"p": "1"}, {}, {}]


def test_rows_are_published_as_soon_as_they_fill_a_claim() -> None:
    """A task with millions of rows holds only one claim of them."""
    log = MemoryLog()
    seen = []

    def batches() -> Iterator[Any]:
        for first in range(0, 12, 2):
            seen.append(len(log.rows()))
            yield columns([first, first + 1])

    publish_by_position(*log.sink_log(rowsPerClaim="4"), batch(0), batches())
    assert seen == [0, 0, 4, 4, 8, 8]


def test_large_rows_do_not_wait_for_a_full_claim() -> None:
    """At most 16 MiB are claimed together, however few rows they are."""
    log = MemoryLog()
    large = bytes(5 << 20)[:-64]
    values = [large] * 7
    piece = pa.RecordBatch.from_pydict({"value": values, "producer_name": ["in"] * 7, "sequence_id": list(range(7))})
    publish(log, 0, [piece], rowsPerClaim="100")
    assert [count for _, count in claims(log, "copy/in")] == [3, 3, 1]
    assert [number for _, number, _ in log.rows()] == list(range(7))


def test_a_task_killed_at_any_call_is_finished_by_the_next_attempt() -> None:
    """With the same rows in other pieces, and another rowsPerClaim: stored claims keep their size."""
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
    """Another task has them: no row of this one is published behind them."""
    log = MemoryLog()
    publish(log, 0, [columns([0, 1, 2, 3, 4, 5])])
    before = log.rows()
    for ids in ([0, 1, 2, 3], [0, 1, 2, 4, 5, 6], [6, 7, 8, 9]):
        with pytest.raises(Conflict, match="mode=batch"):
            publish(log, 0, [columns(ids)])
    assert log.rows() == before


def test_a_zombie_task_ends_fenced() -> None:
    """It continues after a newer attempt has published the rest, and publishes nothing."""
    log = MemoryLog()
    ids = list(range(12))

    def batches() -> Iterator[Any]:
        yield columns(ids[:6])
        publish(log, 0, [columns(ids)])
        yield columns(ids[6:])

    with pytest.raises(Conflict, match="a newer attempt of this task has begun"):
        publish_by_position(*log.sink_log(rowsPerClaim="4"), batch(0), batches())
    assert [number for _, number, _ in log.rows()] == ids
    assert [count for _, count in claims(log, NAMES[0])] == [4, 4, 4]


def test_a_topic_that_cannot_be_created_automatically_is_named() -> None:
    """The first one is the journal."""
    with pytest.raises(TopicNotFound, match=r"__sink\.out\..*\.journal does not exist.*create the topic"):
        publish(MemoryLog(creates=False), 0, [columns([1])])


# --- ids that the log has forgotten -----------------------------------------------------------------------------------


def test_rows_that_the_log_has_forgotten_are_proved_by_reading() -> None:
    """A replay after an idle time: the log only answers "not stored now"; every row is there."""
    log = MemoryLog()
    publish(log, 0, [columns([0, 1, 2, 3, 4])])
    publish(log, 1, [columns([5, 6, 7]), columns([1], 1)])
    log.forgets = True
    before, log.entries_read = log.rows(), 0
    publish(log, 1, [columns([5, 6, 7]), columns([1], 1)])
    assert log.rows() == before
    assert log.entries_read < 8, "reading begins at the claim's place, not at the beginning"


def test_rows_of_earlier_batches_are_found_by_their_claims() -> None:
    """A new run reads everything from the beginning, as onNewCheckpoint=continue allows."""
    log = MemoryLog()
    for number in range(3):
        publish(log, number, [columns(list(range(number * 5, number * 5 + 5)))])
    log.forgets = True
    before = log.rows()
    sink_log, options = log.sink_log(onNewCheckpoint="continue", rowsPerClaim="4")
    publish_by_position(sink_log, options, RangeBatch("query new", 0), iter([columns(list(range(17)))]))
    assert log.rows() == [*before, *((NAMES[0], n, b"0:%d" % n) for n in (15, 16))]


@pytest.mark.parametrize("lost", [[3], [1, 3], [3, 7]])
def test_rows_below_the_last_id_that_were_never_stored_are_an_error(lost: list[int]) -> None:
    """A filter that now passes more rows: the log would take them for old ones, and they would be lost."""
    log = MemoryLog()
    publish(log, 0, [columns([0, 2, 4, 6, 8])])
    log.forgets = True
    before = log.rows()
    ids = sorted({0, 2, 4, 6, 8, *lost})
    sink_log, options = log.sink_log(onNewCheckpoint="continue")
    with pytest.raises(Conflict, match=rf"{len(lost)} rows of copy/.* not in {TARGET}: .*\({lost[0]}"):
        publish_by_position(sink_log, options, RangeBatch("query new", 0), iter([columns(ids)]))
    assert log.rows() == before


def test_a_name_without_free_ids_is_an_error() -> None:
    """Another role published ids near the highest one under the sink's name, and then the owner forgot them."""
    log = MemoryLog()
    log.sink_log()[0].producer(TARGET, NAMES[0], "monotonic").send(b"foreign", sequence_id=2**62)
    log.forgets = True
    with pytest.raises(Conflict, match=r"3 rows of copy/.* were not published"):
        publish(log, 0, [columns([0, 1, 2])], onNewCheckpoint="continue")
