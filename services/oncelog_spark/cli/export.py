"""`oncelog pipeline export`: write new messages of topics to Parquet files that a manifest names."""

import os
import time
from typing import TYPE_CHECKING, Annotated

import typer

from oncelog.cli.connection import Connection, takes_connection
from oncelog.cli.failures import EXIT_CODES, Exit
from oncelog.cli.options import Output, OutputOption
from oncelog.core.errors import InvalidArgument
from oncelog_spark.cli.options import ConfOption, MasterOption, PatternOption, TopicsArgument, given, takes_options
from oncelog_spark.cli.output import checked, print_progress, print_result
from oncelog_spark.cli.running import print_timed, run_job
from oncelog_spark.export.options import ExportLocation, ExportOptions, export_location, export_options

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from oncelog_spark.export.clean import Leftover
    from oncelog_spark.export.job import ExportResult
    from oncelog_spark.export.reading import VerifiedExport

_HELP = f"""Write the new messages of topics to Parquet files, each message to exactly one file of the export.

\b
  oncelog pipeline export flights --to /data/flights     # again: it continues
  oncelog pipeline export --pattern '.*' --to /data/all
  oncelog pipeline export --to /data/flights --verify
  oncelog pipeline export --to /data/flights --clean

The files are in DIR/run=…/topic=…/date=…; the date is that of publishing, in UTC. DIR/_manifests has a manifest for
each run that succeeded: its files, their rows, and the message numbers of each partition. Only files that a manifest
names count. A killed run exports nothing, and the next run does its work. Of two runs at once, one ends with an error.
So read the files that manifests name:

    from oncelog_spark.export.reading import read_export; frame = read_export(spark, "/data/flights")

DIR is a path, which driver and executors must share, or hdfs://; other schemes are refused. Messages that were trimmed
before they were exported or given up with a ledger, and topics that were deleted, are errors without --allow-data-loss.
A topic that was deleted and created again needs another directory.

`oncelog help json` has the fields of -o json.

{EXIT_CODES}"""


@takes_connection
@takes_options(ExportOptions)
def export(
    topics: TopicsArgument = None,
    to: Annotated[str | None, typer.Option("--to", metavar="DIR", help="The directory of the export.")] = None,
    pattern: PatternOption = None,
    verify: Annotated[
        bool, typer.Option("--verify", help="Read the whole export, and compare it with the manifests.")
    ] = False,
    clean: Annotated[
        bool, typer.Option("--clean", help="Delete runs that no manifest names. Exports that run now will fail.")
    ] = False,
    *,
    own: dict[str, str],
    connection: Connection,
    master: MasterOption = None,
    conf: ConfOption = None,
    output: OutputOption = Output.TABLE,
) -> None:
    if verify and clean:
        raise typer.BadParameter("--verify and --clean cannot be combined: first clean, then verify")
    own = given(topics=",".join(topics or ()), topicsPattern=pattern) | own
    place = checked(lambda: _place(to, verify=verify, clean=clean, own=own))
    if verify:
        raise typer.Exit(run_job("oncelog export", master, conf, lambda spark: _verify(spark, place, output)))
    if clean:
        raise typer.Exit(run_job("oncelog export", master, conf, lambda spark: _clean(spark, place, output)))
    link = given(**connection.as_job_options())
    options = checked(lambda: export_options(own | link | given(directory=to), os.environ))

    def work(spark: "SparkSession") -> Exit:
        from oncelog_spark.export.job import export_topics

        return print_timed(lambda: result_of(export_topics(spark, options, _now_ms(), print_progress)), output)

    raise typer.Exit(run_job("oncelog export", master, conf, work))


export.__doc__ = _HELP


def _place(to: str | None, *, verify: bool, clean: bool, own: dict[str, str]) -> ExportLocation:
    if own and (verify or clean):
        message = f"--verify and --clean apply to the whole directory: leave out {', '.join(own)}"
        raise InvalidArgument(message, field=next(iter(own)))
    return export_location(to)


def _clean(spark: "SparkSession", place: ExportLocation, output: Output) -> Exit:
    from oncelog_spark.export.clean import clean
    from oncelog_spark.export.job import new_token
    from oncelog_spark.export.store import ExportStore, store_of

    exported = ExportStore(store_of(place, spark))
    removed = clean(exported, new_token(), _now_ms())
    result = {
        "removed": [_leftover(each) for each in removed],
        "bytes": sum(each.size_bytes for each in removed),
        "foreign": exported.foreign(),
    }
    print_result(result, output)
    return Exit.OK


def _verify(spark: "SparkSession", place: ExportLocation, output: Output) -> Exit:
    from oncelog_spark.export.reading import verify_export

    found = verify_export(spark, place.uri)
    print_result(verification_of(found), output)
    return Exit.FAILED if found.problems else Exit.OK


def result_of(outcome: "ExportResult") -> dict[str, object]:
    """As documented in the help."""
    made = outcome.manifest
    ranges = () if made is None else made.ranges
    return {
        "manifest": None if made is None else made.number,
        "run": None if made is None else made.run,
        "rows": 0 if made is None else made.rows,
        "files": 0 if made is None else len(made.files),
        "bytes": 0 if made is None else made.size_bytes,
        "topics": [
            {"topic": r.topic, "topic_id": r.topic_id, "from": r.first, "to": r.end, "kept_from": r.kept}
            | ({"given_up": [list(gap) for gap in r.given_up]} if r.given_up else {})
            for r in ranges
        ],
        "gone": list(outcome.gone),
        "leftovers": [_leftover(each) for each in outcome.leftovers],
        "phases": {name: round(seconds, 3) for name, seconds in outcome.phases.items()},
    }


def verification_of(found: "VerifiedExport") -> dict[str, object]:
    return {
        "manifests": found.manifests,
        "files": found.files,
        "rows": found.rows,
        "bytes": found.size_bytes,
        "topics": [{"topic": topic, "next": following} for topic, following in found.topics.items()],
        "problems": list(found.problems),
        "ok": not found.problems,
    }


def _leftover(each: "Leftover") -> dict[str, object]:
    return {"run": each.run, "files": each.files, "bytes": each.size_bytes}


def _now_ms() -> int:
    return int(time.time() * 1000)
