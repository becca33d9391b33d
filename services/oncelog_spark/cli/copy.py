"""`oncelog pipeline copy`: copy the messages of topics to another topic, each once."""

from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

from oncelog.cli.connection import Connection, takes_connection
from oncelog.cli.failures import EXIT_CODES, Exit
from oncelog_spark.cli.options import ConfOption, MasterOption, given
from oncelog_spark.cli.running import run_job

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TRIGGER_SECONDS = 1.0
TRIGGER_SECONDS_MAX = 86_400.0

_HELP = f"""Copy the messages of topics to another topic, each once, until the command is stopped.

Whatever is killed, restarted or run twice at once, the target holds each message once, because a message keeps its
position in its topic as its identity. Keys, properties and event times stay. --where and --value are Spark SQL over the
columns of a message (key, value, topic, publish_time …); they must give the same result for a message each time.

    oncelog pipeline copy --from orders --to checked --producer-prefix check --checkpoint /var/lib/check

    oncelog pipeline copy --from 'a,b' --to errors --producer-prefix errors --checkpoint s3a://bucket/errors
    --where "cast(value as string) like '%error%'"

{EXIT_CODES}"""


class ClosedLedgersSource(StrEnum):
    """Where closed ledgers are read from."""

    STORAGE = "storage"
    OWNER = "owner"


class NewCheckpoint(StrEnum):
    """What to do if another checkpoint has published under the prefix."""

    ERROR = "error"
    CONTINUE = "continue"


TargetOption = Annotated[str, typer.Option("--to", help="The topic to publish to.")]
PrefixOption = Annotated[
    str, typer.Option("--producer-prefix", help="Stable name to publish under. Use the same name on every run.")
]
CheckpointOption = Annotated[
    str,
    typer.Option("--checkpoint", help="Directory or URL where Spark keeps its offsets. Use the same one on every run."),
]
SourceOption = Annotated[str | None, typer.Option("--from", help="Topics to read, separated by commas.")]
SourcePatternOption = Annotated[
    str | None,
    typer.Option("--from-pattern", help="Regular expression for whole names of one namespace, instead of --from."),
]
WhereOption = Annotated[
    str | None, typer.Option("--where", help="SQL condition: copy only the messages for which it is true.")
]
ValueOption = Annotated[str | None, typer.Option("--value", help="SQL expression of the new value: binary or string.")]
StartingOption = Annotated[
    str | None,
    typer.Option("--starting-position", help="Where to begin without a checkpoint: earliest, latest, … [earliest]."),
]
RowsOption = Annotated[
    int | None, typer.Option("--max-rows-per-batch", min=1, help="Maximum number of messages in a batch [all].")
]
TriggerOption = Annotated[
    float,
    typer.Option("--trigger-seconds", min=0, max=TRIGGER_SECONDS_MAX, help="Minimum seconds from batch to batch."),
]
AvailableNowOption = Annotated[
    bool, typer.Option("--available-now", help="Copy the messages that are stored now, then end.")
]
LedgersOption = Annotated[
    ClosedLedgersSource | None,
    typer.Option(
        "--closed-ledgers",
        envvar="ONCELOG_CLOSED_LEDGERS",
        help="Read closed ledgers from storage nodes or the topic owner.",
    ),
]
NewCheckpointOption = Annotated[
    NewCheckpoint | None,
    typer.Option(
        "--on-new-checkpoint", help="What to do if another checkpoint has published under this prefix [error]."
    ),
]
SkipLostOption = Annotated[
    bool, typer.Option("--skip-lost", help="Continue where messages are gone, instead of failing.")
]


@takes_connection
def copy(
    target: TargetOption,
    producer_prefix: PrefixOption,
    checkpoint: CheckpointOption,
    source: SourceOption = None,
    pattern: SourcePatternOption = None,
    where: WhereOption = None,
    value: ValueOption = None,
    starting_position: StartingOption = None,
    max_rows: RowsOption = None,
    trigger_seconds: TriggerOption = TRIGGER_SECONDS,
    available_now: AvailableNowOption = False,
    closed_ledgers: LedgersOption = None,
    on_new_checkpoint: NewCheckpointOption = None,
    skip_lost: SkipLostOption = False,
    *,
    connection: Connection,
    master: MasterOption = None,
    conf: ConfOption = None,
) -> None:
    link = given(**connection.as_job_options())
    reading = given(
        topics=source,
        topicsPattern=pattern,
        startingPosition=starting_position,
        maxRowsPerBatch=max_rows,
        closedLedgers=closed_ledgers,
        failOnDataLoss=False if skip_lost else None,
    )
    writing = given(topic=target, producerPrefix=producer_prefix, onNewCheckpoint=on_new_checkpoint)

    def work(spark: "SparkSession") -> Exit:
        from oncelog_spark.copy_job import CopyJob, run_copy

        trigger_s = None if available_now else trigger_seconds
        run_copy(spark, CopyJob(checkpoint, trigger_s, where, value, link | reading, link | writing), typer.echo)
        return Exit.OK

    raise typer.Exit(run_job("oncelog copy", master, conf, work))


copy.__doc__ = _HELP
