"""`oncelog pipeline import`: files as messages of a topic, each row once."""

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

    from oncelog.pipeline.file_import.job import ImportResult
    from oncelog.pipeline.file_import.options import ImportOptions

_HELP = f"""Publish the rows of Parquet or CSV files, each once, however often this is run, killed and run again.

    oncelog pipeline import /data/in --topic flights --name landing      # all *.parquet below /data/in

    oncelog pipeline import /data/in --topic flights --name landing --format csv --key id --value line

Run it again when files have come: what is published already is passed over, by the name and the path below SOURCE. So
SOURCE may be mounted elsewhere another time, but a file stays under its path, and as it is: one that changed is an
error that names it. The rows of a file come in its order, those of several files side by side.

A message is all columns as an object of JSON, or --value alone, as it stands; --key, --event-time (a time, ISO 8601, or
ms since 1970) and --property take further columns. All of a file is read before the first row of it is published: a row
that cannot be a message is an error that names file and row, and then nothing of that file is published.

-o json prints: topic, found, done (before), new, resumed (files), rows (published now), bytes (of new files), files
(path, rows: of those that are new or resumed), seconds.

{EXIT_CODES}"""


def import_files(
    source: Annotated[str, typer.Argument(metavar="SOURCE", help="A directory, or one file; on NFS for a cluster.")],
    topic: Annotated[str, typer.Option(help="The topic to publish to.")],
    name: Annotated[str, typer.Option(help="What this import is known by, the same for good.")],
    kind: Annotated[str | None, typer.Option("--format", help="parquet or csv [parquet].")] = None,
    glob: Annotated[str | None, typer.Option(help="Of paths below SOURCE; * crosses directories [*.FORMAT].")] = None,
    value: Annotated[str | None, typer.Option(metavar="COLUMN", help="The value [all columns, as JSON].")] = None,
    key: Annotated[str | None, typer.Option(metavar="COLUMN", help="The key [none].")] = None,
    event_time: Annotated[str | None, typer.Option(metavar="COLUMN", help="The event time [none].")] = None,
    properties: Annotated[
        list[str] | None, typer.Option("--property", metavar="COLUMN", help="A property of this name; any number.")
    ] = None,
    delimiter: Annotated[str | None, typer.Option(help="Of CSV: one character, or \\t [,].")] = None,
    columns: Annotated[
        str | None, typer.Option(metavar="NAME,NAME…", help="Of CSV without a header: its columns.")
    ] = None,
    checksum: Annotated[
        bool, typer.Option("--checksum", help="Read known files again, too: same size and time may be another file.")
    ] = False,
    send_timeout: Annotated[str | None, typer.Option(help="Seconds that each step waits for the log [120].")] = None,
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
    told = told_of(run(spark, options, tell_progress))
    answer(timed(told, began_s), output)
    return Exit.OK


def told_of(found: "ImportResult") -> dict[str, object]:
    """By the names of the help."""
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
