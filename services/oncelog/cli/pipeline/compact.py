"""`oncelog pipeline compact`: publish the last message of each key to a new topic."""

import os
import time
from typing import TYPE_CHECKING, Annotated

import typer

from oncelog.cli.connection import Connection, takes_connection
from oncelog.cli.failures import EXIT_CODES, Exit
from oncelog.cli.options import Output, OutputOption
from oncelog.cli.pipeline.options import ConfOption, MasterOption, given
from oncelog.cli.pipeline.output import checked, print_progress, print_result, timed
from oncelog.cli.pipeline.running import run_job

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from oncelog.pipeline.compaction.job import CompactionResult
    from oncelog.pipeline.compaction.options import CompactOptions

_HELP = f"""Publish the last message of each key to a new topic, each once, however often the command is run or killed.

    oncelog pipeline compact prices --to prices-compacted

Reads the source up to its end when the command begins. Messages keep the order of the log. A message with an empty
value deletes its key; with --empty-value keep it is kept like any other. A message without a key is an error; with
--without-key drop such messages are dropped. A partitioned topic is compacted as a whole. A key in two partitions is an
error, because there is no order between partitions: compact each partition. A topic of which an operator has given up a
ledger is an error without --allow-data-loss: the last message of a key may be lost.

The job is identified by its source and options. Run it again after it was killed, and it continues; run it again after
it finished, and it adds nothing. A target with messages of other programs is refused. With --admin-url the staging
topic is deleted at the end.

-o json prints: source (topic, topic_id, from, to), target, read, kept, repeated (an earlier run had begun), others
(messages in the target that are not of this job), job_id, seconds.

{EXIT_CODES}"""


@takes_connection
def compact(
    topic: Annotated[str, typer.Argument(metavar="TOPIC", help="The topic to compact, with all its partitions.")],
    to: Annotated[str, typer.Option("--to", metavar="TOPIC", help="The new topic to publish to.")],
    without_key: Annotated[
        str | None, typer.Option(help="What to do with messages without a key: error or drop [error].")
    ] = None,
    empty_value: Annotated[
        str | None, typer.Option(help="What an empty value does: delete its key, or keep the message [delete].")
    ] = None,
    allow_data_loss: Annotated[
        bool, typer.Option("--allow-data-loss", help="Compact a topic of which an operator has given up a ledger.")
    ] = False,
    closed_ledgers: Annotated[
        str | None,
        typer.Option(
            help="Read closed ledgers from storage, or from owner if executors cannot reach storage nodes [storage]."
        ),
    ] = None,
    send_timeout: Annotated[str | None, typer.Option(help="Timeout of each step, in seconds [120].")] = None,
    admin_url: Annotated[
        str | None,
        typer.Option(
            envvar="ONCELOG_ADMIN_URL", help="REST address, to delete the staging topic; without it the topic stays."
        ),
    ] = None,
    *,
    connection: Connection,
    master: MasterOption = None,
    conf: ConfOption = None,
    output: OutputOption = Output.TABLE,
) -> None:
    link = given(**connection.as_job_options())
    own = given(
        topic=topic,
        target=to,
        withoutKey=without_key,
        emptyValue=empty_value,
        allowDataLoss=allow_data_loss or None,
        closedLedgers=closed_ledgers,
        sendTimeoutSeconds=send_timeout,
        adminUrl=admin_url,
    )
    options = checked(lambda: _options(own | link))
    raise typer.Exit(run_job("oncelog compact", master, conf, lambda spark: _compact(spark, options, output)))


compact.__doc__ = _HELP


def _options(own: dict[str, str]) -> "CompactOptions":
    from oncelog.pipeline.compaction.options import compact_options

    return compact_options(own, os.environ)


def _compact(spark: "SparkSession", options: "CompactOptions", output: Output) -> Exit:
    from oncelog.pipeline.compaction.job import compact_topic

    began_s = time.monotonic()
    result = result_of(compact_topic(spark, options, print_progress), options.target)
    print_result(timed(result, began_s), output)
    return Exit.OK


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
