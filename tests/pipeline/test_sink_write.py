"""Batch writes into a topic, against a real cluster."""

from datetime import UTC, datetime
from typing import Any

import httpx
from pyspark.sql import DataFrame, SparkSession

from tests.cluster.cluster_fixture import DEADLINE_S, Cluster
from tests.pipeline.test_sink_stream import messages, stored

TIME = datetime(2026, 3, 1, 12, 0, 0, 250_000, tzinfo=UTC)


def write(frame: DataFrame, cluster: Cluster, topic: str, **options: Any) -> None:
    own = {"serviceUrl": cluster.url, "topic": topic, "producerPrefix": "job"}
    frame.write.format("oncelog").mode("append").options(**own, **options).save()


def test_every_column_arrives_in_the_order_of_partitions(spark: SparkSession, cluster: Cluster) -> None:
    """A sorted DataFrame is a sorted log, with keys, event times and properties."""
    rows = [
        (n, f"k{n}" if n % 2 else None, TIME if n % 3 else None, {"n": str(n)} if n % 5 else None) for n in range(50)
    ]
    frame = spark.createDataFrame(rows, "n int, key string, event_time timestamp, properties map<string,string>")
    frame = frame.orderBy("n").selectExpr("cast(n as string) as value", "key", "event_time", "properties")
    write(frame, cluster, "columns", mode="batch", jobId="one")
    found = messages(cluster, "columns")
    assert [message.value.decode() for message in found] == [str(n) for n in range(50)]
    assert [None if each.key is None else each.key.decode() for each in found] == [row[1] for row in rows]
    assert [each.event_time for each in found] == [row[2] for row in rows]
    assert [dict(each.properties) for each in found] == [row[3] or {} for row in rows]


def hidden_topics(cluster: Cluster, target: str) -> list[str]:
    """Last elements of the names of the sink's own topics."""
    url = f"http://{cluster.serving('metadata-1', 'http')}/admin/v2/persistent/public/default"
    listed = httpx.get(url, trust_env=False, timeout=DEADLINE_S).json()
    return sorted(str(name).rpartition(".")[2] for name in listed if f"/__sink.{target}." in str(name))


def test_job_that_is_repeated_adds_nothing(spark: SparkSession, cluster: Cluster) -> None:
    """Cut otherwise the second time; another job writes behind it. What was staged is gone, the journals stay."""
    frame = spark.range(30).selectExpr("cast(id as string) as value")
    options = {"mode": "batch", "adminUrl": f"http://{cluster.serving('metadata-1', 'http')}"}
    write(frame.repartition(2), cluster, "repeated", jobId="monday", **options)
    before = stored(cluster, "repeated")
    write(frame.coalesce(1), cluster, "repeated", jobId="monday", **options)
    assert stored(cluster, "repeated") == before
    write(frame.coalesce(1), cluster, "repeated", jobId="tuesday", **options)
    assert sorted(stored(cluster, "repeated")) == sorted(before * 2)
    assert hidden_topics(cluster, "repeated") == ["journal", "journal"]


def test_positions_of_a_job_are_written_once(spark: SparkSession, cluster: Cluster) -> None:
    """Two topic parts in two tasks; the columns that say where a row came from are its identity."""
    frame = spark.range(40).selectExpr(
        "cast(id as string) as value",
        "'public/default/in' as topic",
        "cast(id div 20 as int) as partition",
        "repeat('ab', 16) as topic_id",
        "id as index",
    )
    frame = frame.repartitionByRange(2, "index").sortWithinPartitions("index")
    for _ in range(2):
        write(frame, cluster, "positions", jobId="copy", rowsPerClaim=6)
    found = messages(cluster, "positions")
    assert sorted(int(message.value) for message in found) == list(range(40))
    assert {each.producer_name for each in found} == {
        f"job/copy/public/default/in-partition-{n}#abababababababab" for n in (0, 1)
    }
    assert all(message.sequence_id == int(message.value) for message in found)
