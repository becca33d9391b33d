"""Runs a compaction in a Spark session: publishes the last message of each key to a new topic, once.

Rules
- The job reads the source up to its end when the job begins. The last message of a key is the one with the highest
  number in its partition. There is no order between partitions, so a key in two of them is an error.
- Messages are published in the order of the log: by partition, then by number. They keep key, value, event time and
  properties.
- An empty value deletes its key, unless such messages are to be kept: every message of the log has a value, so there is
  no null.
- The job is identified by its source and options. It publishes with the sink's mode=batch: its record is stored first
  and counts for ever. So a job that is killed and repeated continues with the same rows, and a job that is repeated
  after it finished adds nothing. A target that has messages, but no record of this job, is refused.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from oncelog.core.counted import counted
from oncelog.core.errors import Conflict, NotFound, TopicNotFound
from oncelog_spark.cluster import ClusterConnection, run_connected
from oncelog_spark.compaction.options import PREFIX, CompactOptions
from oncelog_spark.data_source import FORMAT, OncelogDataSource
from oncelog_spark.export.run import ALLOW_DATA_LOSS
from oncelog_spark.job_progress import Report, report_progress
from oncelog_spark.options import as_options
from oncelog_spark.sink.batch_publisher import finish_batch
from oncelog_spark.sink.journal_records import RangeBatch
from oncelog_spark.sink.names import journal_topic
from oncelog_spark.sink.options import ADMIN_URL, JOB_ID, MODE, PRODUCER_PREFIX, SEND_TIMEOUT, TOPIC, Mode
from oncelog_spark.source.offsets import Span, TopicState, kept_of
from oncelog_spark.source.options import OWNER, STORAGE
from oncelog_spark.source.topic_catalog import TopicCatalog

_PARTITION = "if(partition < 0, topic, concat(topic, '-partition-', partition))"
_KEPT = "struct<value: binary, event_time: timestamp, properties: map<string, string>, partition: int, index: bigint>"
#: An error in the form of Spark's report of a failed task, which `session.failure_of` turns into the error again.
_RAISE = "raise_error(concat('oncelog.core.errors.InvalidArgument: ', {}))"


@dataclass(frozen=True, slots=True)
class CompactionResult:
    """kept: messages that the job has published in all. repeated: its record was stored by an earlier run, and the
    missing rows were published. others: messages in the target from other programs."""

    job_id: str
    source: tuple[TopicState, ...]
    kept: int
    repeated: bool
    others: int


def compact_topic(session: SparkSession, options: CompactOptions, report: Report) -> CompactionResult:
    """Raises OncelogError; the same call again continues from there."""
    states = _states(options, options.source)
    if not states:
        raise TopicNotFound(f"{options.source}: no message was ever published", topic=options.source)
    job_id = options.job_id(states.values())
    sink = options.sink(job_id)
    repeated = bool(_next(options, journal_topic(options.target, sink.scope)))
    held = _next(options, options.target)
    if held and not repeated:
        raise Conflict(
            f"{options.target} holds {held} messages that this job did not publish (a job is identified by its source "
            "and options): name a new topic",
            topic=options.target,
        )
    if not repeated:
        _write(session, options, job_id, states, report)
    # Finds the record and publishes the rows that the target lacks, if there are any.
    record = finish_batch(sink, RangeBatch(f"job {job_id}", 0))
    kept = 0 if record is None else record.count
    others = _next(options, options.target) - kept
    if others and not repeated:
        raise Conflict(
            f"another program published {others} messages to {options.target} meanwhile. The target has the "
            "compaction, but also those messages. Repeat it with another target",
            topic=options.target,
        )
    return CompactionResult(job_id, tuple(states.values()), kept, repeated, others)


def last_values(rows: DataFrame, options: CompactOptions) -> DataFrame:
    """The messages that are kept, in the order of the log. rows: of the source. Evaluating it fails for a message
    without a key, unless those are dropped, and for a key in two partitions."""
    no_key = _RAISE.format(
        f"'message ', index, ' of ', {_PARTITION}, ' has no key; withoutKey=drop drops such messages'"
    )
    if options.keyless_dropped:
        rows = rows.where("key is not null")
    else:
        rows = rows.withColumn("key", f.expr(f"coalesce(key, cast({no_key} as binary))"))
    two_partitions = _RAISE.format(
        "'key ', hex(key), ' (in hex) is in partition ', min(partition), ' and in partition ', max(partition), "
        "': there is no order between them; compact each partition'"
    )
    last = "max_by(struct(value, event_time, properties, partition, index), index)"
    kept = rows.groupBy("key").agg(
        f.expr(f"if(min(partition) = max(partition), {last}, cast({two_partitions} as {_KEPT}))").alias("last")
    )
    if options.empty_deletes:
        kept = kept.where("length(last.value) > 0")
    kept = kept.select("key", "last.*").orderBy("partition", "index")
    return kept.select("key", "value", "event_time", "properties")


def _write(
    session: SparkSession, options: CompactOptions, job_id: str, states: Mapping[str, TopicState], report: Report
) -> None:
    session.dataSource.register(OncelogDataSource)
    link = as_options(options.connection)
    full = {name: state for name, state in states.items() if state.next > state.earliest}
    if not full:
        return
    if not options.loss_allowed:
        refuse_given_up(full)
    reading = link | {
        "topics": ",".join(full),
        "startingPosition": json.dumps({name: state.earliest for name, state in full.items()}),
        "endingPosition": json.dumps({name: state.next for name, state in full.items()}),
        "failOnDataLoss": str(not options.loss_allowed).lower(),
        "closedLedgers": STORAGE if options.closed_from_storage else OWNER,
    }
    writing = link | {
        TOPIC: options.target,
        PRODUCER_PREFIX: PREFIX,
        MODE: Mode.BATCH,
        JOB_ID: job_id,
        SEND_TIMEOUT: str(options.send_timeout_s),
    }
    if options.admin_url is not None:
        writing[ADMIN_URL] = options.admin_url
    count = sum(state.rows_between(state.earliest, state.next) for state in full.values())
    with report_progress(
        session.sparkContext, f"compacting {counted(count, 'message')} of {counted(len(full), 'partition')}", report
    ):
        rows = last_values(session.read.format(FORMAT).options(**reading).load(), options)
        rows.write.format(FORMAT).mode("append").options(**writing).save()


def refuse_given_up(states: Mapping[str, TopicState]) -> None:
    """Raises NotFound for numbers that were given up, and names the option that allows it."""
    spans = [Span(name, state.topic_id, state.earliest, state.next) for name, state in states.items()]
    for loss in kept_of(spans, states)[1]:
        raise NotFound(
            f"{loss}. The last message of a key may be among them. To compact the messages that are kept, set "
            f"{ALLOW_DATA_LOSS} to true",
            field=ALLOW_DATA_LOSS,
            topic=loss.topic,
        )


def _states(options: CompactOptions, topic: str) -> dict[str, TopicState]:
    async def ask(cluster: ClusterConnection) -> dict[str, TopicState]:
        return await TopicCatalog(cluster, (topic,)).states()

    return run_connected(options.connection, ask)


def _next(options: CompactOptions, topic: str) -> int:
    """Messages that were ever published to the topic; 0: it does not exist."""
    try:
        return sum(state.rows_between(0, state.next) for state in _states(options, topic).values())
    except TopicNotFound:
        return 0
