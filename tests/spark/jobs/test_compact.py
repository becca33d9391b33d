"""Compactions on a real cluster with Spark: the last message of each key, once, equal to the result of one process."""

import numpy as np
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

import oncelog
from oncelog.core.errors import Conflict, InvalidArgument
from oncelog.core.ids import TopicId
from oncelog_spark.cluster import ClusterConnection, run_connected
from oncelog_spark.compaction.job import CompactionResult, compact_topic, last_values
from oncelog_spark.compaction.options import CompactOptions, compact_options
from oncelog_spark.session import failure_of
from oncelog_spark.sink.batch_staging import stage_rows
from oncelog_spark.sink.journal_records import BatchRecord, RangeBatch, encode_record
from oncelog_spark.sink.log import SinkLog, connected, send_rows
from oncelog_spark.sink.names import stage_topic
from oncelog_spark.sink.rows import Rows
from oncelog_spark.source.offsets import TopicState
from oncelog_spark.source.topic_catalog import TopicCatalog
from tests.cluster.cluster_fixture import Cluster
from tests.spark.sink.test_sink_stream import messages

Told = tuple[bytes, bytes, object, dict[str, str]]


def publish(cluster: Cluster, topic: str, rows: list[tuple[bytes | None, bytes]], name: str = "source") -> None:
    with oncelog.Client(cluster.url) as client, client.create_producer(topic, producer_name=name) as producer:
        for at in range(0, len(rows), 10):
            piece = rows[at : at + 10]
            producer.send_many(
                [value for _, value in piece],
                keys=[key for key, _ in piece],
                event_times_ms=[1000 * (at + n) for n in range(len(piece))],
                properties=[{"at": str(at + n)} for n in range(len(piece))],
            )


def told(cluster: Cluster, topic: str) -> list[Told]:
    return [(m.key or b"", bytes(m.value), m.event_time_ms, dict(m.properties)) for m in messages(cluster, topic)]


def reference(cluster: Cluster, topic: str) -> list[Told]:
    """In one process: a dict, in the order of the last writes."""
    last: dict[bytes, Told] = {}
    for each in told(cluster, topic):
        last.pop(each[0], None)
        last[each[0]] = each
    return [each for each in last.values() if each[1]]


def options(cluster: Cluster, source: str, target: str, **more: str) -> CompactOptions:
    return compact_options({"serviceUrl": cluster.url, "topic": source, "target": target} | more, {})


def run(spark: SparkSession, own: CompactOptions) -> CompactionResult:
    """Raises what the command would explain."""
    try:
        return compact_topic(spark, own, lambda _: None)
    except Exception as error:
        raise failure_of(error) or error from error


def rows(count: int) -> list[tuple[bytes | None, bytes]]:
    """Keys that come again and again, some removed at last, some removed and back."""
    return [(b"k%d" % (n * n % 17), b"" if n % 11 == 3 else b"%d" % n) for n in range(count)]


def test_a_compaction_equals_one_process_and_a_repeat_adds_nothing(spark: SparkSession, cluster: Cluster) -> None:
    """Keys, values, times, properties and order, also when the source has grown since. No other job may use the
    target."""
    publish(cluster, "prices", rows(200))
    expected = reference(cluster, "prices")
    own = options(cluster, "prices", "prices-compacted")
    first = run(spark, own)
    assert told(cluster, "prices-compacted") == expected
    assert (first.kept, first.repeated, first.source[0].next) == (len(expected), False, 200)
    publish(cluster, "prices", rows(7), "other")
    again = run(spark, own)
    assert (again.kept, again.repeated, again.others) == (len(expected), True, 0)
    assert told(cluster, "prices-compacted") == expected
    with pytest.raises(Conflict, match=r"holds .* messages that this job did not publish"):
        run(spark, options(cluster, "prices", "prices-compacted", emptyValue="keep"))


def test_a_compaction_killed_while_copying_continues(spark: SparkSession, cluster: Cluster) -> None:
    """With the recorded rows, whatever is published since: nothing is doubled, nothing is missing."""
    publish(cluster, "killed", rows(60))
    own = options(cluster, "killed", "killed-compacted")
    sink = own.sink(own.job_id(states(own)))
    winners = Rows([b"%d" % n for n in range(20)], [b"k%d" % n for n in range(20)], None, None, np.ones(20, np.int64))
    with connected(sink) as client:
        log = SinkLog(client, sink)
        batch = RangeBatch(f"job {sink.job_id}", 0)
        attempt = stage_rows(log, stage_topic(sink.topic, sink.scope, batch.run_id, 0), 0, 0, [winners])
        assert attempt is not None
        journal = log.journal(sink.scope)
        journal.open()
        journal.append(0, encode_record(BatchRecord(batch, {sink.topic: 0}, (attempt,))))
        send_rows(log.producer(sink.topic, sink.scope, "contiguous"), winners.slice(0, 7), range(7))
    outcome = run(spark, own)
    assert (outcome.repeated, outcome.kept, outcome.others) == (True, 20, 0)
    assert [each[:2] for each in told(cluster, "killed-compacted")] == [(b"k%d" % n, b"%d" % n) for n in range(20)]


def states(own: CompactOptions) -> list[TopicState]:
    async def ask(connection: ClusterConnection) -> list[TopicState]:
        return list((await TopicCatalog(connection, (own.source,)).states()).values())

    return run_connected(own.connection, ask)


def test_messages_without_a_key_are_named_or_dropped(spark: SparkSession, cluster: Cluster) -> None:
    """Nothing is published where one is an error."""
    publish(cluster, "keyless", [(b"a", b"1"), (None, b"2"), (b"a", b"3")])
    with pytest.raises(InvalidArgument, match="message 1 of public/default/keyless has no key"):
        run(spark, options(cluster, "keyless", "keyless-compacted"))
    outcome = run(spark, options(cluster, "keyless", "keyless-compacted", withoutKey="drop"))
    assert (outcome.kept, [each[:2] for each in told(cluster, "keyless-compacted")]) == (1, [(b"a", b"3")])


def test_a_key_in_two_partitions_is_named(spark: SparkSession) -> None:
    """There is no order between its values. Keys in one partition each pass."""
    columns = "key binary, value binary, event_time timestamp, properties map<string,string>, topic string, "
    columns += "partition int, index bigint"
    own = compact_options({"topic": "orders", "target": "last"}, {})
    told = [
        (b"a", b"1", None, None, "t", 0, 0),
        (b"b", b"2", None, None, "t", 1, 0),
        (b"a", b"3", None, None, "t", 0, 9),
    ]
    kept = last_values(spark.createDataFrame(told, columns), own).collect()
    assert [(bytes(row["key"]), bytes(row["value"])) for row in kept] == [(b"a", b"3"), (b"b", b"2")]
    with pytest.raises(PySparkException) as caught:
        last_values(spark.createDataFrame([*told, (b"b", b"4", None, None, "t", 0, 1)], columns), own).collect()
    failure = failure_of(caught.value)
    assert isinstance(failure, InvalidArgument)
    assert "key 62 (in hex) is in partition 0 and in partition 1" in failure.message


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"target": "x"}, "option topic is required"),
        ({"topic": "x"}, "option target is required"),
        ({"topic": "x", "target": "x"}, "public/default/x is the source of the compaction"),
        ({"topic": "x", "target": "x-partition-1"}, "public/default/x-partition-1 is the source of the compaction"),
        ({"topic": "x-partition-1", "target": "x"}, "public/default/x is the source of the compaction"),
        ({"topic": "x", "target": "y/z"}, "option target: "),
        (
            {"topic": "x", "target": "y", "withoutKey": "keep"},
            "option withoutKey must be one of error, drop, not 'keep'",
        ),
        ({"topic": "x", "target": "y", "closedLedgers": "disk"}, "option closedLedgers must be one of storage, owner"),
        ({"topic": "x", "target": "y", "jobId": "1"}, "unknown option jobId"),
    ],
)
def test_a_wrong_option_is_refused(given: dict[str, str], message: str) -> None:
    """Before anything is read or written."""
    with pytest.raises(InvalidArgument, match=message):
        compact_options(given, {})


def test_a_job_is_identified_by_its_source_and_options() -> None:
    """Not by the end of the source: a repeated job continues, whatever was published since."""
    own = compact_options({"topic": "x", "target": "y"}, {})
    state = TopicState("public/default/x", TopicId("id"), 0, 5)
    same = own.job_id([TopicState("public/default/x", TopicId("id"), 2, 9)])
    others = [
        own.job_id([TopicState("public/default/x", TopicId("anew"), 0, 5)]),
        compact_options({"topic": "x", "target": "y", "emptyValue": "keep"}, {}).job_id([state]),
        compact_options({"topic": "x", "target": "y", "withoutKey": "drop"}, {}).job_id([state]),
    ]
    assert same == own.job_id([state])
    assert len({same, *others}) == 4
