"""Batch writes into a topic, against a real cluster."""

import zlib
from collections import Counter
from datetime import UTC, datetime
from typing import Any

import httpx
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from tests.cluster.cluster_fixture import DEADLINE_S, Cluster, rest_path
from tests.spark.sink.test_sink_stream import messages, stored
from tests.spark.source.test_source import run

TIME = datetime(2026, 3, 1, 12, 0, 0, 250_000, tzinfo=UTC)
TIME_MS = 1_772_366_400_250


def write(frame: DataFrame, cluster: Cluster, topic: str, **options: Any) -> None:
    own = {"serviceUrl": cluster.url, "topic": topic, "producerPrefix": "job"}
    frame.write.format("oncelog").mode("append").options(**own, **options).save()


def test_every_column_arrives_in_the_order_of_partitions(spark: SparkSession, cluster: Cluster) -> None:
    """A sorted DataFrame gives a sorted log, with keys, event times and properties."""
    rows = [
        (n, f"k{n}" if n % 2 else None, TIME if n % 3 else None, {"n": str(n)} if n % 5 else None) for n in range(50)
    ]
    frame = spark.createDataFrame(rows, "n int, key string, event_time timestamp, properties map<string,string>")
    frame = frame.orderBy("n").selectExpr("cast(n as string) as value", "key", "event_time", "properties")
    write(frame, cluster, "columns", mode="batch", jobId="one")
    found = messages(cluster, "columns")
    assert [message.value.decode() for message in found] == [str(n) for n in range(50)]
    assert [None if each.key is None else each.key.decode() for each in found] == [row[1] for row in rows]
    assert [each.event_time_ms for each in found] == [row[2] and TIME_MS for row in rows]
    assert [dict(each.properties) for each in found] == [row[3] or {} for row in rows]


def hidden_topics(cluster: Cluster, target: str) -> list[str]:
    """Last elements of the names of the sink's own topics."""
    url = f"http://{cluster.serving('metadata-1', 'http')}/admin/v2/persistent/public/default"
    listed = httpx.get(url, trust_env=False, timeout=DEADLINE_S).json()
    return sorted(str(name).rpartition(".")[2] for name in listed if f"/__sink.{target}." in str(name))


def test_repeated_job_adds_nothing(spark: SparkSession, cluster: Cluster) -> None:
    """Split differently the second time; another job writes behind it. Staged rows are deleted, the journals stay."""
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
    """Two partitions in two tasks; the columns with a row's position in the source are its identity."""
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


def test_rows_go_to_the_partitions_of_their_keys_and_to_their_own_topics(spark: SparkSession, cluster: Cluster) -> None:
    """Both modes, written twice: each row once, in the partition of its key, which is the same in every language."""
    run(cluster.change("PUT", f"{rest_path('parted')}/partitions", json=3))
    keyed = spark.range(60).selectExpr(
        "cast(id as string) as value", "concat('k', id % 7) as key", "'p' as producer_name", "id as sequence_id"
    )
    expected = [f"{n}" for n in range(60)]
    for mode, jobs in (("position", 1), ("batch", 2)):
        frame = keyed.coalesce(1) if mode == "position" else keyed.repartition(3)
        for _ in range(2):
            write(frame, cluster, "parted", jobId=mode, mode=mode)
        found = [(n, message) for n in range(3) for message in messages(cluster, f"parted-partition-{n}")]
        assert Counter(message.value.decode() for _, message in found) == Counter(expected * jobs)
        assert all(zlib.crc32(message.key or b"") % 3 == number for number, message in found)
    named = keyed.selectExpr("value", "key", "if(sequence_id < 20, 'named-a', 'parted') as topic", "1 as partition")
    named = named.withColumn("partition", f.expr("if(topic = 'parted', partition, null)"))
    own = {
        "serviceUrl": cluster.url,
        "producerPrefix": "by-row",
        "destination": "columns",
        "mode": "batch",
        "jobId": "j",
    }
    named.write.format("oncelog").mode("append").options(**own).save()
    assert sorted(map(int, stored(cluster, "named-a"))) == list(range(20))
    mine = [each for each in messages(cluster, "parted-partition-1") if each.producer_name == "by-row/j"]
    assert sorted(int(each.value) for each in mine) == list(range(20, 60))
    assert not any(key.startswith("__sink") for each in mine for key in each.properties or {})
