"""`oncelog pipeline copy`: messages of topics go on to another topic, each once."""

from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

from oncelog.cli.failures import EXIT_CODES, Exit
from oncelog.cli.options import DEFAULT_URL, PlaintextTokenOption, TlsCaFileOption, TokenFileOption, UrlOption
from oncelog.cli.pipeline.options import ConfOption, MasterOption, connection_given, given
from oncelog.cli.pipeline.running import run_job

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TRIGGER_SECONDS = 1.0
TRIGGER_SECONDS_MAX = 86_400.0

_HELP = f"""Copy the messages of topics to another topic, each once, until it is stopped.

Whatever is killed, restarted or run twice at once, the target holds each message once: a message keeps its place in
its topic as its identity. Keys, properties and event times stay. --where and --value are SQL of Spark over the
columns of what is read (key, value, topic, publish_time …); of one message they must say the same each time.

    oncelog pipeline copy --from orders --to checked --producer-prefix check --checkpoint /var/lib/check

    oncelog pipeline copy --from 'a,b' --to errors --producer-prefix errors --checkpoint s3a://bucket/errors
    --where "cast(value as string) like '%error%'"

{EXIT_CODES}"""


class ClosedLedgersSource(StrEnum):
    """Whom closed ledgers are read from."""

    STORAGE = "storage"
    OWNER = "owner"


class NewCheckpoint(StrEnum):
    """What a checkpoint does that is not the one which published under the prefix."""

    ERROR = "error"
    CONTINUE = "continue"


TargetOption = Annotated[str, typer.Option("--to", help="The topic to write to.")]
PrefixOption = Annotated[
    str, typer.Option("--producer-prefix", help="The name that it publishes under, the same for good.")
]
CheckpointOption = Annotated[
    str, typer.Option("--checkpoint", help="Directory or URL where Spark keeps how far it is, the same for good.")
]
SourceOption = Annotated[str | None, typer.Option("--from", help="Topics to read, with commas.")]
SourcePatternOption = Annotated[
    str | None, typer.Option("--from-pattern", help="Or a regular expression for whole names of one namespace.")
]
WhereOption = Annotated[str | None, typer.Option("--where", help="Copy the rows alone for which this is true.")]
ValueOption = Annotated[str | None, typer.Option("--value", help="What the value becomes: bytes or text.")]
StartingOption = Annotated[
    str | None, typer.Option("--starting-position", help="Without a checkpoint: earliest (the default), latest …")
]
RowsOption = Annotated[
    int | None, typer.Option("--max-rows-per-batch", min=1, help="At most so many in a batch; by default all.")
]
TriggerOption = Annotated[
    float, typer.Option("--trigger-seconds", min=0, max=TRIGGER_SECONDS_MAX, help="From batch to batch.")
]
AvailableNowOption = Annotated[
    bool, typer.Option("--available-now", help="Copy what is there now, in batches, and end.")
]
LedgersOption = Annotated[
    ClosedLedgersSource | None,
    typer.Option(
        "--closed-ledgers", envvar="ONCELOG_CLOSED_LEDGERS", help="Read them from storage nodes or the owner."
    ),
]
NewCheckpointOption = Annotated[
    NewCheckpoint | None,
    typer.Option("--on-new-checkpoint", help="When another checkpoint published under this prefix."),
]
SkipLostOption = Annotated[
    bool, typer.Option("--skip-lost", help="Go on where messages are gone, in place of an error.")
]


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
    url: UrlOption = DEFAULT_URL,
    token_file: TokenFileOption = None,
    tls_ca_file: TlsCaFileOption = None,
    allow_plaintext_token: PlaintextTokenOption = False,
    master: MasterOption = None,
    conf: ConfOption = None,
) -> None:
    link = connection_given(url, token_file, tls_ca_file, allow_plaintext_token)
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
        from oncelog.pipeline.copy_job import CopyJob, run_copy

        trigger_s = None if available_now else trigger_seconds
        run_copy(spark, CopyJob(checkpoint, trigger_s, where, value, link | reading, link | writing), typer.echo)
        return Exit.OK

    raise typer.Exit(run_job("oncelog copy", master, conf, work))


copy.__doc__ = _HELP
