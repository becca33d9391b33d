"""Streams into a topic, against a real cluster: workers die, commits fail, queries restart; each row is stored once."""

import json
import os
import shutil
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

import oncelog
from tests.cluster.cluster_fixture import DEADLINE_S, Cluster
from tests.spark.sink.faulty_sink import injected, plan, register

#: Rows of each file, files of each stream.
ROWS, FILES = 30, 2
QUERY_S = 300
OLDEST_S = 1_700_000_000
ARROW_ROWS = "spark.sql.execution.arrow.maxRecordsPerBatch"
SCHEMA = "name string, id bigint, value string"


@pytest.fixture(scope="module")
def session(spark: SparkSession) -> Iterator[SparkSession]:
    """Few rows at a time, so that a task dies between two of its publishes."""
    register(spark)
    spark.conf.set(ARROW_ROWS, "5")
    yield spark
    spark.conf.unset(ARROW_ROWS)


def write_files(directory: Path) -> list[str]:
    """The input: files in the order of their names; what they hold."""
    directory.mkdir()
    values = []
    for number in range(FILES):
        rows = [{"name": f"file-{number}", "id": 3 * row, "value": f"{number}:{row}"} for row in range(ROWS)]
        values += [str(row["value"]) for row in rows]
        path = directory / f"{number}.json"
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
        os.utime(path, (OLDEST_S + number, OLDEST_S + number))  # Spark reads the older one first
    return values


def read_files(session: SparkSession, directory: Path) -> DataFrame:
    """A micro-batch for each file."""
    return session.readStream.schema(SCHEMA).option("maxFilesPerTrigger", 1).json(str(directory))


def by_producer(frame: DataFrame) -> DataFrame:
    """As mode position wants it: which row is which."""
    return frame.select("value", f.col("name").alias("producer_name"), f.col("id").alias("sequence_id"))


def run(frame: DataFrame, kind: str, checkpoint: Path, **options: Any) -> None:
    """One run of a query over everything that is there. Raises what ended it."""
    writer = frame.writeStream.format(kind).option("checkpointLocation", str(checkpoint)).trigger(availableNow=True)
    query = writer.options(**options).start()
    try:
        assert query.awaitTermination(QUERY_S), "the query did not end in time"
    finally:
        query.stop()


def stored(cluster: Cluster, topic: str) -> list[str]:
    """Values of all messages, in order."""
    return [message.value.decode() for message in messages(cluster, topic)]


def messages(cluster: Cluster, topic: str) -> list[oncelog.Message]:
    found = []
    with oncelog.Client(cluster.url) as client, client.create_reader(topic) as reader:
        while reader.has_message_available():
            found.append(reader.read_next(timeout=DEADLINE_S))
    return found


def run_through_faults(frame: DataFrame, kind: str, directory: Path, *faults: str, **options: Any) -> None:
    """A task's worker dies, Spark tries it again; a commit fails after it published, the query is restarted."""
    options["faultDir"] = plan(directory / "faults", *faults)
    with pytest.raises(StreamingQueryException, match="the commit is reported as failed"):
        run(frame, kind, directory / "checkpoint", **options)
    run(frame, kind, directory / "checkpoint", **options)
    assert injected(directory / "faults") == set(faults), "a fault that was not injected proves nothing"


def test_positions_survive_a_dead_worker_and_a_failed_commit(
    session: SparkSession, cluster: Cluster, tmp_path: Path
) -> None:
    """Map-only: tasks publish, in the order of the source, under the source's ids."""
    expected = write_files(tmp_path / "in")
    frame = by_producer(read_files(session, tmp_path / "in"))
    options = {"serviceUrl": cluster.url, "topic": "by-position", "producerPrefix": "copy", "rowsPerClaim": 7}
    run_through_faults(frame, "oncelog_faulty", tmp_path, "task", "commit", **options)
    assert stored(cluster, "by-position") == expected
    last = messages(cluster, "by-position")[-1]
    assert (last.producer_name, last.sequence_id) == (f"copy/file-{FILES - 1}", 3 * (ROWS - 1))


def test_shuffled_batches_survive_a_dead_worker_a_failed_commit_and_another_split(
    session: SparkSession, cluster: Cluster, tmp_path: Path
) -> None:
    """Shuffles: tasks stage, the driver publishes; the restarted query splits the replayed batch differently."""
    expected = write_files(tmp_path / "in")
    frame = read_files(session, tmp_path / "in").select("value")
    options = {
        "serviceUrl": cluster.url,
        "topic": "by-batch",
        "producerPrefix": "shuffle",
        "mode": "batch",
        "faultDir": plan(tmp_path / "faults", "task", "commit"),
    }
    with pytest.raises(StreamingQueryException, match="the commit is reported as failed"):
        run(frame.repartition(2, "value"), "oncelog_faulty", tmp_path / "checkpoint", **options)
    after_crash = stored(cluster, "by-batch")
    assert Counter(after_crash) == Counter(expected[:ROWS])
    run(frame.repartition(3, "value"), "oncelog_faulty", tmp_path / "checkpoint", **options)
    found = messages(cluster, "by-batch")
    values = [message.value.decode() for message in found]
    assert values[:ROWS] == after_crash, "what was published stays as it is"
    for number in range(FILES):
        piece = slice(number * ROWS, (number + 1) * ROWS)
        assert Counter(values[piece]) == Counter(expected[piece])
    assert [message.sequence_id for message in found] == list(range(len(expected)))
    assert injected(tmp_path / "faults") == {"task", "commit"}


def test_topic_to_topic_keeps_order_keys_and_positions(session: SparkSession, cluster: Cluster, tmp_path: Path) -> None:
    """Every column of the source may be written; a message's number in its topic is its sequence id in the other."""
    with oncelog.Client(cluster.url) as client, client.create_producer("through-in", producer_name="in") as producer:
        producer.send_many(
            [str(n).encode() for n in range(ROWS)],
            sequence_ids=range(100, 100 + ROWS),
            keys=[f"k{n}" for n in range(ROWS)],
            properties=[{"n": str(n)} for n in range(ROWS)],
        )
    given: dict[str, Any] = {
        "serviceUrl": cluster.url,
        "topic": "through-in",
        "startingPosition": "earliest",
        "maxRowsPerBatch": 11,
    }
    frame = session.readStream.format("oncelog").options(**given).load().where("cast(string(value) as int) % 3 > 0")
    run(frame, "oncelog", tmp_path, serviceUrl=cluster.url, topic="through-out", producerPrefix="copy")
    expected = [n for n in range(ROWS) if n % 3]
    found = messages(cluster, "through-out")
    assert [int(message.value) for message in found] == [message.sequence_id for message in found] == expected
    assert [message.key for message in found] == [f"k{n}".encode() for n in expected]
    assert [dict(message.properties) for message in found] == [{"n": str(n)} for n in expected]
    [name] = {message.producer_name for message in found}
    source, _, source_id = str(name).partition("#")
    assert source == "copy/public/default/through-in"
    assert found[0].message_id.topic_id != source_id
    assert len(source_id) == 16


def test_without_protection_the_same_faults_double_rows(
    session: SparkSession, cluster: Cluster, tmp_path: Path
) -> None:
    """The control: names assigned to each attempt, and no detection of replays."""
    expected = write_files(tmp_path / "in")
    frame = read_files(session, tmp_path / "in").select("value")
    options = {"serviceUrl": cluster.url, "topic": "unprotected"}
    run_through_faults(frame, "unprotected", tmp_path, "task", "commit", **options)
    counts = Counter(stored(cluster, "unprotected"))
    assert set(counts) == set(expected)
    assert max(counts.values()) > 1, "the faults would have doubled nothing: they prove nothing"


def test_repartition_in_mode_position_is_refused(session: SparkSession, cluster: Cluster, tmp_path: Path) -> None:
    """Two tasks have rows of one name: the later ones, stored first, would hide the earlier ones."""
    write_files(tmp_path / "in")
    frame = by_producer(read_files(session, tmp_path / "in")).repartition(2)
    options = {"serviceUrl": cluster.url, "topic": "repartitioned", "producerPrefix": "r", "rowsPerClaim": 5}
    with pytest.raises(StreamingQueryException, match="mode=batch"):
        run(frame, "oncelog", tmp_path / "checkpoint", **options)


def test_lost_checkpoint_is_refused(session: SparkSession, cluster: Cluster, tmp_path: Path) -> None:
    """A new query id under a used name: rows would be published again."""
    expected = write_files(tmp_path / "in")
    frame = read_files(session, tmp_path / "in").select("value")
    options = {"serviceUrl": cluster.url, "topic": "lost", "producerPrefix": "p", "mode": "batch"}
    run(frame, "oncelog", tmp_path / "first", **options)
    with pytest.raises(StreamingQueryException, match="The checkpoint is new or lost"):
        run(frame, "oncelog", tmp_path / "second", **options)
    assert Counter(stored(cluster, "lost")) == Counter(expected)
    run(frame, "oncelog", tmp_path / "third", **options, onNewCheckpoint="continue")
    assert Counter(stored(cluster, "lost")) == Counter(expected * 2)


def test_checkpoint_that_is_one_batch_old_is_refused(session: SparkSession, cluster: Cluster, tmp_path: Path) -> None:
    """A power loss, or a copy of the checkpoint: the same query gives a known batch id to more rows than before."""
    expected = write_files(tmp_path / "in")
    late = tmp_path / "late.json"
    (tmp_path / "in" / "1.json").rename(late)
    frame = session.readStream.schema(SCHEMA).json(str(tmp_path / "in")).select("value")
    options = {"serviceUrl": cluster.url, "topic": "forked", "producerPrefix": "p", "mode": "batch"}
    run(frame, "oncelog", tmp_path / "checkpoint", **options)
    for directory in ("offsets", "commits", "sources"):
        shutil.rmtree(tmp_path / "checkpoint" / directory)
    run(frame, "oncelog", tmp_path / "checkpoint", **options)
    assert Counter(stored(cluster, "forked")) == Counter(expected[:ROWS]), "the same rows are the same batch"
    for directory in ("offsets", "commits", "sources"):
        shutil.rmtree(tmp_path / "checkpoint" / directory)
    late.rename(tmp_path / "in" / "1.json")
    with pytest.raises(StreamingQueryException, match="was published before with other rows"):
        run(frame, "oncelog", tmp_path / "checkpoint", **options)
    assert Counter(stored(cluster, "forked")) == Counter(expected[:ROWS])
