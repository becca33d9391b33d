"""The examples of docs/spark.md run, and a stream reports its lag and keeps its limits."""

from pathlib import Path

from pyspark.sql import SparkSession

import oncelog
from oncelog_spark.copy_job import lag_of
from tests.cluster.cluster_fixture import Cluster
from tests.spark.sink.test_sink_stream import messages
from tests.spark.source.test_source import publish, run
from tests.tidy.documents import fenced, text_of

LINES_MAX = 10
ROWS = 50


def blocks() -> list[str]:
    """The blocks of Python in docs/spark.md that read or write."""
    return [block for block in fenced(text_of("docs/spark.md"), "python") if 'format("oncelog")' in block]


def test_examples_of_the_spark_guide_run(spark: SparkSession, cluster: Cluster, tmp_path: Path) -> None:
    """Reading in ten lines, and writing in ten lines, each message once however often they run."""
    run(publish(cluster.url, "flights-of-guide", "importer", 0, 2))
    reading, writing = blocks()
    for _ in range(2):
        for block in (reading, writing):
            assert len(block.splitlines()) <= LINES_MAX
            here = block.replace("oncelog://127.0.0.1:6650", cluster.url).replace("./", f"{tmp_path}/")
            names: dict[str, object] = {}
            exec(here.replace("flights", "flights-of-guide"), names)  # the guide's own lines
            assert names["spark"] is spark
    assert spark.read.parquet(str(tmp_path / "flights-of-guide")).count() == 2 * 25
    copied = messages(cluster, "flights-of-guide-copy")
    assert sorted(message.sequence_id for message in copied) == list(range(ROWS))


def test_stream_keeps_its_byte_limit_and_reports_its_lag(spark: SparkSession, cluster: Cluster, tmp_path: Path) -> None:
    """By Spark itself: limit, progress, and selected columns."""

    async def fill() -> None:
        async with await oncelog.connect(cluster.url) as client, await client.create_producer("weighed") as producer:
            for _ in range(40):
                await producer.send_many([b"x" * 1000] * 10)

    run(fill())
    given = {"serviceUrl": cluster.url, "topic": "weighed", "maxBytesPerBatch": "120000", "columns": "index,value"}
    rows = spark.readStream.format("oncelog").options(**given).load()
    assert rows.columns == ["index", "value"]
    writer = rows.writeStream.format("parquet").option("path", str(tmp_path / "out")).trigger(availableNow=True)
    query = writer.option("checkpointLocation", str(tmp_path / "checkpoint")).start()
    assert query.awaitTermination(300)
    told = [progress for progress in query.recentProgress if progress["numInputRows"]]
    assert [lag_of(progress) for progress in told][-1] == 0
    assert [lag_of(progress) for progress in told] == sorted((lag_of(each) or 0 for each in told), reverse=True)
    assert 3 <= len(told) <= 6
    assert all(progress["numInputRows"] <= 140 for progress in told)
    found = spark.read.parquet(str(tmp_path / "out"))
    assert sorted(row["index"] for row in found.collect()) == list(range(400))
