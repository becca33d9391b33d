"""`oncelog pipeline compact`: publish the last message of each key to a new topic."""

from typing import TYPE_CHECKING

from oncelog.cli.failures import EXIT_CODES
from oncelog_spark.cli.output import print_progress
from oncelog_spark.cli.running import job_command
from oncelog_spark.compaction.options import CompactOptions, compact_options

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from oncelog_spark.compaction.job import CompactionResult

_HELP = f"""Publish the last message of each key to a new topic, each once, however often the command is run or killed.

    oncelog pipeline compact prices --to prices-compacted

Reads the source up to its end when the command begins. Messages keep the order of the log. A message with an empty
value deletes its key; with --empty-value keep it is kept like any other. A message without a key is an error; with
--without-key drop such messages are dropped. A partitioned topic is compacted as a whole. A key in two partitions is an
error, because there is no order between partitions: compact each partition. A topic with a ledger that an operator has
given up is an error without --allow-data-loss: the last message of a key may be lost.

The job is identified by its source and options. Run it again after it was killed, and it continues; run it again after
it finished, and it adds nothing. A target with messages of other programs is refused. With --admin-url the staging
topic is deleted at the end.

-o json prints: source (topic, topic_id, from, to), target, read, kept, repeated (an earlier run had begun), others
(messages in the target that are not of this job), job_id, seconds.

{EXIT_CODES}"""


def _compact(spark: "SparkSession", options: CompactOptions) -> dict[str, object]:
    from oncelog_spark.compaction.job import compact_topic

    return result_of(compact_topic(spark, options, print_progress), options.target)


compact = job_command("oncelog compact", _HELP, CompactOptions, compact_options, _compact)


def result_of(found: "CompactionResult", target: str) -> dict[str, object]:
    """As documented in the help."""
    source = [
        {"topic": state.topic, "topic_id": state.topic_id, "from": state.earliest, "to": state.next}
        for state in found.source
    ]
    return {
        "source": source,
        "target": target,
        "read": sum(state.rows_between(state.earliest, state.next) for state in found.source),
        "kept": found.kept,
        "repeated": found.repeated,
        "others": found.others,
        "job_id": found.job_id,
    }
