"""`oncelog pipeline audit`: check whole topics against the guarantees of the log."""

import json
import time
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from oncelog.cli.admin.tables import table_console
from oncelog.cli.connection import Connection, takes_connection
from oncelog.cli.failures import Exit
from oncelog.cli.options import Output, OutputOption
from oncelog.core.errors import InvalidArgument
from oncelog_spark.cli.audit_table import show_report
from oncelog_spark.cli.options import ConfOption, MasterOption, PatternOption, TopicsArgument, given, topics_given
from oncelog_spark.cli.output import TaskProgress
from oncelog_spark.cli.running import run_job

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from oncelog_spark.options import ConnectionOptions
    from oncelog_spark.source.options import SourceOptions

_TABLE_WIDTH = 120

PictureOption = Annotated[
    Path | None, typer.Option("--picture", dir_okay=False, help="Write a picture of the audit to this SVG file.")
]
EntriesOption = Annotated[
    int, typer.Option("--entries-per-task", min=1, max=1_000_000, help="Maximum number of entries that one task reads.")
]

CompareOption = Annotated[
    str | None,
    typer.Option(
        "--compare",
        metavar="URL",
        help="Also compare with the copies that a mirror has made in the cluster at this URL. Reads both sides.",
    ),
]
CompareTokenOption = Annotated[
    Path | None,
    typer.Option("--compare-token-file", exists=True, dir_okay=False, help="File with the token for that cluster."),
]
CompareCaOption = Annotated[
    Path | None, typer.Option("--compare-tls-ca-file", exists=True, dir_okay=False, help="PEM file of its CA.")
]
CopiesOption = Annotated[
    bool, typer.Option("--all-copies", help="Read the copies of every entry on all storage nodes, and compare them.")
]

_HELP = """Check whole topics against the guarantees of the log. Reads every entry from the storage nodes, in parallel.
To check without Spark and with a rate limit, use `oncelog admin topics prove`.

\b
  oncelog pipeline audit flights
  oncelog pipeline audit --pattern 'orders-.*' --picture orders.svg -o json
  oncelog pipeline audit orders --compare oncelog://b:6650

The checks: each id of a producer is stored once (once), and its ids ascend (order), without a gap if they are
contiguous (contiguous); producers and their fences agree with the log (producers); messages are numbered without a gap
(base_index) in ledgers that follow each other (chain); each entry can be read and has its checksums (digests), and
every storage node of a closed ledger holds it (copies); the topic owner and its snapshot agree with the log (live map,
snapshot). With --compare: each message has one copy, in order, with the same content (mirror); those that are not
copied yet make the verdict incomplete.

The audit covers each topic up to its end when the audit begins. If something cannot be checked, the verdict is
incomplete, never good. With tokens it needs a superuser's, because storage nodes serve only superusers. `oncelog help
json` has the fields of -o json.

Exit codes: 0 good; 1 violations, incomplete, or failed; 2 wrong usage; 4 cluster not reached, try again; 70 a bug; 130
interrupted."""


@takes_connection
def audit(
    topics: TopicsArgument = None,
    pattern: PatternOption = None,
    picture: PictureOption = None,
    entries_per_task: EntriesOption = 10_000,
    all_copies: CopiesOption = False,
    compare: CompareOption = None,
    compare_token_file: CompareTokenOption = None,
    compare_tls_ca_file: CompareCaOption = None,
    *,
    connection: Connection,
    master: MasterOption = None,
    conf: ConfOption = None,
    output: OutputOption = Output.TABLE,
) -> None:
    errors = Console(stderr=True, highlight=False)

    @cache
    def options() -> "SourceOptions":
        from oncelog_spark.source.options import source_options

        if picture is not None and not picture.absolute().parent.is_dir():
            raise InvalidArgument(f"--picture {picture}: the directory does not exist", field="picture")
        link = given(**connection.as_job_options())
        if compare is not None:
            target().credentials()
        return source_options(link | topics_given(topics, pattern), {}, streaming=False)

    def target() -> "ConnectionOptions":
        from oncelog_spark.options import ConnectionOptions

        return ConnectionOptions(
            compare or "", _text(compare_token_file), _text(compare_tls_ca_file), connection.allow_plaintext_token
        )

    def work(spark: "SparkSession") -> Exit:
        from oncelog_spark.audit.chart import chart_of
        from oncelog_spark.audit.job import audit_topics
        from oncelog_spark.audit.report import GOOD, report_of

        began_ms, began_s = int(time.time() * 1000), time.monotonic()
        report_tasks = TaskProgress(errors).report
        audits = audit_topics(
            spark, options(), entries_max=entries_per_task, report=report_tasks, all_copies=all_copies
        )
        report = report_of(audits, began_ms=began_ms, seconds=time.monotonic() - began_s)
        if compare is not None:
            from oncelog_spark.audit.compare import add_comparisons, compare_topics

            names = [topic["topic"] for topic in report["topics"]]
            add_comparisons(report, compare_topics(options().connection, target(), names))
        if output is Output.JSON:
            print(json.dumps(report, indent=2))
        else:
            show_report(report, table_console(_TABLE_WIDTH))
        if picture is not None:
            picture.write_text(chart_of(report))
        return Exit.OK if report["verdict"] == GOOD else Exit.FAILED

    raise typer.Exit(run_job("oncelog audit", master, conf, work, check=options))


audit.__doc__ = _HELP


def _text(path: Path | None) -> str | None:
    return None if path is None else str(path)
