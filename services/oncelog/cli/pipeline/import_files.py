"""`oncelog pipeline import`: publish the rows of files to a topic, each row once."""

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

    from oncelog.pipeline.file_import.job import ImportResult
    from oncelog.pipeline.file_import.options import ImportOptions

_HELP = f"""Publish the rows of Parquet or CSV files, each once, however often the command is run or killed.

    oncelog pipeline import /data/in --topic flights --name landing      # all *.parquet below /data/in

    oncelog pipeline import /data/in --topic flights --name landing --format csv --key id --value line

Run it again for new files: rows that are published already are skipped, by the name and the file's path below SOURCE.
SOURCE may be mounted elsewhere another time, but a file must keep its path and its content: a changed file is an error
that names it. The rows of a file are published in order, those of several files in parallel.

The value of a message is a JSON object of all columns, or the column --value as it is. --key, --event-time (a time, ISO
8601, or ms since 1970) and --property use further columns. A whole file is checked before its first row is published: a
row that cannot be a message is an error that names file and row, and nothing of this file is published.

-o json prints: topic, found, done (before), new, resumed (files), rows (published now), bytes (of new files), files
(path, rows; those that are new or resumed), seconds.

{EXIT_CODES}"""


@takes_connection
def import_files(
    source: Annotated[
        str, typer.Argument(metavar="SOURCE", help="A directory, or one file; all executors must be able to read it.")
    ],
    topic: Annotated[str, typer.Option(help="The topic to publish to.")],
    name: Annotated[str, typer.Option(help="Stable name of this import. Use the same name on every run.")],
    kind: Annotated[str | None, typer.Option("--format", help="Format of the files: parquet or csv [parquet].")] = None,
    glob: Annotated[
        str | None, typer.Option(help="Pattern of paths below SOURCE; * also matches / [*.FORMAT].")
    ] = None,
    value: Annotated[
        str | None, typer.Option(metavar="COLUMN", help="Column of the value [all columns, as JSON].")
    ] = None,
    key: Annotated[str | None, typer.Option(metavar="COLUMN", help="Column of the key [none].")] = None,
    event_time: Annotated[str | None, typer.Option(metavar="COLUMN", help="Column of the event time [none].")] = None,
    properties: Annotated[
        list[str] | None,
        typer.Option(
            "--property", metavar="COLUMN", help="Column to use as a property of the same name; may be repeated."
        ),
    ] = None,
    delimiter: Annotated[str | None, typer.Option(help="Delimiter of CSV files: one character, or \\t [,].")] = None,
    columns: Annotated[
        str | None, typer.Option(metavar="NAME,NAME…", help="Names of the columns of CSV files without a header.")
    ] = None,
    checksum: Annotated[
        bool,
        typer.Option("--checksum", help="Read known files again, to find changed content with the same size and time."),
    ] = False,
    send_timeout: Annotated[str | None, typer.Option(help="Timeout of each step, in seconds [120].")] = None,
    *,
    connection: Connection,
    master: MasterOption = None,
    conf: ConfOption = None,
    output: OutputOption = Output.TABLE,
) -> None:
    link = given(**connection.as_job_options())
    own = given(
        source=source,
        topic=topic,
        name=name,
        format=kind,
        glob=glob,
        value=value,
        key=key,
        eventTime=event_time,
        properties=",".join(properties or ()),
        delimiter=delimiter,
        columns=columns,
        checksum=checksum,
        sendTimeoutSeconds=send_timeout,
    )
    options = checked(lambda: _options(own | link))
    raise typer.Exit(run_job("oncelog import", master, conf, lambda spark: _import(spark, options, output)))


import_files.__doc__ = _HELP


def _options(own: dict[str, str]) -> "ImportOptions":
    from oncelog.pipeline.file_import.options import import_options

    return import_options(own, os.environ)


def _import(spark: "SparkSession", options: "ImportOptions", output: Output) -> Exit:
    from oncelog.pipeline.file_import.job import import_files as run

    began_s = time.monotonic()
    result = result_of(run(spark, options, print_progress))
    print_result(timed(result, began_s), output)
    return Exit.OK


def result_of(found: "ImportResult") -> dict[str, object]:
    """As documented in the help."""
    return {
        "topic": found.topic,
        "found": found.found,
        "done": found.done,
        "new": found.new,
        "resumed": found.resumed,
        "rows": found.rows,
        "bytes": found.size_bytes,
        "files": [{"path": path, "rows": rows} for path, rows in found.files],
    }
