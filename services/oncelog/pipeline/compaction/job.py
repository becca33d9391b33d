"""Performs a compaction in a Spark session: the last message of each key goes on to a new topic, once.

Rules
- The source ends, for this job, where it ends when the job begins. The last message of a key is the one with the
  highest number in its topic part. Between parts there is no order, so a key in two of them is an error.
- What is kept comes in the order of the log: by part, then by number. It keeps key, value, event time and properties.
- An empty value removes its key, unless it is to be kept: every message of the log has a value, so there is no null.
- The job is known by its source and options. It publishes by the sink's mode=batch: the record of its winners is stored
  first and counts for ever, so a job that is killed and repeated goes on with the rows of then, and one that is
  repeated when it is done adds nothing. A target with messages and without this job's record is another's: refused.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from oncelog.core.errors import Conflict, TopicNotFound
from oncelog.pipeline.cluster import ClusterConnection, run_connected
from oncelog.pipeline.compaction.options import PREFIX, CompactOptions
from oncelog.pipeline.data_source import FORMAT, OncelogDataSource
from oncelog.pipeline.job_progress import Report, counted, report_progress
from oncelog.pipeline.options import as_options
from oncelog.pipeline.sink.batch_publisher import finish_batch
from oncelog.pipeline.sink.journal_records import RunBatch
from oncelog.pipeline.sink.names import journal_topic
from oncelog.pipeline.sink.options import ADMIN_URL, JOB_ID, MODE, PRODUCER_PREFIX, SEND_TIMEOUT, TOPIC, Mode
from oncelog.pipeline.source.offsets import TopicState
from oncelog.pipeline.source.topic_catalog import TopicCatalog

_PART = "if(partition < 0, topic, concat(topic, '-partition-', partition))"
_KEPT = "struct<value: binary, event_time: timestamp, properties: map<string, string>, partition: int, index: bigint>"
#: As failures of tasks are told, so that the command knows them again (`session`).
_RAISE = "raise_error(concat('oncelog.core.errors.InvalidArgument: ', {}))"


@dataclass(frozen=True, slots=True)
class CompactionResult:
    """kept: messages that the job published in all. repeated: its winners were known before, and what was missing of
    them was published. others: further messages in the target, which somebody else published."""

    job_id: str
    source: tuple[TopicState, ...]
    kept: int
    repeated: bool
    others: int


def compact_topic(session: SparkSession, options: CompactOptions, tell: Report) -> CompactionResult:
    """Raises OncelogError; the same call again goes on from there."""
    states = _states(options, options.source)
    if not states:
        raise TopicNotFound(f"{options.source}: nobody has published there yet", topic=options.source)
    job_id = options.job_id(states.values())
    sink = options.sink(job_id)
    repeated = bool(_next(options, journal_topic(options.target, sink.scope)))
    held = _next(options, options.target)
    if held and not repeated:
        raise Conflict(
            f"{options.target} holds {held} messages, which this job did not publish (it is known by its source and "
            "options): a compaction goes to a new topic",
            topic=options.target,
        )
    if not repeated:
        _write(session, options, job_id, states, tell)
    # Finds the winners' record and publishes what the target lacks of it; where it is whole, that is nothing.
    record = finish_batch(sink, RunBatch(f"job {job_id}", 0))
    kept = 0 if record is None else record.count
    others = _next(options, options.target) - kept
    if others and not repeated:
        raise Conflict(
            f"somebody else published {others} messages to {options.target} meanwhile: the compaction is in it, but "
            "not alone. Repeat it with another target",
            topic=options.target,
        )
    return CompactionResult(job_id, tuple(states.values()), kept, repeated, others)


def last_values(rows: DataFrame, options: CompactOptions) -> DataFrame:
    """rows: of the source. The messages that are kept, in the order of the log. Evaluating it fails on a message
    without a key, unless those are dropped, and on a key in two parts."""
    no_key = _RAISE.format(f"'message ', index, ' of ', {_PART}, ' has no key; withoutKey=drop leaves such ones out'")
    if options.keyless_dropped:
        rows = rows.where("key is not null")
    else:
        rows = rows.withColumn("key", f.expr(f"coalesce(key, cast({no_key} as binary))"))
    two_parts = _RAISE.format(
        "'key ', hex(key), ' (in hex) is in part ', min(partition), ' and in part ', max(partition), "
        "': between them there is no order; compact each part'"
    )
    last = "max_by(struct(value, event_time, properties, partition, index), index)"
    kept = rows.groupBy("key").agg(
        f.expr(f"if(min(partition) = max(partition), {last}, cast({two_parts} as {_KEPT}))").alias("last")
    )
    if options.empty_deletes:
        kept = kept.where("length(last.value) > 0")
    kept = kept.select("key", "last.*").orderBy("partition", "index")
    return kept.select("key", "value", "event_time", "properties")


def _write(
    session: SparkSession, options: CompactOptions, job_id: str, states: Mapping[str, TopicState], tell: Report
) -> None:
    session.dataSource.register(OncelogDataSource)
    link = as_options(options.connection)
    full = {name: state for name, state in states.items() if state.next > state.earliest}
    if not full:
        return
    reading = link | {
        "topics": ",".join(full),
        "startingPosition": json.dumps({name: state.earliest for name, state in full.items()}),
        "endingPosition": json.dumps({name: state.next for name, state in full.items()}),
        "closedLedgers": options.closed_ledgers,
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
    count = sum(state.next - state.earliest for state in full.values())
    with report_progress(
        session.sparkContext, f"compacting {counted(count, 'message')} of {counted(len(full), 'topic part')}", tell
    ):
        rows = last_values(session.read.format(FORMAT).options(**reading).load(), options)
        rows.write.format(FORMAT).mode("append").options(**writing).save()


def _states(options: CompactOptions, topic: str) -> dict[str, TopicState]:
    async def ask(cluster: ClusterConnection) -> dict[str, TopicState]:
        return await TopicCatalog(cluster, (topic,)).states()

    return run_connected(options.connection, ask)


def _next(options: CompactOptions, topic: str) -> int:
    """Messages that were ever in the topic; 0: it is not there."""
    try:
        return sum(state.next for state in _states(options, topic).values())
    except TopicNotFound:
        return 0
