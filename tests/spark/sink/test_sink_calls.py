"""The sink as Spark calls it: the batch of a task, what a task writes, and what a commit refuses."""

import logging
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import ClassVar

import pyarrow as pa
import pytest
from pyspark import TaskContext
from pyspark.sql.datasource import WriterCommitMessage
from pyspark.sql.types import LongType, StringType, StructField, StructType

from oncelog.core.errors import Conflict, InvalidArgument, InvariantViolated
from oncelog_spark.sink.batch_publisher import stages_done_with
from oncelog_spark.sink.batch_staging import remove_stage
from oncelog_spark.sink.journal_records import RangeBatch
from oncelog_spark.sink.names import journal_topic, stage_topic, stage_topics
from oncelog_spark.sink.options import SinkOptions, sink_options
from oncelog_spark.sink.writer import (
    BATCH_PROPERTY,
    QUERY_PROPERTY,
    TaskResult,
    new_stream_writer,
    new_writer,
    query_batch,
    results_of,
    write_rows,
)
from tests.spark.memory_log import MemoryLog

COLUMNS = {"value": StringType(), "producer_name": StringType(), "sequence_id": LongType()}
SCHEMA = StructType([StructField(name, kind) for name, kind in COLUMNS.items()])
#: Nobody listens there: what asks the log fails.
GIVEN = {"topic": "out", "producerPrefix": "copy", "serviceUrl": "oncelog://127.0.0.1:1"}
MINE = RangeBatch("query q", 130)


@pytest.fixture
def task() -> Iterator[type[TaskContext]]:
    """Makes the context of this process, which then is a task."""
    yield TaskContext
    TaskContext._setTaskContext(None)


@pytest.mark.parametrize(
    "told",
    [
        {},
        {BATCH_PROPERTY: "3"},
        {QUERY_PROPERTY: "q"},
        {QUERY_PROPERTY: "", BATCH_PROPERTY: "3"},
        {QUERY_PROPERTY: "q", BATCH_PROPERTY: "third"},
    ],
)
def test_a_task_that_does_not_know_its_batch_writes_nothing(task: type[TaskContext], told: dict[str, str]) -> None:
    """The properties are not documented: a later Spark without them must not publish under invented names."""
    task(localProperties=told)
    with pytest.raises(InvariantViolated, match="nothing is written"):
        new_stream_writer(GIVEN, SCHEMA, overwrite=False).write(iter([]))


def test_a_batch_is_identified_by_its_query_and_number(task: type[TaskContext]) -> None:
    """The query's id is that of the checkpoint; a run's id differs at each start."""
    context = task(localProperties={QUERY_PROPERTY: "q", BATCH_PROPERTY: "130"})
    assert query_batch(context) == MINE


def test_rows_are_written_only_in_tasks_and_appended() -> None:
    """Outside a task there is no batch to publish under, and a topic cannot be overwritten."""
    for writer in (
        new_stream_writer(GIVEN, SCHEMA, overwrite=False),
        new_writer(GIVEN | {"jobId": "j"}, SCHEMA, overwrite=False),
    ):
        with pytest.raises(InvariantViolated, match="only be written in a task of Spark"):
            writer.write(iter([]))
    with pytest.raises(InvalidArgument, match="use outputMode append"):
        new_stream_writer(GIVEN, SCHEMA, overwrite=True)
    with pytest.raises(InvalidArgument, match="use mode append"):
        new_writer(GIVEN | {"jobId": "j"}, SCHEMA, overwrite=True)


def test_a_task_publishes_or_stages_by_the_mode() -> None:
    """Under the rows' producers, or to the staging topic of its query and these 64 batches."""
    piece = pa.RecordBatch.from_pydict({"value": ["a", "b"], "producer_name": ["p", "p"], "sequence_id": [4, 6]})
    empty = piece.slice(0, 0)
    log = MemoryLog()
    told = write_rows(*log.sink_log(), MINE, (2, 1), iter([empty, piece]))
    assert told == TaskResult(MINE, 2, counts={"copy/p": 2})
    assert log.rows() == [("copy/p", 4, b"a"), ("copy/p", 6, b"b")]
    assert write_rows(*log.sink_log(mode="batch"), MINE, (5, 0), iter([empty])) == TaskResult(MINE, 5)
    told = write_rows(*log.sink_log(mode="batch"), MINE, (2, 1), iter([empty, piece, piece]))
    assert told.attempt is not None
    assert (told.attempt.partition, told.attempt.attempt, told.attempt.count) == (2, 1, 4)
    assert told.attempt.topic == stage_topic("public/default/out", "copy", "query q", 2, slot=2)
    assert log.hidden("stage") == [told.attempt.topic]


def test_results_of_tasks_must_be_of_this_batch() -> None:
    """Otherwise rows of one batch would be recorded as those of another."""
    mine, other = TaskResult(MINE, 0, counts={"a": 1}), TaskResult(RangeBatch("query q", 131), 1)
    assert results_of([], 130) == []
    assert results_of([mine, TaskResult(MINE, 1, counts={"b": 2})], 130)[0] == mine
    wrong: list[tuple[list[WriterCommitMessage | None], int, str]] = [
        ([mine, None], 130, "1 of 2 tasks have no result"),
        ([mine, WriterCommitMessage()], 130, "have no result"),
        ([mine], 131, "other batches than 131"),
        ([mine, other], 130, "other batches than 130"),
        ([mine, TaskResult(RangeBatch("query r", 130), 1)], 130, "other batches than 130"),
    ]
    for messages, batch_id, said in wrong:
        with pytest.raises(InvariantViolated, match=said):
            results_of(messages, batch_id)
    with pytest.raises(Conflict, match="several tasks of batch 130 of query q published under a"):
        results_of([mine, TaskResult(MINE, 1, counts={"a": 2})], 130)


def test_a_commit_refuses_before_it_contacts_the_cluster() -> None:
    """In both modes, for streams and jobs; a commit without rows does nothing."""
    job = {"jobId": "j"}
    for mode in ("batch", "position"):
        stream = new_stream_writer(GIVEN | {"mode": mode}, SCHEMA, overwrite=False)
        writer = new_writer(GIVEN | job | {"mode": mode}, SCHEMA, overwrite=False)
        with pytest.raises(InvariantViolated, match="have no result"):
            stream.commit([None], 1)
        with pytest.raises(InvariantViolated, match="other batches than 0"):
            writer.commit([TaskResult(MINE, 0)])
        stream.commit([], 1)
        writer.commit([])


# --- unused staging topics --------------------------------------------------------------------------------------------


class Admin(BaseHTTPRequestHandler):
    """Answers each deletion with the next of its codes, and keeps what was asked."""

    codes: ClassVar[list[int]] = []
    asked: ClassVar[list[tuple[str, str | None]]] = []

    def do_DELETE(self) -> None:  # the name is http.server's
        self.asked.append((self.path, self.headers["Authorization"]))
        self.send_response(self.codes.pop(0))
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_words: object) -> None:
        """Nothing."""


@pytest.fixture
def admin() -> Iterator[str]:
    """URL of a REST service."""
    with HTTPServer(("127.0.0.1", 0), Admin) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}/"
        server.shutdown()
        thread.join()


def options(admin_url: str = "", **given: str) -> SinkOptions:
    return sink_options(GIVEN | given | ({"adminUrl": admin_url} if admin_url else {}), {}, streaming=True)


def test_a_staging_topic_is_deleted_and_a_failure_is_only_logged(admin: str, caplog: pytest.LogCaptureFixture) -> None:
    """It only takes space: the batch is published by then."""
    topic = stage_topic("public/default/out", "copy", "query q", 0)
    Admin.codes[:], Admin.asked[:] = [204, 404, 403], []
    with caplog.at_level(logging.WARNING, logger="oncelog"):
        remove_stage(options(), [topic])
        remove_stage(options(admin), [topic])
        remove_stage(options(admin), [topic])
        assert caplog.text == ""
        remove_stage(options(admin), [topic])
        assert f"{topic} was not deleted: 403" in caplog.text
        remove_stage(options("http://127.0.0.1:1"), [topic])
    assert caplog.text.count("not deleted") == 2
    assert Admin.asked == [(f"/admin/v2/persistent/{topic}", None)] * 3


def test_a_staging_topic_is_deleted_once_the_next_one_is_in_use() -> None:
    """64 batches share one; a replay of batch 63 must find its rows while batch 64 is not published."""
    own = options()
    assert stages_done_with(own, RangeBatch("query q", 0)) == ()
    assert stages_done_with(own, RangeBatch("query q", 63)) == ()
    assert stages_done_with(own, RangeBatch("query q", 64)) == stage_topics("public/default/out", "copy", "query q", 0)
    assert stages_done_with(own, RangeBatch("query q", 65)) == ()
    job = sink_options(GIVEN | {"jobId": "j"}, {}, streaming=False)
    assert stages_done_with(job, RangeBatch("job j", 0)) == stage_topics("public/default/out", "copy/j", "job j", 0)


def test_two_targets_never_share_a_hidden_topic() -> None:
    """Otherwise one run would delete rows that another one has staged, or take its journal for its own."""
    targets, scopes, runs = ("public/default/out", "public/default/out2"), ("copy", "copy/j"), ("query q", "query r")
    stages = {
        stage_topic(t, s, r, n, k) for t in targets for s in scopes for r in runs for n in (0, 1) for k in (0, 63)
    }
    assert len(stages) == 32
    assert len(stages | {journal_topic(t, s) for t in targets for s in scopes}) == 36
