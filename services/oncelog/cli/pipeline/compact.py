"""`oncelog pipeline compact`: the last message of each key, in a new topic."""

import os
import time
from typing import TYPE_CHECKING, Annotated

import typer

from oncelog.cli.failures import EXIT_CODES, Exit
from oncelog.cli.options import (
    DEFAULT_URL,
    Output,
    OutputOption,
    PlaintextTokenOption,
    TlsCaFileOption,
    TokenFileOption,
    UrlOption,
)
from oncelog.cli.pipeline.answers import answer, checked, tell_progress, timed
from oncelog.cli.pipeline.options import ConfOption, MasterOption, connection_given, given
from oncelog.cli.pipeline.running import run_job

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from oncelog.pipeline.compaction.job import CompactionResult
    from oncelog.pipeline.compaction.options import CompactOptions

_HELP = f"""Publish the last message of each key to a new topic, each once, however often this is run or killed.

    oncelog pipeline compact prices --to prices-compacted

The source ends where it ends when the command begins; what is kept has the order of the log. A message with an empty
value removes its key; --empty-value keep keeps it as any other. A message without a key is an error, --without-key drop
leaves such ones out. A topic with parts is compacted as one: a key that is in two parts is an error, for between them
there is no order; then compact each part.

The job is known by its source and options: repeated after it was killed it goes on, repeated when it is done it adds
nothing. A target that holds messages of anybody else is refused. --admin-url deletes what was staged on the way.

-o json prints: source (topic, topic_id, from, to), target, read, kept, repeated (it had begun before), others (messages
in the target that are not of this job), job_id, seconds.

{EXIT_CODES}"""


def compact(
    topic: Annotated[str, typer.Argument(metavar="TOPIC", help="The topic to compact, with all its parts.")],
    to: Annotated[str, typer.Option("--to", metavar="TOPIC", help="A new topic.")],
    without_key: Annotated[str | None, typer.Option(help="Messages without a key: error or drop [error].")] = None,
    empty_value: Annotated[str | None, typer.Option(help="Empty values: delete the key, or keep [delete].")] = None,
    closed_ledgers: Annotated[
        str | None, typer.Option(help="storage, or owner where storage nodes are not reached from executors [storage].")
    ] = None,
    send_timeout: Annotated[str | None, typer.Option(help="Seconds that each step waits for the log [120].")] = None,
    admin_url: Annotated[
        str | None, typer.Option(envvar="ONCELOG_ADMIN_URL", help="REST, to delete the staging topic; none: it stays.")
    ] = None,
    url: UrlOption = DEFAULT_URL,
    token_file: TokenFileOption = None,
    tls_ca_file: TlsCaFileOption = None,
    allow_plaintext_token: PlaintextTokenOption = False,
    master: MasterOption = None,
    conf: ConfOption = None,
    output: OutputOption = Output.TABLE,
) -> None:
    link = connection_given(url, token_file, tls_ca_file, allow_plaintext_token)
    own = given(
        topic=topic,
        target=to,
        withoutKey=without_key,
        emptyValue=empty_value,
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
    told = told_of(compact_topic(spark, options, tell_progress), options.target)
    answer(timed(told, began_s), output)
    return Exit.OK


def told_of(found: "CompactionResult", target: str) -> dict[str, object]:
    """By the names of the help."""
    source = [
        {"topic": state.topic, "topic_id": state.topic_id, "from": state.earliest, "to": state.next}
        for state in found.source
    ]
    return {
        "source": source,
        "target": target,
        "read": sum(state.next - state.earliest for state in found.source),
        "kept": found.kept,
        "repeated": found.repeated,
        "others": found.others,
        "job_id": found.job_id,
    }
