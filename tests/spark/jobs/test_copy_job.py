"""The job `copy` against a real cluster, in the session that all tests share."""

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import oncelog
from oncelog.core.errors import InvalidArgument
from oncelog_spark.cluster import process_loop
from oncelog_spark.copy_job import CopyJob, run_copy, start_copy
from oncelog_spark.source.options import source_options
from tests.cluster.cluster_fixture import Cluster

SOURCES = ("copied-a", "copied-b")


async def publish(url: str, topic: str, ids: range) -> None:
    """One message for each id, with what a copy must keep."""
    async with await oncelog.connect(url) as client, await client.create_producer(topic, producer_name="shop") as own:
        await own.send_many(
            [b"%s %d" % (topic.encode(), each) for each in ids],
            sequence_ids=ids,
            keys=[b"k%d" % each for each in ids],
            properties=[{"n": str(each)} for each in ids],
        )


async def copies(url: str, topic: str) -> list[tuple[str, bytes, bytes | None, str]]:
    """(the source in the producer's name, value, key, property n) of each message, in order."""
    async with await oncelog.connect(url) as client, await client.create_reader(topic) as reader:
        found = []
        while await reader.has_message_available():
            message = await reader.read_next(timeout=60)
            source = (message.producer_name or "").rpartition("/")[2].partition("#")[0]
            found.append((source, message.value, message.key, message.properties["n"]))
        return found


def test_selected_messages_are_copied_once_however_often_the_job_runs(
    spark: SparkSession, cluster: Cluster, tmp_path: Path
) -> None:
    """Two topics, a condition, another value; a second run continues behind the copied messages."""
    job = CopyJob(
        checkpoint=str(tmp_path / "checkpoint"),
        trigger_s=None,
        where="`index` % 2 = 0",
        value="concat('copy of ', cast(value as string))",
        reading={"serviceUrl": cluster.url, "topics": ",".join(SOURCES)},
        writing={"serviceUrl": cluster.url, "topic": "copied", "producerPrefix": "copy"},
    )
    told: list[str] = []
    for ids in (range(4), range(4, 10)):
        for topic in SOURCES:
            process_loop().run_until_complete(publish(cluster.url, topic, ids))
        run_copy(spark, job, told.append)
    found = process_loop().run_until_complete(copies(cluster.url, "copied"))
    for topic in SOURCES:
        assert [each[1:] for each in found if each[0] == topic] == [
            (b"copy of %s %d" % (topic.encode(), each), b"k%d" % each, str(each)) for each in range(0, 10, 2)
        ]
    assert len(found) == 2 * 5
    assert [line.partition(":")[0] for line in told] == ["batch 0", "batch 1"]


@pytest.mark.parametrize(
    ("job", "field"),
    [
        (CopyJob("", None, reading={"topic": "a"}, writing={"topic": "b", "producerPrefix": "c"}), "checkpoint"),
        (CopyJob("/x", None, reading={}, writing={"topic": "b", "producerPrefix": "c"}), "topic"),
        (CopyJob("/x", None, reading={"topic": "a"}, writing={"topic": "b"}), "producerPrefix"),
    ],
)
def test_missing_options_are_refused_before_spark_starts_a_query(job: CopyJob, field: str, spark: SparkSession) -> None:
    """With the name of the option, not in a trace of two languages."""
    with pytest.raises(InvalidArgument) as raised:
        start_copy(spark, job)
    assert raised.value.details["field"] == field


def test_a_variable_sets_where_closed_ledgers_are_read_from() -> None:
    """In a pod, the deployment sets it, not the job."""

    def storage(said: str, **options: str) -> bool:
        environment = {"ONCELOG_CLOSED_LEDGERS": said}
        return source_options({"topic": "a", **options}, environment, streaming=True).closed_from_storage

    assert (storage("owner"), storage("storage"), storage("")) == (False, True, True)
    assert storage("owner", closedLedgers="storage")
    with pytest.raises(InvalidArgument, match="ONCELOG_CLOSED_LEDGERS must be one of storage, owner, not 'both'"):
        storage("both")
